// Package cli_test tests the command line of the built binary: what a newcomer types, and what they are told when it is wrong.
package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func startProbe(t *testing.T) string {
	t.Helper()
	g, err := probe.New().NewGRPC(probe.V1)
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
	return l.Addr().String()
}

// toolway runs one command line.
func toolway(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs, err := run.Output([]byte(stdin), bin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(out), string(errs)
}

func TestTools(t *testing.T) {
	t.Parallel()
	b := "probe=" + startProbe(t)
	for _, c := range []struct {
		name   string
		stdin  string
		args   []string
		code   int
		stdout []string
		stderr []string
	}{
		{"list", "", []string{"tools", "list", "-b", b}, 0, []string{"probe_ask", "probe_watch", "server stream", "probe.v1.Probe/Chat"}, nil},
		{"show", "", []string{"tools", "show", "-b", b, "probe_ask"}, 0, []string{"POST /v1/probe/{id}:ask", "GET /v1/probe/{id}", "unary", `"type": "object"`}, nil},
		{"show by method", "", []string{"tools", "show", "-b", b, "probe.v1.Probe/Watch"}, 0, []string{"probe_watch"}, nil},
		{"show by name with dots", "", []string{"tools", "show", "-b", b, "probe.v1.Probe.Watch"}, 0, []string{"probe_watch"}, nil},
		{"show another", "", []string{"tools", "show", "-b", b, "probe_asq"}, 2, nil, []string{`did you mean "probe_ask"?`}},
		{"call", "", []string{"tools", "call", "-b", b, "probe_ask", `{"text":"hi","number":"4611686018427387905"}`}, 0, []string{`"hi"`, `"4611686018427387905"`}, nil},
		{"call from standard input", `{"text":"hi"}`, []string{"tools", "call", "-b", b, "probe_ask", "-"}, 0, []string{`"hi"`}, nil},
		{"call a stream", "", []string{"tools", "call", "-b", b, "probe_watch", `{"text":"s","plan":{"count":2}}`}, 0, []string{"\"s\"}\n{\"index\":1"}, nil},
		{"call that fails", "", []string{"tools", "call", "-b", b, "probe_ask", `{"plan":{"code":5}}`}, 1, nil, []string{"NOT_FOUND", "the plan says so", "PLANNED"}},
		{"call with a mistake", "", []string{"tools", "call", "-b", b, "probe_ask", `{"txt":"hi"}`}, 1, nil, []string{"txt", `"text"`}},
		{"call past the deadline", "", []string{"tools", "call", "-b", b, "--timeout", "200ms", "probe_ask", `{"plan":{"hang":true}}`}, 1, nil, []string{"DEADLINE_EXCEEDED"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := toolway(t, c.stdin, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("standard output = %s\nwant %q in it", stdout, want)
				}
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error = %s\nwant %q in it", stderr, want)
				}
			}
			if c.code != 0 && stdout != "" {
				t.Errorf("standard output = %q of a command that failed", stdout)
			}
		})
	}
}

// TestMistakes are answered with exit code 2 and one line that says what to do.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set, err := run.Descriptors("otlp.binpb")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for _, c := range []struct {
		name string
		args []string
		say  []string
	}{
		{"nothing to serve", []string{"serve"}, []string{"--backend 127.0.0.1:50051"}},
		{"no port", []string{"serve", "--backend", "orders"}, []string{`"orders"`, "no port"}},
		{"no port of a mesh", []string{"tools", "list", "--mesh", "orders"}, []string{`--mesh: target "orders" has no port`}},
		{"no host", []string{"serve", "--backend", ":50051"}, []string{"127.0.0.1:50051"}},
		{"unknown command", []string{"sevre"}, []string{"sevre"}},
		{"unknown flag", []string{"serve", "--bakend", "x:1"}, []string{"--bakend"}},
		{"no such configuration", []string{"serve", "--config", filepath.Join(dir, "missing.yaml")}, []string{"missing.yaml", "no such file"}},
		{"unknown key", []string{"serve", "--config", file("key.yaml", "backends:\n  - name: a\n    target: [\"127.0.0.1:1\"]\n")}, []string{"line 3", `did you mean "targets"?`}},
		{"bad duration", []string{"serve", "--config", file("duration.yaml", "backends:\n  - targets: [\"127.0.0.1:1\"]\ndrain: soon\n")}, []string{"soon", "30s"}},
		{"admin on every address", []string{"serve", "--backend", "127.0.0.1:1", "--admin-addr", "0.0.0.0:0"}, []string{"admin", "loopback"}},
		{"address taken", []string{"serve", "--backend", "127.0.0.1:1", "--grpc-addr", taken.Addr().String(), "--http-addr", "off", "--admin-addr", "off"}, []string{"--grpc-addr", "address already in use"}},
		{"no such descriptors", []string{"serve", "--backend", "a=127.0.0.1:1", "--descriptors", "a=" + filepath.Join(dir, "missing.binpb")}, []string{"missing.binpb"}},
		{"descriptors of whom", []string{"serve", "--backend", "a=127.0.0.1:1", "--backend", "b=127.0.0.1:2", "--descriptors", "x.binpb"}, []string{"NAME=FILE"}},
		{"descriptors without a target", []string{"serve", "--descriptors", "a=" + set}, []string{"--backend a="}},
		{"log level", []string{"serve", "--backend", "127.0.0.1:1", "--log-level", "loud"}, []string{`"loud"`, "debug"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := toolway(t, "", c.args...)
			if code != 2 || stdout != "" {
				t.Errorf("exit code %d, standard output %q, want 2 and nothing", code, stdout)
			}
			for _, want := range c.say {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error = %s\nwant %q in it", stderr, want)
				}
			}
			if strings.Contains(stderr, "goroutine ") || strings.Contains(stderr, "failed to") {
				t.Errorf("standard error = %s", stderr)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := toolway(t, "", "version")
	if code != 0 || !strings.HasPrefix(stdout, "toolway ") || stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestCheckIsJSON prints a report in every case.
func TestCheckIsJSON(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "--json", "/no/such/file"}, {"check", "--json", "/dev/null"}, {"check", "--json", os.TempDir()}} {
		code, stdout, _ := toolway(t, "", args...)
		if code != 2 || !json.Valid([]byte(stdout)) {
			t.Errorf("toolway %q: exit code %d, %q, want 2 and a report", args, code, stdout)
		}
	}
}
