package interceptors

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// HedgeOptions say which calls are hedged. The zero value hedges none.
type HedgeOptions struct {
	// Rule returns how the calls of a method are hedged, or nil. It is heeded only for unary methods that are read-only and, by their contract
	// or the configuration, may be repeated: never by an HTTP verb or a name alone.
	Rule func(m *catalog.Method) *HedgeRule
}

// HedgeRule says when a second attempt begins while the first is still under way.
type HedgeRule struct {
	// Delay is how long the first attempt is waited for; where Quantile is set, only until there are enough figures.
	Delay time.Duration
	// Quantile, between 0 and 1, sets the delay to that quantile of the method's latest times. 0: Delay is used.
	Quantile float64
}

// hedge begins a second attempt when the first takes too long, if the retry budget has room; the first good answer counts, and the other attempt is
// cancelled.
func hedge(o AttemptOptions, budgets *budgets) AttemptPolicy {
	return AttemptPolicy{Name: "hedge", For: func(m *catalog.Method) grpc.StreamClientInterceptor {
		if o.Hedge.Rule == nil || m.Kind() != (catalog.Kind{}) || !m.Policy.Retry || !m.Tool.Hints.ReadOnly {
			return nil
		}
		rule := o.Hedge.Rule(m)
		if rule == nil {
			return nil
		}
		h := &hedger{rule: *rule, budget: budgets.of(m.Backend.Name)}
		return h.intercept
	}}
}

type hedger struct {
	rule   HedgeRule
	budget *retryBudget
	times  latencies
}

func (h *hedger) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return &hedging{h: h, ctx: ctx, open: func(ctx context.Context) (grpc.ClientStream, error) { return next(ctx, desc, cc, method, opts...) }}, nil
}

// delay returns how long the first attempt is waited for, or false if there is no telling yet.
func (h *hedger) delay() (time.Duration, bool) {
	if h.rule.Quantile > 0 {
		if d := h.times.quantile(h.rule.Quantile); d > 0 {
			return d, true
		}
	}
	return h.rule.Delay, h.rule.Delay > 0
}

// hedging is one attempt that may become two.
type hedging struct {
	h       *hedger
	ctx     context.Context
	open    func(context.Context) (grpc.ClientStream, error)
	request call.Frame
	won     *try
	read    bool
}

// try is one of the two.
type try struct {
	stream   grpc.ClientStream
	reply    call.Frame
	err      error
	panicked error
}

// Context returns the attempt's.
func (s *hedging) Context() context.Context { return s.ctx }

// SendMsg takes the one request.
func (s *hedging) SendMsg(m any) error {
	f, ok := m.(*call.Frame)
	if !ok {
		return status.Error(codes.Internal, "the messages of an attempt are *call.Frame")
	}
	s.request = f.Retain()
	return nil
}

// CloseSend has nothing to do: the one request ends the requests.
func (s *hedging) CloseSend() error { return nil }

// Header returns the header of the attempt that counts.
func (s *hedging) Header() (metadata.MD, error) {
	s.run()
	if s.won.stream == nil {
		return nil, nil //nolint:nilnil // there is none, and RecvMsg says why
	}
	return s.won.stream.Header()
}

// Trailer returns the trailer of the attempt that counts.
func (s *hedging) Trailer() metadata.MD {
	if s.won == nil || s.won.stream == nil {
		return nil
	}
	return s.won.stream.Trailer()
}

// RecvMsg gives the first good answer, else the last bad one.
func (s *hedging) RecvMsg(m any) error {
	s.run()
	if s.won.err != nil {
		return s.won.err
	}
	if s.read {
		return io.EOF
	}
	s.read = true
	f, ok := m.(*call.Frame)
	if !ok {
		return status.Error(codes.Internal, "the messages of an attempt are *call.Frame")
	}
	f.Release()
	*f, s.won.reply = s.won.reply, call.Frame{}
	return nil
}

// run makes the attempts, once, and returns when none is under way any more.
func (s *hedging) run() {
	if s.won != nil {
		return
	}
	start, c := time.Now(), call.FromContext(s.ctx)
	first, hedged := len(c.Attempts), ""
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	done := make(chan *try, 2)
	launch := func() {
		request := s.request.Retain()
		running.Go(func() { done <- attemptOnce(ctx, s.open, &request) })
	}
	launch()
	under := 1
	var after <-chan time.Time
	if d, ok := s.h.delay(); ok {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	for s.won == nil {
		select {
		case <-after:
			after = nil
			if s.h.budget.spend() {
				hedged = fmt.Sprintf("hedged: no answer after %v", time.Since(start).Round(time.Millisecond))
				launch()
				under++
			}
		case t := <-done:
			under--
			if under == 0 || t.final() {
				s.won = t
			}
		}
	}
	cancel()
	running.Wait()
	s.request.Release()
	if hedged != "" && first < len(c.Attempts) {
		c.Attempts[first].Why = hedged
	}
	for range under {
		(<-done).reply.Release()
	}
	if s.won.panicked != nil {
		panic(s.won.panicked) // on the chain's goroutine, where it is recovered and logged
	}
	if s.won.err == nil {
		s.h.times.add(time.Since(start))
	}
}

// final says whether the other attempt need not be waited for.
func (t *try) final() bool {
	return t.err == nil || t.panicked != nil || call.OutcomeOf(t.err) == call.Answered && status.Code(t.err) != codes.Unavailable
}

func attemptOnce(ctx context.Context, open func(context.Context) (grpc.ClientStream, error), request *call.Frame) (t *try) {
	t = &try{}
	defer request.Release()
	defer func() {
		if r := recover(); r != nil {
			t.err, t.panicked = status.Error(codes.Internal, "panic"), fmt.Errorf("%v\n\n%s", r, debug.Stack())
		}
	}()
	stream, err := open(ctx)
	if err != nil {
		t.err = err
		return t
	}
	t.stream = stream
	if t.err = stream.SendMsg(request); t.err == nil {
		t.err = stream.RecvMsg(&t.reply)
	}
	return t
}

// latencies are the latest times of a method.
type latencies struct {
	mu     sync.Mutex
	latest [128]time.Duration
	n      int
	sorted []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest[l.n%len(l.latest)] = d
	l.n++
	if l.n >= minLatencies && l.n%16 == 0 {
		l.sorted = append(l.sorted[:0], l.latest[:min(l.n, len(l.latest))]...)
		slices.Sort(l.sorted)
	}
}

const minLatencies = 32

// quantile returns 0 while there are too few figures.
func (l *latencies) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sorted) == 0 {
		return 0
	}
	return l.sorted[min(int(q*float64(len(l.sorted))), len(l.sorted)-1)]
}
