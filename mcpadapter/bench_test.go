package mcpadapter_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// BenchmarkHTTP measures the door alone: no socket, no chain, no backend.
func BenchmarkHTTP(b *testing.B) {
	small := func(stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		return stream.SendMsg(call.NewFrame(nil, []byte{0x08, 0x07, 0x12, 0x04, 'f', 'i', 'n', 'e'}))
	}
	modern := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"orders_get"}}
	for _, bc := range []struct {
		name, source, body string
		header             http.Header
	}{
		{"call/2025-11-25", shopProto, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{"id":7}}}`, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}},
		{"call/2026-07-28", shopProto, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{"id":7},` + modernMeta + `}}`, modern},
		{"call 64 KiB/2025-11-25", shopProto, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{"act":"` + strings.Repeat("x", 64<<10) + `"}}}`, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}},
		{"list 1000/2025-11-25", manyTools(1000), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			snapshot, err := catalog.Static("shop", compile(b, bc.source))
			if err != nil {
				b.Fatal(err)
			}
			cat := &mutableCatalog{}
			cat.current.Store(snapshot)
			door := mcpadapter.New(mcpadapter.Config{Catalog: cat, Handler: small}).HTTPHandler()
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/mcp", strings.NewReader(bc.body))
				req.Header = bc.header.Clone()
				req.Header.Set("Content-Type", "application/json")
				rec := httptest.NewRecorder()
				door.ServeHTTP(rec, req)
				if rec.Code != http.StatusOK {
					b.Fatal(rec.Code, rec.Body)
				}
			}
		})
	}
}
