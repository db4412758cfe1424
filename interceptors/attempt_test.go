package interceptors_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

// faulty is a real backend that does to its n-th call, counted from 1, what a test wants.
type faulty struct {
	testpb.UnimplementedTestServiceServer
	addr   string
	calls  atomic.Int64
	unary  func(ctx context.Context, n int64) error
	stream func(s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse], n int64) error

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (f *faulty) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if err := f.unary(ctx, f.calls.Add(1)); err != nil {
		return nil, err
	}
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (f *faulty) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	return f.stream(s, f.calls.Add(1))
}

// cut breaks all connections, as a process that dies does, and returns when the call at hand has been told.
func (f *faulty) cut(ctx context.Context) error {
	f.mu.Lock()
	for c := range f.conns {
		_ = c.Close()
	}
	clear(f.conns)
	f.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

type keeping struct {
	net.Listener
	f *faulty
}

// Accept keeps connections, so that they can be cut.
func (l keeping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.f.mu.Lock()
		l.f.conns[c] = true
		l.f.mu.Unlock()
	}
	return c, err
}

func serveFaulty(t testing.TB, f *faulty) *dial.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.conns = map[net.Conn]bool{}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(keeping{l, f}) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	f.addr = l.Addr().String()
	conn := connect(t, "echo", f.addr)
	connected(t, conn)
	return conn
}

// connected waits until there is a connection: how long that takes is not what the tests are about.
func connected(t testing.TB, conn *dial.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) {
			t.Fatal("no connection")
		}
	}
}

func connect(t testing.TB, name, addr string) *dial.Conn {
	t.Helper()
	conn, err := dial.Open(dial.Config{Name: name, Targets: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// quick are options without noticeable waits and with no breaker in the way.
func quick() interceptors.AttemptOptions {
	return interceptors.AttemptOptions{Logger: discard(), Retry: interceptors.RetryOptions{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, Breaker: interceptors.BreakerOptions{Off: true}}
}

func router(o interceptors.AttemptOptions, conns map[string]*dial.Conn) (*backend.Router, *interceptors.Breakers) {
	policies, breakers := interceptors.DefaultAttempts(o)
	return backend.New(func(name string) *dial.Conn { return conns[name] }, nil, backend.Options{Attempts: interceptors.Attempts(policies...)}), breakers
}

// attempt makes one call and returns it with how it ended.
func attempt(ctx context.Context, r *backend.Router, m *catalog.Method, key string) (*call.Call, int, error) {
	c := call.New(m, call.GRPC)
	if key != "" {
		c.Key, c.Forward = key, metadata.Pairs(call.KeyHeader, key)
	}
	replies := 0
	err := r.Handle(nil, call.NewStream(ctx, c, call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { replies++; return nil }, nil))
	return c, replies, err
}

func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// outcomes are those of the attempts that were sent.
func outcomes(c *call.Call) string {
	var out []string
	for _, a := range c.Attempts {
		if a.Outcome == call.NotExecuted && a.Target == "" {
			continue
		}
		out = append(out, fmt.Sprintf("%s %v", a.Outcome, a.Code))
	}
	return strings.Join(out, ", ")
}

// TestAttempts has a backend that fails its first call in one way or another.
func TestAttempts(t *testing.T) {
	busy := func(_ context.Context, n int64) error {
		if n == 1 {
			return status.Error(codes.Unavailable, "busy")
		}
		return nil
	}
	for _, c := range []struct {
		name       string
		idempotent bool
		key        string
		do         func(f *faulty) func(ctx context.Context, n int64) error
		calls      int64
		code       codes.Code
		reason     string
		outcomes   string
	}{
		{"unavailable, idempotent", true, "", func(*faulty) func(context.Context, int64) error { return busy }, 2, codes.OK, "", "answered Unavailable, answered OK"},
		{"unavailable, key", false, "k", func(*faulty) func(context.Context, int64) error { return busy }, 2, codes.OK, "", "answered Unavailable, answered OK"},
		{"unavailable, neither", false, "", func(*faulty) func(context.Context, int64) error { return busy }, 1, codes.Unavailable, "", "answered Unavailable"},
		{"always unavailable", true, "", func(*faulty) func(context.Context, int64) error {
			return func(context.Context, int64) error { return status.Error(codes.Unavailable, "busy") }
		}, 3, codes.Unavailable, "", "answered Unavailable, answered Unavailable, answered Unavailable"},
		{"dies, idempotent", true, "", dies, 2, codes.OK, "", "unknown Unavailable, answered OK"},
		{"dies, key", false, "k", dies, 2, codes.OK, "", "unknown Unavailable, answered OK"},
		{"dies, neither", false, "", dies, 1, codes.Unavailable, "OUTCOME_UNKNOWN", "unknown Unavailable"},
		{"dies, a key that the contract does not know", false, "k", dies, 1, codes.Unavailable, "OUTCOME_UNKNOWN", "unknown Unavailable"},
		{"pushback", true, "", func(*faulty) func(context.Context, int64) error {
			return func(ctx context.Context, _ int64) error {
				_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "-1"))
				return status.Error(codes.Unavailable, "go away")
			}
		}, 1, codes.Unavailable, "", "answered Unavailable"},
		{"application error", true, "k", func(*faulty) func(context.Context, int64) error {
			return func(context.Context, int64) error { return status.Error(codes.NotFound, "no") }
		}, 1, codes.NotFound, "", "answered NotFound"},
		{"forged", true, "", func(*faulty) func(context.Context, int64) error {
			return func(context.Context, int64) error {
				return status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: REFUSED_STREAM")
			}
		}, 1, codes.Internal, "", "answered Internal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &faulty{}
			f.unary = c.do(f)
			o := quick()
			if strings.HasPrefix(c.name, "dies") { // how often it is refused until there is a connection again nobody knows
				o.Retry.MaxAttempts, o.Retry.BudgetBurst = 1000, 1000
			}
			r, _ := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
			m := method(t, "UnaryCall")
			m.Policy.Retry, m.Policy.KeyRequired = c.idempotent, strings.HasSuffix(c.name, ", key")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cl, _, err := attempt(ctx, r, m, c.key)
			if status.Code(err) != c.code || reason(err) != c.reason {
				t.Errorf("got %v, reason %q, want %v, reason %q", err, reason(err), c.code, c.reason)
			}
			if n := f.calls.Load(); n != c.calls || outcomes(cl) != c.outcomes {
				t.Errorf("%d calls at the backend: %s, want %d: %s", n, outcomes(cl), c.calls, c.outcomes)
			}
			if a := cl.Attempts[0]; a.Target != f.addr || a.Backend != "echo" || (a.Why == "") != (c.code == codes.OK && c.calls == 1) {
				t.Errorf("first attempt %+v: want its target %s and why it was not the answer", a, f.addr)
			}
			if !cl.Sent {
				t.Error("Sent = false")
			}
		})
	}
}

// dies executes the first call, then breaks the connection.
func dies(f *faulty) func(context.Context, int64) error {
	return func(ctx context.Context, n int64) error {
		if n == 1 {
			return f.cut(ctx)
		}
		return nil
	}
}

// TestDeadlineOutcome has a backend that never answers: nobody knows what it did, and there is no time to try again.
func TestDeadlineOutcome(t *testing.T) {
	f := &faulty{unary: func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }}
	conn := serveFaulty(t, f)
	if err := conn.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := router(quick(), map[string]*dial.Conn{"echo": conn})
	m := method(t, "UnaryCall")
	m.Policy.Retry = true
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c, _, err := attempt(ctx, r, m, "")
	if status.Code(err) != codes.DeadlineExceeded || len(c.Attempts) != 1 {
		t.Fatalf("got %v after %s, want DEADLINE_EXCEEDED after one attempt", err, outcomes(c))
	}
	if f.calls.Load() > 0 && (reason(err) != "OUTCOME_UNKNOWN" || c.Outcome() != call.Unknown) {
		t.Errorf("reason %q, outcome %q, want OUTCOME_UNKNOWN, unknown", reason(err), c.Outcome())
	}
}

// TestExecutionsPerWrite has a backend that dies after each second execution, and remembers keys: with a key each write is executed once and
// known to be; without one it is never sent twice.
func TestExecutionsPerWrite(t *testing.T) {
	const writes = 20
	for _, keyed := range []bool{true, false} {
		var mu sync.Mutex
		executed, sent := map[string]int{}, 0
		f := &faulty{}
		f.unary = func(ctx context.Context, n int64) error {
			md, _ := metadata.FromIncomingContext(ctx)
			key := fmt.Sprintf("call %d", n)
			if vs := md[call.KeyHeader]; len(vs) > 0 {
				key = vs[0]
			}
			mu.Lock()
			sent++
			again := executed[key] > 0
			if !again {
				executed[key]++
			}
			mu.Unlock()
			if n%2 == 1 && !again {
				return f.cut(ctx)
			}
			return nil
		}
		o := quick()
		o.Retry.MaxAttempts, o.Retry.BudgetBurst = 1000, 1000
		r, _ := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
		m := method(t, "UnaryCall")
		m.Policy.KeyRequired = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		good, unknown := 0, 0
		for i := range writes {
			key := ""
			if keyed {
				key = fmt.Sprintf("key %d", i)
			}
			_, _, err := attempt(ctx, r, m, key)
			switch {
			case err == nil:
				good++
			case reason(err) == "OUTCOME_UNKNOWN":
				unknown++
			default:
				t.Errorf("write %d: %v", i, err)
			}
		}
		mu.Lock()
		t.Logf("keyed %v: %d writes, %d sent, %d executed, %d answered, %d unknown", keyed, writes, sent, len(executed), good, unknown)
		if len(executed) != writes {
			t.Errorf("keyed %v: %d executions of %d writes", keyed, len(executed), writes)
		}
		if keyed && good != writes || !keyed && sent != writes {
			t.Errorf("keyed %v: %d of %d answered, %d sent: want all answered with a key, and none sent twice without", keyed, good, writes, sent)
		}
		mu.Unlock()
	}
}

// TestRefusedStream has a server that refuses every stream unprocessed (RFC 9113, section 8.7): that is proof, for any method.
func TestRefusedStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var streams atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { refuseStreams(conn, &streams) })
		}
	})
	conn := connect(t, "echo", l.Addr().String())
	t.Cleanup(func() { _ = conn.Close(); _ = l.Close(); wg.Wait() })
	connected(t, conn)
	r, _ := router(quick(), map[string]*dial.Conn{"echo": conn})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"UnaryCall", "StreamingOutputCall"} {
		c, _, err := attempt(ctx, r, method(t, name), "")
		if status.Code(err) != codes.Unavailable || reason(err) != "BACKEND_UNAVAILABLE" || c.Outcome() != call.NotExecuted {
			t.Errorf("%s: %v, reason %q, outcome %q, want UNAVAILABLE, BACKEND_UNAVAILABLE, not executed", name, err, reason(err), c.Outcome())
		}
		if len(c.Attempts) != 3 {
			t.Errorf("%s: %d attempts, want 3", name, len(c.Attempts))
		}
		for _, a := range c.Attempts {
			if a.Outcome != call.NotExecuted || a.Code != codes.Unavailable {
				t.Errorf("%s: attempt %+v, want it not executed", name, a)
			}
		}
	}
	if streams.Load() < 6 {
		t.Errorf("%d streams reached the server, want one for each attempt at least", streams.Load())
	}
}

func refuseStreams(conn net.Conn, streams *atomic.Int64) {
	defer func() { _ = conn.Close() }()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(conn, conn)
	if fr.WriteSettings() != nil {
		return
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			streams.Add(1)
			_ = fr.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
		case *http2.PingFrame:
			_ = fr.WritePing(true, f.Data)
		}
	}
}

// TestServerStream is tried again before its first message, not after.
func TestServerStream(t *testing.T) {
	for _, after := range []bool{false, true} {
		f := &faulty{stream: func(s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse], n int64) error {
			if n == 1 {
				if after {
					if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
				return status.Error(codes.Unavailable, "busy")
			}
			return s.Send(&testpb.StreamingOutputCallResponse{})
		}}
		r, _ := router(quick(), map[string]*dial.Conn{"echo": serveFaulty(t, f)})
		m := method(t, "StreamingOutputCall")
		m.Policy.Retry = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, replies, err := attempt(ctx, r, m, "")
		want, code := int64(2), codes.OK
		if after {
			want, code = 1, codes.Unavailable
		}
		if f.calls.Load() != want || status.Code(err) != code || replies != 1 {
			t.Errorf("after a message %v: %d calls, %d replies, %v (%s), want %d calls, one reply, %v", after, f.calls.Load(), replies, err, outcomes(c), want, code)
		}
	}
}

// TestHedge has a backend whose first answer never comes.
func TestHedge(t *testing.T) {
	cancelled := make(chan struct{})
	f := &faulty{unary: func(ctx context.Context, n int64) error {
		if n == 1 {
			<-ctx.Done()
			close(cancelled)
			return ctx.Err()
		}
		return nil
	}}
	o := quick()
	o.Hedge.Rule = func(*catalog.Method) *interceptors.HedgeRule { return &interceptors.HedgeRule{Delay: time.Millisecond} }
	r, _ := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
	m := method(t, "UnaryCall")
	m.Policy.Retry, m.Tool.Hints.ReadOnly = true, true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, replies, err := attempt(ctx, r, m, "")
	if err != nil || replies != 1 || len(c.Attempts) != 2 || !strings.HasPrefix(c.Attempts[0].Why, "hedged") || c.Outcome() != call.Answered {
		t.Fatalf("%v, %d replies, attempts %+v, want the answer of a second one", err, replies, c.Attempts)
	}
	select {
	case <-cancelled:
	case <-ctx.Done():
		t.Error("the slower attempt has not been cancelled")
	}
	// Without the contract's word there is no second attempt.
	m = method(t, "UnaryCall")
	m.Tool.Hints.ReadOnly = true
	if c, _, err := attempt(ctx, r, m, ""); err != nil || len(c.Attempts) != 1 {
		t.Errorf("%v, attempts %+v, want one", err, c.Attempts)
	}
}

// TestFailover has a first backend that is down, and one that is up but left alone.
func TestFailover(t *testing.T) {
	second := &faulty{unary: func(context.Context, int64) error { return nil }, stream: func(s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse], _ int64) error {
		return s.Send(&testpb.StreamingOutputCallResponse{})
	}}
	conns := map[string]*dial.Conn{"second": serveFaulty(t, second)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	conns["echo"] = connect(t, "echo", l.Addr().String())
	over := func(name string) *catalog.Method {
		m := method(t, name)
		m.Failover = "second"
		return m
	}
	o := quick()
	o.Breaker = interceptors.BreakerOptions{MinAttempts: 5, Open: time.Hour}
	r, breakers := router(o, conns)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"UnaryCall", "StreamingOutputCall"} {
		c, replies, err := attempt(ctx, r, over(name), "")
		if err != nil || replies != 1 || len(c.Attempts) != 2 || c.Attempts[1].Backend != "second" {
			t.Fatalf("%s: %v, %d replies, attempts %+v, want the second backend's answer", name, err, replies, c.Attempts)
		}
	}
	first := &faulty{unary: func(context.Context, int64) error { return status.Error(codes.Unavailable, "down") }}
	conns["echo"] = serveFaulty(t, first)
	for i := 0; breakers.State("echo") != "open" && i < 100; i++ {
		if _, _, err := attempt(ctx, r, over("UnaryCall"), ""); err == nil {
			t.Fatal("an attempt that the first backend has answered went to the second too")
		}
	}
	if _, _, err := attempt(ctx, r, over("UnaryCall"), ""); err != nil {
		t.Errorf("with an open breaker: %v, want the second backend's answer", err)
	}
}

// TestRequestStreamIsNotSentTwice has a client stream whose backend dies.
func TestRequestStreamIsNotSentTwice(t *testing.T) {
	f := &faulty{}
	conn := serveFaulty(t, f)
	r, _ := router(quick(), map[string]*dial.Conn{"echo": conn})
	m := method(t, "StreamingInputCall")
	m.Policy.Retry = true
	c := call.New(m, call.GRPC)
	err := r.Handle(nil, call.NewStream(t.Context(), c, call.One(call.NewFrame(nil, nil)), nil, nil))
	if status.Code(err) != codes.Unimplemented || len(c.Attempts) != 1 || errors.Is(err, io.EOF) {
		t.Errorf("%v after %s, want UNIMPLEMENTED after one attempt", err, outcomes(c))
	}
}
