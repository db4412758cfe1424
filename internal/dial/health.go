package dial

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	healthPatience = time.Second     // an endpoint that has not answered by then counts as healthy
	healthRetry    = 5 * time.Second // pause before asking again when the answer broke off
)

// RegisterHealthListener is called when the endpoint has been connected. listener hears about the endpoint's health from then on. An endpoint that
// allows one stream only has none for us, and counts as healthy.
func (e *endpoint) RegisterHealthListener(listener func(balancer.SubConnState)) {
	if listener == nil || !e.slots.watched {
		e.SubConn.RegisterHealthListener(listener)
		return
	}
	hear := func(s balancer.SubConnState) {
		e.slots.usable.Store(s.ConnectivityState == connectivity.Ready)
		listener(s)
	}
	e.SubConn.RegisterHealthListener(func(s balancer.SubConnState) {
		if s.ConnectivityState != connectivity.Ready || !e.slots.watchable() {
			hear(s)
			return
		}
		p, _ := e.GetOrBuildProducer(watcherBuilder{})
		p.(*watcher).start(hear)
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
