package interceptors

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
)

// measures count calls. What is counted is kept in numbers of our own, which the instruments read when somebody reads the metrics: to
// add to an instrument three times for each call costs half a microsecond. Only the histogram is told of each.
type measures struct {
	duration metric.Float64Histogram
	calls    sync.Map // outcome → *callTally
	attempts sync.Map // attemptEnd → *tally
	inFlight sync.Map // call.Door → *tally
}

// tally is one number, with its attributes.
type tally struct {
	n   atomic.Int64
	set metric.MeasurementOption
}

func newTally(attributes ...attribute.KeyValue) *tally {
	return &tally{set: metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

type outcome struct {
	door   call.Door
	method string
	code   codes.Code
}

type callTally struct {
	*tally
	record []metric.RecordOption
}

type attemptEnd struct {
	backend string
	code    codes.Code
	outcome call.Outcome
}

// newMeasures makes the instruments. The API returns a working no-op instrument beside an error, which is only about names and units.
func newMeasures(m metric.Meter) *measures {
	ms := &measures{}
	ms.duration, _ = m.Float64Histogram("toolway.call.duration", metric.WithDescription("Time from the door to the end of the call."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300))
	_, _ = m.Int64ObservableCounter("toolway.calls", metric.WithDescription("Calls that have ended."), metric.WithUnit("{call}"),
		metric.WithInt64Callback(observe(&ms.calls, func(v any) *tally { return v.(*callTally).tally })))
	_, _ = m.Int64ObservableCounter("toolway.attempts", metric.WithDescription("Attempts at backends that have ended."), metric.WithUnit("{attempt}"),
		metric.WithInt64Callback(observe(&ms.attempts, func(v any) *tally { return v.(*tally) })))
	_, _ = m.Int64ObservableUpDownCounter("toolway.calls.in_flight", metric.WithDescription("Calls under way."), metric.WithUnit("{call}"),
		metric.WithInt64Callback(observe(&ms.inFlight, func(v any) *tally { return v.(*tally) })))
	return ms
}

// observe returns what reads all numbers of a map.
func observe(tallies *sync.Map, of func(any) *tally) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		tallies.Range(func(_, v any) bool {
			t := of(v)
			o.Observe(t.n.Load(), t.set)
			return true
		})
		return nil
	}
}

func (ms *measures) begin(c *call.Call) { ms.door(c).n.Add(1) }

func (ms *measures) end(ctx context.Context, c *call.Call, code codes.Code, took time.Duration) {
	ms.door(c).n.Add(-1)
	if code > codes.Unauthenticated { // a backend may send any number; a metric must not grow with it
		code = codes.Unknown
	}
	o := ms.outcome(outcome{c.Door, c.Method.FullMethod, code})
	o.n.Add(1)
	ms.duration.Record(ctx, took.Seconds(), o.record...)
	for i := range c.Attempts {
		ms.attempt(&c.Attempts[i]).n.Add(1)
	}
}

func (ms *measures) door(c *call.Call) *tally {
	if t, ok := ms.inFlight.Load(c.Door); ok {
		return t.(*tally)
	}
	t, _ := ms.inFlight.LoadOrStore(c.Door, newTally(attribute.String("door", string(c.Door))))
	return t.(*tally)
}

func (ms *measures) outcome(k outcome) *callTally {
	if t, ok := ms.calls.Load(k); ok {
		return t.(*callTally)
	}
	t := newTally(attribute.String("door", string(k.door)), attribute.String("method", strings.TrimPrefix(k.method, "/")), attribute.String("code", codeName(k.code)))
	v, _ := ms.calls.LoadOrStore(k, &callTally{t, []metric.RecordOption{t.set}})
	return v.(*callTally)
}

func (ms *measures) attempt(a *call.Attempt) *tally {
	k := attemptEnd{a.Backend, min(a.Code, codes.Unauthenticated+1), a.Outcome}
	if t, ok := ms.attempts.Load(k); ok {
		return t.(*tally)
	}
	t, _ := ms.attempts.LoadOrStore(k, newTally(attribute.String("backend", a.Backend), attribute.String("code", codeName(k.code)), attribute.String("outcome", string(a.Outcome))))
	return t.(*tally)
}
