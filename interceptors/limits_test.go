package interceptors_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// callBy makes a call by the named principal through the chain h.
func callBy(ctx context.Context, h call.Handler, m *catalog.Method, who string) error {
	c := call.New(m, call.HTTP)
	if who != "" {
		tenant, _, _ := strings.Cut(who, "/")
		c.Principal = &identity.Principal{ID: who, Tenant: tenant, How: "jwt"}
	}
	return h(call.NewStream(ctx, c, call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { return nil }, nil))
}

// waitOf returns the RetryInfo of a refusal.
func waitOf(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

// holding is a handler whose calls end when they are told to.
type holding struct {
	under   atomic.Int64
	release chan struct{}
}

func (h *holding) handle(any, grpc.ServerStream) error {
	h.under.Add(1)
	defer h.under.Add(-1)
	<-h.release
	return nil
}

func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		final := &holding{release: make(chan struct{})}
		h := interceptors.Chain(final.handle, interceptors.InFlight(interceptors.Options{Limits: interceptors.LimitOptions{InFlight: 10}}))
		by := func(p catalog.Priority) *catalog.Method {
			m := method(t, "UnaryCall")
			m.Policy.Priority = p
			return m
		}
		low, normal, high := by(catalog.PriorityLow), by(catalog.PriorityNormal), by(catalog.PriorityHigh)
		var calls sync.WaitGroup
		start := func(m *catalog.Method, n int) {
			for range n {
				calls.Go(func() {
					if err := callBy(t.Context(), h, m, ""); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		refused := func(m *catalog.Method) {
			t.Helper()
			err := callBy(t.Context(), h, m, "")
			if status.Code(err) != codes.Unavailable || reason(err) != "OVERLOADED" || waitOf(err) <= 0 {
				t.Errorf("%v priority with %d calls under way: %v, want UNAVAILABLE, OVERLOADED with RetryInfo", m.Policy.Priority, final.under.Load(), err)
			}
		}
		start(low, 8)
		refused(low)
		start(normal, 1)
		refused(normal)
		start(high, 1)
		refused(high)
		close(final.release)
		calls.Wait()
		if err := callBy(t.Context(), h, low, ""); err != nil {
			t.Error(err)
		}
	})
}

func TestRateLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := interceptors.Options{Limits: interceptors.LimitOptions{
			Principal: interceptors.RateLimit{PerSecond: 2, Burst: 4},
			Tenant:    interceptors.RateLimit{PerSecond: 100, Burst: 6},
			Method:    func(m *catalog.Method) interceptors.RateLimit { return interceptors.RateLimit{PerSecond: 5, Burst: 8} },
		}}
		h := interceptors.Chain(echo, interceptors.RateLimits(o))
		m := method(t, "UnaryCall")
		m.Policy.Cost = 2
		many := func(who string, n int) (good int, last error) {
			for range n {
				if err := callBy(t.Context(), h, m, who); err != nil {
					last = err
				} else {
					good++
				}
			}
			return good, last
		}
		limited := func(err error, limit string, wait time.Duration) {
			t.Helper()
			info, _ := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
			if status.Code(err) != codes.ResourceExhausted || info.GetReason() != "RATE_LIMITED" || info.GetMetadata()["limit"] != limit || waitOf(err).Round(time.Millisecond) != wait {
				t.Errorf("%v with %v, want RATE_LIMITED by %s for %v", err, status.Convert(err).Details(), limit, wait)
			}
		}
		// Four tokens of the principal's are two calls of cost 2.
		n, err := many("acme/a", 10)
		if n != 2 {
			t.Errorf("%d calls pass, want 2", n)
		}
		limited(err, "principal", time.Second)
		// The tenant has two tokens left, and another principal of it gets them; the method then has two for somebody else.
		if n, err = many("acme/b", 2); n != 1 {
			t.Errorf("%d calls pass, want 1", n)
		}
		limited(err, "tenant", 20*time.Millisecond)
		if n, err = many("other/c", 2); n != 1 {
			t.Errorf("%d calls pass, want 1", n)
		}
		limited(err, "method", 400*time.Millisecond)
		time.Sleep(waitOf(err))
		if err := callBy(t.Context(), h, m, "other/c"); err != nil {
			t.Errorf("after the wait: %v", err)
		}
		// A method of a new snapshot has the same bucket.
		again := method(t, "UnaryCall")
		again.Policy.Cost = 100 // counts as the whole burst
		if err := callBy(t.Context(), h, again, "new/d"); err == nil {
			t.Error("a new snapshot has filled the bucket")
		}
	})
}

// TestNoisyCaller shows that a caller with far more calls than there is room for does not keep another out: neither by rate, nor by what is under way.
func TestNoisyCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(_ any, _ grpc.ServerStream) error { time.Sleep(100 * time.Millisecond); return nil }
		o := interceptors.Options{Limits: interceptors.LimitOptions{Backend: interceptors.Bulkhead{Max: 10, Queue: 20, Wait: 250 * time.Millisecond, Share: 0.9}}}
		h := interceptors.Chain(slow, interceptors.RateLimits(o), interceptors.Bulkheads(o))
		m := method(t, "UnaryCall")
		ctx, cancel := context.WithCancel(t.Context())
		var noisy sync.WaitGroup
		var through, turned atomic.Int64
		for range 100 {
			noisy.Go(func() {
				for ctx.Err() == nil {
					if err := callBy(ctx, h, m, "noisy"); err == nil {
						through.Add(1)
					} else {
						turned.Add(1)
						time.Sleep(25 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(time.Second)
		var worst time.Duration
		for range 20 {
			start := time.Now()
			if err := callBy(t.Context(), h, m, "quiet"); err != nil {
				t.Errorf("the quiet caller: %v", err)
			}
			worst = max(worst, time.Since(start))
		}
		cancel()
		noisy.Wait()
		t.Logf("noisy: %d through, %d turned away; quiet: 20 of 20, the slowest in %v of 100ms", through.Load(), turned.Load(), worst)
		if worst > 200*time.Millisecond {
			t.Errorf("the quiet caller has waited %v for a call of 100ms", worst)
		}
	})
}

// TestBulkheadQueue lets who has least under way go first, and turns away the latest of who waits most when the queue is full.
func TestBulkheadQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		final := &holding{release: make(chan struct{})}
		o := interceptors.Options{Limits: interceptors.LimitOptions{MethodBulkhead: func(*catalog.Method) interceptors.Bulkhead {
			return interceptors.Bulkhead{Max: 2, Queue: 3, Wait: time.Hour}
		}}}
		h := interceptors.Chain(final.handle, interceptors.Bulkheads(o))
		m := method(t, "UnaryCall")
		var mu sync.Mutex
		var ended []string
		var calls sync.WaitGroup
		start := func(who string, n int) {
			for range n {
				calls.Go(func() {
					err := callBy(t.Context(), h, m, who)
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, who+" "+reason(err))
				})
			}
			synctest.Wait()
		}
		start("noisy", 5) // two under way, three wait
		start("quiet", 1) // takes the place in the queue of one of noisy's
		mu.Lock()
		if len(ended) != 1 || ended[0] != "noisy BULKHEAD_FULL" {
			t.Errorf("ended %q, want one of noisy's refused", ended)
		}
		ended = nil
		mu.Unlock()
		final.release <- struct{}{} // a place is free: quiet has it
		synctest.Wait()
		final.release <- struct{}{}
		final.release <- struct{}{}
		synctest.Wait()
		mu.Lock()
		if got := strings.Join(ended, ","); !strings.Contains(got, "quiet ") {
			t.Errorf("ended %q, want quiet's among the first three", got)
		}
		mu.Unlock()
		close(final.release)
		calls.Wait()
	})
}

// TestBulkheadWait ends by its time, and by the caller's going away; neither leaves anything behind.
func TestBulkheadWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		final := &holding{release: make(chan struct{})}
		o := interceptors.Options{Limits: interceptors.LimitOptions{Backend: interceptors.Bulkhead{Max: 1, Queue: 2, Wait: time.Second}}}
		h := interceptors.Chain(final.handle, interceptors.Bulkheads(o))
		m := method(t, "UnaryCall")
		var first sync.WaitGroup
		first.Go(func() { _ = callBy(t.Context(), h, m, "") })
		synctest.Wait()
		start := time.Now()
		err := callBy(t.Context(), h, m, "")
		if status.Code(err) != codes.Unavailable || reason(err) != "BULKHEAD_FULL" || waitOf(err) != time.Second || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want BULKHEAD_FULL with a wait of one second, after one", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := callBy(ctx, h, m, ""); status.Code(err) != codes.DeadlineExceeded || reason(err) != "DEADLINE_SPENT" {
			t.Errorf("%v, want DEADLINE_EXCEEDED with DEADLINE_SPENT", err)
		}
		close(final.release)
		first.Wait()
		for range 3 {
			if err := callBy(t.Context(), h, m, ""); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestShed fills a backend's limit and queue: low priority is refused while high still gets through.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(_ any, s grpc.ServerStream) error {
			call.FromContext(s.Context()).Sent = true
			time.Sleep(50 * time.Millisecond)
			return nil
		}
		o := interceptors.Options{Limits: interceptors.LimitOptions{Shed: interceptors.ShedOptions{On: true, Min: 4, Initial: 4, Max: 4, Wait: time.Second}}}
		h := interceptors.Chain(slow, interceptors.Shed(o))
		var through, turned [3]atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for _, p := range []catalog.Priority{catalog.PriorityLow, catalog.PriorityNormal, catalog.PriorityHigh} {
			m := method(t, "UnaryCall")
			m.Policy.Priority = p
			callers := 20
			if p == catalog.PriorityHigh {
				callers = 3
			}
			for range callers {
				load.Go(func() {
					for ctx.Err() == nil {
						err := callBy(t.Context(), h, m, "")
						switch {
						case err == nil:
							through[p+1].Add(1)
						case reason(err) == "OVERLOADED" && waitOf(err) > 0:
							turned[p+1].Add(1)
							time.Sleep(20 * time.Millisecond)
						default:
							t.Error(err)
							return
						}
					}
				})
			}
		}
		time.Sleep(5 * time.Second)
		cancel()
		load.Wait()
		share := func(i int) float64 {
			return float64(through[i].Load()) / float64(through[i].Load()+turned[i].Load())
		}
		t.Logf("answered: low %.3f, normal %.3f, high %.3f of calls", share(0), share(1), share(2))
		if share(2) < 0.9 || share(2) <= share(1) || share(1) <= share(0) {
			t.Errorf("low %.3f, normal %.3f, high %.3f: want high nearly whole, and low last", share(0), share(1), share(2))
		}
	})
}

// TestLimitsHaveNothingToDo has methods without limits: nothing is in their chain.
func TestLimitsHaveNothingToDo(t *testing.T) {
	m := method(t, "UnaryCall")
	for _, p := range []interceptors.Policy{interceptors.Shed(interceptors.Options{}), interceptors.RateLimits(interceptors.Options{}), interceptors.Bulkheads(interceptors.Options{}),
		interceptors.InFlight(interceptors.Options{Limits: interceptors.LimitOptions{InFlight: -1}})} {
		if p.For(m) != nil {
			t.Errorf("%s has something to do", p.Name)
		}
	}
	if interceptors.Shed(interceptors.Options{Limits: interceptors.LimitOptions{Shed: interceptors.ShedOptions{On: true}}}).For(method(t, "StreamingOutputCall")) != nil {
		t.Error("streams are shed")
	}
}
