package gateway_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
)

func (b *backend) echoBooks(_ any, stream grpc.ServerStream) error {
	for {
		m := dynamicpb.NewMessage(b.snapshot.Method(library + "Chat").Desc.Input())
		err := stream.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

func TestBidi(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, path := range []string{"/v1/chat", library + "Chat"} {
			t.Run(fmt.Sprintf("http2=%v %s", http2, path), func(t *testing.T) {
				t.Parallel()
				b := &backend{snapshot: librarySnapshot(t)}
				b.handle = map[string]grpc.StreamHandler{library + "Chat": b.echoBooks}
				// Of the server, which the stream outlives. The TLS handshake has to fit into it on a machine that is busy.
				const timeout = 500 * time.Millisecond
				srv := startServer(t, b, serverOptions{http2: http2, timeout: timeout, config: func(c *gateway.Config) { c.Grace = time.Millisecond }})
				body, in := io.Pipe()
				res := srv.open(t.Context(), "POST", path, body, "Content-Type", "application/x-ndjson")
				r := bufio.NewReader(res.Body)
				start := time.Now()
				for i := 0; i < 3 || time.Since(start) < 3*timeout; i++ { // ping-pong: each answer is read before the next question
					if _, err := fmt.Fprintf(in, "{\"pages\":%d}\n", i+1); err != nil {
						t.Fatal(err)
					}
					if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("{\"pages\":%d}\n", i+1) {
						t.Fatalf("line %q, %v", line, err)
					}
				}
				if err := in.Close(); err != nil {
					t.Fatal(err)
				}
				if rest, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 {
					t.Errorf("after the end: %q, %v", rest, err)
				}
			})
		}
	}
}

func TestClientStream(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Upload": func(_ any, stream grpc.ServerStream) error {
		m := b.snapshot.Method(library + "Upload")
		out := dynamicpb.NewMessage(m.Desc.Output())
		books := m.Desc.Output().Fields().ByName("books")
		for {
			in := dynamicpb.NewMessage(m.Desc.Input())
			err := stream.RecvMsg(in)
			if errors.Is(err, io.EOF) {
				return stream.SendMsg(out)
			}
			if err != nil {
				return err
			}
			list := out.Mutable(books).List()
			item := list.NewElement()
			item.Message().Set(m.Desc.Input().Fields().ByName("pages"), in.Get(m.Desc.Input().Fields().ByName("pages")))
			list.Append(item)
		}
	}}
	var told error // what the chain makes of a call, in its log and audit too
	g := newGateway(t, b, func(c *gateway.Config) {
		chain := c.Handler
		c.Handler = func(stream grpc.ServerStream) error {
			told = chain(stream)
			return told
		}
	})
	tests := []struct {
		name, body string
		code       int
		want       string
	}{
		{"three", "{\"pages\":1}\n\n{\"pages\":2}\r\n{\"pages\":3}", 200, `{"books":[{"pages":1},{"pages":2},{"pages":3}]}`},
		{"none", "", 200, `{}`},
		{"cut", `{"pages":1}` + "\n" + `{"pages":`, 400, "message 2 of the request stream: not valid JSON"},
		{"unknown field", `{"pages":1}` + "\n" + `{"pagez":2}`, 400, `"message":"message 2 of the request stream: unknown field \"pagez\"`},
		{"what has gone before it", `{"pages":1}` + "\n{}\n" + `{"pagez":2}`, 400, `2 of the stream's messages had gone to the backend before this one`},
		{"nothing before it", `{"pagez":2}`, 400, `nothing was sent to the backend`},
		{"its path", `{"pages":1}` + "\n" + `{"pages":"x"}`, 400, `"field":"messages[1].pages"`},
	}
	for _, tt := range tests {
		res := do(g, "POST", library+"Upload", tt.body, "Content-Type", "application/x-ndjson")
		if got := text(t, res); res.StatusCode != tt.code || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, res.StatusCode, got, tt.code, tt.want)
		}
		if tt.code == 400 && status.Code(told) != codes.InvalidArgument {
			t.Errorf("%s: the chain is told %v, want INVALID_ARGUMENT", tt.name, told)
		}
	}
	res := do(g, "POST", library+"Upload", string(bytes.Repeat([]byte(" "), 5<<20))+"{}", "Content-Type", "application/x-ndjson")
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("message above the limit: %d, want 413", res.StatusCode)
	}
}

// A backend that answers before its caller has finished sending must not hang.
func TestBackendEndsFirst(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Upload": func(any, grpc.ServerStream) error { return status.Error(codes.ResourceExhausted, "full") }}
	srv := startServer(t, b, serverOptions{})
	body, in := io.Pipe()
	defer in.Close()
	res := srv.open(t.Context(), "POST", library+"Upload", body, "Content-Type", "application/x-ndjson")
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%d, want 429", res.StatusCode)
	}
}

// TestConnectionAfterARefusedStream refuses a stream of requests that has not ended. What is left of it must not be taken for a request, and the
// interrupted read ends the context of all that would come over the connection after it: so nothing may.
func TestConnectionAfterARefusedStream(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Upload": func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(dynamicpb.NewMessage(b.snapshot.Method(library + "Upload").Desc.Input())); err != nil {
			return err
		}
		return status.Error(codes.PermissionDenied, "no")
	}}
	srv := startServer(t, b, serverOptions{})
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %sUpload HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100\r\n\r\n{}\n{}\n", library, srv.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, res); res.StatusCode != http.StatusForbidden || !res.Close {
		t.Errorf("%d %s, Connection: close %v; want 403, and that nothing comes after it", res.StatusCode, got, res.Close)
	}
	if rest, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 {
		t.Errorf("after the answer: %q, %v, want the end", rest, err)
	}

	// A stream that has ended keeps its connection, also if it is refused.
	res = srv.open(t.Context(), "POST", library+"Upload", http.NoBody, "Content-Type", "application/x-ndjson")
	if got := text(t, res); res.Close {
		t.Errorf("after a stream that has ended: Connection: close: %d %s", res.StatusCode, got)
	}
}
