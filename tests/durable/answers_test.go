package durable_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// TestLargeAnswersAreKeptWithTheirTasks shows that a task's answer which is too large to be given with it is there for as long as the task, though other
// results that are too large go after a second, and is its caller's after a restart too.
func TestLargeAnswersAreKeptWithTheirTasks(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	dir, file := t.TempDir(), backend.configFile(t, "results: {max_bytes: 1000, objects: {ttl: 1s}}\n")
	m := serve(t, "--config", file, "--data", dir)
	text := strings.Repeat("x", 2<<20)
	made, err := m.makeTaskOf(t.Context(), "large", fmt.Sprintf(`{"text":%q}`, text), false)
	if err != nil {
		t.Fatal(err)
	}
	m.awaitTask(t, made.ID)
	view, err := m.text(t.Context(), m.URL("/v1/tasks/"+made.ID))
	if err != nil {
		t.Fatal(err)
	}
	var done struct{ Result struct{ URI string } }
	if err := json.Unmarshal([]byte(view), &done); err != nil || done.Result.URI == "" {
		t.Fatalf("%.300s, %v: want where the answer is", view, err)
	}
	raw, err := m.agent.Request(t.Context(), "tools/call", map[string]any{
		"name": "probe_ask", "arguments": map[string]any{"text": text[:5000]}, "_meta": map[string]any{"io.toolway/idempotency-key": "other"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, _ := strings.Cut(string(raw), "toolway://objects/")
	other = other[:min(26, len(other))]
	object := func(id string) string { return m.URL("/v1/objects/" + id) }
	run.Eventually(t, "the other result has gone", func() bool {
		_, err := m.text(t.Context(), object(other))
		return err != nil && strings.Contains(err.Error(), "OBJECT_NOT_FOUND")
	})
	check := func() {
		got, err := m.text(t.Context(), object(strings.TrimPrefix(done.Result.URI, "toolway://objects/")))
		if err != nil || len(got) < len(text) {
			t.Errorf("the answer of the task is %.100q, %v; want its %d bytes", got, err, len(text))
		}
	}
	check()
	m.Kill()
	m = serve(t, "--config", file, "--data", dir)
	check()
	m.stop(t)
}
