package interceptors_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
)

// meshDefaults are the options that a mesh without configuration has: the last calls are in memory, metrics are measured, calls are bounded, and
// keys, approvals and answers have their stores.
func meshDefaults() interceptors.Options {
	return interceptors.Options{
		Logger: discard(), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		Audit:       interceptors.AuditOptions{Sink: audit.NewRing(1000)},
		Idempotency: interceptors.IdempotencyOptions{Store: interceptors.NewKeyMemory(64<<20, 0)},
		Approval:    interceptors.ApprovalOptions{Store: interceptors.NewApprovalMemory(10_000)},
		Limits:      interceptors.LimitOptions{InFlight: 10_000, Backend: interceptors.Bulkhead{Max: 5_000, Share: 0.8}},
		Cache:       interceptors.CacheOptions{MaxBytes: 64 << 20},
	}
}

// defaultChain are the policies in the chain of a plain method: one that says nothing about itself.
var defaultChain = []string{"recover", "in-flight", "observe", "audit", "deadline", "errors", "authenticate", "bulkhead", "idempotency"}

// reflect answers with the request, as a backend to which it was sent.
func reflect(_ any, s grpc.ServerStream) error {
	var f call.Frame
	if err := s.RecvMsg(&f); err != nil {
		return err
	}
	call.FromContext(s.Context()).MarkSent()
	return s.SendMsg(&f)
}

// TestDefaultChain pins what calls of a plain method pass with the mesh's defaults: a policy that has nothing to do for it is not there.
func TestDefaultChain(t *testing.T) {
	m := method(t, "UnaryCall")
	var got []string
	for _, p := range interceptors.Default(meshDefaults()) {
		if p.For(m) != nil {
			got = append(got, p.Name)
		}
	}
	if !slices.Equal(got, defaultChain) {
		t.Errorf("the chain of a plain method is %q, want %q", got, defaultChain)
	}
}

// BenchmarkChainShare is the cost of the mesh's default chain as it grows, one policy after the other: what a line adds to the one above is
// that policy's share. "all" is the whole chain.
func BenchmarkChainShare(b *testing.B) {
	m := method(b, "UnaryCall")
	wire := marshal(b, &testpb.SimpleRequest{ResponseSize: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var chain []interceptors.Policy
	for _, p := range interceptors.Default(meshDefaults()) {
		if p.For(m) != nil {
			chain = append(chain, p)
		}
	}
	for n := range len(chain) + 1 {
		name := "0-bare"
		if n > 0 {
			name = fmt.Sprintf("%d-%s", n, chain[n-1].Name)
		}
		b.Run(name, func(b *testing.B) {
			h := interceptors.Chain(reflect, chain[:n]...)
			b.ReportAllocs()
			for b.Loop() {
				s := call.NewStream(ctx, call.New(m, call.GRPC), call.One(call.NewFrame(nil, wire)), func(*call.Frame) error { return nil }, nil)
				if err := h(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
