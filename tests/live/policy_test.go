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

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestQuarantineAndExposure has a tool whose definition is not the locked one, one that only the gRPC door exposes, and one whose policy was
// only tightened, at the three doors.
func TestQuarantineAndExposure(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	dir := t.TempDir()
	config := func(name, more string) string {
		path := filepath.Join(dir, name)
		text := "backends: [{name: probe, targets: [" + addr + "]}]\nlock: toolway.lock\npolicy:\n  - match: probe.v1.Probe/Label\n    doors: [grpc]\n" + more
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	reviewed := config("reviewed.yaml", "")
	changed := config("changed.yaml", "  - match: probe.v1.Probe/Ask\n    read_only: true\n  - match: probe.v1.Probe/Watch\n    max_timeout: 5m\n")
	command(t, 0, "lock", "--config", reviewed)
	if out := command(t, 0, "diff", "--config", reviewed); out != "nothing has changed\n" {
		t.Errorf("diff of what was just locked: %s", out)
	}
	if out := command(t, 1, "diff", "--config", changed); !strings.Contains(out, "loosens   the annotation readOnly changed from false to true") || !strings.Contains(out, "tightens  max_timeout changed from none to 5m0s") {
		t.Errorf("diff: %s", out)
	}
	if out := command(t, 0, "tools", "show", "--config", changed, "probe_ask"); !strings.Contains(out, "QUARANTINED: the annotation readOnly changed from false to true") ||
		!strings.Contains(out, "read_only    true             policy[1] (line 6)") {
		t.Errorf("tools show: %s", out)
	}

	mesh := run.Start(t, "--config", changed)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	a := mcp(ctx, t, mesh, agent.V20260728, nil)

	_, err := client.Ask(ctx, &probev1.AskRequest{Text: "hi"})
	if reason, hint := reasonOf(err); status.Code(err) != codes.FailedPrecondition || reason != "TOOL_QUARANTINED" || !strings.Contains(hint, "toolway diff") {
		t.Errorf("gRPC: quarantined: %v, reason %q, hint %q", err, reason, hint)
	}
	for _, arguments := range []map[string]any{{"text": "hi"}, {"no such": "argument"}} {
		res, err := agent.Call(ctx, a, "probe_ask", arguments, nil)
		if err != nil || !res.IsError || !strings.Contains(res.Text(), "TOOL_QUARANTINED") || !strings.Contains(res.Text(), "toolway diff") {
			t.Errorf("MCP: quarantined: %+v, %v", res, err)
		}
	}
	if code, body := send(ctx, t, http.MethodPost, mesh.URL("/probe.v1.Probe/Ask"), `{"text":"hi"}`); code != http.StatusConflict || !strings.Contains(body, "TOOL_QUARANTINED") {
		t.Errorf("HTTP: quarantined: %d %s", code, body)
	}

	if _, err := client.Label(ctx, &probev1.LabelRequest{}); err != nil {
		t.Errorf("gRPC: exposed: %v", err)
	}
	if _, err := agent.Call(ctx, a, "probe_label", nil, nil); err == nil || !strings.Contains(err.Error(), `unknown tool "probe_label"`) {
		t.Errorf("MCP: not exposed: %v", err)
	}
	if code, body := send(ctx, t, http.MethodPost, mesh.URL("/probe.v1.Probe/Label"), `{}`); code != http.StatusNotFound {
		t.Errorf("HTTP: not exposed: %d %s", code, body)
	}

	if res, err := agent.Call(ctx, a, "probe_watch", map[string]any{"plan": map[string]any{"count": 1}}, nil); err != nil || res.IsError {
		t.Errorf("MCP: tightened: %+v, %v", res, err)
	}
	listed(ctx, t, mesh, a)
	checkQuarantineIsTold(ctx, t, mesh)

	command(t, 0, "lock", "--config", changed)
	again := run.Start(t, "--config", changed)
	if _, err := probev1.NewProbeClient(run.Dial(t, again.GRPC)).Ask(ctx, &probev1.AskRequest{Text: "hi"}); err != nil {
		t.Errorf("after the change was accepted: %v", err)
	}
}

// TestNothingIsExposedUnasked opens the doors to other machines: only what is listed is there, and the log says so while nothing is.
func TestNothingIsExposedUnasked(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	ctx := patience(t)
	args := []string{"--backend", "probe=" + addr, "--grpc-addr", "0.0.0.0:0", "--http-addr", "0.0.0.0:0", "--allow-anonymous"}
	mesh := run.Start(t, args...)
	for _, door := range []string{"grpc", "mcp", "http"} {
		run.Eventually(t, "the log warns of the door "+door, func() bool {
			return mesh.Contains("or say expose." + door + ": all")
		})
	}
	if _, err := probev1.NewProbeClient(run.Dial(t, local(mesh.GRPC))).Ask(ctx, &probev1.AskRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("gRPC: %v, want UNIMPLEMENTED", err)
	}
	if code, body := send(ctx, t, http.MethodGet, "http://"+local(mesh.HTTP)+"/v1/probe/x", ""); code != http.StatusNotFound {
		t.Errorf("HTTP: %d %s, want 404", code, body)
	}

	config := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(config, []byte("expose: {methods: '*/Ask'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh = run.Start(t, append(args, "--config", config)...)
	client := probev1.NewProbeClient(run.Dial(t, local(mesh.GRPC)))
	if _, err := client.Ask(ctx, &probev1.AskRequest{}); err != nil {
		t.Errorf("gRPC: listed: %v", err)
	}
	if _, err := client.Label(ctx, &probev1.LabelRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("gRPC: not listed: %v, want UNIMPLEMENTED", err)
	}
	if code, body := send(ctx, t, http.MethodGet, "http://"+local(mesh.HTTP)+"/v1/probe/x", ""); code != http.StatusOK {
		t.Errorf("HTTP: listed: %d %s", code, body)
	}
}

// local is how this machine reaches a listener on all addresses.
func local(addr string) string { return "127.0.0.1" + addr[strings.LastIndex(addr, ":"):] }

// listed looks at what the doors list.
func listed(ctx context.Context, t *testing.T, mesh *run.Mesh, a agent.Requester) {
	t.Helper()
	tools, err := agent.Tools(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	if want := []string{"probe_chat", "probe_collect", "probe_search", "probe_watch"}; !slices.Equal(names, want) {
		t.Errorf("MCP lists %v, want %v", names, want)
	}
	var doc struct{ Paths map[string]any }
	_, body := send(ctx, t, http.MethodGet, mesh.URL("/openapi.json"), "")
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/probe.v1.Probe/Watch": true, "/probe.v1.Probe/Ask": false, "/probe.v1.Probe/Label": false} {
		if (doc.Paths[path] != nil) != want {
			t.Errorf("OpenAPI has %s: %v, want %v", path, !want, want)
		}
	}
}

// checkQuarantineIsTold looks where an operator looks.
func checkQuarantineIsTold(ctx context.Context, t *testing.T, mesh *run.Mesh) {
	t.Helper()
	if _, body := send(ctx, t, http.MethodGet, "http://"+mesh.Admin+"/metrics", ""); !strings.Contains(body, `toolway_tools_quarantined{backend="probe"} 1`) {
		t.Errorf("metrics have no count of quarantined tools: %s", body)
	}
	if _, body := send(ctx, t, http.MethodGet, "http://"+mesh.Admin+"/readyz", ""); !strings.Contains(body, `"tool-quarantined"`) {
		t.Errorf("readyz does not tell of the quarantine: %s", body)
	}
	if !mesh.Contains("is not listed and its calls are refused") {
		t.Errorf("the log does not tell of the quarantine")
	}
}

// command runs one command line of the built binary, checks the exit code, and returns what it printed.
func command(t *testing.T, want int, args ...string) string {
	t.Helper()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr, err := run.Output(nil, bin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Fatalf("toolway %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, stderr)
	}
	return string(stdout)
}

// reasonOf returns the reason and the hint of an error of the mesh.
func reasonOf(err error) (reason, hint string) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), info.GetMetadata()["hint"]
		}
	}
	return "", ""
}

// send makes one HTTP request.
func send(ctx context.Context, t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
