package live_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRateLimitAtEachDoor uses a method's rate up, and is told at each door which limit it was and how long to wait.
func TestRateLimitAtEachDoor(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--config", configFile(t, "backends: [{name: probe, targets: ["+addr+"]}]\nlimits:\n  methods:\n    - methods: [probe.v1.Probe/Ask]\n      rate: {per_second: 0.001, burst: 1}\n"))
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	if _, err := client.Ask(ctx, &probev1.AskRequest{}); err != nil {
		t.Fatalf("the first call: %v", err)
	}

	_, err := client.Ask(ctx, &probev1.AskRequest{})
	reason, wait := "", time.Duration(0)
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason() + " " + d.GetMetadata()["limit"]
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		}
	}
	if status.Code(err) != codes.ResourceExhausted || reason != "RATE_LIMITED method" || wait <= 0 || wait > 1000*time.Second {
		t.Errorf("gRPC: %v, %q, wait %v, want RESOURCE_EXHAUSTED, RATE_LIMITED by the method's limit, and how long to wait", err, reason, wait)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, mesh.URL("/v1/probe/x:ask"), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != http.StatusTooManyRequests || err != nil || n < 1 || n > 1000 {
		t.Errorf("HTTP: %d, Retry-After %q, want 429 and whole seconds", resp.StatusCode, resp.Header.Get("Retry-After"))
	}

	res, err := agent.Call(ctx, mcp(ctx, t, mesh, agent.V20260728, nil), "probe_ask", nil, nil)
	if err != nil || !res.IsError || !strings.Contains(res.Text(), "RATE_LIMITED") || !strings.Contains(res.Text(), "retry after: ") || !strings.Contains(res.Text(), "wait, then call again") {
		t.Errorf("MCP: %+v, %v, want a tool error that says how long to wait", res, err)
	}
}

// TestFailoverAtEachDoor kills a backend that another covers for: its tools stay, and its calls are answered.
func TestFailoverAtEachDoor(t *testing.T) {
	t.Parallel()
	first, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Kill() })
	second, other := startProbe(t)
	mesh := run.Start(t, "--config", configFile(t, "backends:\n  - {name: probe, targets: ["+addr+"], failover: spare}\n  - {name: spare, targets: ["+other+"]}\n"))
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	a := mcp(ctx, t, mesh, agent.V20260728, nil)
	run.Eventually(t, "the spare backend is known", func() bool {
		_, err := client.Ask(ctx, &probev1.AskRequest{})
		return err == nil && !mesh.Contains("service-owned")
	})
	first.Kill()
	run.Eventually(t, "the backend is covered", func() bool {
		_, body := send(ctx, t, http.MethodGet, "http://"+mesh.Admin+"/readyz", "")
		return strings.Contains(body, `"covered"`)
	})
	for door, call := range doors(ctx, mesh, client, a) {
		run.Eventually(t, door+" is answered by the spare backend", func() bool { return call() == "OK" })
	}
	res, err := agent.Call(ctx, a, "probe_ask", map[string]any{"id": "covered"}, nil)
	if err != nil || res.IsError {
		t.Errorf("MCP: %+v, %v", res, err)
	}
	mustSee(ctx, t, second, "covered")
}
