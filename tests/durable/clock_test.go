package durable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// task asks for a task. It is empty if there is none.
func (m *mesh) task(t *testing.T, id string) taskView {
	t.Helper()
	text, err := m.text(t.Context(), m.URL("/v1/tasks/"+id))
	var out taskView
	switch {
	case err != nil && strings.Contains(err.Error(), "404"):
		return out
	case err == nil:
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// submit makes a task of Ask.
func (m *mesh) submit(t *testing.T, key string) string {
	t.Helper()
	v, err := m.makeTask(t.Context(), key, false)
	if err != nil {
		t.Fatalf("make %s: %v", key, err)
	}
	return v.ID
}

// TestClockJumps has the wall clock of a mesh, its store's engine included, jump under calls and tasks: half an hour ahead, an hour and a half back, and
// beyond all times to live. Nothing is executed twice but what was forgotten, and what is told of it holds.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	clock, program := run.NewClock(t)
	backend, dir := startCounter(t), t.TempDir()
	backend.reached = make(chan string, 10)
	file := backend.configFile(t, "deadline: {default: 5m, max: 10m}\ntasks: {lease: 2s, timeout: 1h, ttl: 24h}\nidempotency: {ttl: 24h}\n")
	start := func() *mesh {
		t.Helper()
		started, err := run.ServeBy(program, "--config", file, "--data", dir)
		if err != nil {
			t.Fatal(err)
		}
		return connect(t, started)
	}
	m := start()
	wants := func(door, key, want string, replayed bool, executions int) {
		t.Helper()
		a, err := m.ask(t.Context(), door, key)
		if err != nil || a.String() != want || a.replayed != replayed || backend.count(key) != executions {
			t.Errorf("%s at %s: %v, replayed %v, %v; %d executions; want %s, replayed %v, %d", key, door, a, a.replayed, err, backend.count(key), want, replayed, executions)
		}
	}
	begun := func(key string) {
		t.Helper()
		select {
		case got := <-backend.reached:
			if got != key {
				t.Fatalf("call %q is at the backend, want %q", got, key)
			}
		case <-time.After(run.Patience):
			t.Fatalf("call %q has not come", key)
		}
	}
	completes := func(key, id string) {
		t.Helper()
		if v := m.awaitTask(t, id); v.State != "STATE_COMPLETED" || v.Result.Value.Number != "1" || backend.count(key) != 1 {
			t.Errorf("task of %s: %+v after %d executions, want it completed after one", key, v, backend.count(key))
		}
	}
	held := func(key string) (release func(), answered chan answer) {
		t.Helper()
		release, answered = backend.hold(key), make(chan answer, 1)
		go func() {
			a, err := m.ask(t.Context(), "http", key)
			if err != nil {
				a.code = err.Error()
			}
			answered <- a
		}()
		begun(key)
		return release, answered
	}

	wants("http", "done", ok, false, 1)
	early := m.submit(t, "early task")
	completes("early task", early)

	// Ahead, beyond all leases, and not beyond a time to live, nor the deadline of a task.
	release, answered := held("held call")
	releaseTask := backend.hold("held task")
	heldTask := m.submit(t, "held task")
	begun("held task")
	clock.Set(t, 30*time.Minute)
	wants("grpc", "done", ok, true, 1)
	wants("grpc", "held call", unknown, false, 0)
	completes("ahead", m.submit(t, "ahead"))
	if v := m.task(t, heldTask); v.State != "STATE_WORKING" {
		t.Errorf("task that runs: %+v, want it at work", v)
	}
	release()
	releaseTask()
	if a := <-answered; a.String() != ok || a.number != 1 {
		t.Errorf("call that was under way: %v, want its answer", a)
	}
	completes("held task", heldTask)
	if a, err := m.ask(t.Context(), "mcp", "held call"); err != nil || backend.count("held call") != 1 || a.String() != unknown && !a.replayed {
		t.Errorf("call that was under way, made again: %v, %v; %d executions", a, err, backend.count("held call"))
	}

	// Back, before everything that is kept was written.
	releaseBack := backend.hold("held back")
	heldBack := m.submit(t, "held back")
	begun("held back")
	clock.Set(t, -time.Hour)
	wants("mcp", "done", ok, true, 1)
	wants("grpc", "back", ok, false, 1)
	wants("http", "back", ok, true, 1)
	completes("back task", m.submit(t, "back task"))
	if v := m.task(t, early); v.State != "STATE_COMPLETED" {
		t.Errorf("task of before: %+v, want it completed", v)
	}
	releaseBack()
	completes("held back", heldBack)

	// Ahead, beyond the deadline of a task.
	releaseLast := backend.hold("held last")
	heldLast := m.submit(t, "held last")
	begun("held last")
	clock.Set(t, 20*time.Hour)
	if v := m.awaitTask(t, heldLast); v.State != "STATE_OUTCOME_UNKNOWN" || v.ErrorReason != "OUTCOME_UNKNOWN" {
		t.Errorf("task that runs beyond its deadline: %+v, want its outcome unknown", v)
	}
	releaseLast()
	completes("beyond a deadline", m.submit(t, "beyond a deadline"))
	if v := m.task(t, heldLast); v.State != "STATE_OUTCOME_UNKNOWN" || backend.count("held last") > 1 {
		t.Errorf("task that ran beyond its deadline: %+v after %d executions, want it as it was told", v, backend.count("held last"))
	}
	wants("grpc", "done", ok, true, 1)

	// Ahead, beyond everything.
	clock.Set(t, 60*time.Hour)
	if v := m.task(t, early); v.ID != "" {
		t.Errorf("task of before its time to live: %+v, want it gone", v)
	}
	a, err := m.ask(t.Context(), "http", "done") // its key may be forgotten: the engine decides when it looks
	n := backend.count("done")
	if err != nil || a.String() != ok || a.number != int64(n) || n > 2 || a.replayed != (n == 1) {
		t.Errorf("done beyond its time to live: %v, replayed %v, %v; %d executions", a, a.replayed, err, n)
	}
	wants("grpc", "done", ok, true, n)
	completes("ahead of all", m.submit(t, "ahead of all"))
	m.awaitStore(t, "up")
	m.stop(t)

	// A start with the right clock, on records of the future.
	clock.Set(t, 0)
	m = start()
	wants("mcp", "done", ok, true, n)
	completes("right again", m.submit(t, "right again"))
	m.stop(t)
}
