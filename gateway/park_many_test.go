package gateway_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestParkedCallerSends has the caller of a parked stream send bytes that are no request of its: they are thrown away, and the stream goes on to its end.
func TestParkedCallerSends(t *testing.T) {
	b, s := newScript(t)
	srv, parked := parkingServer(t, b, nil)
	conn, r := openRaw(t, srv)
	defer conn.Close()
	await(t, "start", s.started)
	await(t, "parking", parked)
	junk := strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000)
	for range 100 { // more than the system's buffers hold
		if _, err := io.WriteString(conn, junk); err != nil {
			t.Fatal(err)
		}
	}
	s.send <- `{"title":"a"}`
	s.end <- nil
	got, err := io.ReadAll(r)
	_, body, _ := strings.Cut(string(got), "\r\n\r\n")
	if err != nil || !strings.Contains(body, "data: {\"title\":\"a\"}\n\n") || !strings.HasSuffix(body, "event: end\ndata: {}\n\n\r\n0\r\n\r\n") {
		t.Errorf("body %q, %v", body, err)
	}
}

func openRaw(t *testing.T, srv *server) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/shelves/s:watch HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// TestManyParkedStreams has streams come and go at once, ended by the backend or by callers who close, break off or send at random moments: before, while
// and after they are parked. Every one ends at the backend, and who stays reads the whole of his.
func TestManyParkedStreams(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	book := b.book(t, `{"title":"a"}`)
	var open, cancelled atomic.Int64
	b.handle = map[string]grpc.StreamHandler{watch: func(_ any, stream grpc.ServerStream) error {
		open.Add(1)
		defer open.Add(-1)
		if err := stream.RecvMsg(dynamicpb.NewMessage(b.snapshot.Method(watch).Desc.Input())); err != nil {
			return err
		}
		for range 5 {
			select {
			case <-time.After(time.Duration(rand.IntN(4000)) * time.Microsecond):
			case <-stream.Context().Done():
				cancelled.Add(1)
				return stream.Context().Err()
			}
			if err := stream.SendMsg(book); err != nil {
				return err
			}
		}
		return nil
	}}
	srv, parked := parkingServer(t, b, nil)
	var drained sync.WaitGroup
	stop := make(chan struct{})
	n := 0
	drained.Go(func() {
		for {
			select {
			case <-parked:
				n++
			case <-stop:
				return
			}
		}
	})
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			conn, r := openRaw(t, srv)
			defer conn.Close()
			switch i % 4 {
			case 0:
				time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
			case 1:
				time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
				_ = conn.(*net.TCPConn).SetLinger(0) // which breaks the connection
			case 2:
				_, _ = io.WriteString(conn, "more")
				fallthrough
			default:
				got, err := io.ReadAll(r)
				if err != nil || strings.Count(string(got), "data: {\"title\":\"a\"}") != 5 || !strings.HasSuffix(string(got), "event: end\ndata: {}\n\n\r\n0\r\n\r\n") {
					t.Errorf("read %q, %v", got, err)
				}
			}
		})
	}
	callers.Wait()
	for end := time.Now().Add(patience); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d streams go on at the backend", open.Load())
		}
	}
	close(stop)
	drained.Wait()
	if n == 0 || cancelled.Load() == 0 {
		t.Errorf("%d streams were parked, %d cancelled", n, cancelled.Load())
	}
}
