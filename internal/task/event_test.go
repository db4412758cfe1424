package task_test

import (
	"runtime"
	"strings"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/internal/task"
)

// goroutine returns the number of the one that asks.
func goroutine() string {
	buf := make([]byte, 64)
	return strings.Fields(string(buf[:runtime.Stack(buf, false)]))[1]
}

// Events that are replayed are given one after the other, and not each on a goroutine of its own; neither is it the one that waits, whose stack would stay
// as large as their reading has made it.
func TestReplayIsOneGoroutine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	in := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("abc")}}
	for range 20 {
		in.ResponseParameters = append(in.ResponseParameters, &testpb.ResponseParameters{})
	}
	id, err := f.submit(tasks, alice, stream, in, "")
	if err != nil {
		t.Fatal(err)
	}
	f.ended(tasks, alice, id)
	events, on := 0, map[string]bool{}
	if err := tasks.Watch(t.Context(), alice, id, 0, func(task.Event) error {
		events++
		on[goroutine()] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if events != 24 || len(on) != 1 || on[goroutine()] {
		t.Errorf("%d events were replayed on %d goroutines, the one that waits among them: %v; want 24 on one other", events, len(on), on[goroutine()])
	}
}
