package hangup_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolway/toolway/internal/hangup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// tcp returns the two ends of a connection.
func tcp(t *testing.T) (own, peer net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if peer, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if own, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	return own, peer
}

// pipe is a connection that is none of the system's.
func pipe(*testing.T) (own, peer net.Conn) { return net.Pipe() }

var kinds = map[string]func(*testing.T) (own, peer net.Conn){"tcp": tcp, "pipe": pipe}

// watch watches c; the channel is closed when gone is called, and a second time panics.
func watch(w *hangup.Watcher, c net.Conn) (*hangup.Conn, <-chan struct{}) {
	gone := make(chan struct{})
	return w.Watch(c, func() { close(gone) }), gone
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not in %v", what, patience)
	}
}

func still(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		t.Fatalf("%s: gone is called", what)
	default:
	}
}

func TestPeerCloses(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			var w hangup.Watcher
			own, peer := open(t)
			c, gone := watch(&w, own)
			other, otherPeer := open(t)
			kept, keptGone := watch(&w, other)
			if _, err := peer.Write(make([]byte, 1<<20)); err != nil { // more than buffers hold
				t.Fatal(err)
			}
			still(t, "after bytes that nobody asked for", gone)
			if err := peer.Close(); err != nil {
				t.Fatal(err)
			}
			await(t, "the peer closes", gone)
			if _, err := c.Write([]byte("x")); kind == "tcp" && err != nil {
				t.Errorf("the peer cannot be told any more: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			still(t, "another peer", keptGone)
			if err := kept.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			select {
			case <-keptGone:
			default:
				t.Error("Close has returned, and gone is not called")
			}
			_ = otherPeer.Close()
		})
	}
}

func TestPeerClosesItsSide(t *testing.T) {
	var w hangup.Watcher
	own, peer := tcp(t)
	c, gone := watch(&w, own)
	if err := peer.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	await(t, "the peer closes its side", gone)
	if _, err := c.Write([]byte("last")); err != nil {
		t.Errorf("Write = %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if got, err := io.ReadAll(peer); err != nil || string(got) != "last" {
		t.Errorf("the peer reads %q, %v", got, err)
	}
}

func TestConnectionBreaks(t *testing.T) {
	var w hangup.Watcher
	own, peer := tcp(t)
	c, gone := watch(&w, own)
	if err := errors.Join(peer.(*net.TCPConn).SetLinger(0), peer.Close()); err != nil { // RST
		t.Fatal(err)
	}
	await(t, "a reset", gone)
	_ = c.Close()
}

// TestClosedBefore watches connections that are over already, by either side.
func TestClosedBefore(t *testing.T) {
	for kind, open := range kinds {
		var w hangup.Watcher
		own, peer := open(t)
		if err := peer.Close(); err != nil {
			t.Fatal(err)
		}
		c, gone := watch(&w, own)
		await(t, kind+" whose peer has gone", gone)
		_ = c.Close()
		own, peer = open(t)
		if err := own.Close(); err != nil {
			t.Fatal(err)
		}
		c, gone = watch(&w, own)
		await(t, kind+" that is closed", gone)
		_ = c.Close()
		_ = peer.Close()
	}
}

// TestFlood has one peer send without end, which does not keep others from being noticed.
func TestFlood(t *testing.T) {
	var w hangup.Watcher
	own, peer := tcp(t)
	flooded, floodedGone := watch(&w, own)
	var sent atomic.Int64
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		for b := make([]byte, 64<<10); ; {
			n, err := peer.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	for range 50 {
		own, peer := tcp(t)
		c, gone := watch(&w, own)
		if err := peer.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, "a peer beside the flood", gone)
		_ = c.Close()
	}
	for end := time.Now().Add(patience); sent.Load() < 64<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("only %d bytes have been taken", sent.Load())
		}
	}
	still(t, "the flood", floodedGone)
	_ = flooded.Close()
	<-flood
}

// TestManyAtRandom has connections come, send, and go from either side, at once and in every order; all of them are told of once, by the end nothing
// is left (goleak; see also the descriptors), and a watcher that was empty meanwhile serves on.
func TestManyAtRandom(t *testing.T) {
	var w hangup.Watcher
	for range 3 {
		var told atomic.Int64
		const n = 300
		var all sync.WaitGroup
		for i := range n {
			own, peer := tcp(t)
			if i%10 == 0 {
				own, peer = net.Pipe()
			}
			all.Go(func() {
				gone := make(chan struct{})
				c := w.Watch(own, func() {
					told.Add(1)
					close(gone)
				})
				pause := func() { time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) }
				for range rand.IntN(3) {
					pause()
					_, _ = peer.Write(make([]byte, rand.IntN(1000)))
				}
				var ends sync.WaitGroup
				if rand.IntN(3) > 0 {
					ends.Go(func() {
						pause()
						_ = peer.Close()
					})
				}
				if rand.IntN(2) > 0 {
					ends.Go(func() {
						pause()
						<-gone
						_ = c.Close()
					})
					ends.Go(func() {
						time.Sleep(5 * time.Millisecond)
						_ = peer.Close()
					})
				}
				ends.Go(func() {
					pause()
					pause()
					_ = c.Close()
				})
				ends.Wait()
				<-gone
				_ = peer.Close()
			})
		}
		all.Wait()
		if got := told.Load(); got != n {
			t.Errorf("%d of %d are told of", got, n)
		}
	}
}
