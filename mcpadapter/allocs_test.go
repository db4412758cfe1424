//go:build !race

package mcpadapter_test

import (
	"bytes"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// TestCallAllocations holds a tools/call on the fast path to what it allocates now: from the request's headers to the last byte of the answer,
// without net/http's own work, chain and backend. A test that fails here says what there was before; if the growth is worth it, change the figure.
// The race detector has pools forget, so it is not for it.
func TestCallAllocations(t *testing.T) {
	for _, c := range []struct {
		name, version, accept string
		was                   float64
	}{
		{"one answer, 2025-11-25", "2025-11-25", "", 15},
		{"one answer, 2026-07-28", "2026-07-28", "", 15},
		{"event, 2025-11-25", "2025-11-25", accepts[2], 15},
		{"event, 2026-07-28", "2026-07-28", accepts[2], 15},
	} {
		const params = `"name":"orders_get","arguments":{"id":7}`
		got := allocations(t, shopProto, c.version, "tools/call", params, c.accept)
		if got > c.was {
			t.Errorf("%s: %v allocations a call, were %v", c.name, got, c.was)
		}
	}
}

// TestAllocationsDoNotGrow has a large catalog cost a call no more than a small one, and a list, once encoded, neither.
func TestAllocationsDoNotGrow(t *testing.T) {
	for _, c := range []struct{ method, params string }{{"tools/call", `"name":"many_do001","arguments":{}`}, {"tools/list", ""}} {
		few, many := allocations(t, manyTools(10), "2026-07-28", c.method, c.params, ""), allocations(t, manyTools(1000), "2026-07-28", c.method, c.params, "")
		if many > few {
			t.Errorf("%s: %v allocations with 1,000 tools, %v with 10", c.method, many, few)
		}
	}
}

// TestLargeRepliesAreNotAllocated has the JSON of a large reply, and the answer with it, written into buffers that are used again.
func TestLargeRepliesAreNotAllocated(t *testing.T) {
	const size = 1 << 20
	wire := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), strings.Repeat("x", size))
	snapshot, err := catalog.Static("shop", compile(t, shopProto))
	if err != nil {
		t.Fatal(err)
	}
	cat := &mutableCatalog{}
	cat.current.Store(snapshot)
	door := mcpadapter.New(mcpadapter.Config{Catalog: cat, MaxResultBytes: 2 * size, Handler: func(stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		return stream.SendMsg(call.NewFrame(nil, wire))
	}}).HTTPHandler()
	const rounds, params = 50, `"name":"orders_get","arguments":{"id":7}`
	body := message("1", "tools/call", params, "-", "")
	var before, after runtime.MemStats
	for i := range rounds + 1 {
		if i == 1 { // there are buffers now
			runtime.ReadMemStats(&before)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = headerOf("2025-11-25", "tools/call", params, "")
		res := &discard{header: http.Header{}}
		door.ServeHTTP(res, req)
		if length, _ := strconv.Atoi(res.header.Get("Content-Length")); res.status != http.StatusOK || length < 2*size {
			t.Fatalf("status %d, %d bytes", res.status, length)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > size/4 { // a collection may take the buffers
		t.Errorf("%d bytes allocated for each reply of %d", each, size)
	}
}

// allocations is the least of several counts for one request, since what else goes on counts too.
func allocations(t *testing.T, proto, version, method, params, accept string) float64 {
	t.Helper()
	snapshot, err := catalog.Static("shop", compile(t, proto))
	if err != nil {
		t.Fatal(err)
	}
	cat := &mutableCatalog{}
	cat.current.Store(snapshot)
	door := mcpadapter.New(mcpadapter.Config{Catalog: cat, Handler: small}).HTTPHandler()
	body := message("1", method, params, "-", map[string]string{"2026-07-28": modernMembers + `{}`}[version])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.ContentLength = headerOf(version, method, params, accept), int64(len(body))
	res, in := &discard{header: http.Header{}}, &rewound{}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	least := 1e9
	for range 5 {
		least = min(least, testing.AllocsPerRun(200, func() {
			in.Reset(body)
			req.Body = in
			clear(res.header)
			door.ServeHTTP(res, req)
		}))
	}
	if res.status != http.StatusOK {
		t.Fatalf("%s %s: status %d", version, method, res.status)
	}
	return least
}
