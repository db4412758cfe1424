package mcpadapter_test

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// TestSlowReaderOfProgress has a client that takes the first sign of progress and no more for a while: the backend cannot send on, and calls beside it
// are answered. Then it reads on, to the end of the call.
func TestSlowReaderOfProgress(t *testing.T) {
	const (
		messages = 2000
		held     = 30 // of 4 KiB, in the buffers of a connection in memory and of net/http
	)
	snapshot, err := catalog.Static("shop", compile(t, shopProto))
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	handler := func(stream grpc.ServerStream) error {
		if !strings.HasSuffix(call.FromContext(stream.Context()).Method.FullMethod, "/Follow") {
			return small(stream)
		}
		if err := stream.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		for i := range messages {
			wire, err := proto.Marshal(&toolwayv1.ToolEvent{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{
				Done: float64(i + 1), Total: messages, Message: strings.Repeat("x", 4<<10)}}})
			if err != nil {
				return err
			}
			if err := stream.SendMsg(call.NewFrame(nil, wire)); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	}
	l := bufconn.Listen(4 << 10) // the kernel's would hold megabytes
	srv := &http.Server{Handler: mcpadapter.New(mcpadapter.Config{Catalog: catalog.Fixed(snapshot), Handler: handler}).HTTPHandler(), ReadHeaderTimeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		_ = srv.Close()
		wg.Wait()
	})
	post := func(body string) *bufio.Reader {
		t.Helper()
		conn, err := l.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		head := "POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
		for name, values := range headerOf("2025-11-25", "tools/call", "", "") {
			if strings.HasPrefix(name, "Mcp-") {
				head += name + ": " + values[0] + "\r\n"
			}
		}
		if _, err := io.WriteString(conn, head+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReaderSize(conn, 64)
	}
	until := func(r *bufio.Reader, want string) {
		t.Helper()
		for line := ""; !strings.Contains(line, want); {
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatalf("%v before %q", err, want)
			}
		}
	}
	slow := post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_follow","arguments":{},"_meta":{"progressToken":"p"}}}`)
	until(slow, `"progress":1,`)
	for range 50 {
		until(post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"orders_get","arguments":{"id":7}}}`), `"fine"`)
	}
	if n := sent.Load(); n > held {
		t.Errorf("the backend has sent %d messages of 4 KiB to a client that has taken one", n)
	}
	until(slow, `"progress":`+strconv.Itoa(messages)+",")
	until(slow, `"result":`)
}
