package hangup_test

import (
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/toolway/toolway/internal/hangup"
)

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestOneGoroutine counts what watching many connections takes, and what is left when they are closed.
func TestOneGoroutine(t *testing.T) {
	var w hangup.Watcher
	const n = 200
	var owns, peers []net.Conn
	for range n {
		own, peer := tcp(t)
		owns, peers = append(owns, own), append(peers, peer)
	}
	goroutines, before := runtime.NumGoroutine(), descriptors(t)
	for range 2 {
		var conns []*hangup.Conn
		for _, own := range owns {
			c, gone := watch(&w, own)
			conns = append(conns, c)
			still(t, "a connection that is open", gone)
		}
		if now := runtime.NumGoroutine(); now > goroutines+1 {
			t.Errorf("%d goroutines for %d connections", now-goroutines, n)
		}
		if now := descriptors(t); now > before+1 {
			t.Errorf("%d descriptors more for %d connections", now-before, n)
		}
		for i, c := range conns {
			_ = c.Close()
			_ = peers[i].Close()
		}
		if now := descriptors(t); now > before-2*n {
			t.Errorf("%d descriptors are left of %d", now-before+2*n, 2*n)
		}
		owns, peers = owns[:0], peers[:0]
		for range n {
			own, peer := tcp(t)
			owns, peers = append(owns, own), append(peers, peer)
		}
	}
	for _, own := range owns {
		_ = own.Close()
	}
}
