// Package agents_test runs the official TypeScript clients of MCP against the built binary, over stdio and HTTP, old and new protocol.
package agents_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

var (
	server  = probe.New()
	backend string
	mesh    *run.Mesh
	clients string
)

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
	if clients, err = run.NPM("clients"); err != nil {
		return 1, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1, err
	}
	backend = l.Addr().String()
	g, err := server.NewGRPC(probe.Both)
	if err != nil {
		return 1, err
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer func() {
		g.Stop()
		err = errors.Join(err, <-served)
	}()
	if mesh, err = run.Serve("--backend", "probe="+backend); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, mesh.Stop()) }()
	return m.Run(), nil
}

// outcome is one call in the report of agent.mjs.
type outcome struct {
	IsError    bool            `json:"isError"`
	Text       string          `json:"text"`
	Structured json.RawMessage `json:"structured"`
	Thrown     string          `json:"thrown"`
	Code       any             `json:"code"`
}

type report struct {
	Version string `json:"version"`
	Server  string `json:"server"`
	Tools   []struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		OutputSchema bool            `json:"outputSchema"`
		Annotations  map[string]bool `json:"annotations"`
	} `json:"tools"`
	OK           outcome `json:"ok"`
	Failed       outcome `json:"failed"`
	BadArguments outcome `json:"badArguments"`
	UnknownTool  outcome `json:"unknownTool"`
	Progress     []struct {
		Progress float64 `json:"progress"`
	} `json:"progress"`
	Stream  outcome `json:"stream"`
	Broken  outcome `json:"broken"`
	Collect outcome `json:"collect"`
	Chat    outcome `json:"chat"`
}

func TestOfficialClients(t *testing.T) {
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	mesh.Explain(t)
	for _, c := range []struct {
		name, sdk string
		mode      any
		version   string // agreed upon; "" where the client does not tell
	}{
		{"v1", "v1", nil, "2025-11-25"},
		{"v2 legacy", "v2", "legacy", "2025-11-25"},
		{"v2 auto", "v2", "auto", "2026-07-28"},
		{"v2 pinned", "v2", map[string]string{"pin": "2026-07-28"}, "2026-07-28"},
	} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(c.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				job := map[string]any{"sdk": c.sdk, "mode": c.mode, "id": fmt.Sprintf("%s %s %d", c.name, transport, time.Now().UnixNano())} // the server outlives a run of the test
				if transport == "http" {
					job["url"] = mesh.URL("/mcp")
				} else {
					job["command"] = []string{bin, "mcp", "--backend", "probe=" + backend}
				}
				r := runClient(t, job)
				want := c.version
				if r.Version == "" && c.sdk == "v1" && transport == "stdio" {
					want = "" // the v1 stdio transport is not told
				}
				if r.Version != want {
					t.Errorf("version = %q, want %q", r.Version, want)
				}
				check(t, r)
			})
		}
	}
}

func runClient(t *testing.T, job map[string]any) report {
	t.Helper()
	arg, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*run.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "agent.mjs", string(arg))
	cmd.Dir = clients
	var stdout strings.Builder
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("node is needed: %v", err)
	}
	passed := make(chan error, 1)
	seen := make(chan struct{}, 3)
	go func() { passed <- pass(ctx, fmt.Sprint(job["id"]), seen) }()
	var errs strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if lines.Text() == "progress" {
			seen <- struct{}{}
		}
		fmt.Fprintln(&errs, lines.Text())
	}
	err = cmd.Wait()
	cancel()
	if err := errors.Join(err, <-passed); err != nil {
		t.Fatalf("node agent.mjs %s: %v\n%s%s", arg, err, stdout.String(), errs.String())
	}
	out := []byte(stdout.String())
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("report of agent.mjs: %v\n%s", err, out)
	}
	return r
}

// pass lets the stream's three messages out, the next one when the client has seen the progress of the one before.
func pass(ctx context.Context, id string, seen <-chan struct{}) error {
	call, err := server.Call(ctx, id)
	if err != nil {
		return err
	}
	for i := range 3 {
		if i > 0 {
			select {
			case <-seen:
			case <-ctx.Done():
				return fmt.Errorf("no progress after message %d: %w", i, ctx.Err())
			}
		}
		call.Pass()
	}
	return nil
}

func check(t *testing.T, r report) {
	t.Helper()
	if r.Server != "toolway" {
		t.Errorf("server = %q, want toolway", r.Server)
	}
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
		if tool.Description == "" || !tool.OutputSchema || len(tool.Annotations) != 4 {
			t.Errorf("tool %q: description %q, output schema %v, annotations %v, want all of them", tool.Name, tool.Description, tool.OutputSchema, tool.Annotations)
		}
	}
	for _, want := range []string{"probe_ask", "probe_watch", "probe_collect", "probe_chat", "probe_label"} {
		if !slices.Contains(names, want) {
			t.Errorf("tools = %q, want %q among them", names, want)
		}
	}
	for _, o := range []struct {
		name    string
		got     outcome
		isError bool
		text    []string // in the text
		content []string // in the structured content
	}{
		{"ok", r.OK, false, []string{"hello", "4611686018427387905"}, []string{`"text":"hello"`, `"number":"4611686018427387905"`}},
		{"failed", r.Failed, true, []string{"NOT_FOUND", "the plan says so", "must be friendlier"}, []string{`"code":"NOT_FOUND"`, `"reason":"PLANNED"`, `"field":"text"`, `"hint":`}},
		{"bad arguments", r.BadArguments, true, []string{"txt", `"text"`}, []string{`"code":"INVALID_ARGUMENT"`}},
		{"stream", r.Stream, false, []string{"s"}, []string{`{"items":[`, `"index":2`}},
		{"broken stream", r.Broken, true, []string{"FAILED_PRECONDITION", `"index":1`}, []string{`"code":"FAILED_PRECONDITION"`, `"items":[`}},
		{"collect", r.Collect, false, []string{"a,b"}, []string{`"count":2`, `"text":"a,b"`}},
		{"chat", r.Chat, false, []string{"a", "b"}, []string{`"items":[`, `"text":"b"`}},
	} {
		if o.got.Thrown != "" {
			t.Errorf("%s: the client threw %q; the model would not see the result", o.name, o.got.Thrown)
			continue
		}
		if o.got.IsError != o.isError {
			t.Errorf("%s: isError = %v, want %v: %s", o.name, o.got.IsError, o.isError, o.got.Text)
		}
		for _, want := range o.text {
			if !strings.Contains(o.got.Text, want) {
				t.Errorf("%s: text = %q, want %q in it", o.name, o.got.Text, want)
			}
		}
		for _, want := range o.content {
			if !strings.Contains(string(o.got.Structured), want) {
				t.Errorf("%s: structured content = %s, want %q in it", o.name, o.got.Structured, want)
			}
		}
	}
	if !strings.Contains(r.UnknownTool.Thrown, "probe_ask") || fmt.Sprint(r.UnknownTool.Code) != "-32602" {
		t.Errorf("unknown tool: thrown %q with code %v, want the near miss %q and -32602", r.UnknownTool.Thrown, r.UnknownTool.Code, "probe_ask")
	}
	// The TypeScript clients drop a notification that arrives in one read with the response, so the last one may be missing.
	if n := len(r.Progress); n != 2 && n != 3 {
		t.Errorf("%d progress notifications for a stream of 3, want them", n)
	}
	for i, p := range r.Progress {
		if i > 0 && p.Progress <= r.Progress[i-1].Progress {
			t.Errorf("progress does not rise: %v", r.Progress)
		}
	}
}
