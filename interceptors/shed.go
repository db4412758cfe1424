package interceptors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// ShedOptions say whether load is shed when a backend gets slower. The zero value sheds none.
type ShedOptions struct {
	// On sheds.
	On bool
	// Min, Initial and Max bound how many unary calls a backend gets at a time. Defaults 8, 64 and 2,000.
	Min, Initial, Max int
	// Wait is the longest that a call waits for its turn. Default 250 milliseconds.
	Wait time.Duration
}

func (o ShedOptions) withDefaults() ShedOptions {
	o.Max = cmp.Or(o.Max, 2000)
	o.Min = cmp.Or(o.Min, min(8, o.Max))
	o.Initial = cmp.Or(o.Initial, max(o.Min, min(64, o.Max)))
	o.Wait = cmp.Or(o.Wait, 250*time.Millisecond)
	return o
}

// Shed gives each backend as many unary calls at a time as it can answer without getting slower: the limit follows the trend of its times (failsafe-go's
// adaptive limiter). Calls above it wait for a short time, those of high priority first, and where as many wait as twice the limit, those of low
// priority are refused for those of a higher one: UNAVAILABLE with OVERLOADED and RetryInfo. Streams last as long as they last and tell nothing about
// load: they pass.
//
// failsafe-go's prioritised limiter is not used: its queue serves who comes first, and once full turns away every priority.
func Shed(o Options) Policy {
	if !o.Limits.Shed.On {
		return Policy{Name: "shed", For: nothing}
	}
	sh := &shedder{o: o.Limits.Shed.withDefaults(), lanes: map[string]*lane{},
		refused: newRefusal(o, codes.Unavailable, "OVERLOADED", "overload", "the backend gets more calls than it can answer; nothing was done, so wait, then call again")}
	return Policy{Name: "shed", For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		if m.Kind() != (catalog.Kind{}) || m.Service != nil && m.Service.Infrastructure {
			return nil
		}
		l := sh.of(m.Backend.Name)
		return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return sh.pass(l, srv, stream, handler)
		}
	}}
}

type shedder struct {
	o       ShedOptions
	refused *refusal

	mu    sync.Mutex
	lanes map[string]*lane // by backend; they outlive snapshots
}

func (s *shedder) of(backend string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lanes[backend]; l != nil {
		return l
	}
	l := &lane{wait: s.o.Wait, limiter: adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(s.o.Min), uint(s.o.Max), uint(s.o.Initial)). //nolint:gosec // configuration has checked that they are positive
		Build()}
	s.lanes[backend] = l
	return l
}

func (s *shedder) pass(l *lane, srv any, stream grpc.ServerStream, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	c := call.FromContext(ctx)
	permit, err := l.enter(ctx, c.Method.Policy.Priority)
	if err != nil {
		return s.refuse(c, l, err)
	}
	tells := false
	defer func() { l.leave(permit, tells) }()
	err = handler(srv, stream)
	// What never got to the backend, or was given up by the caller, says nothing about how fast it is; a deadline that passed there does.
	tells = c.Sent && status.Code(err) != codes.Canceled
	return err
}

func (s *shedder) refuse(c *call.Call, l *lane, err error) error {
	if !errors.Is(err, errFull) {
		return endedWaiting(c, "shed", fmt.Sprintf("backend %q", c.Method.Backend.Name), err)
	}
	text := fmt.Sprintf("backend %q takes %d calls at a time now, and calls of %s priority have to wait", c.Method.Backend.Name, l.limiter.Limit(), c.Method.Policy.Priority)
	c.Decide("shed", "refused", text)
	return s.refused.err(text, time.Second, "backend", c.Method.Backend.Name)
}

// lane is the way to one backend.
type lane struct {
	wait    time.Duration
	limiter adaptivelimiter.AdaptiveLimiter[any]

	mu    sync.Mutex
	queue []*ticket // the highest priority first, and of one priority the oldest
}

type ticket struct {
	priority catalog.Priority
	turn     chan adaptivelimiter.Permit // nil: refused
}

// enter takes a permit, if need be after waiting. leave gives it back.
func (l *lane) enter(ctx context.Context, p catalog.Priority) (adaptivelimiter.Permit, error) {
	l.mu.Lock()
	if len(l.queue) == 0 {
		if permit, ok := l.limiter.TryAcquirePermit(); ok {
			l.mu.Unlock()
			return permit, nil
		}
	}
	t := &ticket{priority: p, turn: make(chan adaptivelimiter.Permit, 1)}
	lined := l.line(t)
	l.mu.Unlock()
	if !lined {
		return nil, errFull
	}
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	select {
	case permit := <-t.turn:
		return granted(permit)
	case <-timer.C:
		return l.give(t, errFull)
	case <-ctx.Done():
		return l.give(t, ctx.Err())
	}
}

func granted(permit adaptivelimiter.Permit) (adaptivelimiter.Permit, error) {
	if permit == nil {
		return nil, errFull
	}
	return permit, nil
}

// line lets t wait, and says whether it may: a full queue turns its last away for one of a higher priority.
func (l *lane) line(t *ticket) bool {
	if len(l.queue) > 0 && len(l.queue) >= 2*l.limiter.Limit() {
		last := l.queue[len(l.queue)-1]
		if last.priority >= t.priority {
			return false
		}
		last.turn <- nil
		l.queue = l.queue[:len(l.queue)-1]
	}
	at := len(l.queue)
	for at > 0 && l.queue[at-1].priority < t.priority {
		at--
	}
	l.queue = slices.Insert(l.queue, at, t)
	return true
}

// give ends the wait of t: with a permit after all if it has just got one, else with err.
func (l *lane) give(t *ticket, err error) (adaptivelimiter.Permit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case permit := <-t.turn:
		return granted(permit)
	default:
	}
	if i := slices.Index(l.queue, t); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return nil, err
}

// leave gives a permit back; tells says whether the time that it was held tells how fast the backend is.
func (l *lane) leave(permit adaptivelimiter.Permit, tells bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tells {
		permit.Record()
	} else {
		permit.Drop()
	}
	for len(l.queue) > 0 {
		next, ok := l.limiter.TryAcquirePermit()
		if !ok {
			return
		}
		l.queue[0].turn <- next
		l.queue = slices.Delete(l.queue, 0, 1)
	}
}
