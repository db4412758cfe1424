package live_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestConnect has a stdio host of each version reach a mesh elsewhere, which is restarted, and whose tools change, under its feet.
func TestConnect(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		for _, sessions := range []bool{false, true} {
			if sessions && version == agent.V20260728 {
				continue // that version has none
			}
			name := version
			if sessions {
				name += " sessions"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				connected(t, version, sessions)
			})
		}
	}
}

func connected(t *testing.T, version string, sessions bool) {
	backend, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), 4*run.Patience)
	t.Cleanup(cancel)
	config := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "mcp: {sessions: %t}\n", sessions), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", config, "--backend", "probe=" + addr}
	mesh := run.Start(t, args...)
	toolway, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	host, err := agent.NewStdio(version, nil, func(m agent.Message) { heard <- m.Method }, toolway, "mcp", "--connect", mesh.URL("/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Kill)
	if version != agent.V20260728 {
		if err := host.Initialize(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(text string) {
		t.Helper()
		res, err := agent.Call(ctx, host, "probe_ask", map[string]any{"id": "x", "text": text}, nil)
		if err != nil || res.IsError || !strings.Contains(res.Text(), text) {
			t.Fatalf("ask %q: %v, %v\n%s", text, res, err, host.Stderr())
		}
	}
	ask("first")
	if err := mesh.Stop(); err != nil {
		t.Error(err)
	}
	run.Start(t, append(args, "--http-addr", mesh.HTTP)...)
	ask("after a restart")

	if version == agent.V20260728 {
		return // such a host listens by itself, which the relay only passes on
	}
	backend.Kill()
	for left := 1; left > 0; { // the new connection to the mesh is a reason to list again too
		select {
		case method := <-heard:
			if method != "notifications/tools/list_changed" {
				continue
			}
		case <-ctx.Done():
			t.Fatalf("the host did not hear that the tools have gone\n%s", host.Stderr())
		}
		tools, err := agent.Tools(ctx, host)
		if err != nil {
			t.Fatal(err)
		}
		left = len(tools)
	}
	if err := host.Close(); err != nil {
		t.Errorf("the relay ended with %v when its input was closed, want nil", err)
	}
}
