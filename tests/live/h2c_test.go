package live_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// TestHTTP2WithoutTLS calls the HTTP and MCP doors over HTTP/2 with prior knowledge, unary and as events, all on one connection.
func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(client.CloseIdleConnections)
	for _, c := range []struct{ name, verb, path, accept, body, want string }{
		{"call", "POST", "/v1/probe/x:ask", "application/json", `{"text":"over HTTP/2"}`, `{"text":"over HTTP/2"}`},
		{"events", "GET", "/v1/probe/x/events?plan.count=2&text=tick", "text/event-stream", "", "event: end"},
		{"lines", "GET", "/v1/probe/x/events?plan.count=2&text=tick", "application/x-ndjson", "", `{"index":1,"text":"tick"}`},
		{"mcp", "POST", "/mcp", "application/json, text/event-stream", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"probe_ask","arguments":{"text":"over HTTP/2"}}}`, `over HTTP/2`},
	} {
		req, err := http.NewRequestWithContext(patience(t), c.verb, mesh.URL(c.path), strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", c.accept)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.ProtoMajor != 2 || res.StatusCode != http.StatusOK || !bytes.Contains(got, []byte(c.want)) {
			t.Errorf("%s: %s %s, %v: %.300s, want %s", c.name, res.Proto, res.Status, err, got, c.want)
		}
	}
}
