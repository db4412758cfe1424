package task

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/store"
)

// Why the context of a run ends.
var (
	errCancel  = errors.New("the task is to be cancelled")
	errLost    = errors.New("another worker has the task")
	errDrained = errors.New("the mesh is shutting down")
)

// Pool is the workers of one instance.
type Pool struct {
	tasks   *Tasks
	handler call.Handler
	taking  context.CancelFunc
	taker   chan struct{} // closed when nothing is taken any more
	base    context.Context
	cut     context.CancelCauseFunc // ends the runs
	slots   chan struct{}
	work    sync.WaitGroup

	mu      sync.Mutex
	held    map[string]*run // that run or are parked
	parked  []*run          // that wait for their tool's or tenant's turn, oldest first
	tools   map[string]int  // runs under way
	tenants map[string]int
}

// maxParked is how many tasks wait here for their turn, for each worker. Others go back to the queue for a while.
const maxParked = 4

// Start starts the workers: handler makes the calls. It is interceptors.Runs before the backends. The catalog should have been read, since a task
// whose method is not there waits.
func (t *Tasks) Start(handler call.Handler) *Pool {
	p := &Pool{
		tasks: t, handler: handler, taker: make(chan struct{}), slots: make(chan struct{}, t.conf.Workers),
		held: map[string]*run{}, tools: map[string]int{}, tenants: map[string]int{},
	}
	ctx, stop := context.WithCancel(context.Background())
	p.taking = stop
	p.base, p.cut = context.WithCancelCause(context.Background())
	go p.take(ctx)
	t.index.join(p)
	return p
}

// Drain takes no more tasks, and waits for those that run, until ctx ends; the rest are cut, and go on with another instance or the next one.
func (p *Pool) Drain(ctx context.Context) {
	p.taking()
	<-p.taker
	for _, r := range p.unpark() {
		p.giveBack(r.held(), 0)
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for range cap(p.slots) {
			p.slots <- struct{}{}
		}
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	p.cut(errDrained)
	<-idle
	p.work.Wait()
	p.tasks.index.leave(p)
}

func (p *Pool) take(ctx context.Context) {
	defer close(p.taker)
	for {
		select {
		case <-ctx.Done():
			return
		case p.slots <- struct{}{}:
		}
		lease, err := p.tasks.queue.Take(ctx)
		if err != nil {
			<-p.slots
			return // ctx has ended
		}
		r := p.accept(ctx, lease)
		if r == nil {
			<-p.slots
			continue
		}
		p.begin(r)
	}
}

// begin runs r, on a slot that is taken, then whoever is parked and has its turn.
func (p *Pool) begin(r *run) {
	p.work.Go(func() {
		for r != nil {
			r.guarded()
			r = p.next(r)
		}
		<-p.slots
	})
}

// accept returns the run of a job, or nil if it does not begin now.
func (p *Pool) accept(ctx context.Context, lease *store.Job) *run {
	r := &run{pool: p, tasks: p.tasks, lease: lease, name: newID()}
	if err := json.Unmarshal(lease.Data, &r.job); err != nil {
		p.tasks.log.Error("a job of a task cannot be read, and is dropped", "error", err)
		p.done(ctx, lease)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.held[r.key()]; other != nil {
		if other.job.Nonce == r.job.Nonce { // its lease was lost while the store was away
			other.setLease(lease)
			return nil
		}
		if other.job.Round < r.job.Round { // it has asked, and is about to end: this job goes on with the answers
			p.giveBack(lease, backoff(0))
			return nil
		}
		p.done(ctx, lease)
		return nil
	}
	turn := p.turn(r)
	if ctx.Err() != nil || !turn && len(p.parked) >= maxParked*cap(p.slots) {
		p.giveBack(lease, backoff(lease.Delivery))
		return nil
	}
	p.held[r.key()] = r
	r.ctx, r.cancel = context.WithCancelCause(p.base)
	r.start()
	if !turn {
		p.parked = append(p.parked, r)
		return nil
	}
	p.count(r, 1)
	return r
}

// turn says whether the bounds of the run's tool and tenant let it begin.
func (p *Pool) turn(r *run) bool {
	return p.tools[r.job.Method] < p.tasks.conf.PerTool && p.tenants[r.job.Tenant] < p.tasks.conf.PerTenant
}

func (p *Pool) count(r *run, by int) {
	for _, c := range []struct {
		of map[string]int
		k  string
	}{{p.tools, r.job.Method}, {p.tenants, r.job.Tenant}} {
		if c.of[c.k] += by; c.of[c.k] == 0 {
			delete(c.of, c.k)
		}
	}
}

// next ends r, and returns the parked run whose turn it is, or nil.
func (p *Pool) next(r *run) *run {
	r.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, r.key())
	p.count(r, -1)
	for i, next := range p.parked {
		if p.turn(next) {
			p.parked = slices.Delete(p.parked, i, i+1)
			p.count(next, 1)
			return next
		}
	}
	return nil
}

// unpark ends what is parked, and returns it.
func (p *Pool) unpark() []*run {
	p.mu.Lock()
	parked := p.parked
	p.parked = nil
	for _, r := range parked {
		delete(p.held, r.key())
	}
	p.mu.Unlock()
	for _, r := range parked {
		r.end()
	}
	return parked
}

// backoff is how long a job waits before it is given out again.
func backoff(delivery int) time.Duration {
	return min(100*time.Millisecond<<min(delivery, 8), 10*time.Second)
}

func (p *Pool) done(ctx context.Context, lease *store.Job) {
	if err := lease.Done(context.WithoutCancel(ctx)); err != nil {
		p.tasks.log.Warn("that a job of a task is done is not noted; it comes again", "error", err)
	}
}

func (p *Pool) giveBack(lease *store.Job, after time.Duration) {
	if err := lease.Return(after); err != nil {
		p.tasks.log.Warn("a job of a task is not given back; it comes again when its lease is over", "error", err)
	}
}

// hear cancels a run whose task is to be cancelled, or has another worker. What it misses the heartbeat sees.
func (p *Pool) hear(owner, id string, e store.Entry) {
	p.mu.Lock()
	r := p.held[owner+id]
	p.mu.Unlock()
	if r == nil {
		return
	}
	if rec, err := decodeRecord(e, owner); err == nil {
		r.heed(rec)
	}
}
