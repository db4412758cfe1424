package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
)

// parkingServer serves with a gateway that parks streams as soon as they are silent, and tells of each.
func parkingServer(t *testing.T, b *backend, edit func(*gateway.Config)) (*server, <-chan string) {
	t.Helper()
	return parkingServerOf(t, b, edit, nil)
}

// parkingServerOf is parkingServer with a handler around the gateway.
func parkingServerOf(t *testing.T, b *backend, edit func(*gateway.Config), wrap func(http.Handler) http.Handler) (*server, <-chan string) {
	t.Helper()
	parked := make(chan string, 100)
	return parkingServerWith(t, b, serverOptions{parked: parked, wrap: wrap, config: edit}), parked
}

// parkingServerWith is parkingServer with other options.
func parkingServerWith(t *testing.T, b *backend, o serverOptions) *server {
	t.Helper()
	edit := o.config
	o.config = func(c *gateway.Config) {
		c.Grace, c.ParkAfter = time.Millisecond, time.Millisecond
		if edit != nil {
			edit(c)
		}
	}
	srv := startServer(t, b, o)
	t.Cleanup(func() {
		srv.g.Cut(context.Canceled)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.g.Shutdown(ctx); err != nil {
			t.Errorf("parked streams are left: %v", err)
		}
	})
	return srv
}

// TestParkedStream has a stream parked before its first message, and another one after its first, and reads both to their end.
func TestParkedStream(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first=%v", first), func(t *testing.T) {
			b, s := newScript(t)
			srv, parked := parkingServer(t, b, nil)
			res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
			r := bufio.NewReader(res.Body)
			next := func(want string) {
				t.Helper()
				if got := readEvent(t, r); got != "data: "+want {
					t.Fatalf("event %q, want %q", got, want)
				}
			}
			await(t, "start", s.started)
			if first {
				s.send <- `{"title":"first"}`
				next(`{"title":"first"}`)
			}
			await(t, "parking", parked)
			for i := range 50 { // each is read before the next is sent
				s.send <- fmt.Sprintf(`{"pages":%d}`, i+1)
				next(fmt.Sprintf(`{"pages":%d}`, i+1))
			}
			for i := range 500 { // and these are not
				s.send <- fmt.Sprintf(`{"pages":%d}`, i+1)
			}
			s.end <- nil
			for i := range 500 {
				next(fmt.Sprintf(`{"pages":%d}`, i+1))
			}
			if rest, err := io.ReadAll(r); err != nil || string(rest) != "event: end\ndata: {}\n\n" {
				t.Errorf("after the last message: %q, %v, want the end", rest, err)
			}
		})
	}
}

// TestParkedStreamHoldsNothingOfItsRequest has the collector find the request and net/http's answer, with their buffers, while the stream goes on.
func TestParkedStreamHoldsNothingOfItsRequest(t *testing.T) {
	b, s := newScript(t)
	found := make(chan string, 2)
	srv, parked := parkingServerOf(t, b, nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runtime.AddCleanup(r, func(what string) { found <- what }, "request")
			own := &wrapped{w}
			runtime.AddCleanup(own, func(what string) { found <- what }, "answer")
			h.ServeHTTP(own, r)
		})
	})
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	r := bufio.NewReader(res.Body)
	await(t, "start", s.started)
	s.send <- `{"title":"first"}`
	readEvent(t, r)
	await(t, "parking", parked)
	for left, end := 2, time.Now().Add(patience); left > 0; {
		runtime.GC()
		select {
		case what := <-found:
			t.Log(what, "is garbage")
			left--
		case <-time.After(time.Millisecond):
			if time.Now().After(end) {
				t.Fatalf("%d of request and answer are still held", left)
			}
		}
	}
	s.send <- `{"title":"second"}`
	if got := readEvent(t, r); got != `data: {"title":"second"}` {
		t.Errorf("event %q", got)
	}
	s.end <- nil
}

// TestRequestAfterAParkedStream has a client with a pool of connections send a request that it does not send twice, right after the end of a parked
// stream: that must not go to the connection that the end closes.
func TestRequestAfterAParkedStream(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	for i := range 200 {
		res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
		if !res.Close {
			t.Fatalf("stream %d: header without Connection: close: %v", i, res.Header)
		}
		await(t, "start", s.started)
		await(t, "parking", parked)
		s.end <- nil
		if body := text(t, res); !strings.HasSuffix(body, "event: end\ndata: {}\n\n") {
			t.Fatalf("stream %d: body %q", i, body)
		}
		res = srv.open(t.Context(), "POST", "/v1/shelves/s/books", strings.NewReader("{}"), "Content-Type", "application/json")
		if body := text(t, res); res.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %d %s", i, res.StatusCode, body)
		}
	}
}

// TestWhoseConnectionCloses reads streams that are not silent: those that could be parked say that their connection closes, which does not depend on
// whether they are.
func TestWhoseConnectionCloses(t *testing.T) {
	for _, tt := range []struct {
		name, accept string
		http2        bool
		parkAfter    time.Duration
		closes       bool
	}{
		{name: "events", accept: "text/event-stream", parkAfter: patience, closes: true},
		{name: "events over HTTP/2", accept: "text/event-stream", parkAfter: patience, http2: true},
		{name: "events without parking", accept: "text/event-stream"},
		{name: "lines", parkAfter: patience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, s := newScript(t)
			srv := startServer(t, b, serverOptions{http2: tt.http2, config: func(c *gateway.Config) { c.ParkAfter = tt.parkAfter }})
			ctx, connected := connections(t.Context())
			for i := range 3 {
				go func() {
					s.send <- `{"title":"a"}`
					s.end <- nil
				}()
				res := srv.open(ctx, "GET", "/v1/shelves/s:watch", nil, "Accept", tt.accept)
				if body := text(t, res); !strings.Contains(body, `{"title":"a"}`) {
					t.Errorf("body %q", body)
				}
				await(t, "start", s.started)
				if (res.ProtoMajor == 2) != tt.http2 || res.Close != tt.closes || tt.http2 && res.Header.Get("Connection") != "" {
					t.Errorf("%s, Connection: close %v, header %v; want closing %v", res.Proto, res.Close, res.Header, tt.closes)
				}
				if reused := await(t, "connection", connected); reused != (i > 0 && !tt.closes) {
					t.Errorf("stream %d over a used connection: %v", i, reused)
				}
			}
		})
	}
}

// TestLinesAreNotParked has streams of lines silent for longer than others take to be parked. Their connection serves the next one.
func TestLinesAreNotParked(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	measure, other := newScript(t)
	clock, passed := parkingServer(t, measure, nil)
	ctx, connected := connections(t.Context())
	for i := range 5 {
		res := srv.open(ctx, "GET", "/v1/shelves/s:watch", nil)
		await(t, "start", s.started)
		if reused := await(t, "connection", connected); reused != (i > 0) {
			t.Errorf("stream %d over a used connection: %v", i, reused)
		}
		_ = clock.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
		await(t, "start", other.started)
		await(t, "parking", passed)
		other.end <- nil
		s.send <- `{"title":"a"}`
		s.end <- nil
		if body := text(t, res); body != "{\"title\":\"a\"}\n" || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("body %q, trailer %v", body, res.Trailer)
		}
	}
	if len(parked) > 0 {
		t.Error("a stream of lines has been parked")
	}
}

// connections returns a context whose requests tell whether their connection has been used before.
func connections(ctx context.Context) (context.Context, <-chan bool) {
	reused := make(chan bool, 100)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused <- c.Reused }}), reused
}

// TestParkedOldHTTP reads a stream over HTTP/1.0, whose end is the connection's.
func TestParkedOldHTTP(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/shelves/s:watch HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	await(t, "start", s.started)
	await(t, "parking", parked)
	s.send <- `{"title":"a"}`
	s.end <- nil
	all, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(all), "\r\n\r\n")
	if got := retryLine.ReplaceAllString(body, ""); err != nil || got != "data: {\"title\":\"a\"}\n\nevent: end\ndata: {}\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestParkedOverTLS reads a parked stream over TLS to its end, and goes away from another.
func TestParkedOverTLS(t *testing.T) {
	for _, stays := range []bool{true, false} {
		b, s := newScript(t)
		parked := make(chan string, 1)
		srv := parkingServerWith(t, b, serverOptions{tls: true, parked: parked})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res := srv.open(ctx, "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
		if res.TLS == nil || res.ProtoMajor != 1 {
			t.Fatalf("%s, TLS %v", res.Proto, res.TLS)
		}
		await(t, "start", s.started)
		await(t, "parking", parked)
		if !stays {
			cancel()
			await(t, "cancellation at the backend", s.gone)
			continue
		}
		s.send <- `{"title":"a"}`
		s.end <- nil
		if body := text(t, res); !strings.HasSuffix(body, "data: {\"title\":\"a\"}\n\nevent: end\ndata: {}\n\n") {
			t.Errorf("body %q", body)
		}
	}
}

func TestParkedStreamBreaks(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	r := bufio.NewReader(res.Body)
	await(t, "parking", parked)
	s.end <- status.Error(codes.NotFound, "shelf is gone")
	if got, want := readEvent(t, r), "event: error\ndata: {\"code\":5,\"message\":\"shelf is gone\"}"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

func TestParkedStreamIsKeptAlive(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, func(c *gateway.Config) { c.Heartbeat = 10 * time.Millisecond })
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	r := bufio.NewReader(res.Body)
	await(t, "parking", parked)
	for range 20 {
		if got := readEvent(t, r); got != ": keep-alive" {
			t.Fatalf("event %q, want a comment", got)
		}
	}
	s.send <- `{"title":"late"}`
	for {
		if e := readEvent(t, r); e == `data: {"title":"late"}` {
			break
		} else if e != ": keep-alive" {
			t.Fatalf("event %q", e)
		}
	}
}

func TestParkedCallerGoesAway(t *testing.T) {
	for range 20 {
		b, s := newScript(t)
		srv, parked := parkingServer(t, b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_ = srv.open(ctx, "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
		await(t, "start", s.started)
		await(t, "parking", parked)
		cancel()
		await(t, "cancellation at the backend", s.gone)
	}
}

// TestParkedCallerDoesNotRead drops a caller who stops reading after its stream has been parked.
func TestParkedCallerDoesNotRead(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	begin, ended, sent := make(chan struct{}), make(chan int, 1), 0
	big := b.book(t, fmt.Sprintf(`{"title":%q}`, strings.Repeat("x", 32<<10)))
	b.handle = map[string]grpc.StreamHandler{watch: func(_ any, stream grpc.ServerStream) error {
		defer func() { ended <- sent }()
		if err := stream.RecvMsg(dynamicpb.NewMessage(b.snapshot.Method(watch).Desc.Input())); err != nil {
			return err
		}
		<-begin
		for ; ; sent++ {
			if err := stream.SendMsg(big); err != nil {
				return err
			}
		}
	}}
	srv, parked := parkingServer(t, b, func(c *gateway.Config) { c.StallTimeout = 100 * time.Millisecond })
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	await(t, "parking", parked)
	close(begin)
	if n := await(t, "end of the backend's stream", ended); n > 2000 {
		t.Errorf("backend sent %d messages of 32 KiB to a caller who reads nothing", n)
	}
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("the body ends as if it were whole")
	}
}

// TestParkedStreamsEndWithTheServer tells the readers of parked streams that the server stops, and cuts them.
func TestParkedStreamsEndWithTheServer(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	r := bufio.NewReader(res.Body)
	await(t, "start", s.started)
	await(t, "parking", parked)
	srv.g.Drain()
	if got := readEvent(t, r); got != "event: server_draining\ndata: {}" {
		t.Errorf("event %q", got)
	}
	spent, cancel := context.WithCancel(t.Context())
	cancel()
	waited := make(chan error, 1)
	go func() { waited <- srv.g.Shutdown(t.Context()) }()
	srv.g.Cut(call.Error(codes.Unavailable, "SHUTTING_DOWN", "the mesh is shutting down"))
	await(t, "cancellation at the backend", s.gone)
	if got := readEvent(t, r); !strings.HasPrefix(got, "event: error\n") || !strings.Contains(got, "SHUTTING_DOWN") {
		t.Errorf("event %q, want the cause", got)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("after the last event: %v", err)
	}
	if err := await(t, "end of Shutdown", waited); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := srv.g.Shutdown(spent); err != nil {
		t.Errorf("Shutdown without streams = %v", err)
	}
}

// TestShutdownHangsUp closes what is still open when the time for it is over.
func TestShutdownHangsUp(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	_ = srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", "text/event-stream")
	await(t, "start", s.started)
	await(t, "parking", parked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := srv.g.Shutdown(ctx); err == nil {
		t.Error("Shutdown with a stream and no time = nil")
	}
	await(t, "cancellation at the backend", s.gone)
}
