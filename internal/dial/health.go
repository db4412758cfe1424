package dial

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
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

const (
	healthPatience = time.Second     // an endpoint that has not answered by then counts as healthy
	healthRetry    = 5 * time.Second // pause before asking again when the answer broke off
)

// grpc-go has no other place for a balancing policy than its registry, which may only be written while the program initialises.
func init() {
	balancer.Register(policy{policyName})
	balancer.Register(policy{blindPolicyName})
}

type policy struct{ name string }

// Name returns the policy's.
func (p policy) Name() string { return p.name }

// Build returns round_robin, over endpoints that are watched unless the policy is blind.
func (p policy) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return newExplaining(cc, opts.Target.Endpoint(), func(cc balancer.ClientConn) balancer.Balancer {
		if p.name == policyName {
			cc = &watchingConn{ClientConn: cc}
		}
		return balancer.Get(roundrobin.Name).Build(cc, opts)
	})
}

// watchingConn gives round_robin endpoints whose health listener is ours.
type watchingConn struct{ balancer.ClientConn }

// NewSubConn returns an endpoint whose health is watched.
func (c *watchingConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := c.ClientConn.NewSubConn(addrs, opts) //nolint:staticcheck // what is deprecated is only more than one address, which round_robin does not use
	if err != nil {
		return nil, err
	}
	return &watchedEndpoint{sc}, nil
}

// UpdateState hands the state on with a picker that returns grpc-go its own endpoints.
func (c *watchingConn) UpdateState(s balancer.State) {
	if s.Picker != nil {
		s.Picker = unwrapping{s.Picker}
	}
	c.ClientConn.UpdateState(s)
}

// unwrapping returns grpc-go its own endpoints.
type unwrapping struct{ balancer.Picker }

// Pick picks as the picker inside does.
func (p unwrapping) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	r, err := p.Picker.Pick(info)
	if w, ok := r.SubConn.(*watchedEndpoint); ok {
		r.SubConn = w.SubConn
	}
	return r, err
}

type watchedEndpoint struct{ balancer.SubConn }

// RegisterHealthListener is called when the endpoint has been connected. listener hears about the endpoint's health from then on.
func (e *watchedEndpoint) RegisterHealthListener(listener func(balancer.SubConnState)) {
	if listener == nil {
		e.SubConn.RegisterHealthListener(nil)
		return
	}
	e.SubConn.RegisterHealthListener(func(s balancer.SubConnState) {
		if s.ConnectivityState != connectivity.Ready {
			listener(s)
			return
		}
		p, _ := e.GetOrBuildProducer(watcherBuilder{})
		p.(*watcher).start(listener)
	})
}

type watcherBuilder struct{}

// Build returns a watcher of one connection. Its close function cannot wait for the goroutine: grpc-go calls it with the lock held that
// the goroutine's report may wait for.
func (watcherBuilder) Build(conn any) (balancer.Producer, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	return &watcher{ctx: ctx, conn: conn.(grpc.ClientConnInterface)}, cancel
}

// watcher follows the health of one connection until that is gone.
type watcher struct {
	ctx      context.Context
	conn     grpc.ClientConnInterface
	started  atomic.Bool
	answered atomic.Bool
}

func (w *watcher) start(listener func(balancer.SubConnState)) {
	if w.started.Swap(true) {
		return
	}
	report := func(s balancer.SubConnState) {
		if w.ctx.Err() == nil {
			listener(s)
		}
	}
	go w.run(report)
}

var healthy = balancer.SubConnState{ConnectivityState: connectivity.Ready}

func (w *watcher) run(report func(balancer.SubConnState)) {
	patience := time.AfterFunc(healthPatience, func() {
		if !w.answered.Swap(true) {
			report(healthy)
		}
	})
	defer patience.Stop()
	for {
		err := w.follow(report)
		if w.ctx.Err() != nil {
			return
		}
		w.answered.Store(true)
		report(healthy)
		switch status.Code(err) {
		case codes.Unavailable, codes.Internal, codes.Canceled, codes.ResourceExhausted, codes.OK:
		default: // no health service, or none for us
			return
		}
		pause := time.NewTimer(healthRetry)
		select {
		case <-w.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

var errNotServing = errors.New("the backend says NOT_SERVING (grpc.health.v1)")

// follow reports what one Watch call says until it ends.
func (w *watcher) follow(report func(balancer.SubConnState)) error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stream, err := healthpb.NewHealthClient(w.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			return err
		}
		w.answered.Store(true)
		if reply.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING {
			report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: errNotServing})
			continue
		}
		report(healthy)
	}
}
