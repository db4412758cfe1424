package mesh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

// TestMCPConfig refuses what would do nothing, or would seal nothing.
func TestMCPConfig(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"short": 31, "long": 32} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"mcp: {stream_age: 25s}", "without mcp.sessions"},
		{"mcp: {sessions: true, stream_age: -1s}", "negative"},
		{"mcp: {sessions: true, stream_age: 25s}", ""},
		{"mcp: {state_key_file: " + filepath.Join(dir, "missing") + "}", "mcp.state_key_file"},
		{"mcp: {state_key_file: " + filepath.Join(dir, "short") + "}", "has 31 bytes"},
		{"mcp: {state_key_file: " + filepath.Join(dir, "long") + "}", ""},
	} {
		c, err := load(t, "admin: {addr: 'off'}\ngrpc: {addr: 'off'}\nhttp: {addr: 'off'}\n"+tt.text)
		if err == nil {
			err = open(t, c)
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

func open(t *testing.T, c mesh.Config) error {
	t.Helper()
	m, err := mesh.Open(t.Context(), c, mesh.Options{})
	if err == nil {
		m.Close()
	}
	return err
}
