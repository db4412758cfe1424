package dial_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/toolway/toolway/internal/dial"
)

// slow is a backend in memory whose connections take as long as the test wants, counted from 1.
type slow struct {
	t       *testing.T
	crowded *crowded
	dials   atomic.Int64
	delay   func(n int64) (time.Duration, error)

	mu     sync.Mutex
	listen *bufconn.Listener // nil while it is down
}

func (s *slow) up() (down func()) {
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	testpb.RegisterTestServiceServer(srv, s.crowded)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	s.mu.Lock()
	s.listen = l
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.listen = nil
		s.mu.Unlock()
		srv.Stop()
		wg.Wait()
	}
}

func (s *slow) dial(ctx context.Context, _ string) (net.Conn, error) {
	wait, err := s.delay(s.dials.Add(1))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	l := s.listen
	s.mu.Unlock()
	if l == nil {
		return nil, errors.New("the backend is down")
	}
	return l.DialContext(ctx)
}

func (s *slow) open() *dial.Conn {
	s.t.Helper()
	c, err := dial.Open(dial.Config{Name: "b", Targets: []string{"passthrough:///slow"}, Dialer: s.dial})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// TestSlowConnectionForStreams has the first stream of a healthy backend wait for its connection as long as it may, while unary calls go on; what
// cannot be connected to is told at once, and no deadline is passed over.
func TestSlowConnectionForStreams(t *testing.T) {
	never := errors.New("no more connections")
	for name, c := range map[string]struct {
		wait     time.Duration // of every connection but the first
		fails    error
		deadline time.Duration
		want     codes.Code
		took     time.Duration
	}{
		"slow":                          {wait: 3 * time.Second, deadline: time.Minute, want: codes.OK, took: 3 * time.Second},
		"slow, without a deadline":      {wait: 3 * time.Second, want: codes.OK, took: 3 * time.Second},
		"slower than the call may be":   {wait: 3 * time.Second, deadline: 2 * time.Second, want: codes.DeadlineExceeded, took: 2 * time.Second},
		"refused after a while":         {wait: 2 * time.Second, fails: never, deadline: time.Minute, want: codes.Unavailable, took: 2 * time.Second},
		"never, and without a deadline": {wait: time.Hour, want: codes.Unavailable, took: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &slow{t: t, crowded: &crowded{}, delay: func(n int64) (time.Duration, error) {
					if n == 1 {
						return 0, nil
					}
					return c.wait, c.fails
				}}
				defer b.up()()
				conn := b.open()
				defer conn.Close()
				if _, err := empty(t, conn); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.deadline)
				}
				defer cancel()
				var wg sync.WaitGroup
				begun := time.Now()
				wg.Go(func() {
					_, end, err := tail(ctx, conn)
					if status.Code(err) != c.want || time.Since(begun) != c.took {
						t.Errorf("the first stream: %v after %v, want %v after %v", err, time.Since(begun), c.want, c.took)
					}
					if err == nil {
						end()
					}
				})
				synctest.Wait()
				if _, err := empty(t, conn); err != nil || time.Since(begun) != 0 {
					t.Errorf("a unary call while the streams' connection is made: %v, after %v", err, time.Since(begun))
				}
				wg.Wait()
			})
		})
	}
}

// TestSlowFirstConnection fails a stream as it does a unary call while nobody knows whether the backend is there.
func TestSlowFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{t: t, crowded: &crowded{}, delay: func(int64) (time.Duration, error) { return 3 * time.Second, nil }}
		defer b.up()()
		conn := b.open()
		defer conn.Close()
		begun := time.Now()
		_, _, err := tail(t.Context(), conn)
		if status.Code(err) != codes.Unavailable || time.Since(begun) != time.Second {
			t.Errorf("a stream to a backend that is not connected: %v after %v, want UNAVAILABLE after a second", err, time.Since(begun))
		}
	})
}

// TestStreamsComeBackWithCalls has streams wait for a connection, rather than fail, as soon as unary calls are taken, when a backend comes back after
// long: what failed before is tried no later than the first connection, and takes its time.
func TestStreamsComeBackWithCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{t: t, crowded: &crowded{}, delay: func(int64) (time.Duration, error) { return 2 * time.Second, nil }}
		down := b.up()
		defer func() { down() }()
		conn := b.open()
		defer conn.Close()
		for range 20 {
			untilReady(t, conn)
			_, end, err := tail(t.Context(), conn)
			if err != nil {
				t.Fatalf("a stream when unary calls are taken: %v", err)
			}
			end()
			down()
			time.Sleep(time.Minute + 700*time.Millisecond)
			down = b.up()
		}
	})
}

// untilReady waits until unary calls are taken, and for what happens then. It does not poll: minutes of the bubble's time pass at once, but every
// look in them would cost the machine a call.
func untilReady(t *testing.T, c *dial.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for state := c.GetState(); state != connectivity.Ready; state = c.GetState() {
		if !c.WaitForStateChange(ctx, state) {
			t.Fatalf("the backend is back, but the connection stays %v", state)
		}
	}
	if _, err := empty(t, c); err != nil {
		t.Fatalf("a unary call when the connection is ready: %v", err)
	}
	synctest.Wait()
}
