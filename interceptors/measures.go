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
	"github.com/toolway/toolway/internal/catalog"
)

// measures count calls. What is counted is kept in numbers of our own, which the instruments read when somebody reads the metrics: to
// add to an instrument three times for each call costs half a microsecond. The numbers outlive snapshots, so that no counter goes back.
type measures struct {
	duration metric.Float64Histogram
	inFlight few[call.Door, tally]
	calls    sync.Map // full method → *few[outcome, callTally]
	attempts sync.Map // backend → *few[attemptEnd, tally]
}

// tally is one number, with its attributes.
type tally struct {
	n   atomic.Int64
	set metric.MeasurementOption
}

type outcome struct {
	door call.Door
	code codes.Code
}

type attemptEnd struct {
	code    codes.Code
	outcome call.Outcome
}

// newMeasures makes the instruments. The API returns a working no-op instrument beside an error, which is only about names and units.
func newMeasures(m metric.Meter) *measures {
	ms := &measures{}
	ms.duration, _ = m.Float64Histogram("toolway.call.duration", metric.WithDescription("Time from the door to the end of the call."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300))
	_, _ = m.Int64ObservableCounter("toolway.calls", metric.WithDescription("Calls that have ended."), metric.WithUnit("{call}"), metric.WithInt64Callback(ms.readCalls))
	_, _ = m.Int64ObservableCounter("toolway.attempts", metric.WithDescription("Attempts at backends that have ended."), metric.WithUnit("{attempt}"),
		metric.WithInt64Callback(ms.readAttempts))
	_, _ = m.Int64ObservableUpDownCounter("toolway.calls.in_flight", metric.WithDescription("Calls under way."), metric.WithUnit("{call}"),
		metric.WithInt64Callback(ms.readInFlight))
	return ms
}

func (ms *measures) readCalls(_ context.Context, o metric.Int64Observer) error {
	for _, v := range ms.calls.Range {
		for t := range v.(*few[outcome, callTally]).all {
			o.Observe(t.read(ms.duration), t.set)
		}
	}
	return nil
}

func (ms *measures) readAttempts(_ context.Context, o metric.Int64Observer) error {
	for _, v := range ms.attempts.Range {
		for t := range v.(*few[attemptEnd, tally]).all {
			o.Observe(t.n.Load(), t.set)
		}
	}
	return nil
}

func (ms *measures) readInFlight(_ context.Context, o metric.Int64Observer) error {
	for t := range ms.inFlight.all {
		o.Observe(t.n.Load(), t.set)
	}
	return nil
}

// methodMeasures count the calls of one method in one snapshot.
type methodMeasures struct {
	*measures
	calls    *few[outcome, callTally]
	backend  string
	attempts *few[attemptEnd, tally] // at that backend
}

// of returns what counts the calls of m.
func (ms *measures) of(m *catalog.Method) *methodMeasures {
	calls, _ := ms.calls.LoadOrStore(m.FullMethod, new(few[outcome, callTally]))
	return &methodMeasures{measures: ms, calls: calls.(*few[outcome, callTally]), backend: m.Backend.Name, attempts: ms.attemptsAt(m.Backend.Name)}
}

func (ms *measures) attemptsAt(backend string) *few[attemptEnd, tally] {
	v, _ := ms.attempts.LoadOrStore(backend, new(few[attemptEnd, tally]))
	return v.(*few[attemptEnd, tally])
}

// begin counts a call as under way.
func (mm *methodMeasures) begin(c *call.Call) { mm.door(c).n.Add(1) }

// end counts a call that began. One that is sampled is shown as an example of its duration, with the span in ctx.
func (mm *methodMeasures) end(ctx context.Context, c *call.Call, code codes.Code, took time.Duration, sampled bool) {
	mm.door(c).n.Add(-1)
	if code > codes.Unauthenticated { // a backend may send any number; a metric must not grow with it
		code = codes.Unknown
	}
	t := mm.calls.find(outcome{c.Door, code}, func(t *callTally) {
		t.set = attributes(attribute.String("door", string(c.Door)), attribute.String("method", strings.TrimPrefix(c.Method.FullMethod, "/")), attribute.String("code", codeName(code)))
		t.record = []metric.RecordOption{t.set}
	})
	t.add(ctx, mm.duration, took, sampled)
	for i := range c.Attempts {
		mm.attempt(&c.Attempts[i]).n.Add(1)
	}
}

func (mm *methodMeasures) door(c *call.Call) *tally {
	return mm.inFlight.find(c.Door, func(t *tally) { t.set = attributes(attribute.String("door", string(c.Door))) })
}

func (mm *methodMeasures) attempt(a *call.Attempt) *tally {
	attempts := mm.attempts
	if a.Backend != mm.backend { // that which stands in for it
		attempts = mm.attemptsAt(a.Backend)
	}
	code := min(a.Code, codes.Unauthenticated+1)
	return attempts.find(attemptEnd{code, a.Outcome}, func(t *tally) {
		t.set = attributes(attribute.String("backend", a.Backend), attribute.String("code", codeName(code)), attribute.String("outcome", string(a.Outcome)))
	})
}

func attributes(kvs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(kvs...))
}

// callTally counts the calls of a method that have ended in one way. How long they took waits here until it fills a batch or somebody reads the
// metrics: the histogram takes a batch in a fraction of the time that it needs for each alone, when little of it is in the processor's caches.
type callTally struct {
	set    metric.MeasurementOption
	record []metric.RecordOption

	mu      sync.Mutex
	n       int64
	waiting int // of took
	took    [32]time.Duration
}

// add counts a call. One that is sampled does not wait, since its span has to be in ctx.
func (t *callTally) add(ctx context.Context, h metric.Float64Histogram, took time.Duration, sampled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if sampled {
		h.Record(ctx, took.Seconds(), t.record...)
		return
	}
	t.took[t.waiting] = took
	t.waiting++
	if t.waiting == len(t.took) {
		t.tellLocked(h)
	}
}

// read returns the number of calls, of all of which h has been told then.
func (t *callTally) read(h metric.Float64Histogram) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tellLocked(h)
	return t.n
}

func (t *callTally) tellLocked(h metric.Float64Histogram) {
	for _, took := range t.took[:t.waiting] {
		h.Record(context.Background(), took.Seconds(), t.record...)
	}
	t.waiting = 0
}

// few holds a handful of values by key, without the hashing of a map and without a lock. It only grows. The zero value is empty.
type few[K comparable, V any] struct {
	first atomic.Pointer[oneOfFew[K, V]]
}

type oneOfFew[K comparable, V any] struct {
	key   K
	value V
	next  *oneOfFew[K, V]
}

// find returns the value of k, which fill prepares if there is none yet.
func (f *few[K, V]) find(k K, fill func(*V)) *V {
	for {
		first := f.first.Load()
		for e := first; e != nil; e = e.next {
			if e.key == k {
				return &e.value
			}
		}
		e := &oneOfFew[K, V]{key: k, next: first}
		fill(&e.value)
		if f.first.CompareAndSwap(first, e) {
			return &e.value
		}
	}
}

// all yields each value.
func (f *few[K, V]) all(yield func(*V) bool) {
	for e := f.first.Load(); e != nil; e = e.next {
		if !yield(&e.value) {
			return
		}
	}
}
