package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestInRepository pins that annotations name the lock from the repository's root, wherever the command runs.
func TestInRepository(t *testing.T) {
	root := t.TempDir()
	sub := filepath.Join(root, "deploy", "mesh")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(sub)
	if got := inRepository("p.lock"); got != "p.lock" {
		t.Errorf("outside of a repository: %q", got)
	}
	if err := os.WriteFile(filepath.Join(root, ".git"), []byte("gitdir: elsewhere\n"), 0o600); err != nil { // as work trees have it
		t.Fatal(err)
	}
	for path, want := range map[string]string{"p.lock": "deploy/mesh/p.lock", "../p.lock": "deploy/p.lock", filepath.Join(root, "p.lock"): "p.lock"} {
		if got := inRepository(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
