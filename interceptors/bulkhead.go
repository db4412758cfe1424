package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Bulkhead bounds the calls under way at one place, so that a slow one does not take all there is. The zero value bounds nothing.
type Bulkhead struct {
	// Max is how many calls may be under way.
	Max int
	// Queue is how many may wait, and Wait for how long. Default 0: a call that finds no room is refused at once.
	Queue int
	Wait  time.Duration
	// Share is the part of Max, above 0 and up to 1, that one authenticated principal may have, at least one call. Default 1: all of it.
	Share float64
}

// Bulkheads bounds the calls under way at each backend, and of each method that has a bound of its own. Who waits is served by who has least under way, so that
// one that makes many calls does not keep another out: UNAVAILABLE with BULKHEAD_FULL and RetryInfo. failsafe-go's bulkhead, like any semaphore, serves
// who comes first; this is why it is our own.
func Bulkheads(o Options) Policy {
	b := &bulkheads{named: map[string]*gate{}, refused: newRefusal(o, codes.Unavailable, "BULKHEAD_FULL", "bulkhead", "nothing was done; wait, then call again, or make fewer calls at once")}
	l := o.Limits
	return inHalves("bulkhead", func(m *catalog.Method) *halves {
		if m.Service != nil && m.Service.Infrastructure {
			return nil
		}
		var gates []*gate // a method's own first: who waits there takes nothing from the others
		if l.MethodBulkhead != nil {
			if h := l.MethodBulkhead(m); h.Max > 0 {
				gates = append(gates, b.of("method "+strconv.Quote(m.FullMethod[1:]), h))
			}
		}
		if l.Backend.Max > 0 {
			gates = append(gates, b.of("backend "+strconv.Quote(m.Backend.Name), l.Backend))
		}
		if len(gates) == 0 {
			return nil
		}
		return &halves{
			enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
				return b.enter(gates, c, stream)
			},
			leave: func(c *call.Call, _ grpc.ServerStream, err error) error {
				who, _ := atGate(c)
				for _, g := range gates {
					g.leave(who)
				}
				return err
			},
		}
	})
}

type bulkheads struct {
	refused *refusal
	mu      sync.Mutex
	named   map[string]*gate // they outlive snapshots
}

func (b *bulkheads) of(name string, h Bulkhead) *gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.named[name]; g != nil && g.bulkhead == h {
		return g
	}
	share := h.Max
	if h.Share > 0 && h.Share < 1 {
		share = max(1, int(float64(h.Max)*h.Share))
	}
	g := &gate{name: name, bulkhead: h, share: share, held: map[string]int{}}
	b.named[name] = g
	return g
}

// atGate is who makes a call, and whether that is known; who it is does not change while the call is under way.
func atGate(c *call.Call) (who string, told bool) {
	if c.Principal == nil {
		return "", false
	}
	return c.Principal.ID, c.Principal.How != "none"
}

func (b *bulkheads) enter(gates []*gate, c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
	who, told := atGate(c)
	for i, g := range gates {
		if err := g.enter(stream.Context(), who, told); err != nil {
			for _, entered := range gates[:i] {
				entered.leave(who)
			}
			return nil, b.refuse(c, g, err)
		}
	}
	return stream, nil
}

func (b *bulkheads) refuse(c *call.Call, g *gate, err error) error {
	if !errors.Is(err, errFull) && !errors.Is(err, errShare) {
		return endedWaiting(c, "bulkhead", g.name, err)
	}
	text := fmt.Sprintf("%s has %d calls under way, which is all that it may have", g.name, g.bulkhead.Max)
	if errors.Is(err, errShare) {
		text = fmt.Sprintf("the caller has %d calls under way at %s, which is all of its share", g.share, g.name)
	}
	c.Decide("bulkhead", "refused", text)
	return b.refused.err(text, max(g.bulkhead.Wait, 100*time.Millisecond), "limit", g.name)
}

var (
	errFull  = errors.New("full")
	errShare = errors.New("the caller's share is used up")
)

// gate is one bulkhead.
type gate struct {
	name     string
	bulkhead Bulkhead
	share    int

	mu    sync.Mutex
	used  int
	held  map[string]int // by principal
	queue []*waiting     // in the order of coming
}

type waiting struct {
	who   string
	limit int
	done  chan error // nil: it has a place
}

// enter takes a place, if need be after waiting. leave gives it back.
func (g *gate) enter(ctx context.Context, who string, told bool) error {
	limit := g.bulkhead.Max
	if told {
		limit = g.share
	}
	g.mu.Lock()
	// Who waits while there is room waits for its share: others pass it.
	if g.used < g.bulkhead.Max && g.held[who] < limit {
		g.used++
		g.held[who]++
		g.mu.Unlock()
		return nil
	}
	w := &waiting{who: who, limit: limit, done: make(chan error, 1)}
	full := errFull
	if g.held[who] >= limit && limit < g.bulkhead.Max {
		full = errShare
	}
	if !g.line(w) {
		g.mu.Unlock()
		return full
	}
	g.mu.Unlock()
	t := time.NewTimer(g.bulkhead.Wait)
	defer t.Stop()
	select {
	case err := <-w.done:
		return err
	case <-t.C:
		return g.give(w, full)
	case <-ctx.Done():
		return g.give(w, ctx.Err())
	}
}

// line lets w wait, and says whether it may. In a full queue whoever has most of it loses its latest to one that has less.
func (g *gate) line(w *waiting) bool {
	if g.bulkhead.Queue <= 0 || g.bulkhead.Wait <= 0 {
		return false
	}
	if len(g.queue) >= g.bulkhead.Queue {
		count := map[string]int{}
		most := ""
		for _, q := range g.queue {
			count[q.who]++
			if count[q.who] > count[most] {
				most = q.who
			}
		}
		if count[most] <= count[w.who]+1 {
			return false
		}
		for i := len(g.queue) - 1; i >= 0; i-- {
			if g.queue[i].who == most {
				g.queue[i].done <- errFull
				g.queue = slices.Delete(g.queue, i, i+1)
				break
			}
		}
	}
	g.queue = append(g.queue, w)
	return true
}

// give ends the wait of w: with a place after all if it has just got one, else with err.
func (g *gate) give(w *waiting, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case got := <-w.done:
		return got
	default:
	}
	if i := slices.Index(g.queue, w); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	return err
}

// leave gives a place back, to whoever waits and has least under way.
func (g *gate) leave(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used--
	if g.held[who]--; g.held[who] <= 0 {
		delete(g.held, who)
	}
	next := -1
	for i, w := range g.queue {
		if g.held[w.who] < w.limit && (next < 0 || g.held[w.who] < g.held[g.queue[next].who]) {
			next = i
		}
	}
	if next < 0 {
		return
	}
	w := g.queue[next]
	g.queue = slices.Delete(g.queue, next, next+1)
	g.used++
	g.held[w.who]++
	w.done <- nil
}
