package interceptors

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// LimitOptions protect the mesh and its backends from too many calls. The zero value bounds only what is in flight.
type LimitOptions struct {
	// InFlight bounds all calls under way; see InFlight. Default 10,000; negative: no bound.
	InFlight int
	// Principal and Tenant are the rate limits of each caller and each tenant, Method those of a method for all callers together; nil: none.
	Principal, Tenant RateLimit
	Method            func(m *catalog.Method) RateLimit
	// Backend bounds the calls under way at each backend, MethodBulkhead those of a method; nil: none.
	Backend        Bulkhead
	MethodBulkhead func(m *catalog.Method) Bulkhead
	// Shed sheds load by priority when backends get slower.
	Shed ShedOptions
}

// refusal is one kind of refusal, counted.
type refusal struct {
	code   codes.Code
	reason string
	hint   string
	count  metric.Int64Counter // nil: not measured
	limit  metric.MeasurementOption
}

func newRefusal(o Options, code codes.Code, reason, limit, hint string) *refusal {
	r := &refusal{code: code, reason: reason, hint: hint, limit: metric.WithAttributeSet(attribute.NewSet(attribute.String("limit", limit)))}
	if o.Meter != nil {
		// The API returns a working no-op instrument beside an error, which is only about names and units.
		r.count, _ = o.Meter.Meter(scope).Int64Counter("toolway.refusals", metric.WithDescription("Calls refused to protect the mesh, a backend or other callers."), metric.WithUnit("{call}"))
	}
	return r
}

// err counts, and returns the status: it says which limit, and how long to wait.
func (r *refusal) err(text string, wait time.Duration, pairs ...string) error {
	if r.count != nil {
		r.count.Add(context.Background(), 1, r.limit)
	}
	return call.RetryAfter(call.Error(r.code, r.reason, text, append(pairs, "hint", r.hint)...), wait)
}

// seconds is a number of seconds as a duration, bounded.
func seconds(s float64) time.Duration {
	const most = 24 * time.Hour
	if math.IsNaN(s) || s >= most.Seconds() {
		return most
	}
	return time.Duration(math.Ceil(s * float64(time.Second)))
}
