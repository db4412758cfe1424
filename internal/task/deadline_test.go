package task_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/task"
)

// listed waits until a task is listed in a state, which neither ends a task nor watches it.
func (f *fixture) listed(t *task.Tasks, id string, state task.State) *task.Task {
	f.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		list, _, err := t.List(f.t.Context(), alice, state, 100, "")
		if err != nil {
			f.t.Fatal(err)
		}
		if i := slices.IndexFunc(list, func(one *task.Task) bool { return one.ID == id }); i >= 0 {
			return list[i]
		}
	}
	f.t.Fatalf("task %s is not listed as %s", id, state)
	return nil
}

// kept returns the types of a task's events in the log.
func (f *fixture) kept(id string) []string {
	f.t.Helper()
	log, err := f.store.Log(f.t.Context(), store.LogConfig{Name: "tasks", MaxAge: 8 * 24 * time.Hour, MaxBytes: 512 << 20, MaxEventBytes: 20 << 10})
	if err != nil {
		f.t.Fatal(err)
	}
	var types []string
	if _, err := log.Read(f.t.Context(), id, 0, func(e store.Event) error {
		var event struct{ T string }
		types = append(types, "")
		err := json.Unmarshal(e.Data, &event)
		types[len(types)-1] = event.T
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return types
}

func TestDeadlineEndsATask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{Timeout: 3 * time.Second})
	f.start(tasks)
	got, _ := f.ended(tasks, alice, f.must(tasks, alice, again, "wait", ""))
	if got.State != task.Failed || got.Err.Code() != codes.DeadlineExceeded {
		t.Errorf("task %+v: want it failed by its deadline", got)
	}
}

// Nobody answers a task that asks, or ever asks for it: its deadline ends it, once, though several instances see to it, and also if it comes while none is
// there.
func TestDeadlineEndsATaskThatAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := task.Config{Timeout: 3 * time.Second}
	first := f.tasks(config)
	pool := first.Start(f.runs(first))
	alone := f.must(first, alice, unary, "ask size", "")
	if got := f.listed(first, alone, task.Failed); got.Err.Code() != codes.DeadlineExceeded || got.Ended.Before(got.Deadline) || got.Ended.Sub(got.Deadline) > 20*time.Second {
		t.Errorf("task %+v: want it failed by its deadline", got)
	}
	asleep := f.must(first, alice, unary, "ask size", "")
	deadline := f.listed(first, asleep, task.InputRequired).Deadline
	pool.Drain(t.Context())
	first.Close()
	<-time.After(time.Until(deadline))
	var instances []*task.Tasks
	for range 3 {
		instances = append(instances, f.tasks(config))
	}
	for _, one := range instances {
		f.listed(one, asleep, task.Failed)
	}
	f.ended(instances[0], alice, asleep)
	for _, one := range instances {
		one.Close() // what they are about to do is done
	}
	for _, id := range []string{alone, asleep} {
		if got, want := f.kept(id), []string{"task_created", "tool_started", "task_input_required", "task_failed"}; !slices.Equal(got, want) {
			t.Errorf("the events of task %s are %q, want %q", id, got, want)
		}
	}
}
