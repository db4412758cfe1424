package live_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestViews reaches the tools of one backend by a view of the configuration and by search, over HTTP and stdio.
func TestViews(t *testing.T) {
	t.Parallel()
	backend, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Kill() })
	config := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(config, []byte(`
mcp:
  views:
    - name: asking
      services: ["probe.*"]
      tools: ["probe_a*"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", config, "--backend", "probe=" + addr}
	mesh := run.Start(t, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 4*run.Patience)
	t.Cleanup(cancel)

	names := func(r agent.Requester) []string {
		t.Helper()
		tools, err := agent.Tools(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, tool := range tools {
			out = append(out, tool.Name)
		}
		return out
	}
	door := func(path, version string) agent.Requester {
		t.Helper()
		c, err := agent.NewHTTP(ctx, mesh.URL(path), version, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	for _, version := range versions {
		if got := names(door("/mcp/asking", version)); !slices.Equal(got, []string{"probe_ask"}) {
			t.Errorf("%s: view asking has %q", version, got)
		}
		search(ctx, t, door("/mcp/search", version), names)
	}
	if got := names(door("/mcp", agent.V20260728)); !slices.Contains(got, "probe_watch") || slices.Contains(got, "find_tools") {
		t.Errorf("the view of everything has %q, want the backend's tools alone", got)
	}
	resp, err := http.Get(mesh.URL("/mcp/serch"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusNotFound || !strings.Contains(string(body), `did you mean \"search\"`) {
		t.Errorf("a view that is not there: %s %s, %v, want 404 with the near miss", resp.Status, body, err)
	}
	var refusal struct {
		JSONRPC string `json:"jsonrpc"`
		ID      any    `json:"id"`
		Error   struct{ Code int }
	}
	if err := json.Unmarshal(body, &refusal); err != nil || refusal.JSONRPC != "2.0" || refusal.ID != nil || refusal.Error.Code != -32600 {
		t.Errorf("a view that is not there: %s, %v, want a JSON-RPC error", body, err)
	}
	toolway, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	stdio, err := agent.NewStdio(agent.V20251125, nil, nil, toolway, append([]string{"mcp", "--view", "search"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stdio.Kill)
	if err := stdio.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	search(ctx, t, stdio, names)
}

// search goes an agent's way through the three tools.
func search(ctx context.Context, t *testing.T, r agent.Requester, names func(agent.Requester) []string) {
	t.Helper()
	if got := names(r); !slices.Equal(got, []string{"call_tool", "describe_tool", "find_tools"}) {
		t.Fatalf("the view search has %q", got)
	}
	call := func(tool string, args map[string]any) string {
		t.Helper()
		res, err := agent.Call(ctx, r, tool, args, nil)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if res.IsError {
			t.Fatalf("%s: %s", tool, res.Text())
		}
		return res.Text()
	}
	var found struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(call("find_tools", map[string]any{"query": "ask the probe"})), &found); err != nil || len(found.Tools) == 0 || found.Tools[0].Name != "probe_ask" {
		t.Errorf("find_tools: %v, %v, want probe_ask first", found, err)
	}
	var described struct {
		Tool struct{ InputSchema map[string]any }
	}
	if err := json.Unmarshal([]byte(call("describe_tool", map[string]any{"name": "probe_ask"})), &described); err != nil || described.Tool.InputSchema["type"] != "object" {
		t.Errorf("describe_tool: %v, %v, want a schema", described, err)
	}
	if got := call("call_tool", map[string]any{"name": "probe_ask", "arguments": map[string]any{"id": "x", "text": "through"}}); !strings.Contains(got, "through") {
		t.Errorf("call_tool: %s, want the probe's answer", got)
	}
}
