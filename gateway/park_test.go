package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
	parked := make(chan string, 100)
	srv := startServer(t, b, serverOptions{parked: parked, config: func(c *gateway.Config) {
		c.Grace, c.ParkAfter = time.Millisecond, time.Millisecond
		if edit != nil {
			edit(c)
		}
	}})
	t.Cleanup(func() {
		srv.g.Cut(context.Canceled)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.g.Shutdown(ctx); err != nil {
			t.Errorf("parked streams are left: %v", err)
		}
	})
	return srv, parked
}

// TestParkedStream has a stream parked before its first message, and another one after its first, and reads both to their end.
func TestParkedStream(t *testing.T) {
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		for _, first := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s first=%v", accept, first), func(t *testing.T) {
				b, s := newScript(t)
				srv, parked := parkingServer(t, b, nil)
				res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil, "Accept", accept)
				r := bufio.NewReader(res.Body)
				next := func(want string) {
					t.Helper()
					if accept != "text/event-stream" {
						if line, err := r.ReadString('\n'); err != nil || line != want+"\n" {
							t.Fatalf("line %q, %v, want %q", line, err, want)
						}
					} else if got := readEvent(t, r); got != "data: "+want {
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
				want := ""
				if accept == "text/event-stream" {
					want = "event: end\ndata: {}\n\n"
				} else if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 || res.Trailer.Get("Grpc-Status") != "0" {
					t.Errorf("after the end: %q, %v, trailer %v", rest, err, res.Trailer)
				}
				if rest, err := io.ReadAll(r); err != nil || string(rest) != want {
					t.Errorf("after the last message: %q, %v, want %q", rest, err, want)
				}
				// The client's connection is used up, which it must not trip over.
				if res := srv.open(t.Context(), "GET", "/v1/books/b", nil); res.StatusCode != http.StatusOK {
					t.Errorf("the next request: %d", res.StatusCode)
				}
			})
		}
	}
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
	res := srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil)
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

// TestShortStreamsKeepTheConnection reads streams that are not silent one after the other over one connection.
func TestShortStreamsKeepTheConnection(t *testing.T) {
	b, s := newScript(t)
	closed := make(chan string, 100)
	srv := startServer(t, b, serverOptions{closed: closed, parked: closed, config: func(c *gateway.Config) { c.ParkAfter = patience }})
	for range 5 {
		go func() {
			s.send <- `{"title":"a"}`
			s.end <- nil
		}()
		if body := text(t, srv.open(t.Context(), "GET", "/v1/shelves/s:watch", nil)); body != "{\"title\":\"a\"}\n" {
			t.Errorf("body %q", body)
		}
		await(t, "start", s.started)
	}
	if len(closed) > 0 {
		t.Error("the server let a connection go")
	}
}
