package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/gateway"
)

// patience is how long a test waits for an event that must come.
const patience = time.Minute

const watch = library + "Watch"

// server is a gateway on a real socket before a real backend.
type server struct {
	*httptest.Server
	t testing.TB
	b *backend
	g *gateway.Gateway
}

type serverOptions struct {
	config  func(*gateway.Config)
	http2   bool
	tls     bool          // over HTTP/1
	timeout time.Duration // of the server, to read and to write
	wrap    func(http.Handler) http.Handler
	closed  chan<- string // gets the remote address of each connection that the server closes
	parked  chan<- string // and of each that the gateway takes over
}

func startServer(t testing.TB, b *backend, o serverOptions) *server {
	t.Helper()
	g := newGateway(t, b, o.config)
	var h http.Handler = g
	if o.wrap != nil {
		h = o.wrap(g)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = o.timeout, o.timeout
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		switch {
		case s == http.StateClosed && o.closed != nil:
			o.closed <- c.RemoteAddr().String()
		case s == http.StateHijacked && o.parked != nil:
			o.parked <- c.RemoteAddr().String()
		}
	}
	srv.EnableHTTP2 = o.http2
	if o.http2 || o.tls {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return &server{Server: srv, t: t, b: b, g: g}
}

// open starts a request and gives up after patience.
func (s *server) open(ctx context.Context, method, path string, body io.Reader, header ...string) *http.Response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (b *backend) book(t testing.TB, json string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(b.snapshot.Method(library + "Plain").Desc.Output())
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// script is a server-streaming handler that a test drives.
type script struct {
	b       *backend
	t       testing.TB
	send    chan string // JSON of a book
	end     chan error
	started chan struct{}
	gone    chan struct{} // closed when the backend sees the call cancelled
}

func newScript(t testing.TB) (*backend, *script) {
	b := &backend{snapshot: librarySnapshot(t)}
	s := &script{b: b, t: t, send: make(chan string), end: make(chan error), started: make(chan struct{}, 1), gone: make(chan struct{})}
	b.handle = map[string]grpc.StreamHandler{watch: s.serve}
	return b, s
}

func (s *script) serve(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(dynamicpb.NewMessage(s.b.snapshot.Method(watch).Desc.Input())); err != nil {
		return err
	}
	s.started <- struct{}{}
	for {
		select {
		case json := <-s.send:
			if err := stream.SendMsg(s.b.book(s.t, json)); err != nil {
				return err
			}
		case err := <-s.end:
			return err
		case <-stream.Context().Done():
			close(s.gone)
			return stream.Context().Err()
		}
	}
}

func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}

// readEvent returns the next event or comment without its blank line and how long to wait before coming back.
func readEvent(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read event: %v after %q", err, b.String())
		}
		if strings.HasPrefix(line, "retry: ") {
			continue
		}
		if line == "\n" && b.Len() > 0 {
			return strings.TrimSuffix(b.String(), "\n")
		}
		if line != "\n" {
			b.WriteString(line)
		}
	}
}

// retryLine is the first thing in every event stream.
var retryLine = regexp.MustCompile(`^retry: [0-9]+\n\n`)

func TestEventStream(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			b, s := newScript(t)
			srv := startServer(t, b, serverOptions{http2: http2, config: func(c *gateway.Config) { c.Grace = time.Millisecond }})
			// Nothing has been sent yet: the header must come all the same.
			res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
			for k, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
				if got := res.Header.Get(k); got != want {
					t.Errorf("%s = %q, want %q", k, got, want)
				}
			}
			if res.Header.Get("X-Request-Id") == "" {
				t.Error("no X-Request-Id")
			}
			r := bufio.NewReader(res.Body)
			for i := range 3 { // each is read before the next is sent
				s.send <- fmt.Sprintf(`{"title":"t%d\nx"}`, i)
				if got, want := readEvent(t, r), fmt.Sprintf(`data: {"title":"t%d\nx"}`, i); got != want {
					t.Errorf("event %q, want %q", got, want)
				}
			}
			s.end <- nil
			if got := readEvent(t, r); got != "event: end\ndata: {}" {
				t.Errorf("last event %q", got)
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("after the end: %q, %v", rest, err)
			}
		})
	}
}

func TestLineStream(t *testing.T) {
	b, s := newScript(t)
	srv := startServer(t, b, serverOptions{config: func(c *gateway.Config) { c.Grace = time.Millisecond }})
	for _, accept := range []string{"*/*", "application/json", "text/event-stream;q=0"} {
		res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", accept)
		if got := res.Header.Get("Content-Type"); got != "application/x-ndjson" {
			t.Errorf("Accept %q: Content-Type %q", accept, got)
		}
		await(t, "start", s.started)
		r := bufio.NewReader(res.Body)
		for i := range 2 {
			s.send <- fmt.Sprintf(`{"pages":%d}`, i+1)
			if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("{\"pages\":%d}\n", i+1) {
				t.Fatalf("line %q, %v", line, err)
			}
		}
		s.end <- nil
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("after the end: %q, %v, trailer %v", rest, err, res.Trailer)
		}
	}
}

func TestStreamRefusedBeforeTheFirstByte(t *testing.T) {
	b, s := newScript(t)
	srv := startServer(t, b, serverOptions{config: func(c *gateway.Config) { c.Grace = patience }})
	st, err := status.New(codes.Unavailable, "try later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"text/event-stream", "*/*"} {
		go func() { s.end <- st.Err() }()
		res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", accept)
		body := text(t, res)
		await(t, "start", s.started)
		want := `{"code":14,"message":"try later","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.500s"}]}`
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "2" || res.Header.Get("Content-Type") != "application/json" || body != want {
			t.Errorf("Accept %q: %d %v %s", accept, res.StatusCode, res.Header, body)
		}
	}
}

func TestEmptyStream(t *testing.T) {
	b, s := newScript(t)
	srv := startServer(t, b, serverOptions{config: func(c *gateway.Config) { c.Grace = patience }})
	for accept, want := range map[string]string{"text/event-stream": "event: end\ndata: {}\n\n", "*/*": ""} {
		go func() { s.end <- nil }()
		res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", accept)
		if got := retryLine.ReplaceAllString(text(t, res), ""); res.StatusCode != http.StatusOK || got != want {
			t.Errorf("Accept %q: %d %q, want %q", accept, res.StatusCode, got, want)
		}
		await(t, "start", s.started)
	}
}

func TestStreamBreaks(t *testing.T) {
	tests := []struct{ accept, want string }{
		{"text/event-stream", "data: {\"title\":\"a\"}\n\nevent: error\ndata: {\"code\":5,\"message\":\"shelf is gone\"}\n\n"},
		{"*/*", "{\"title\":\"a\"}\n{\"error\":{\"code\":5,\"message\":\"shelf is gone\"}}\n"},
	}
	for _, tt := range tests {
		b, s := newScript(t)
		srv := startServer(t, b, serverOptions{})
		go func() {
			s.send <- `{"title":"a"}`
			s.end <- status.Error(codes.NotFound, "shelf is gone")
		}()
		res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", tt.accept)
		if got := retryLine.ReplaceAllString(text(t, res), ""); res.StatusCode != http.StatusOK || got != tt.want {
			t.Errorf("Accept %q: %d %q, want %q", tt.accept, res.StatusCode, got, tt.want)
		}
	}
}

// Heartbeats outlast the server's timeouts many times over, and a reply still comes afterwards.
func TestSilentStreamIsKeptAlive(t *testing.T) {
	for i := range 4 {
		http2, post := i%2 == 1, i >= 2
		t.Run(fmt.Sprintf("http2=%v post=%v", http2, post), func(t *testing.T) {
			t.Parallel()
			b, s := newScript(t)
			// The TLS handshake has to fit into the timeout on a machine that is busy.
			srv := startServer(t, b, serverOptions{http2: http2, timeout: 500 * time.Millisecond, config: func(c *gateway.Config) {
				c.Grace, c.Heartbeat = time.Millisecond, 75*time.Millisecond
			}})
			var res *http.Response
			if post {
				res = srv.open(t.Context(), "POST", watch, strings.NewReader("{}"), "Accept", "text/event-stream", "Content-Type", "application/json")
			} else {
				res = srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
			}
			r := bufio.NewReader(res.Body)
			for range 20 {
				if got := readEvent(t, r); got != ": keep-alive" {
					t.Fatalf("event %q, want a comment", got)
				}
			}
			s.send <- `{"title":"late"}`
			s.end <- nil
			var events []string
			for len(events) < 2 {
				if e := readEvent(t, r); e != ": keep-alive" {
					events = append(events, e)
				}
			}
			if events[0] != `data: {"title":"late"}` || events[1] != "event: end\ndata: {}" {
				t.Errorf("events %q", events)
			}
		})
	}
}

func TestDrainIsTold(t *testing.T) {
	b, s := newScript(t)
	srv := startServer(t, b, serverOptions{})
	go func() { s.send <- `{"title":"a"}` }()
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	r := bufio.NewReader(res.Body)
	readEvent(t, r)
	srv.g.Drain()
	srv.g.Drain()
	if got := readEvent(t, r); got != "event: server_draining\ndata: {}" {
		t.Errorf("event %q", got)
	}
	s.end <- nil
	if got := readEvent(t, r); got != "event: end\ndata: {}" {
		t.Errorf("event %q", got)
	}
}

func TestCallerGoesAway(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for i := range 20 {
			b, s := newScript(t)
			srv := startServer(t, b, serverOptions{http2: http2})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { s.send <- `{"title":"a"}` }()
			res := srv.open(ctx, "GET", "/v1/shelves/s:watch", nil, "Accept", []string{"text/event-stream", "*/*"}[i%2])
			if _, err := res.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			cancel()
			await(t, "cancellation at the backend", s.gone)
			srv.Close()
		}
	}
}

// A caller who does not read slows the backend down, and is dropped after the stall timeout.
func TestCallerDoesNotRead(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			b := &backend{snapshot: librarySnapshot(t)}
			sent, ended := 0, make(chan int, 1)
			big := b.book(t, fmt.Sprintf(`{"title":%q}`, strings.Repeat("x", 32<<10)))
			b.handle = map[string]grpc.StreamHandler{watch: func(_ any, stream grpc.ServerStream) error {
				defer func() { ended <- sent }()
				if err := stream.RecvMsg(dynamicpb.NewMessage(b.snapshot.Method(watch).Desc.Input())); err != nil {
					return err
				}
				for {
					if err := stream.SendMsg(big); err != nil {
						return err
					}
					sent++
				}
			}}
			srv := startServer(t, b, serverOptions{http2: http2, config: func(c *gateway.Config) { c.StallTimeout = 100 * time.Millisecond }})
			res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil)
			n := await(t, "end of the backend's stream", ended)
			// What fits into socket buffers and flow-control windows, on loopback some megabytes, and no more.
			if n > 2000 {
				t.Errorf("backend sent %d messages of 32 KiB to a caller who reads nothing", n)
			}
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the body ends as if it were whole")
			}
		})
	}
}

// A large reply has a deadline too, and the deadline does not stay on the connection for later requests.
func TestUnaryCallerDoesNotRead(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprintf("server timeout %v", timeout), func(t *testing.T) {
			const stall = 500 * time.Millisecond // far more than a busy machine stands still
			b := &backend{snapshot: librarySnapshot(t)}
			big := b.book(t, fmt.Sprintf(`{"title":%q}`, strings.Repeat("x", 3<<20)))
			b.handle = map[string]grpc.StreamHandler{library + "Plain": func(_ any, stream grpc.ServerStream) error {
				if err := stream.RecvMsg(b.book(t, "{}")); err != nil {
					return err
				}
				return stream.SendMsg(big)
			}}
			closed := make(chan string, 10_000) // the hook must not wait
			srv := startServer(t, b, serverOptions{timeout: timeout, closed: closed, config: func(c *gateway.Config) { c.StallTimeout = stall }})
			post := library + "Plain"
			for start := time.Now(); time.Since(start) < 3*stall; {
				res := srv.open(t.Context(), "POST", post, strings.NewReader("{}"), "Content-Type", "application/json")
				if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 3<<20 || res.ContentLength != n {
					t.Fatalf("%d bytes of %d, %v", n, res.ContentLength, err)
				}
				res = srv.open(t.Context(), "GET", "/v1/books/b", nil)
				if body := text(t, res); res.StatusCode != http.StatusOK { // read to its end, so that the connection is used again
					t.Fatalf("small request after a large one: %d %s", res.StatusCode, body)
				}
			}
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
				t.Fatal(err)
			}
			// More requests than the sockets hold answers of.
			for range 8 {
				if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", post); err != nil {
					t.Fatal(err)
				}
			}
			for await(t, "end of the connection whose caller does not read", closed) != conn.LocalAddr().String() {
			}
		})
	}
}

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type opaque struct{ http.ResponseWriter }

func TestWrappedWriters(t *testing.T) {
	b, s := newScript(t)
	srv := startServer(t, b, serverOptions{wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{wrapped{w}}, r) })
	}})
	go func() { s.send <- `{"title":"a"}` }()
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	if got := readEvent(t, bufio.NewReader(res.Body)); got != `data: {"title":"a"}` {
		t.Errorf("event %q", got)
	}
	s.end <- nil
	w := httptest.NewRecorder()
	srv.g.ServeHTTP(opaque{w}, httptest.NewRequest(http.MethodGet, "/v1/shelves/s:watch", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("writer that cannot flush: %d, want 500 before anything is sent", w.Code)
	}
}

// TestDeadline pins that a caller's deadline goes to the backend and ends the call. A short one may be over before the backend has the call, so what the
// backend sees is asked with a long one.
func TestDeadline(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	const short, long = 50 * time.Millisecond, time.Hour
	seen := make(chan time.Duration, 1)
	b.handle = map[string]grpc.StreamHandler{library + "Plain": func(_ any, stream grpc.ServerStream) error {
		end, ok := stream.Context().Deadline()
		if !ok {
			return status.Error(codes.Internal, "no deadline")
		}
		if left := time.Until(end); left > short {
			seen <- left
			return status.Error(codes.AlreadyExists, "there is time")
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	srv := startServer(t, b, serverOptions{})
	for timeout, want := range map[string]int{"50m": http.StatusGatewayTimeout, "1H": http.StatusConflict} {
		res := srv.open(t.Context(), "POST", library+"Plain", strings.NewReader("{}"), "Content-Type", "application/json", "Grpc-Timeout", timeout, "X-Request-Id", "r-1")
		if body := text(t, res); res.StatusCode != want || res.Header.Get("X-Request-Id") != "r-1" {
			t.Errorf("Grpc-Timeout %q: %d %s, request id %q; want %d and r-1", timeout, res.StatusCode, body, res.Header.Get("X-Request-Id"), want)
		}
	}
	if left := await(t, "call", seen); left > long {
		t.Errorf("the backend saw a deadline in %v, want at most %v", left, long)
	}
	for _, bad := range []string{"1", "m", "1x", "123456789S", "-1S", " 1S ", "1.5S"} {
		res := srv.open(t.Context(), "POST", library+"Plain", strings.NewReader("{}"), "Content-Type", "application/json", "Grpc-Timeout", bad)
		if body := text(t, res); res.StatusCode != http.StatusBadRequest && strings.TrimSpace(bad) == bad {
			t.Errorf("Grpc-Timeout %q: %d %s, want 400", bad, res.StatusCode, body)
		}
	}
}

func TestRawStream(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	var fail error
	b.handle = map[string]grpc.StreamHandler{library + "Download": func(_ any, stream grpc.ServerStream) error {
		m := b.snapshot.Method(library + "Download")
		if err := stream.RecvMsg(dynamicpb.NewMessage(m.Desc.Input())); err != nil {
			return err
		}
		for _, part := range []string{`{"contentType":"text/csv","data":"YSxi"}`, `{"data":"CmMsZA=="}`} {
			msg := dynamicpb.NewMessage(m.Desc.Output())
			if err := protojson.Unmarshal([]byte(part), msg); err != nil {
				return err
			}
			if err := stream.SendMsg(msg); err != nil {
				return err
			}
		}
		return fail
	}}
	srv := startServer(t, b, serverOptions{})
	res := srv.open(t.Context(), "GET", "/v1/download/x", nil)
	if got := text(t, res); got != "a,b\nc,d" || res.Header.Get("Content-Type") != "text/csv" || res.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%q %v", got, res.Header)
	}
	fail = status.Error(codes.DataLoss, "disk")
	res = srv.open(t.Context(), "GET", "/v1/download/x", nil)
	if got, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("broken download reads as whole: %q", got)
	}
}
