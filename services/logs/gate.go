package logs

import (
	"context"
	"sync"
)

// gate admits calls until it is shut; shutting it ends the calls that are inside and waits for them.
type gate struct {
	mu     sync.Mutex
	shut   bool
	nextID int
	inside map[int]context.CancelCauseFunc
	calls  sync.WaitGroup
}

// enter admits a call, which must leave. The context that it returns ends with [ErrClosed] as its cause when the gate shuts.
func (g *gate) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if g.inside == nil {
		g.inside = make(map[int]context.CancelCauseFunc)
	}
	id := g.nextID
	g.nextID++
	g.inside[id] = cancel
	g.calls.Add(1)
	return ctx, func() {
		g.mu.Lock()
		delete(g.inside, id)
		g.mu.Unlock()
		cancel(nil)
		g.calls.Done()
	}, nil
}

// close shuts the gate and returns when nobody is inside.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	for _, cancel := range g.inside {
		cancel(ErrClosed)
	}
	g.mu.Unlock()
	g.calls.Wait()
}
