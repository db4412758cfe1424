package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

// TestNoCredentialInTheClear has a credential for a mesh on another machine: it goes by TLS or not at all.
func TestNoCredentialInTheClear(t *testing.T) {
	t.Setenv("TOOLWAY_TOKEN", "secret")
	err := connect(t.Context(), "http://192.0.2.1/mcp", "", "", mesh.Log{Level: "error"}, strings.NewReader(""), new(strings.Builder))
	if !errors.Is(err, errInTheClear) {
		t.Errorf("connect to another machine by http: %v, want %v", err, errInTheClear)
	}
	for _, url := range []string{"http://127.0.0.1:1/mcp", "http://localhost:1/mcp", "http://[::1]:1/mcp", "https://192.0.2.1/mcp"} {
		if err := connect(t.Context(), url, "", "", mesh.Log{Level: "error"}, strings.NewReader(""), new(strings.Builder)); err != nil {
			t.Errorf("connect to %s: %v, want no error", url, err)
		}
	}
	for target, refused := range map[string]bool{"192.0.2.1:7070": true, "127.0.0.1:7070": false, "localhost:7070": false, "grpcs://192.0.2.1:7070": false} {
		_, conn, err := (&meshFlags{mesh: target}).dial(t.Context())
		if errors.Is(err, errInTheClear) != refused || !refused && err != nil {
			t.Errorf("dial %s: %v, want refused %v", target, err, refused)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

// TestTokenForBackend has a credential where nobody would be sent it.
func TestTokenForBackend(t *testing.T) {
	m, err := openMesh(t.Context(), &sourceFlags{backends: []string{"127.0.0.1:1"}, tokenFile: "token"}, 0)
	if err == nil {
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "--mesh TARGET") {
		t.Errorf("openMesh with --backend and --token-file: %v, want that --mesh TARGET is named", err)
	}
}
