package dial

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// policyName is round_robin over the endpoints that do not say NOT_SERVING.
//
// It is not grpc-go's own client-side health checking because that takes every answer but UNIMPLEMENTED for a sick endpoint: a backend
// that wants credentials for its health service, or knows no service "", would never be used.
const policyName = "toolway_round_robin"

// blindPolicyName is round_robin over all endpoints.
const blindPolicyName = "toolway_blind_round_robin"

// grpc-go has no other place for a balancing policy than its registry, which may only be written while the program initialises.
func init() {
	balancer.Register(policy{policyName})
	balancer.Register(policy{blindPolicyName})
}

type policy struct{ name string }

// Name returns the policy's.
func (p policy) Name() string { return p.name }

// Build returns round_robin over endpoints whose calls are counted, and that are watched unless the policy is blind.
func (p policy) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	m := &member{}
	if c, ok := opts.DialCreds.(*counting); ok {
		m = c.member
	}
	return newExplaining(cc, opts.Target.Endpoint(), func(cc balancer.ClientConn) balancer.Balancer {
		return balancer.Get(roundrobin.Name).Build(&endpointsConn{ClientConn: cc, member: m, watched: p.name == policyName}, opts)
	})
}

// endpointsConn gives round_robin our endpoints.
type endpointsConn struct {
	balancer.ClientConn
	member  *member
	watched bool
	ready   atomic.Bool // the last state
}

// NewSubConn returns an endpoint whose calls are counted, and whose health is watched.
func (c *endpointsConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	s := newSlots(c.member, c.watched)
	addrs = slices.Clone(addrs)
	for i := range addrs {
		addrs[i] = s.attach(addrs[i])
	}
	if listener := opts.StateListener; listener != nil {
		opts.StateListener = func(state balancer.SubConnState) {
			s.usable.Store(state.ConnectivityState == connectivity.Ready && !c.watched) // if watched, its health decides
			listener(state)
		}
	}
	sc, err := c.ClientConn.NewSubConn(addrs, opts) //nolint:staticcheck // what is deprecated is only more than one address, which round_robin does not use
	if err != nil {
		return nil, err
	}
	c.member.add(s)
	return &endpoint{sc, s}, nil
}

// UpdateState hands the state on with a picker that counts.
func (c *endpointsConn) UpdateState(s balancer.State) {
	if s.Picker != nil {
		s.Picker = picker{s.Picker, c.member}
	}
	ready := s.ConnectivityState == connectivity.Ready
	if was := c.ready.Swap(ready); ready && !was {
		c.member.came.Add(1)
	}
	c.ClientConn.UpdateState(s)
}

type endpoint struct {
	balancer.SubConn
	slots *slots
}

// Shutdown ends the endpoint's connection once its calls have ended.
func (e *endpoint) Shutdown() {
	e.slots.member.remove(e.slots)
	e.SubConn.Shutdown()
}

// picker goes round until it finds an endpoint with a stream to spare, and returns grpc-go its own endpoints.
type picker struct {
	balancer.Picker
	member *member
}

// errFull ends a call that does not wait for a stream.
var errFull = status.Error(codes.Unavailable, "no connection has a stream to spare")

type noWait struct{}

// withoutWait has picks in ctx fail with errFull where they would wait for a stream.
func withoutWait(ctx context.Context) context.Context { return context.WithValue(ctx, noWait{}, true) }

// Pick picks an endpoint. If none has a stream to spare the call waits for one at the last of them, unless it does not want to.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	for tries := len(p.member.endpoints()); ; tries-- {
		r, err := p.Picker.Pick(info)
		if err != nil {
			return r, err
		}
		e, ok := r.SubConn.(*endpoint)
		if !ok {
			return r, nil
		}
		r.SubConn, r.Done = e.SubConn, e.slots.done
		switch {
		case e.slots.take():
			return r, nil
		case tries > 1:
			continue
		case info.Ctx.Value(noWait{}) != nil:
			return balancer.PickResult{}, errFull
		}
		e.slots.queue()
		return r, nil
	}
}
