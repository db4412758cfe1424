package live_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestDrain sends SIGTERM with a call in flight through every door: they finish, new ones are refused, and the exit code is 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	a := mcp(ctx, t, mesh, agent.V20251125, nil)
	gate := map[string]any{"gate": true}
	inFlight := map[string]<-chan string{
		"grpc": start(func() string {
			got, err := client.Ask(ctx, &probev1.AskRequest{Id: "drain-grpc", Text: "hi", Plan: &probev1.Plan{Gate: true}})
			return fmt.Sprint(got.GetText(), err)
		}),
		"http": start(func() string {
			got := post(ctx, mesh.URL("/v1/probe/drain-http:ask"), `{"text":"hi","plan":{"gate":true}}`, nil)
			return fmt.Sprint(got.body["text"], got.err)
		}),
		"mcp": start(func() string {
			res, err := agent.Call(ctx, a, "probe_ask", map[string]any{"id": "drain-mcp", "text": "hi", "plan": gate}, nil)
			if err != nil || res.IsError || !strings.Contains(res.Text(), "hi") {
				return fmt.Sprint(res, err)
			}
			return "hi" + fmt.Sprint(err)
		}),
	}
	for door := range inFlight {
		mustSee(ctx, t, server, "drain-"+door)
	}
	if err := mesh.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	run.Eventually(t, "new gRPC calls are refused", func() bool {
		_, err := late.Ask(ctx, &probev1.AskRequest{})
		return codeName(status.Code(err)) == "UNAVAILABLE"
	})
	http.DefaultClient.CloseIdleConnections()
	run.Eventually(t, "new HTTP calls are refused", func() bool {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, mesh.URL("/v1/probe/late:ask"), strings.NewReader(`{}`))
		req.Close = true
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err != nil || resp.StatusCode == http.StatusServiceUnavailable
	})
	run.Eventually(t, "/readyz says that the mesh drains", func() bool {
		got := fetch(ctx, "http://"+mesh.Admin+"/readyz")
		return got.code == http.StatusServiceUnavailable && strings.Contains(got.text, `"draining"`)
	})
	if got := fetch(ctx, "http://"+mesh.Admin+"/healthz"); got.code != http.StatusOK {
		t.Errorf("/healthz while draining = %d %s, want 200", got.code, got.text)
	}
	select {
	case <-mesh.Exited():
		t.Fatalf("the mesh ended with calls in flight:\n%s", mesh.Log())
	default:
	}
	for door, c := range inFlight {
		mustSee(ctx, t, server, "drain-"+door).Pass()
		if got := await(t, c, "the answer of the call in flight"); got != "hi<nil>" {
			t.Errorf("%s: the call in flight ended with %s, want its answer", door, got)
		}
	}
	if err := mesh.Wait(run.Patience); err != nil {
		t.Error(err)
	}
}

type fetched struct {
	code int
	text string
}

// fetch gets a URL; code 0 means that nobody answered.
func fetch(ctx context.Context, url string) fetched {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fetched{text: err.Error()}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fetched{text: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fetched{text: err.Error()}
	}
	return fetched{resp.StatusCode, string(body)}
}

// TestDrainIsBounded has streams that never end by themselves: they are told, and cut when the time is over.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("backends:\n  - name: probe\n    targets: [%q]\ndrain: 1s\n", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--config", file)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	grpcEnded := start(func() error {
		s, err := client.Watch(ctx, &probev1.WatchRequest{Id: "bounded-grpc", Plan: &probev1.Plan{Count: 1, Hang: true}})
		for err == nil {
			_, err = s.Recv()
		}
		return err
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/v1/probe/bounded-sse/events?plan.count=1&plan.hang=true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	calls := []string{"bounded-grpc", "bounded-sse"}
	for _, id := range calls {
		mustSee(ctx, t, server, id)
	}
	if err := mesh.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var events []string
	var last string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			events = append(events, name)
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = data
		}
	}
	if len(events) < 2 || events[0] != "server_draining" || events[len(events)-1] != "error" {
		t.Errorf("events = %q, want server_draining first, and an error when the time is over", events)
	}
	if !strings.Contains(last, "shutting down") {
		t.Errorf("the last event says %s, want that the mesh is shutting down", last)
	}
	if err := await(t, grpcEnded, "the end of the gRPC stream"); codeName(status.Code(err)) != "UNAVAILABLE" || !strings.Contains(err.Error(), "the mesh is shutting down") {
		t.Errorf("gRPC stream ended with %v, want UNAVAILABLE, and why", err)
	}
	for _, id := range calls {
		await(t, mustSee(ctx, t, server, id).Done, "the end of the call at the backend")
	}
	if err := mesh.Wait(run.Patience); err != nil {
		t.Error(err)
	}
}

// TestStdioEndsWithItsInput finishes the call in flight first.
func TestStdioEndsWithItsInput(t *testing.T) {
	t.Parallel()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	server, addr := startProbe(t)
	a, err := agent.NewStdio(agent.V20251125, nil, nil, bin, "mcp", "--backend", "probe="+addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Kill)
	ctx := patience(t)
	if err := a.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	call := start(func() string {
		res, err := agent.Call(context.WithoutCancel(ctx), a, "probe_ask", map[string]any{"id": "stdio-end", "text": "hi", "plan": map[string]any{"gate": true}}, nil)
		if err != nil || res.IsError {
			return fmt.Sprint(res, err)
		}
		return res.Text()
	})
	seen := mustSee(ctx, t, server, "stdio-end")
	closed := start(a.Close)
	seen.Pass()
	if got := await(t, call, "the answer"); !strings.Contains(got, "hi") {
		t.Errorf("call in flight = %s, want its answer", got)
	}
	if err := await(t, closed, "the end of the process"); err != nil {
		t.Errorf("%v\n%s", err, a.Stderr())
	}
}
