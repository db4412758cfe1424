package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/catalog"
)

// BenchmarkSocket measures small calls over a loopback socket: the door with a handler that answers at once, next to a bare net/http handler that
// reads the body and answers with the same bytes. The caller allocates nothing, so that what is counted is the server's.
func BenchmarkSocket(b *testing.B) {
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(b)), Handler: instant})
	post := rawRequest("PUT /v1/sink/7", `{"text":"hello","maybe":"yes"}`)
	b.Run("post", func(b *testing.B) { askMany(b, g, http.StatusOK, post) })
	b.Run("post with more headers", func(b *testing.B) {
		askMany(b, g, http.StatusOK, rawRequest("PUT /v1/sink/7", `{"text":"hello","maybe":"yes"}`, "Accept: */*", "Accept-Encoding: gzip", "User-Agent: Go-http-client/1.1", "Authorization: Bearer abcdef",
			"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Request-Id: of-the-caller"))
	})
	b.Run("get", func(b *testing.B) {
		askMany(b, g, http.StatusOK, rawRequest("GET /v1/shelves/s1/books?page_size=3", ""))
	})
	b.Run("refused", func(b *testing.B) { askMany(b, g, http.StatusBadRequest, rawRequest("PUT /v1/sink/7", `{"text":7}`)) })
	b.Run("bare post", func(b *testing.B) {
		askMany(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}), http.StatusOK, post)
	})
}

// rawRequest is the bytes of an HTTP/1.1 request.
func rawRequest(line, body string, headers ...string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s HTTP/1.1\r\nHost: localhost\r\n", line)
	for _, h := range headers {
		out.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	out.WriteString("\r\n" + body)
	return out.Bytes()
}

// askMany sends a request over one connection again and again, and takes every answer to be as long as the first, whose status it checks.
func askMany(b *testing.B, h http.Handler, status int, request []byte) {
	b.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ReadHeaderTimeout, srv.Config.IdleTimeout = 10*time.Second, 2*time.Minute // as in the mesh
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	first := make([]byte, 4<<10)
	ask := func(into []byte) int {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		n, err := conn.Read(into)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	answer := make([]byte, ask(first))
	if want := fmt.Sprintf("HTTP/1.1 %d ", status); !bytes.HasPrefix(first, []byte(want)) {
		b.Fatalf("answer %q, want %q", first[:len(answer)], want)
	}
	b.ReportAllocs()
	for b.Loop() {
		for got := ask(answer); got < len(answer); {
			n, err := conn.Read(answer[got:])
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}
