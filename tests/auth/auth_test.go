// Package auth_test asks the built binary, in front of a real backend and behind a real OpenID provider, who may call: each bad credential is refused
// with the right answer at each door, and a good one names the caller to the backend.
package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/provider"
	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	t.Cleanup(cancel)
	return ctx
}

func startProbe(t *testing.T, opts ...grpc.ServerOption) (*probe.Server, string) {
	t.Helper()
	s := probe.New()
	g, err := s.NewGRPC(probe.Both, opts...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// config writes a configuration for the backend at addr, whose method Ask needs two scopes.
func config(t *testing.T, p *provider.Provider, addr, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	text := fmt.Sprintf(`backends:
  - name: probe
    targets: [%q]
%s
auth:
  scopes: [probe]
  jwt:
    - issuer: %q
      audiences: [%q]
      tenant_claim: org
policy:
  - match: {methods: probe.v1.Probe/Ask}
    scopes: [probe, probe.ask]
`, addr, more, p.URL, provider.Audience)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// answer is what a door answers.
type answer struct {
	code      int // of HTTP
	challenge string
	header    http.Header
	body      string
}

// send makes a request; a nil body is a GET.
func send(ctx context.Context, t *testing.T, url, body string, header map[string]string) answer {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header.Get("WWW-Authenticate"), res.Header, string(text)}
}

func bearer(token string) string {
	if token == "" {
		return ""
	}
	return "Bearer " + token
}

// mcpCall calls a tool in one of the protocol's eras.
func mcpCall(ctx context.Context, t *testing.T, mesh *run.Mesh, version, tool, arguments string, header map[string]string) answer {
	t.Helper()
	all := map[string]string{"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": version}
	meta := ""
	if version == agent.V20260728 {
		all["Mcp-Method"], all["Mcp-Name"] = "tools/call", tool
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	for k, v := range header {
		all[k] = v
	}
	return send(ctx, t, mesh.URL("/mcp"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, tool, arguments, meta), all)
}

func asJSON(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return out
}
