//go:build !race

package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// counted is a response that knows its status.
type counted struct {
	discard
	status int
}

func (c *counted) WriteHeader(status int) { c.status = status }

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return len(p), nil
}

// TestCallAllocations holds a call to what it allocates now: from the request's headers to the last byte of the answer, without net/http's own
// work, chain and backend. A test that fails here says what there was before; if the growth is worth it, change the figure. The race detector has
// pools forget, so it is not for it.
func TestCallAllocations(t *testing.T) {
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: instant})
	const body = `{"title":"A Book","author":{"given":"G","family":"F"},"pages":321}`
	for _, c := range []struct {
		name, verb, path, body string
		was                    float64
	}{
		{"route with a body", http.MethodPost, "/v1/shelves/s1/books?book_id=7", body, 19},
		{"route with a query", http.MethodGet, "/v1/shelves/s1/books?page_size=3", "", 18},
		{"method's own path", http.MethodPost, "/library.v1.Library/GetBook", `{"name":"shelves/1/books/2"}`, 17},
	} {
		if got := allocations(t, g, c.verb, c.path, c.body); got > c.was {
			t.Errorf("%s: %v allocations a call, were %v", c.name, got, c.was)
		}
	}
}

// TestAllocationsDoNotGrow has a call among 10,000 routes cost no more than one among ten.
func TestAllocationsDoNotGrow(t *testing.T) {
	of := func(routes int) float64 {
		templates := make([]string, routes)
		for i := range templates {
			templates[i] = fmt.Sprintf("/v%d/{a=projects/*/things%d/*}:do", i%10, i)
		}
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(matchContract(t, templates...)), Handler: instant})
		return allocations(t, g, http.MethodGet, "/v7/projects/p/things7/x:do", "")
	}
	if few, many := of(10), of(10_000); many > few {
		t.Errorf("%v allocations with 10,000 routes, %v with 10", many, few)
	}
}

// TestLargeRepliesAreNotAllocated has the JSON of a large reply written into a buffer that is used again.
func TestLargeRepliesAreNotAllocated(t *testing.T) {
	const size = 1 << 20
	wire := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), strings.Repeat("x", size))
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: func(stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		return stream.SendMsg(call.NewFrame(call.FromContext(stream.Context()).Method.Desc.Output(), wire))
	}})
	const rounds = 50
	var before, after runtime.MemStats
	for i := range rounds + 1 {
		if i == 1 { // there is a buffer now
			runtime.ReadMemStats(&before)
		}
		res := &counted{discard: discard{h: http.Header{}}}
		g.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/shelves/1/books/2", http.NoBody))
		if res.status != http.StatusOK {
			t.Fatalf("status %d", res.status)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > size/4 { // a collection may take the buffer
		t.Errorf("%d bytes allocated for each reply of %d", each, size)
	}
}

// allocations is the least of several counts for one request, since what else goes on counts too.
func allocations(t *testing.T, h http.Handler, verb, path, body string) float64 {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), verb, path, http.NoBody)
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = int64(len(body))
	res, in := &counted{discard: discard{h: http.Header{}}}, strings.NewReader("")
	req.Body = io.NopCloser(in)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	least := 1e9
	for range 5 {
		least = min(least, testing.AllocsPerRun(200, func() {
			in.Reset(body)
			clear(res.h)
			h.ServeHTTP(res, req)
		}))
	}
	if res.status != http.StatusOK {
		t.Fatalf("%s %s: status %d", verb, path, res.status)
	}
	return least
}
