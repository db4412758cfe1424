package mesh

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// counting counts the read deadlines that its connections are given.
type counting struct {
	net.Listener
	deadlines *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.deadlines}, err
}

type countingConn struct {
	net.Conn
	deadlines *atomic.Int64
}

func (c countingConn) SetReadDeadline(t time.Time) error {
	c.deadlines.Add(1)
	return c.Conn.SetReadDeadline(t)
}

// TestDeadlinesOfRequests has a server with the mesh's timeouts take requests with bodies over one connection: those deadlines that nothing waits with
// never reach the socket.
func TestDeadlinesOfRequests(t *testing.T) {
	const requests = 20
	of := func(late bool) int64 {
		var deadlines atomic.Int64
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Minute)), errors.Join(func() error { _, err := io.ReadAll(r.Body); return err }(), rc.SetReadDeadline(time.Time{}))); err != nil {
				t.Error(err)
			}
		}))
		srv.Config.ReadHeaderTimeout, srv.Config.IdleTimeout = time.Minute, time.Minute
		srv.Listener = counting{srv.Listener, &deadlines}
		if late {
			srv.Listener = lateListener{srv.Listener}
		}
		srv.Start()
		defer srv.Close()
		for range requests {
			res, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
		}
		return deadlines.Load()
	}
	if plain, late := of(false), of(true); late > plain/2 {
		t.Errorf("%d deadlines for %d requests, %d without the listener", late, requests, plain)
	}
}

// TestLateDeadlines has every kind of deadline reach a Read in time: one that is there before, one that comes while it waits, and one taken back.
func TestLateDeadlines(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := lateListener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read := func() error {
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	past := time.Unix(1, 0)
	_ = conn.SetReadDeadline(past)
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read after the deadline: %v", err)
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("Read with the deadline taken back: %v", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- read() }()
	for late := conn.(*lateConn); ; time.Sleep(time.Millisecond) {
		late.mu.Lock()
		reading := late.reading
		late.mu.Unlock()
		if reading > 0 {
			break
		}
	}
	_ = conn.SetReadDeadline(past)
	if err := <-waiting; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read under way at the deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err := conn.(*lateConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the caller reads %v, want the end", err)
	}
}

// TestSlowHeaderIsDropped has a caller that never finishes its header, which net/http bounds by a deadline.
func TestSlowHeaderIsDropped(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ReadHeaderTimeout = 20 * time.Millisecond
	srv.Listener = lateListener{srv.Listener}
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: ")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}
