package dial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/dial"
)

// crowded is a backend whose streams stay open and silent, and whose unary calls may be held up.
type crowded struct {
	testpb.UnimplementedTestServiceServer
	streams, calls atomic.Int64
	hold           chan struct{} // unary calls wait for it; nil: they do not
}

func (b *crowded) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	b.streams.Add(1)
	defer b.streams.Add(-1)
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (b *crowded) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	b.calls.Add(1)
	defer b.calls.Add(-1)
	if b.hold == nil {
		return &testpb.Empty{}, nil
	}
	select {
	case <-b.hold:
		return &testpb.Empty{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// crowd serves b with a health service on some addresses.
func crowd(t *testing.T, b *crowded, servers int, opts ...grpc.ServerOption) (targets []string) {
	t.Helper()
	for range servers {
		l := tcp(t)
		targets = append(targets, l.Addr().String())
		s := grpc.NewServer(opts...)
		testpb.RegisterTestServiceServer(s, b)
		healthpb.RegisterHealthServer(s, health.NewServer())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Serve(l) })
		t.Cleanup(func() { s.Stop(); wg.Wait() })
	}
	return targets
}

// tail opens a stream that stays open until end is called, and waits until the backend has taken it.
func tail(ctx context.Context, c *dial.Conn) (addr string, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.OpenStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/grpc.testing.TestService/StreamingOutputCall")
	if err == nil {
		err = s.SendMsg(&testpb.StreamingOutputCallRequest{})
	}
	if err == nil {
		_, err = s.Header()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	p, _ := peer.FromContext(s.Context())
	return p.Addr.String(), func() {
		cancel()
		_ = s.RecvMsg(&testpb.StreamingOutputCallResponse{}) // returns when the stream has ended
	}, nil
}

// tails opens n streams at a time and returns how many each address has.
func tails(t *testing.T, c *dial.Conn, n int) (at map[string]int, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var ends []func()
	at = map[string]int{}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			addr, end, err := tail(ctx, c)
			if err != nil {
				t.Errorf("open a stream: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			at[addr]++
			ends = append(ends, end)
		})
	}
	wg.Wait()
	return at, func() {
		for _, end := range ends {
			end()
		}
	}
}

func connections(c *dial.Conn) string {
	calls, streams := c.Connections()
	return fmt.Sprintf("%d for calls, %d for streams", calls, streams)
}

// TestStreamsDoNotBlockCalls has far more idle streams than one connection carries: unary calls, health and reflection-like streams on the first
// connection go on, connections are made as they are needed and closed when they are not.
func TestStreamsDoNotBlockCalls(t *testing.T) {
	b := &crowded{}
	c := open(t, dial.Config{Targets: crowd(t, b, 1, grpc.MaxConcurrentStreams(8)), IdleAfter: 20 * time.Millisecond})
	if _, err := empty(t, c); err != nil {
		t.Fatal(err)
	}
	if got := connections(c); got != "1 for calls, 0 for streams" {
		t.Errorf("before there are streams: %s", got)
	}
	_, end := tails(t, c, 100)
	// One of the eight is the health watch's.
	if got := connections(c); got != "1 for calls, 15 for streams" {
		t.Errorf("100 streams at 7 on a connection: %s", got)
	}
	if got := b.streams.Load(); got != 100 {
		t.Errorf("the backend has %d streams, want 100", got)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := empty(t, c); err != nil {
				t.Errorf("unary call beside 100 streams: %v", err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := healthpb.NewHealthClient(c.ClientConn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health beside 100 streams: %v", err)
	}
	end()
	eventually(t, "idle connections are closed", func() bool { _, streams := c.Connections(); return streams == 0 })
	if _, end, err := tail(ctx, c); err != nil {
		t.Errorf("a stream after connections were closed: %v", err)
	} else {
		end()
	}
}

// TestStreamsFull refuses a stream at once when the connections that there may be are full, and takes one again when another has ended.
func TestStreamsFull(t *testing.T) {
	c := open(t, dial.Config{Targets: crowd(t, &crowded{}, 1, grpc.MaxConcurrentStreams(8)), MaxConnections: 3})
	_, end := tails(t, c, 13)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, last, err := tail(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = tail(ctx, c)
	var full *dial.FullError
	if !errors.As(err, &full) || full.Connections != 2 || full.Streams != 14 {
		t.Errorf("the 15th stream on 2 connections of 7: %v, want to be told that they are full", err)
	}
	if got := status.Code(err); got != codes.Unavailable {
		t.Errorf("code %v, want UNAVAILABLE", got)
	}
	if _, err := empty(t, c); err != nil {
		t.Errorf("unary call beside full connections: %v", err)
	}
	last()
	if _, last, err = tail(ctx, c); err != nil {
		t.Fatalf("a stream after one has ended: %v", err)
	}
	last()
	end()
}

// TestStreamsOverEndpoints spreads streams over all endpoints, and uses up what all of them allow.
func TestStreamsOverEndpoints(t *testing.T) {
	b := &crowded{}
	targets := crowd(t, b, 3, grpc.MaxConcurrentStreams(8))
	c := open(t, dial.Config{Targets: targets})
	eventually(t, "all endpoints are connected", func() bool {
		at, end := tails(t, c, 6)
		end()
		return len(at) == 3
	})
	eventually(t, "the streams have ended", func() bool { return b.streams.Load() == 0 })
	at, end := tails(t, c, 21)
	defer end()
	if got := connections(c); got != "1 for calls, 1 for streams" {
		t.Errorf("21 streams at 7 on each of three endpoints: %s", got)
	}
	for _, target := range targets {
		if at[target] != 7 {
			t.Errorf("streams by endpoint: %v, want 7 each", at)
		}
	}
}

// TestCallsGrow makes another connection for unary calls when one is full, and no more than there may be; calls beyond wait for their turn.
func TestCallsGrow(t *testing.T) {
	b := &crowded{hold: make(chan struct{})}
	c := open(t, dial.Config{Targets: crowd(t, b, 1, grpc.MaxConcurrentStreams(8)), MaxConnections: 4, IdleAfter: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	call := func() {
		wg.Go(func() {
			if _, err := testpb.NewTestServiceClient(c).EmptyCall(ctx, &testpb.Empty{}); err != nil {
				t.Errorf("unary call: %v", err)
			}
		})
	}
	// Calls come until three connections carry all that they may. Those that came while another was being made wait at the first.
	eventually(t, "three connections are full", func() bool {
		if b.calls.Load() == 21 {
			return true
		}
		call()
		return false
	})
	if got := connections(c); got != "3 for calls, 0 for streams" {
		t.Errorf("one connection is left for streams: %s", got)
	}
	if _, end, err := tail(ctx, c); err != nil {
		t.Errorf("a stream beside full connections: %v", err)
	} else {
		end()
	}
	close(b.hold)
	wg.Wait()
	eventually(t, "idle connections are closed", func() bool { return connections(c) == "1 for calls, 0 for streams" })
}

// TestStreamsWithoutBound puts all streams on one connection where the server sets none, with TLS too.
func TestStreamsWithoutBound(t *testing.T) {
	a := newAuthority(t)
	for name, c := range map[string]struct {
		opts []grpc.ServerOption
		tls  *dial.TLS
		want string
	}{
		"plaintext":          {nil, nil, "1 for calls, 1 for streams"},
		"TLS":                {[]grpc.ServerOption{grpc.Creds(credentials.NewTLS(a.server(t, "localhost", false)))}, &dial.TLS{CAFile: a.file, ServerName: "localhost"}, "1 for calls, 1 for streams"},
		"TLS, with bound":    {[]grpc.ServerOption{grpc.Creds(credentials.NewTLS(a.server(t, "localhost", false))), grpc.MaxConcurrentStreams(101)}, &dial.TLS{CAFile: a.file, ServerName: "localhost"}, "1 for calls, 3 for streams"},
		"one stream at most": {[]grpc.ServerOption{grpc.MaxConcurrentStreams(1)}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := open(t, dial.Config{Targets: crowd(t, &crowded{}, 1, c.opts...), TLS: c.tls})
			n := 300
			if c.want == "" {
				n, c.want = 5, "1 for calls, 5 for streams"
			}
			_, end := tails(t, conn, n)
			defer end()
			if got := connections(conn); got != c.want {
				t.Errorf("%d streams: %s, want %s", n, got, c.want)
			}
			if _, err := empty(t, conn); err != nil {
				t.Errorf("unary call: %v", err)
			}
		})
	}
}

// TestCloseEndsStreams leaves no stream and no connection behind.
func TestCloseEndsStreams(t *testing.T) {
	b := &crowded{}
	c, err := dial.Open(dial.Config{Name: "b", Targets: crowd(t, b, 1, grpc.MaxConcurrentStreams(8))})
	if err != nil {
		t.Fatal(err)
	}
	_, end := tails(t, c, 20)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	end()
	eventually(t, "the backend's streams have ended", func() bool { return b.streams.Load() == 0 })
	if _, _, err := tail(t.Context(), c); status.Code(err) != codes.Canceled {
		t.Errorf("a stream after Close: %v, want CANCELLED", err)
	}
}

func TestMaxConnectionsRefused(t *testing.T) {
	_, err := dial.Open(dial.Config{Name: "b", Targets: []string{"127.0.0.1:1"}, MaxConnections: 1})
	if err == nil || !strings.Contains(err.Error(), "allow at least 2") {
		t.Errorf("Open with one connection: %v, want the mend", err)
	}
}
