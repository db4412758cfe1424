package interceptors

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/catalog"
)

// AttemptPolicy is one policy of the attempts at a backend, as a grpc.StreamClientInterceptor: it may make the attempt several times, or not at
// all. The context carries the *call.Call, messages are *call.Frame, and errors of attempts are *call.Failure. Several attempts of a call
// may run at once, so it reads the call only.
type AttemptPolicy struct {
	// Name is the policy's in metrics and documents.
	Name string
	// For returns the interceptor for the attempts of a method's calls, or nil if the policy has nothing to do for them.
	For func(m *catalog.Method) grpc.StreamClientInterceptor
}

// AttemptOptions are what the default policies of attempts need. The zero value works: it retries and breaks by the defaults, and hedges nothing.
type AttemptOptions struct {
	// Logger gets a line when a breaker opens or closes. Default slog.Default().
	Logger *slog.Logger
	// Meter measures breakers and budgets. Nil: no metrics.
	Meter metric.MeterProvider

	Retry   RetryOptions
	Hedge   HedgeOptions
	Breaker BreakerOptions
}

func (o AttemptOptions) withDefaults() AttemptOptions {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Retry = o.Retry.withDefaults()
	o.Breaker = o.Breaker.withDefaults()
	return o
}

// DefaultAttempts returns the policies of attempts, outermost first, in DESIGN.md's order: retry, hedge, breaker. The backend's credential is
// innermost and belongs to whoever makes the attempt. The breakers are returned too, for whoever shows their state.
func DefaultAttempts(o AttemptOptions) ([]AttemptPolicy, *Breakers) {
	o = o.withDefaults()
	b := newBudgets(o.Retry)
	breakers := newBreakers(o)
	return []AttemptPolicy{retry(o, b), hedge(o, b), breakers.policy()}, breakers
}

// Attempts joins policies, the first one outermost, before attempt, which makes one attempt: for a method it returns what makes its attempts, or nil if
// no policy has anything to do.
func Attempts(policies ...AttemptPolicy) func(m *catalog.Method, attempt grpc.Streamer) grpc.Streamer {
	return func(m *catalog.Method, attempt grpc.Streamer) grpc.Streamer {
		var joined grpc.Streamer
		for i := len(policies) - 1; i >= 0; i-- {
			if ic := policies[i].For(m); ic != nil {
				joined = before(attempt, ic)
				attempt = joined
			}
		}
		return joined
	}
}

func before(next grpc.Streamer, ic grpc.StreamClientInterceptor) grpc.Streamer {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return ic(ctx, desc, cc, method, next, opts...)
	}
}
