package mcpadapter_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// FuzzMessage feeds one message to both transports. Whatever it is, what comes back is JSON-RPC and the door lives.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		helloLine,
		callLine("7", "x"),
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"AAAAAAAAAAAA"}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping","params":null}`,
		`{"jsonrpc":"2.0","id":"\ud800","method":"tools/call","params":{"name":"orders_import","arguments":{"messages":[{"id":1e400}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}`,
		strings.Repeat("[", 2000), `{"a":"\`, "\xff", "",
	} {
		f.Add([]byte(seed), "2025-11-25")
		f.Add([]byte(seed), "2026-07-28")
	}
	snapshot, err := catalog.Static("shop", compile(f, shopProto))
	if err != nil {
		f.Fatal(err)
	}
	cat := &mutableCatalog{}
	cat.current.Store(snapshot)
	adapter := mcpadapter.New(mcpadapter.Config{Catalog: cat, Handler: func(grpc.ServerStream) error { return status.Error(codes.NotFound, "nothing here") }})
	f.Fuzz(func(t *testing.T, message []byte, version string) {
		if bytes.Contains(message, []byte("listen")) {
			return // subscriptions/listen waits for changes, and there are none
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", bytes.NewReader(message))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {version}, "Mcp-Method": {"tools/list"}}
		rec := httptest.NewRecorder()
		adapter.HTTPHandler().ServeHTTP(rec, req)
		if body := rec.Body.Bytes(); len(body) > 0 && !isMessage(body) {
			t.Errorf("HTTP answer to %q = %d %q, want a JSON-RPC message", message, rec.Code, body)
		}

		var out bytes.Buffer
		if err := adapter.ServeStdio(t.Context(), bytes.NewReader(append([]byte(helloLine+"\n"), message...)), &out); err != nil {
			t.Errorf("ServeStdio() after %q = %v, want nil", message, err)
		}
		for lines := bufio.NewScanner(&out); lines.Scan(); {
			if !isMessage(lines.Bytes()) {
				t.Errorf("stdio answer to %q = %q, want a JSON-RPC message", message, lines.Bytes())
			}
		}
	})
}

func isMessage(data []byte) bool {
	var msg struct {
		Version string `json:"jsonrpc"`
	}
	return json.Unmarshal(data, &msg) == nil && msg.Version == "2.0"
}
