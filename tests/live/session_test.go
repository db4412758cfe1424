package live_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`

func mcpHeader(version, session string) http.Header {
	h := http.Header{"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {version}}
	if session != "" {
		h.Set("Mcp-Session-Id", session)
	}
	return h
}

// TestWithoutSessions is the default: any instance answers any request of the old protocol too, and no session id is handed out.
func TestWithoutSessions(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	one, other := run.Start(t, "--backend", "probe="+addr), run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	for _, v := range versions {
		mcp(ctx, t, one, v, nil)
		for _, m := range []*run.Mesh{one, other} {
			h := mcpHeader(v, "")
			body := listTools
			if v == agent.V20260728 {
				h.Set("Mcp-Method", "tools/list")
				body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
			}
			if got := post(ctx, m.URL("/mcp"), body, h); got.code != http.StatusOK || !strings.Contains(fmt.Sprint(got.body), "probe_ask") {
				t.Errorf("%s: %.200s, want the tools from either instance", v, got)
			}
		}
	}
	// A version that was not negotiated is refused, never guessed.
	for _, v := range []string{"2024-01-01", "2099-01-01", "latest"} {
		if got := post(ctx, one.URL("/mcp"), listTools, mcpHeader(v, "")); got.code != http.StatusBadRequest {
			t.Errorf("version %q: %v, want 400", v, got)
		}
	}
	// initialize does not exist in 2026-07-28: a client that asks for it gets the newest version that has it.
	got := post(ctx, one.URL("/mcp"), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, http.Header{"Accept": {"application/json, text/event-stream"}})
	if !strings.Contains(fmt.Sprint(got.body), "protocolVersion:2025-11-25") && !strings.Contains(fmt.Sprint(got.body), `"protocolVersion":"2025-11-25"`) {
		t.Errorf("initialize with 2026-07-28: %v, want an answer with 2025-11-25", got)
	}
	// Clients that name only one type, or none, are served where that can be.
	for _, accept := range []string{"*/*", "application/json", ""} {
		h := mcpHeader(agent.V20251125, "")
		if h.Set("Accept", accept); accept == "" {
			h.Del("Accept")
		}
		if got := post(ctx, one.URL("/mcp"), listTools, h); got.code != http.StatusOK {
			t.Errorf("Accept %q: %.200s, want 200", accept, got)
		}
	}
}

// TestSessions is what the operator may ask for: a session with a GET stream that hears of changes, and 404 when it is gone.
func TestSessions(t *testing.T) {
	t.Parallel()
	backend, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Kill)
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("backends:\n  - name: probe\n    targets: [%q]\nmcp:\n  sessions: true\n", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--config", file)
	ctx := patience(t)
	for _, v := range []string{agent.V20250618, agent.V20251125} {
		if got := post(ctx, mesh.URL("/mcp"), listTools, mcpHeader(v, "gone")); got.code != http.StatusNotFound {
			t.Errorf("%s: a session that is gone: %v, want 404", v, got)
		}
	}
	a := mcp(ctx, t, mesh, agent.V20251125, nil)
	if a.Session() == "" {
		t.Fatal("initialize gave no session")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/mcp"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = mcpHeader(agent.V20251125, a.Session())
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET: %s", resp.Status)
	}
	backend.Kill()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "notifications/tools/list_changed") {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("GET stream: %v before list_changed", err)
	}
	// A client of the new protocol has no session on the same endpoint.
	if _, err := agent.Tools(ctx, mcp(ctx, t, mesh, agent.V20260728, nil)); err != nil {
		t.Error(err)
	}
}
