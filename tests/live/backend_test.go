package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// prompt is what "fast" may take when a backend is gone: far less than the default deadline of a minute, and enough for a loaded machine.
const prompt = 30 * time.Second

// TestBackendDiesAndReturns kills a backend with calls in flight through every door, and brings it back.
func TestBackendDiesAndReturns(t *testing.T) {
	t.Parallel()
	backend, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Kill() })
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx, cancel := context.WithTimeout(t.Context(), 4*run.Patience)
	t.Cleanup(cancel)
	w := newWatcher(ctx, t, mesh)
	cc := run.Dial(t, mesh.GRPC)
	client := probev1.NewProbeClient(cc)
	a := mcp(ctx, t, mesh, agent.V20260728, nil)

	w.state(healthpb.HealthCheckResponse_SERVING)
	w.tools(true)

	inFlight := map[string]<-chan string{
		"grpc": start(func() string {
			s, err := client.Watch(ctx, &probev1.WatchRequest{Plan: &probev1.Plan{Count: 1, Hang: true}})
			if err == nil {
				if _, err = s.Recv(); err == nil {
					w.began <- "grpc"
					_, err = s.Recv()
				}
			}
			return status.Code(err).String()
		}),
		"http": start(func() string {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/v1/probe/x/events?plan.count=1&plan.hang=true"), nil)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			w.began <- "http"
			dec := json.NewDecoder(resp.Body)
			for {
				var line struct{ Error *struct{ Code codes.Code } }
				if err := dec.Decode(&line); err != nil {
					return err.Error()
				}
				if line.Error != nil {
					return line.Error.Code.String()
				}
			}
		}),
		"mcp": start(func() string {
			res, err := agent.Call(ctx, a, "probe_watch", map[string]any{"plan": map[string]any{"count": 1, "hang": true}}, func(string) { w.began <- "mcp" })
			if err != nil {
				return err.Error()
			}
			return mcpCode(res)
		}),
	}
	for range inFlight {
		await(t, w.began, "the first message of each call in flight")
	}

	killed := time.Now()
	backend.Kill()
	for door, c := range inFlight {
		if got := await(t, c, "the end of the call in flight through "+door); got != "Unavailable" && got != "UNAVAILABLE" {
			t.Errorf("%s: call in flight ended with %s, want UNAVAILABLE", door, got)
		}
	}
	t.Logf("calls in flight ended after %v", time.Since(killed))
	for door, call := range doors(ctx, mesh, client, a) {
		began := time.Now()
		if got := call(); got != "UNAVAILABLE" {
			t.Errorf("%s: call to the dead backend = %s, want UNAVAILABLE", door, got)
		}
		if took := time.Since(began); took > prompt {
			t.Errorf("%s: call to the dead backend took %v", door, took)
		}
	}
	w.state(healthpb.HealthCheckResponse_NOT_SERVING)
	t.Logf("NOT_SERVING after %v", time.Since(killed))
	w.changed()
	w.tools(false)
	t.Logf("tools withdrawn after %v", time.Since(killed))
	if took := time.Since(killed); took < 4*time.Second {
		t.Errorf("tools were withdrawn after %v, want about 5 s: a backend that flaps must not make lists storm", took)
	}
	for door, call := range doors(ctx, mesh, client, a) {
		if got := call(); got != "UNAVAILABLE" {
			t.Errorf("%s: call of a withdrawn tool = %s, want UNAVAILABLE", door, got)
		}
	}

	again, _, err := run.Child("probe", "-addr", addr)
	if err != nil {
		t.Fatal(err)
	}
	backend = again
	back := time.Now()
	w.changed()
	w.tools(true)
	w.state(healthpb.HealthCheckResponse_SERVING)
	for door, call := range doors(ctx, mesh, client, a) {
		run.Eventually(t, door+" is healed", func() bool { return call() == "OK" })
	}
	t.Logf("healed after %v", time.Since(back))
}

// doors calls the probe through each door and returns the name of the status.
func doors(ctx context.Context, mesh *run.Mesh, client probev1.ProbeClient, a agent.Requester) map[string]func() string {
	return map[string]func() string{
		"grpc": func() string {
			_, err := client.Ask(ctx, &probev1.AskRequest{})
			return codeName(status.Code(err))
		},
		"http": func() string {
			got := post(ctx, mesh.URL("/v1/probe/x:ask"), `{}`, nil)
			if got.code == http.StatusOK {
				return "OK"
			}
			if code, ok := got.body["code"].(float64); ok && got.code == http.StatusServiceUnavailable {
				return codeName(codes.Code(code))
			}
			return got.String()
		},
		"mcp": func() string {
			res, err := agent.Call(ctx, a, "probe_ask", map[string]any{}, nil)
			if err != nil {
				return err.Error()
			}
			return mcpCode(res)
		},
	}
}

func codeName(c codes.Code) string {
	switch c {
	case codes.OK:
		return "OK"
	case codes.Unavailable:
		return "UNAVAILABLE"
	}
	return c.String()
}

func mcpCode(res *agent.Result) string {
	var content struct{ Error struct{ Code string } }
	if err := json.Unmarshal(res.StructuredContent, &content); err != nil {
		return err.Error()
	}
	if !res.IsError {
		return "OK"
	}
	return content.Error.Code
}

// watcher follows what the mesh says of its backend: health, list_changed in a stdio-like session of the old protocol and in a listen
// stream of the new one.
type watcher struct {
	t      *testing.T
	ctx    context.Context
	mesh   *run.Mesh
	health grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	began  chan string
	notes  chan string
}

func newWatcher(ctx context.Context, t *testing.T, mesh *run.Mesh) *watcher {
	t.Helper()
	w := &watcher{t: t, ctx: ctx, mesh: mesh, began: make(chan string, 16), notes: make(chan string, 64)}
	health, err := healthpb.NewHealthClient(run.Dial(t, mesh.GRPC)).Watch(ctx, &healthpb.HealthCheckRequest{Service: "probe.v1.Probe"})
	if err != nil {
		t.Fatal(err)
	}
	w.health = health
	acknowledged := make(chan struct{})
	listener := mcp(ctx, t, mesh, agent.V20260728, nil)
	listening, stop := context.WithCancel(ctx)
	ended := start(func() error {
		_, err := listener.Request(listening, "subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}}, func(m agent.Message) {
			switch m.Method {
			case "notifications/subscriptions/acknowledged":
				close(acknowledged)
			case "notifications/tools/list_changed":
				w.notes <- "2026-07-28"
			}
		})
		return err
	})
	t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the listen stream ended with %v before its caller left", err)
		}
	})
	select {
	case <-acknowledged:
	case err := <-ended:
		t.Fatalf("subscriptions/listen: %v", err)
	case <-ctx.Done():
		t.Fatal("subscriptions/listen was not acknowledged")
	}
	return w
}

// state waits until the health service says so.
func (w *watcher) state(want healthpb.HealthCheckResponse_ServingStatus) {
	w.t.Helper()
	for {
		got, err := w.health.Recv()
		if err != nil {
			w.t.Fatalf("health: %v, want %v", err, want)
		}
		if got.GetStatus() == want {
			return
		}
	}
}

// changed waits until the listener has heard list_changed.
func (w *watcher) changed() {
	w.t.Helper()
	await(w.t, w.notes, "list_changed")
}

// tools waits until the tools are listed, or not, to clients of every version.
func (w *watcher) tools(want bool) {
	w.t.Helper()
	for _, v := range versions {
		a := mcp(w.ctx, w.t, w.mesh, v, nil)
		run.Eventually(w.t, fmt.Sprintf("%s: the tool is listed: want %v", v, want), func() bool {
			tools, err := agent.Tools(w.ctx, a)
			if err != nil {
				w.t.Fatal(err)
			}
			return slices.ContainsFunc(tools, func(t agent.Tool) bool { return t.Name == "probe_ask" }) == want
		})
	}
}

// TestBackendComesLate starts the mesh before its backend. It serves once the backend is there, without a restart.
func TestBackendComesLate(t *testing.T) {
	t.Parallel()
	first, addr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	first.Kill() // its port is free now
	mesh, err := run.Listen(nil, "--backend", "probe="+addr)
	if err != nil {
		t.Fatal(err)
	}
	mesh.Explain(t)
	t.Cleanup(func() {
		if err := mesh.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx := patience(t)
	if got := post(ctx, mesh.URL("/probe.v1.Probe/Ask"), `{}`, nil); got.code == http.StatusOK || got.code == 0 {
		t.Errorf("before the backend is there: %v", got)
	}
	late, _, err := run.Child("probe", "-addr", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(late.Kill)
	run.Eventually(t, "the mesh is served", func() bool {
		return post(ctx, mesh.URL("/probe.v1.Probe/Ask"), `{}`, nil).code == http.StatusOK
	})
	if err := mesh.Ready(); err != nil {
		t.Error(err)
	}
	if l := mesh.Log(); !strings.Contains(l, addr) {
		t.Errorf("the log does not say which address could not be reached:\n%s", l)
	}
}

// TestListChangedOverStdio tells a client of the old protocol, on its one connection.
func TestListChangedOverStdio(t *testing.T) {
	t.Parallel()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{agent.V20250618, agent.V20251125} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			backend, addr, err := run.Child("probe")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { backend.Kill() })
			changed := make(chan struct{}, 16)
			a, err := agent.NewStdio(version, nil, func(m agent.Message) {
				if m.Method == "notifications/tools/list_changed" {
					changed <- struct{}{}
				}
			}, bin, "mcp", "--backend", "probe="+addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := a.Close(); err != nil {
					t.Errorf("%v\n%s", err, a.Stderr())
				}
			})
			ctx := patience(t)
			if err := a.Initialize(ctx); err != nil {
				t.Fatal(err)
			}
			listed := func(want bool) {
				t.Helper()
				run.Eventually(t, fmt.Sprintf("the tool is listed: want %v", want), func() bool {
					tools, err := agent.Tools(ctx, a)
					if err != nil {
						t.Fatal(err)
					}
					return (len(tools) > 0) == want
				})
			}
			listed(true)
			backend.Kill()
			await(t, changed, "list_changed after the backend's death")
			listed(false)
			if backend, _, err = run.Child("probe", "-addr", addr); err != nil {
				t.Fatal(err)
			}
			await(t, changed, "list_changed after the backend's return")
			listed(true)
		})
	}
}
