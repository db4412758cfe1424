package dial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Defaults of Config.
const (
	// DefaultMaxConnections is enough for 3,000 streams where a server allows 100 on a connection, as many do.
	DefaultMaxConnections = 32
	// DefaultIdleAfter is long enough that streams that come and go do not make and close connections.
	DefaultIdleAfter = time.Minute
)

// pool are the connections to one backend. Each is a grpc.ClientConn over all endpoints, so every one of them balances, watches and reconnects by
// itself. Unary calls and streams never share one: a stream that nobody reads may hold up all that its connection carries, both by the streams that
// the server allows and by the window that it has for all of them.
//
// The first connection is there from the start, for unary calls. Others are made when all that there are for unary calls, or for streams, are full,
// and closed when they have been idle for a while.
type pool struct {
	first      *member
	dial       func(*member) (*grpc.ClientConn, error)
	most       int  // connections, the first included
	controlled bool // balanced by a control plane's policy, which counts no calls
	idle       time.Duration

	mu       sync.Mutex
	calls    []*member // besides first
	streams  []*member
	closed   bool
	sweeping bool

	stop    chan struct{}
	running sync.WaitGroup
}

// member is one connection of a pool.
type member struct {
	cc      *grpc.ClientConn
	used    atomic.Int64 // calls under way, those of endpoints that have gone included
	opening atomic.Int64 // calls that have chosen it and are not counted in used yet
	list    atomic.Pointer[[]*slots]
	adding  sync.Mutex   // for those who write list
	came    atomic.Int64 // times that it has become connected

	quiet int   // sweeps in a row that have found it unused; guarded by pool.mu
	since int64 // pool.first.came when it was opened; guarded by pool.mu
}

func (m *member) endpoints() []*slots {
	if l := m.list.Load(); l != nil {
		return *l
	}
	return nil
}

func (m *member) add(s *slots) {
	m.adding.Lock()
	defer m.adding.Unlock()
	list := append(slices.Clone(m.endpoints()), s)
	m.list.Store(&list)
}

func (m *member) remove(s *slots) {
	m.adding.Lock()
	defer m.adding.Unlock()
	list := slices.DeleteFunc(slices.Clone(m.endpoints()), func(o *slots) bool { return o == s })
	m.list.Store(&list)
}

// full says whether there are endpoints that take calls, and none of them has a stream to spare.
func (m *member) full() bool {
	full := false
	for _, s := range m.endpoints() {
		if !s.usable.Load() {
			continue
		}
		if !s.full() {
			return false
		}
		full = true
	}
	return full
}

func (m *member) ready() bool { return m.cc.GetState() == connectivity.Ready }

func (p *pool) open() (*member, error) {
	m := &member{}
	var err error
	if m.cc, err = p.dial(m); err != nil {
		return nil, err
	}
	m.cc.Connect()
	return m, nil
}

// forCall returns a connection for a unary call while the first one is full; the first one, where the call waits for its turn, if there is no other.
// The caller leaves it.
func (p *pool) forCall() *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	connecting := false
	for _, m := range p.calls {
		switch {
		case !m.ready():
			connecting = true
		case !m.full():
			return m.chosen()
		}
	}
	// One connection is left for streams.
	if !connecting && !p.closed && 1+len(p.calls)+max(1, len(p.streams)) < p.most {
		if m, err := p.open(); err == nil {
			p.calls = append(p.calls, m)
			p.sweepLocked()
		}
	}
	return p.first.chosen()
}

// forStream returns a connection for a stream that is none of those tried; nil if all are full and there may be no more. The caller leaves it.
func (p *pool) forStream(tried []*member) (*member, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	p.dropStaleLocked()
	var waits *member // not connected
	for _, m := range p.streams {
		switch {
		case slices.Contains(tried, m) || m.full():
		case m.ready():
			return m.chosen(), nil
		case waits == nil:
			waits = m
		}
	}
	if waits != nil {
		return waits.chosen(), nil
	}
	if 1+len(p.calls)+len(p.streams) >= p.most {
		return nil, &FullError{Connections: len(p.streams), Streams: p.usedLocked()}
	}
	came := p.first.came.Load()
	m, err := p.open()
	if err != nil {
		return nil, err
	}
	m.since = came
	p.streams = append(p.streams, m)
	p.sweepLocked()
	return m.chosen(), nil
}

// dropStaleLocked closes connections for streams that could not be made before the first one found the backend back: another one is made at once,
// while they would fail streams until their next attempt. It happens once for each time that the backend comes back, so there is no storm.
// grpc-go's own ResetConnectBackoff is not for this: it goes over the connections without their lock.
func (p *pool) dropStaleLocked() {
	came := p.first.came.Load()
	p.streams = slices.DeleteFunc(p.streams, func(m *member) bool {
		stale := m.since != came && m.opening.Load() == 0 && m.used.Load() == 0 && m.cc.GetState() == connectivity.TransientFailure
		if stale {
			p.running.Go(func() { _ = m.cc.Close() }) // fails only if it is closed
		}
		return stale
	})
}

func (p *pool) usedLocked() (n int64) {
	for _, m := range p.streams {
		n += m.used.Load()
	}
	return n
}

// chosen keeps m from being closed until leave.
func (m *member) chosen() *member {
	m.opening.Add(1)
	return m
}

func (m *member) leave() { m.opening.Add(-1) }

// sweepLocked has idle connections closed from now on, until there are none but the first.
func (p *pool) sweepLocked() {
	if p.sweeping {
		return
	}
	p.sweeping = true
	p.running.Go(func() {
		t := time.NewTicker(p.idle)
		defer t.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-t.C:
				if !p.sweep() {
					return
				}
			}
		}
	})
}

// sweep closes what two sweeps in a row have found unused, and says whether another is needed.
func (p *pool) sweep() bool {
	p.mu.Lock()
	var idle []*member
	unused := func(m *member) bool {
		if m.opening.Load() > 0 || m.used.Load() > 0 {
			m.quiet = 0
			return false
		}
		if m.quiet++; m.quiet < 2 {
			return false
		}
		idle = append(idle, m)
		return true
	}
	p.calls = slices.DeleteFunc(p.calls, unused)
	p.streams = slices.DeleteFunc(p.streams, unused)
	p.sweeping = !p.closed && len(p.calls)+len(p.streams) > 0
	more := p.sweeping
	p.mu.Unlock()
	for _, m := range idle {
		_ = m.cc.Close() // fails only if it is closed
	}
	return more
}

// close closes every connection.
func (p *pool) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errClosed
	}
	p.closed = true
	all := slices.Concat([]*member{p.first}, p.calls, p.streams)
	p.mu.Unlock()
	close(p.stop)
	var errs []error
	for _, m := range all {
		errs = append(errs, m.cc.Close())
	}
	p.running.Wait()
	return errors.Join(errs...)
}

// errClosed is what grpc-go says of a connection that was closed.
var errClosed = status.Error(codes.Canceled, "the connections to the backend are closed")

// FullError is why there is no connection for a stream: all that there may be carry as many as the server allows.
type FullError struct {
	// Connections are those for streams; Streams is how many are open on them.
	Connections int
	Streams     int64
}

// Error says how many there are.
func (e *FullError) Error() string {
	return fmt.Sprintf("%d streams are open on %d connections, and its server allows no more on them", e.Streams, e.Connections)
}

// GRPCStatus is UNAVAILABLE.
func (e *FullError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// Invoke makes a unary call, on a connection that no stream uses: the first one while that has a stream to spare. Where every connection that there
// may be is full the call waits for its turn, as HTTP/2 has it.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if !c.pool.first.full() {
		return c.ClientConn.Invoke(ctx, method, args, reply, opts...)
	}
	m := c.pool.forCall()
	defer m.leave()
	return m.cc.Invoke(ctx, method, args, reply, opts...)
}

// OpenStream opens a stream that may last, on a connection that no unary call uses; another one is opened where those that there are carry all the
// streams that the server allows. It waits for a new connection within the deadline of ctx while the backend is connected to and the attempt is under
// way, else as Ready does; but never for another stream to end: where there may be no more connections the error is a *FullError.
func (c *Conn) OpenStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx = withoutWait(ctx)
	var tried []*member
	for {
		m, err := c.pool.forStream(tried)
		if err != nil {
			return nil, err
		}
		s, err := c.pool.openOn(ctx, m, desc, method, opts...)
		if !errors.Is(err, errFull) {
			return s, err
		}
		tried = append(tried, m)
	}
}

func (p *pool) openOn(ctx context.Context, m *member, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	defer m.leave()
	if err := p.settled(ctx, m); err != nil {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if p.controlled {
		opts = append(opts, m.counted())
	}
	return m.cc.NewStream(ctx, desc, method, opts...)
}

// settled returns when m is connected or could not be. A backend that is not there at all is waited for no longer than by unary calls; one that is
// there is healthy, however long a further connection to it takes.
func (p *pool) settled(ctx context.Context, m *member) error {
	if m.ready() {
		return nil
	}
	if err := ready(ctx, p.first.cc, connectWait); err != nil {
		return err
	}
	if p.first.ready() {
		return ready(ctx, m.cc, noBound)
	}
	return ready(ctx, m.cc, connectWait)
}

// Connections returns how many connections there are to each endpoint: for unary calls, at least one, and for streams.
func (c *Conn) Connections() (calls, streams int) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return 1 + len(c.pool.calls), len(c.pool.streams)
}

// Close ends all connections, and the calls on them.
func (c *Conn) Close() error { return c.pool.close() }
