package live_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestCurlSeesEachEventAsItIsSent lets the backend send one event only when curl has printed the one before.
func TestCurlSeesEachEventAsItIsSent(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	for _, c := range []struct{ name, accept, prefix, end string }{
		{"sse", "text/event-stream", "data: ", "event: end"},
		{"ndjson", "*/*", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := patience(t)
			id := "curl-" + c.name
			curl := exec.CommandContext(ctx, "curl", "-sS", "-N", "-H", "Accept: "+c.accept, mesh.URL("/v1/probe/"+id+"/events?plan.count=3&plan.gate=true&text=tick"))
			out, err := curl.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := curl.Start(); err != nil {
				t.Fatalf("curl is needed: %v", err)
			}
			call := mustSee(ctx, t, server, id)
			lines := bufio.NewScanner(out)
			next := func() string {
				for lines.Scan() {
					if l := lines.Text(); l != "" && !strings.HasPrefix(l, ":") && !strings.HasPrefix(l, "retry: ") {
						return l
					}
				}
				return ""
			}
			for i := range 3 {
				call.Pass()
				got := next()
				if !strings.HasPrefix(got, c.prefix+"{") || !strings.Contains(got, "tick") || i > 0 && !strings.Contains(got, fmt.Sprintf(`"index":%d`, i)) {
					t.Fatalf("event %d = %q", i, got)
				}
			}
			if got := next(); got != c.end {
				t.Errorf("after the last event came %q, want %q", got, c.end)
			}
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Error(err)
			}
			if err := curl.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStreamBreaks has an event with the status.
func TestStreamBreaks(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	req, err := http.NewRequestWithContext(patience(t), http.MethodGet, mesh.URL("/v1/probe/breaks/events?plan.count=2&plan.code=8"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for h, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := resp.Header.Get(h); got != want {
			t.Errorf("%s = %q, want %q", h, got, want)
		}
	}
	events := strings.Split(strings.TrimRight(string(b), "\n"), "\n\n")
	if len(events) != 4 || !strings.HasPrefix(events[0], "retry: ") || !strings.HasPrefix(events[3], "event: error\ndata: {") || !strings.Contains(events[3], `"code":8`) || !strings.Contains(events[3], "PLANNED") {
		t.Errorf("events = %q, want when to come back, two and an error with code 8 and its details", events)
	}
}

// TestCallersThatGoAway starts endless streams through every door and closes them. Each is cancelled at the backend, and nothing of them
// stays in the mesh.
func TestCallersThatGoAway(t *testing.T) {
	t.Parallel()
	const each = 50
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--admin-pprof")
	ctx := patience(t)
	cc := run.Dial(t, mesh.GRPC)
	plan := &probev1.Plan{Count: 1, Hang: true}
	doors := []struct {
		name string
		call func(ctx context.Context, id string)
	}{
		{"grpc", func(ctx context.Context, id string) {
			s, err := probev1.NewProbeClient(cc).Watch(ctx, &probev1.WatchRequest{Id: id, Plan: plan})
			for err == nil {
				_, err = s.Recv()
			}
		}},
		{"sse", func(ctx context.Context, id string) {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/v1/probe/"+id+"/events?plan.count=1&plan.hang=true"), nil)
			req.Header.Set("Accept", "text/event-stream")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}},
		{"mcp", func(ctx context.Context, id string) {
			a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
			if err == nil {
				_, _ = agent.Call(ctx, a, "probe_watch", map[string]any{"id": id, "plan": map[string]any{"count": 1, "hang": true}}, func(string) {})
				a.Close()
			}
		}},
	}
	round := func(name string, n int) {
		var wg sync.WaitGroup
		defer wg.Wait()
		caller, leave := context.WithCancel(ctx)
		defer leave()
		var ids []string
		for _, d := range doors {
			for i := range n {
				id := fmt.Sprintf("away-%s-%s-%d", name, d.name, i)
				ids = append(ids, id)
				wg.Go(func() { d.call(caller, id) })
			}
		}
		for _, id := range ids {
			mustSee(ctx, t, server, id)
		}
		leave()
		left := time.Now()
		var slowest time.Duration
		for _, id := range ids {
			await(t, mustSee(ctx, t, server, id).Done, "the end of call "+id+" at the backend")
			slowest = max(slowest, time.Since(left))
		}
		t.Logf("%s: %d callers left; the last was cancelled at the backend after %v", name, len(ids), slowest)
	}
	round("warm", 1)
	http.DefaultClient.CloseIdleConnections()
	before := goroutines(t, mesh)
	round("all", each)
	http.DefaultClient.CloseIdleConnections()
	var now int
	if !run.Poll(run.Patience, func() bool { now = goroutines(t, mesh); return now <= before+10 }) {
		t.Errorf("%d goroutines after %d callers left, %d before:\n%s", now, 3*each, before, get(t, "http://"+mesh.Admin+"/debug/pprof/goroutine?debug=1"))
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", url, resp.Status, err)
	}
	return string(b)
}

// goroutines is how many the mesh has.
func goroutines(t *testing.T, m *run.Mesh) int {
	t.Helper()
	head, _, _ := strings.Cut(get(t, "http://"+m.Admin+"/debug/pprof/goroutine?debug=1"), "\n")
	n, err := strconv.Atoi(head[strings.LastIndex(head, " ")+1:])
	if err != nil {
		t.Fatalf("goroutine profile begins with %q", head)
	}
	return n
}
