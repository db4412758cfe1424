package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// taskView is a task as the HTTP door shows it.
type taskView struct {
	ID, State, ErrorReason string
	Result                 struct{ Value struct{ Number string } }
}

// final says whether the task has ended.
func (v taskView) final() bool {
	return v.State != "STATE_WORKING" && v.State != "STATE_INPUT_REQUIRED" && v.State != ""
}

// makeTask makes a task of Ask, in one of the two ways of the HTTP door.
func (m *mesh) makeTask(ctx context.Context, key string, prefer bool) (taskView, error) {
	return m.makeTaskOf(ctx, key, fmt.Sprintf(`{"id":%q}`, key), prefer)
}

// makeTaskOf makes one with arguments.
func (m *mesh) makeTaskOf(ctx context.Context, key, arguments string, prefer bool) (taskView, error) {
	path, body := "/v1/tasks", fmt.Sprintf(`{"method":"probe.v1.Probe/Ask","idempotencyKey":%q,"arguments":%s}`, key, arguments)
	if prefer {
		path, body = "/probe.v1.Probe/Ask", arguments
	}
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL(path), bytes.NewReader([]byte(body)))
	if err != nil {
		return taskView{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if prefer {
		req.Header.Set("Prefer", "respond-async")
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := m.client.Do(req)
	if err != nil {
		return taskView{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return taskView{}, err
	}
	var out taskView
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("%s: %s: %w", res.Status, raw, err)
	}
	if out.ID == "" {
		return out, fmt.Errorf("%s: %s: there is no task", res.Status, raw)
	}
	if prefer && (res.StatusCode != http.StatusAccepted || res.Header.Get("Location") != "/v1/tasks/"+out.ID) {
		return out, fmt.Errorf("%s with Location %q: want 202 and the task's", res.Status, res.Header.Get("Location"))
	}
	return out, nil
}

// awaitTask waits until a task has ended.
func (m *mesh) awaitTask(t *testing.T, id string) taskView {
	t.Helper()
	var out taskView
	run.Eventually(t, "task "+id+" has ended", func() bool {
		text, err := m.text(t.Context(), m.URL("/v1/tasks/"+id))
		return err == nil && json.Unmarshal([]byte(text), &out) == nil && out.final()
	})
	return out
}

// TestTasksSurviveKillMinusNine kills the mesh while callers make tasks and workers run them: every task whose id was told ends, and none is executed
// twice.
func TestTasksSurviveKillMinusNine(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	dir, file := t.TempDir(), backend.configFile(t, "tasks: {lease: 1s}\n")
	const rounds, callers, perRound = 4, 8, 60
	made := map[string]string{} // task ids by key; "" if the mesh was gone before it told
	completed, unknowns := 0, 0
	check := func(m *mesh) {
		for key, id := range made {
			if id == "" { // the same call again makes the task, or finds it
				v, err := m.makeTask(t.Context(), key, false)
				if err != nil {
					t.Errorf("make %s again: %v", key, err)
					continue
				}
				id = v.ID
			}
			v := m.awaitTask(t, id)
			n := backend.count(key)
			switch {
			case v.State == "STATE_COMPLETED" && n == 1 && v.Result.Value.Number == "1":
				completed++
			case v.State == "STATE_OUTCOME_UNKNOWN" && v.ErrorReason == "OUTCOME_UNKNOWN" && n <= 1:
				unknowns++
			default:
				t.Errorf("task %s of %s is %+v after %d executions", id, key, v, n)
			}
		}
		clear(made)
	}
	for round := range rounds {
		m := serve(t, "--config", file, "--data", dir)
		check(m)
		var mu sync.Mutex
		var group sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(perRound/2 + rand.IntN(perRound)))
		for n := range callers {
			group.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("task-%d-%d-%d", round, n, i)
					v, err := m.makeTask(t.Context(), key, i%2 == 0)
					mu.Lock()
					made[key] = v.ID
					mu.Unlock()
					if err != nil {
						return // the mesh is gone
					}
					if left.Add(-1) == 0 {
						m.Kill()
					}
				}
			})
		}
		group.Wait()
	}
	m := serve(t, "--config", file, "--data", dir)
	check(m)
	t.Logf("%d kills: %d tasks completed, %d are OUTCOME_UNKNOWN", rounds, completed, unknowns)
	if completed < perRound/4 { // how many run when the mesh is killed, and so are unknown, is chance
		t.Errorf("only %d tasks were completed: the test shows little", completed)
	}
	m.stop(t)
}

// TestTasksGoOnElsewhere has a mesh die of two that share a store.
func TestTasksGoOnElsewhere(t *testing.T) {
	t.Parallel()
	goOnElsewhere(t, nodes(t, 1), 1, func() {})
}

// TestTasksOnThreeNodes is the same on a cluster that keeps three copies, of which a node is killed together with the mesh.
func TestTasksOnThreeNodes(t *testing.T) { // not beside the other clusters: nodes that get no processor choose leaders all the time
	nats := nodes(t, 3)
	goOnElsewhere(t, nats, 3, nats[rand.IntN(3)].Kill)
}

// goOnElsewhere has two meshes share a store, kills one, and does what else is to go wrong, while callers make tasks at both and workers of both run them.
func goOnElsewhere(t *testing.T, nats []*node, replicas int, wrong func()) {
	t.Helper()
	backend := startCounter(t)
	file := backend.configFile(t, fmt.Sprintf(shared, urls(nats...), replicas)+"tasks: {lease: 1s}\n")
	a, b := serve(t, "--config", file), serve(t, "--config", file)
	const each, killAfter = 60, 40
	var mu sync.Mutex
	made := map[string]string{}
	var group sync.WaitGroup
	for n, m := range []*mesh{a, b} {
		group.Go(func() {
			for i := range each {
				key := fmt.Sprintf("elsewhere-%d-%d", n, i)
				v, err := m.makeTask(t.Context(), key, i%2 == 0)
				if m == a && err != nil {
					return
				}
				if err != nil && replicas == 1 {
					t.Errorf("make %s: %v", key, err)
					return
				}
				if err != nil { // the cluster is choosing a leader: the same call again makes the task, or finds it
					run.Eventually(t, "task "+key+" is made", func() bool {
						v, err = m.makeTask(t.Context(), key, i%2 == 0)
						return err == nil
					})
				}
				mu.Lock()
				made[key] = v.ID
				mu.Unlock()
				if m == a && i == killAfter {
					a.Kill()
					wrong()
				}
			}
		})
	}
	group.Wait()
	completed := 0
	for key, id := range made {
		v := b.awaitTask(t, id)
		n := backend.count(key)
		switch {
		case v.State == "STATE_COMPLETED" && n == 1:
			completed++
		case v.State == "STATE_OUTCOME_UNKNOWN" && n <= 1:
		default:
			t.Errorf("task %s of %s is %+v after %d executions", id, key, v, n)
		}
	}
	t.Logf("of %d tasks %d completed, the others are OUTCOME_UNKNOWN", len(made), completed)
	if len(made) < each+killAfter || completed < each/4 {
		t.Errorf("%d tasks were made and %d completed: the test shows little", len(made), completed)
	}
	b.stop(t)
}
