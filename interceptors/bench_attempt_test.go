package interceptors_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/identity"
)

// BenchmarkLimits is what each policy of protection adds to a call that it lets through.
func BenchmarkLimits(b *testing.B) {
	wire := marshal(b, &testpb.SimpleRequest{ResponseSize: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	final := func(_ any, s grpc.ServerStream) error {
		var f call.Frame
		call.FromContext(s.Context()).Sent = true
		return s.RecvMsg(&f)
	}
	l := interceptors.Options{Logger: discard(), Limits: interceptors.LimitOptions{
		Principal: interceptors.RateLimit{PerSecond: 1e9}, Tenant: interceptors.RateLimit{PerSecond: 1e9}, Method: func(*catalog.Method) interceptors.RateLimit { return interceptors.RateLimit{PerSecond: 1e9} },
		Backend: interceptors.Bulkhead{Max: 5000, Share: 0.8}, Shed: interceptors.ShedOptions{On: true},
	}}
	p := &identity.Principal{ID: "a", Tenant: "t", How: "jwt"}
	for _, c := range []struct {
		name  string
		chain []interceptors.Policy
	}{
		{"none", nil},
		{"in-flight", []interceptors.Policy{interceptors.InFlight(l)}},
		{"rate limit x3", []interceptors.Policy{interceptors.RateLimits(l)}},
		{"bulkhead", []interceptors.Policy{interceptors.Bulkheads(l)}},
		{"shed", []interceptors.Policy{interceptors.Shed(l)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := method(b, "UnaryCall")
			h := interceptors.Chain(final, c.chain...)
			b.ReportAllocs()
			for b.Loop() {
				cl := call.New(m, call.GRPC)
				cl.Principal = p
				if err := h(call.NewStream(ctx, cl, call.One(call.NewFrame(nil, wire)), nil, nil)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAttempts is a call at a real backend, over a socket, without and with guards.
func BenchmarkAttempts(b *testing.B) {
	f := &faulty{unary: func(context.Context, int64) error { return nil }}
	conn := serveFaulty(b, f)
	conns := func(string) *dial.Conn { return conn }
	policies, _ := interceptors.DefaultAttempts(interceptors.AttemptOptions{Logger: discard()})
	for _, c := range []struct {
		name string
		r    *backend.Router
	}{
		{"none", backend.New(conns, nil, backend.Options{})},
		{"retry and breaker", backend.New(conns, nil, backend.Options{Attempts: interceptors.Attempts(policies...)})},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := method(b, "UnaryCall")
			b.ReportAllocs()
			for b.Loop() {
				err := c.r.Handle(nil, call.NewStream(context.Background(), call.New(m, call.GRPC), call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { return nil }, nil))
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
