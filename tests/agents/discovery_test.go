package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/toolway/toolway/tests/internal/provider"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestDiscovery pins that the official client finds its way from the 401 of a mesh that asks who calls to the authorization server, and asks there for
// the right resource and scope.
func TestDiscovery(t *testing.T) {
	p := provider.New(t)
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	text := fmt.Sprintf("backends: [{name: probe, targets: [%q]}]\nauth: {scopes: [probe], jwt: [{issuer: %q, audiences: [%q]}]}\n", backend, p.URL, provider.Audience)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	asking := run.Start(t, "--config", file)
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "discover.mjs", asking.URL("/mcp"))
	cmd.Dir = clients
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node discover.mjs: %v\n%s", err, out)
	}
	var report struct {
		URL          string
		Unauthorized bool
		Error        string
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	u, err := url.Parse(report.URL)
	if err != nil || !report.Unauthorized || report.URL == "" {
		t.Fatalf("report %s, %v", out, err)
	}
	q := u.Query()
	if u.Scheme+"://"+u.Host != p.URL || q.Get("resource") != asking.URL("/mcp") || q.Get("scope") != "probe" || q.Get("client_id") != "mesh" {
		t.Errorf("the client sends its person to %s; want the issuer %s, resource %s, scope probe", report.URL, p.URL, asking.URL("/mcp"))
	}
}
