package metrics

import (
	"context"
	"sync"
)

// gate admits calls and work until it is shut; shutting it ends what is inside and waits for it. Use [newGate].
type gate struct {
	ctx    context.Context // ends when the gate shuts
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	shut   bool
	inside sync.WaitGroup
}

func newGate() *gate {
	g := &gate{}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// enter admits a call, which must leave. The context that it returns ends when the gate shuts, with [ErrClosed] as its cause.
func (g *gate) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, nil, ErrClosed
	}
	g.inside.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.inside.Done()
	}, nil
}

// run runs work that goes on until the gate shuts.
func (g *gate) run(work func(ctx context.Context)) { g.inside.Go(func() { work(g.ctx) }) }

// close shuts the gate and returns when nobody is inside.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.cancel(ErrClosed)
	g.inside.Wait()
}
