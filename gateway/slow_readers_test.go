package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
)

// TestSlowReadersAreCheap has a stream that is read at full speed first, by which grpc-go's own window would grow to megabytes, then readers
// that stop after their first message: what each of them holds is bounded, and others are served.
func TestSlowReadersAreCheap(t *testing.T) {
	const (
		readers = 50
		warm    = 10000
		most    = 1 << 20 // bytes for one reader; the stream window and the buffers of both hops in this process are about half of it
	)
	var sent atomic.Int64
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{watch: func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(dynamicpb.NewMessage(b.snapshot.Method(watch).Desc.Input())); err != nil {
			return err
		}
		book := b.book(t, fmt.Sprintf(`{"title":%q}`, strings.Repeat("x", 10<<10)))
		for {
			if err := stream.SendMsg(book); err != nil {
				return err
			}
			sent.Add(1)
		}
	}}
	g := newGateway(t, b, func(c *gateway.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	// Connections in memory hold 4 KiB; the kernel's would hold megabytes.
	l := bufconn.Listen(4 << 10)
	srv := &http.Server{Handler: g}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		_ = srv.Close()
		wg.Wait()
	})
	open := func(size int) *bufio.Reader {
		t.Helper()
		conn, err := l.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /v1/shelves/s1:watch HTTP/1.0\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReaderSize(conn, size)
	}
	fast := open(64 << 10)
	line := func(r *bufio.Reader) {
		t.Helper()
		if _, err := r.ReadSlice('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for range warm {
		line(fast)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	settle := func() { // nobody reads, so the backend comes to a stop
		for still, last := 0, int64(-1); still < 20; time.Sleep(5 * time.Millisecond) {
			if now := sent.Load(); now != last {
				still, last = 0, now
				continue
			}
			still++
		}
	}
	settle()
	before := heap()
	for range readers {
		line(open(64))
	}
	settle()
	if each := (int64(heap()) - int64(before)) / readers; each > most {
		t.Errorf("a slow reader holds %d KiB, want at most %d", each>>10, most>>10)
	}
	if res := do(g, "POST", library+"GetBook", `{"name":"shelves/s1/books/b"}`); res.StatusCode != http.StatusOK {
		t.Errorf("a call beside slow readers: %d %s", res.StatusCode, text(t, res))
	}
	line(fast)
}
