package interceptors_test

import (
	"context"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
)

// BenchmarkChain is the cost of the default chain for a call with a deadline, without door and backend: "bare" is what the stream costs.
func BenchmarkChain(b *testing.B) {
	m := method(b, "UnaryCall")
	wire := marshal(b, &testpb.SimpleRequest{ResponseSize: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	final := func(_ any, s grpc.ServerStream) error {
		var f call.Frame
		return s.RecvMsg(&f)
	}
	for name, chain := range map[string][]interceptors.Policy{
		"bare":    nil,
		"default": interceptors.Default(interceptors.Options{Logger: discard()}),
		"audit":   interceptors.Default(interceptors.Options{Logger: discard(), Audit: interceptors.AuditOptions{Sink: audit.NewRing(1000)}}),
		"metrics": interceptors.Default(interceptors.Options{Logger: discard(), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))}),
	} {
		b.Run(name, func(b *testing.B) {
			h := interceptors.Chain(final, chain...)
			b.ReportAllocs()
			for b.Loop() {
				s := call.NewStream(ctx, call.New(m, call.GRPC), call.One(call.NewFrame(nil, wire)), nil, nil)
				if err := h(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
