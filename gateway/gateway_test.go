package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// On a loopback listener a name that somebody else's DNS points here is not ours.
func TestLoopbackHosts(t *testing.T) {
	srv := startServer(t, &backend{}, serverOptions{})
	tests := map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "app.localhost": 200, "LOCALHOST": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:8080": 403, "10.0.0.1": 403,
	}
	for host, want := range tests {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/books/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := text(t, res); res.StatusCode != want {
			t.Errorf("Host %q: %d %s, want %d", host, res.StatusCode, body, want)
		}
	}
}

// A preflight is never a call, even on a route of any method.
func TestPreflightIsNoCall(t *testing.T) {
	var got seen
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: got.handle, AllowedOrigins: []string{"https://a.example"}})
	res := do(g, "OPTIONS", "/v1/any/x", "", "Origin", "https://a.example", "Access-Control-Request-Method", "PUT")
	if res.StatusCode != http.StatusNoContent || got.method != nil || !strings.Contains(res.Header.Get("Access-Control-Allow-Methods"), "PUT") {
		t.Errorf("preflight: %d %v, called %v", res.StatusCode, res.Header, got.method)
	}
}

func TestMetadata(t *testing.T) {
	b := &backend{}
	g := newGateway(t, b, func(c *gateway.Config) { c.Rules = call.NewRules([]string{"x-acme-*", "authorization"}) })
	res := do(g, "POST", library+"Plain", "{}",
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Idempotency-Key", "k1", "X-Request-Id", "req 1",
		"X-Acme-Region", "eu", "x-acme-blob-bin", "aGk", "X-Acme-Broken-Bin", "%%", "X-Acme-Control", "a\x01b",
		"Authorization", "Bearer t", "Cookie", "c=1", "Grpc-Metadata-X-User-Id", "admin", "Grpc-Metadata-Authorization", "Bearer x",
		"Grpcgateway-Authorization", "y", "X-User-Id", "admin", "X-Other", "o", "Connection", "keep-alive, Baggage", "Baggage", "k=v")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text(t, res))
	}
	id := res.Header.Get("X-Request-Id")
	if len(id) != 32 {
		t.Errorf("request id %q: one that is unfit for a header is replaced", id)
	}
	_, _, md := b.last()
	want := map[string]string{
		"idempotency-key": "k1", "x-request-id": id, "x-acme-region": "eu", "x-acme-blob-bin": "hi",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	for k, vs := range md {
		switch {
		case k == ":authority" || k == "content-type" || k == "user-agent" || k == "grpc-accept-encoding":
		case len(vs) != 1 || vs[0] != want[k]:
			t.Errorf("backend sees %s: %q", k, vs)
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("backend does not see %v", want)
	}
}

func TestReplyHeaders(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Plain": func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(b.book(t, "{}")); err != nil {
			return err
		}
		if err := stream.SetHeader(metadata.Pairs("x-acme-shard", "7", "x-secret", "s", "set-cookie", "a=b", "access-control-allow-origin", "*", "x-acme-raw-bin", "hi")); err != nil {
			return err
		}
		return stream.SendMsg(b.book(t, "{}"))
	}}
	g := newGateway(t, b, func(c *gateway.Config) { c.Rules = call.NewRules([]string{"x-acme-*", "access-*"}) })
	h := do(g, "POST", library+"Plain", "{}").Header
	if h.Get("X-Acme-Shard") != "7" || h.Get("X-Acme-Raw-Bin") != "aGk" || h.Get("X-Secret") != "" || h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers %v", h)
	}
}

func TestReplyForms(t *testing.T) {
	b := &backend{snapshot: librarySnapshot(t)}
	reply := func(json string) grpc.StreamHandler {
		return func(_ any, stream grpc.ServerStream) error {
			name, _ := grpc.MethodFromServerStream(stream)
			m := b.snapshot.Method(name)
			if err := stream.RecvMsg(dynamicpb.NewMessage(m.Desc.Input())); err != nil {
				return err
			}
			out := dynamicpb.NewMessage(m.Desc.Output())
			if err := protojson.Unmarshal([]byte(json), out); err != nil {
				return err
			}
			return stream.SendMsg(out)
		}
	}
	b.handle = map[string]grpc.StreamHandler{
		library + "GetBook":  reply(`{"name":"n","author":{"given":"G"}}`),
		library + "Title":    reply(`{"title":"The \"T\"","author":{"given":"G"}}`),
		library + "Cover":    reply(`{"image":{"content":{"contentType":"image/png","data":"PGI+"}}}`),
		library + "ReadBook": reply(`{"contentType":"text/html","data":"PGI+"}`),
	}
	g := newGateway(t, b, nil)
	tests := []struct{ verb, path, contentType, body string }{
		{"GET", "/v1/books/b", "application/json", `{"name":"n","author":{"given":"G"}}`},
		{"GET", "/v1/titles/b", "application/json", `"The \"T\""`},
		{"GET", "/v1/given/b", "application/json", `"G"`},
		{"GET", "/v1/covers/b", "image/png", "<b>"},
		{"GET", "/v1/shelves/s/books/b:read", "text/html", "<b>"},
	}
	for _, tt := range tests {
		res := do(g, tt.verb, tt.path, "")
		if got := text(t, res); res.StatusCode != http.StatusOK || got != tt.body || res.Header.Get("Content-Type") != tt.contentType || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s = %d %q %v", tt.verb, tt.path, res.StatusCode, got, res.Header)
		}
	}
	if csp := do(g, "GET", "/v1/shelves/s/books/b:read", "").Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox") {
		t.Errorf("content of a backend's choice has policy %q", csp)
	}
}

func TestCompressedBody(t *testing.T) {
	b := &backend{}
	g := newGateway(t, b, func(c *gateway.Config) { c.MaxBodyBytes = 1000 })
	zip := func(s string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(s))
		_ = z.Close()
		return out.String()
	}
	if res := do(g, "POST", library+"Plain", zip(`{"name":"z"}`), "Content-Encoding", "gzip"); res.StatusCode != http.StatusOK {
		t.Errorf("gzip: %d %s", res.StatusCode, text(t, res))
	}
	if _, request, _ := b.last(); request != `{"name":"z"}` {
		t.Errorf("backend got %s", request)
	}
	bomb := zip(fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", 1<<20)))
	if res := do(g, "POST", library+"Plain", bomb, "Content-Encoding", "gzip"); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d bytes that become a megabyte: %d, want 413", len(bomb), res.StatusCode)
	}
}

func TestDefaultBodyLimit(t *testing.T) {
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: new(seen).handle})
	for size, want := range map[int]int{4 << 20: http.StatusOK, 4<<20 + 1: http.StatusRequestEntityTooLarge} {
		body := fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", size-len(`{"name":""}`)))
		if res := do(g, "POST", library+"Plain", body); res.StatusCode != want {
			t.Errorf("body of %d bytes: %d, want %d", size, res.StatusCode, want)
		}
	}
}

// swap is a catalog that changes.
type swap struct {
	atomic.Pointer[catalog.Snapshot]
}

func (s *swap) Snapshot() *catalog.Snapshot { return s.Load() }

func TestRoutesFollowTheCatalog(t *testing.T) {
	one, two := matchContract(t, "/v1/{a}"), matchContract(t, "/v2/{a}")
	var c swap
	c.Store(one)
	g := gateway.New(gateway.Config{Catalog: &c, Handler: instant})
	codes := func() [2]int {
		return [2]int{do(g, "GET", "/v1/x", "").StatusCode, do(g, "GET", "/v2/x", "").StatusCode}
	}
	if got := codes(); got != [2]int{200, 404} {
		t.Errorf("first snapshot: %v", got)
	}
	c.Store(two)
	if got := codes(); got != [2]int{404, 200} {
		t.Errorf("second snapshot: %v", got)
	}
	// Under load every answer is one snapshot's or the other's.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				c.Store([]*catalog.Snapshot{one, two}[i%2])
				if code := do(g, "GET", "/v1/x", "").StatusCode; code != 200 && code != 404 {
					t.Errorf("GET /v1/x = %d", code)
				}
			}
		})
	}
	wg.Wait()
}

func TestInfrastructureIsNotServed(t *testing.T) {
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(corpus(t, "grpc-core")), Handler: unreachable})
	if res := do(g, "POST", "/grpc.health.v1.Health/Check", "{}"); res.StatusCode != http.StatusNotFound {
		t.Errorf("health over HTTP: %d, want 404", res.StatusCode)
	}
}

func ExampleGateway() {
	set, err := librarySet()
	if err != nil {
		panic(err)
	}
	snapshot, err := catalog.Static("library", set)
	if err != nil {
		panic(err)
	}
	g := gateway.New(gateway.Config{
		Catalog: catalog.Fixed(snapshot),
		Handler: func(stream grpc.ServerStream) error { // the chain and the backend
			m := call.FromContext(stream.Context()).Method
			return stream.SendMsg(dynamicpb.NewMessage(m.Desc.Output()))
		},
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/v1/shelves/s1/books?page_sise=3", nil))
	fmt.Println(w.Code)
	// Output: 400
}
