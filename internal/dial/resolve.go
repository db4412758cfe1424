package dial

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
)

// explaining is a balancer that keeps why names do not resolve: round_robin tells calls of it only that it has no children to pick from.
type explaining struct {
	balancer.Balancer
	conn   *explainingConn
	target string
}

func newExplaining(cc balancer.ClientConn, target string, build func(balancer.ClientConn) balancer.Balancer) balancer.Balancer {
	conn := &explainingConn{ClientConn: cc}
	return &explaining{build(conn), conn, target}
}

// ResolverError takes the failure. What was resolved before stays in use.
func (e *explaining) ResolverError(err error) {
	e.conn.failed(err)
	e.Balancer.ResolverError(err)
}

// UpdateClientConnState takes what was resolved.
func (e *explaining) UpdateClientConnState(s balancer.ClientConnState) error {
	if len(s.ResolverState.Endpoints) == 0 && len(s.ResolverState.Addresses) == 0 {
		e.conn.emptied(noAddress(e.target))
	} else {
		e.conn.resolved()
	}
	return e.Balancer.UpdateClientConnState(s)
}

// noAddress says that a name has no address: DNS does not tell grpc-go whether there is no such name.
func noAddress(target string) error { return fmt.Errorf("%q resolves to no address", target) }

// explainingConn gives grpc-go a picker that says why there is nothing to pick from.
type explainingConn struct {
	balancer.ClientConn

	mu  sync.Mutex
	err error
	has bool // some endpoints are in use
}

func (c *explainingConn) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *explainingConn) emptied(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.has = err, false
}

func (c *explainingConn) resolved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.has = nil, true
}

// UpdateState hands the state on.
func (c *explainingConn) UpdateState(s balancer.State) {
	c.mu.Lock()
	if s.ConnectivityState == connectivity.TransientFailure && c.err != nil && !c.has {
		s.Picker = base.NewErrPicker(fmt.Errorf("name resolver error: %w", c.err))
	}
	c.mu.Unlock()
	c.ClientConn.UpdateState(s)
}
