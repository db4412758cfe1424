package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

const tasksExtension = "io.modelcontextprotocol/tasks"

// tasker is a client of 2026-07-28 that may have declared the tasks extension.
type tasker struct {
	agent.Requester
	extension bool
}

// request returns the members of the result.
func (c tasker) request(ctx context.Context, method string, params map[string]any) (map[string]any, error) {
	if c.extension {
		params["_meta"] = map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: map[string]any{}}}}
	}
	raw, err := c.Request(ctx, method, params, nil)
	if err != nil {
		return nil, err
	}
	var res map[string]any
	return res, json.Unmarshal(raw, &res)
}

// call calls a tool of the probe.
func (c tasker) call(ctx context.Context, tool, id string, plan map[string]any) (map[string]any, error) {
	return c.request(ctx, "tools/call", map[string]any{"name": "probe_" + tool, "arguments": map[string]any{"id": id, "text": "hello", "plan": plan}})
}

// begin makes a task of a call, and returns its id.
func (c tasker) begin(ctx context.Context, t *testing.T, tool, id string, plan map[string]any) string {
	t.Helper()
	res, err := c.call(ctx, tool, id, plan)
	task, _ := res["taskId"].(string)
	if err != nil || res["resultType"] != "task" || task == "" || res["content"] != nil {
		t.Fatalf("%s answered with %v, %v, want a task", tool, res, err)
	}
	return task
}

// becomes asks for a task until it has a status.
func (c tasker) becomes(ctx context.Context, t *testing.T, id, status string) (res map[string]any) {
	t.Helper()
	run.Eventually(t, "task "+id+" is "+status, func() bool {
		var err error
		if res, err = c.request(ctx, "tasks/get", map[string]any{"taskId": id}); err != nil || res["taskId"] != id || res["resultType"] != "complete" {
			t.Fatalf("tasks/get: %v, %v", res, err)
		}
		return res["status"] == status
	})
	return res
}

// shown is what a client is shown of a result.
func shown(t *testing.T, res any) string {
	t.Helper()
	m, ok := res.(map[string]any)
	if !ok || m["content"] == nil {
		t.Fatalf("result is %v, want that of a tools/call", res)
	}
	raw, err := json.Marshal(map[string]any{"content": m["content"], "structured": m["structuredContent"], "error": m["isError"]})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func wantRPCError(t *testing.T, what string, err error, code int) {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want error %d", what, err, code)
	}
}

// TestMCPTasks has the built binary run calls of MCP as tasks, over HTTP and over stdio. Requests about them pass the whole chain, as calls of the mesh's
// own TaskService.
func TestMCPTasks(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdio=%v", stdio), func(t *testing.T) {
			t.Parallel()
			backend, addr := startProbe(t)
			file := filepath.Join(t.TempDir(), "toolway.yaml")
			config := fmt.Sprintf(`backends: [{name: probe, targets: [%q]}]
policy:
  - {match: probe.v1.Probe/Ask, task: preferred}
  - {match: probe.v1.Probe/Watch, task: required}
`, addr)
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx := patience(t)
			var door agent.Requester
			if stdio {
				bin, err := run.Toolway()
				if err != nil {
					t.Fatal(err)
				}
				a, err := agent.NewStdio(agent.V20260728, nil, nil, bin, "mcp", "--config", file, "--data", t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := a.Close(); err != nil {
						t.Errorf("%v\n%s", err, a.Stderr())
					}
				})
				door = a
			} else {
				m := run.Start(t, "--config", file, "--data", t.TempDir())
				door = mcp(ctx, t, m, agent.V20260728, nil)
			}
			with, without := tasker{door, true}, tasker{door, false}
			run.Eventually(t, "the tools are listed", func() bool {
				tools, err := agent.Tools(ctx, door)
				if err != nil {
					t.Fatal(err)
				}
				return len(tools) > 0
			})

			for what, plan := range map[string]map[string]any{"well": {}, "badly": {"code": 9}} {
				plain, err := without.call(ctx, "ask", "plain", plan)
				if err != nil || plain["resultType"] != "complete" {
					t.Fatalf("a call that ends %s, without the extension: %v, %v", what, plain, err)
				}
				got := with.becomes(ctx, t, with.begin(ctx, t, "ask", "task", plan), "completed")
				if want, have := shown(t, plain), shown(t, got["result"]); want != have {
					t.Errorf("a call that ends %s: result of the task:\n%s\nof the call:\n%s", what, have, want)
				}
			}
			rows := with.becomes(ctx, t, with.begin(ctx, t, "watch", "rows", map[string]any{"count": 2}), "completed")
			if text := shown(t, rows["result"]); strings.Count(text, "hello") < 2 {
				t.Errorf("result of a stream: %s, want both messages", text)
			}
			_, err := without.call(ctx, "watch", "refused", map[string]any{})
			wantRPCError(t, "a call that runs only as a task, without the extension", err, -32021)

			id := with.begin(ctx, t, "ask", "hanging", map[string]any{"hang": true})
			mustSee(ctx, t, backend, "hanging")
			with.becomes(ctx, t, id, "working")
			if res, err := with.request(ctx, "tasks/cancel", map[string]any{"taskId": id}); err != nil || res["resultType"] != "complete" {
				t.Errorf("tasks/cancel: %v, %v", res, err)
			}
			if got := with.becomes(ctx, t, id, "cancelled"); got["result"] != nil || got["error"] != nil {
				t.Errorf("a cancelled task: %v", got)
			}

			for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
				for _, unknown := range []string{strings.Repeat("0", 32), "nobody's"} {
					_, err := with.request(ctx, method, map[string]any{"taskId": unknown, "inputResponses": map[string]any{}})
					wantRPCError(t, method+" of "+unknown, err, -32602)
				}
				_, err := without.request(ctx, method, map[string]any{"taskId": id, "inputResponses": map[string]any{}})
				wantRPCError(t, method+" without the extension", err, -32021)
			}
			if backend.Saw("refused") {
				t.Error("the backend saw the call that was refused")
			}
		})
	}
}
