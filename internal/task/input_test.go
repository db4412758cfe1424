package task_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/task"
)

// answers are answers from names and texts in turn.
func answers(pairs ...string) *toolwayv1.InputResponses {
	out := &toolwayv1.InputResponses{Responses: map[string]*toolwayv1.InputResponse{}}
	for i := 0; i < len(pairs); i += 2 {
		out.Responses[pairs[i]] = &toolwayv1.InputResponse{
			Action:  toolwayv1.InputResponse_ACTION_ACCEPT,
			Content: &structpb.Struct{Fields: map[string]*structpb.Value{"is": structpb.NewStringValue(pairs[i+1])}},
		}
	}
	return out
}

// asked returns the names of what a task asks, with a "?" behind those that are optional.
func asked(t *task.Task) []string {
	var names []string
	for _, d := range t.Err.Details() {
		if ask, ok := d.(*toolwayv1.InputRequired); ok {
			for name, r := range ask.GetRequests() {
				if r.GetOptional() {
					name += "?"
				}
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// asks waits until a task asks in a round, and returns it.
func (f *fixture) asks(t *task.Tasks, id string, round int) *task.Task {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	var got *task.Task
	err := t.Watch(ctx, alice, id, 0, func(task.Event) (err error) {
		if got, err = t.Get(ctx, alice, id); err == nil && got.State == task.InputRequired && got.Round == round {
			return errStop
		}
		return err
	})
	if !strings.Contains(err.Error(), errStop.Error()) {
		f.t.Fatalf("task %+v, %v: want it to ask in round %d", got, err, round)
	}
	return got
}

// said returns what the backend has answered once a task has completed.
func (f *fixture) said(t *task.Tasks, id string) string {
	f.t.Helper()
	got, _ := f.ended(t, alice, id)
	replies, err := t.Result(f.t.Context(), alice, id)
	if err != nil || got.State != task.Completed || len(replies) != 1 {
		f.t.Fatalf("task %+v with %q, %v: want an answer", got, replies, err)
	}
	reply := &testpb.SimpleResponse{}
	if err := proto.Unmarshal(replies[0], reply); err != nil {
		f.t.Fatal(err)
	}
	return reply.GetUsername()
}

func reasonOf(err error) string {
	reason, _ := identity.Reason(err)
	return reason
}

// TestTaskAsksForInput pins that a backend which asks for more gets it from a second run, that answers may come one by one, and what is refused.
func TestTaskAsksForInput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "ask size colour note?", "")
	if got, want := asked(f.asks(tasks, id, 1)), []string{"colour", "note?", "size"}; !slices.Equal(got, want) {
		t.Errorf("the task asks %v, want %v", got, want)
	}
	for _, c := range []struct {
		who    *identity.Principal
		round  int
		given  *toolwayv1.InputResponses
		code   codes.Code
		reason string
	}{
		{bob, 0, answers("size", "xl"), codes.NotFound, "TASK_NOT_FOUND"},
		{alice, 0, answers("size", "xl", "shape", "round"), codes.InvalidArgument, "TASK_NOT_ASKED"},
		{alice, 2, answers("size", "xl"), codes.FailedPrecondition, "TASK_ASKS_ANEW"},
		{alice, 0, answers("size", strings.Repeat("x", 70<<10)), codes.InvalidArgument, "INPUT_TOO_LARGE"},
	} {
		_, err := tasks.Provide(t.Context(), c.who, id, c.round, c.given)
		if status.Code(err) != c.code || reasonOf(err) != c.reason {
			t.Errorf("Provide(%v, %d, %.100v) = %v, want %v %s", c.who, c.round, c.given, err, c.code, c.reason)
		}
	}
	got, err := tasks.Provide(t.Context(), alice, id, 1, answers("size", "xl"))
	if err != nil || got.State != task.InputRequired || !slices.Equal(asked(got), []string{"colour", "note?"}) {
		t.Errorf("half provided: %+v asks %v, %v", got, asked(got), err)
	}
	if _, err = tasks.Provide(t.Context(), alice, id, 1, answers("size", "xs")); reasonOf(err) != "TASK_NOT_ASKED" {
		t.Errorf("an answer a second time = %v, want TASK_NOT_ASKED", err)
	}
	if got, err = tasks.Get(t.Context(), alice, id); err != nil || !slices.Equal(asked(got), []string{"colour", "note?"}) {
		t.Errorf("the task asks %v, %v; want what is left", asked(got), err)
	}
	if got, err = tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); err != nil || got.State != task.Working || got.Err != nil {
		t.Errorf("provided: %+v, %v", got, err)
	}
	if got, want := f.said(tasks, id), "+ colour=blue size=xl"; got != want {
		t.Errorf("the backend was told %q, want %q", got, want)
	}
	if _, err = tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); reasonOf(err) != "TASK_NEEDS_NO_INPUT" {
		t.Errorf("an answer after the end = %v, want TASK_NEEDS_NO_INPUT", err)
	}
	_, types := f.ended(tasks, alice, id)
	want := []string{"task_created", "tool_started", "task_input_required", "task_input_provided", "task_input_provided", "tool_started", "tool_completed", "task_completed"}
	if !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
}

// TestAnswersAreNotLost pins that a task goes on although its answers come while the run that has asked is about to end, and that the same answers again,
// of a caller that has not heard whether they came, do no harm.
func TestAnswersAreNotLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	for range 20 {
		id := f.must(tasks, alice, unary, "ask colour", "")
		f.asks(tasks, id, 1) // the record says so before the run has ended
		var same sync.WaitGroup
		for range 2 {
			same.Go(func() {
				if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); err != nil && reasonOf(err) != "TASK_NEEDS_NO_INPUT" {
					t.Errorf("provide: %v", err)
				}
			})
		}
		same.Wait()
		if got, want := f.said(tasks, id), "+ colour=blue"; got != want {
			t.Errorf("the backend was told %q, want %q", got, want)
		}
	}
	if got := f.server.count("ask colour"); got != 40 {
		t.Errorf("%d calls, want two for each task", got)
	}
}

// TestAnswersOfTwo pins that of answers that come at once none is lost.
func TestAnswersOfTwo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks, elsewhere := f.tasks(task.Config{}), f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "ask a b c d", "")
	f.asks(tasks, id, 1)
	var all sync.WaitGroup
	for i, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			if _, err := []*task.Tasks{tasks, elsewhere}[i%2].Provide(t.Context(), alice, id, 1, answers(name, name)); err != nil {
				t.Errorf("answer %s: %v", name, err)
			}
		})
	}
	all.Wait()
	if got, want := f.said(tasks, id), "+ a=a b=b c=c d=d"; got != want {
		t.Errorf("the backend was told %q, want %q", got, want)
	}
}

// TestTaskAsksAnew pins that rounds are told apart.
func TestTaskAsksAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "ask colour again", "")
	f.asks(tasks, id, 1)
	if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); err != nil {
		t.Fatal(err)
	}
	f.asks(tasks, id, 2)
	if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); reasonOf(err) != "TASK_ASKS_ANEW" {
		t.Errorf("an answer of the first round = %v, want TASK_ASKS_ANEW", err)
	}
	if _, err := tasks.Provide(t.Context(), alice, id, 0, answers("colour", "red")); err != nil {
		t.Fatal(err)
	}
	if got, want := f.said(tasks, id), "++ colour=red"; got != want {
		t.Errorf("the backend was told %q, want %q", got, want)
	}
}

// TestUnaskable pins what becomes of questions that the maker of a task cannot be asked.
func TestUnaskable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	submit := func(text string) string {
		t.Helper()
		m := f.snapshot.Method(unary)
		wire, err := proto.Marshal(request(text))
		if err != nil {
			t.Fatal(err)
		}
		c := call.New(m, call.MCP)
		c.Principal, c.Async = alice, &call.Async{Unaskable: call.ModelQuestion}
		if err := interceptors.Chain(f.router.Handle, interceptors.Default(f.options(tasks))...)(call.NewStream(t.Context(), c, call.One(call.NewFrame(m.Desc.Input(), wire)), func(*call.Frame) error { return nil }, nil)); err != nil {
			t.Fatal(err)
		}
		return c.Task
	}
	id := submit("ask colour? summary!?")
	if got := asked(f.asks(tasks, id, 1)); !slices.Equal(got, []string{"colour"}) {
		t.Errorf("the task asks %v, want colour, which is not optional where it is known that it can be asked", got)
	}
	got, _ := f.ended(tasks, alice, submit("ask colour summary!"))
	if got.State != task.Failed || reasonOf(got.Err.Err()) != "INPUT_IMPOSSIBLE" || !slices.Equal(asked(got), []string{"summary"}) {
		t.Errorf("task %+v asks %v, want it failed since it cannot be asked for a summary", got, asked(got))
	}
	if got, want := f.said(tasks, submit("ask summary!?")), "+"; got != want {
		t.Errorf("the backend was told %q, want its state and no answers: %q", got, want)
	}
}

// TestCancelWhileItAsks pins that a task which waits for input ends at once when it is cancelled.
func TestCancelWhileItAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "ask colour", "")
	f.asks(tasks, id, 1)
	if got, err := tasks.Cancel(t.Context(), alice, id); err != nil || got.State != task.Cancelled {
		t.Errorf("cancel: %+v, %v", got, err)
	}
	if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("colour", "blue")); reasonOf(err) != "TASK_NEEDS_NO_INPUT" {
		t.Errorf("an answer after the end = %v, want TASK_NEEDS_NO_INPUT", err)
	}
}

// TestDeathWhileProviding pins that an instance which dies while it takes the last answer leaves a task that still asks, and goes on with whatever answer comes
// then, once; and that no job is left, also of a task that is cancelled instead.
func TestDeathWhileProviding(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	for name, after := range map[string]bool{"before": false, "after": true} {
		id := f.must(tasks, alice, unary, "ask colour size "+name, "")
		f.asks(tasks, id, 1)
		if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("size", "xl", name, "x")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var dying sync.WaitGroup
			dying.Go(func() {
				_, err := tasks.Dying(after).Provide(t.Context(), alice, id, 1, answers("colour", "blue"))
				t.Errorf("%s: Provide has returned %v", name, err)
			})
			dying.Wait()
			if got, err := tasks.Get(t.Context(), alice, id); err != nil || got.State != task.InputRequired || !slices.Equal(asked(got), []string{"colour"}) {
				t.Errorf("%s: %+v asks %v, %v; want it to ask for the colour still", name, got, asked(got), err)
			}
		}
		if _, err := tasks.Provide(t.Context(), alice, id, 1, answers("colour", "red")); err != nil {
			t.Fatal(err)
		}
		if got, want := f.said(tasks, id), "+ "+name+"=x colour=red size=xl"; got != want {
			t.Errorf("the backend was told %q, want %q", got, want)
		}
		if n := f.server.count("ask colour size " + name); n != 2 {
			t.Errorf("%s: %d calls, want two", name, n)
		}
	}
	id := f.must(tasks, alice, unary, "ask colour", "")
	f.asks(tasks, id, 1)
	var dying sync.WaitGroup
	dying.Go(func() { _, _ = tasks.Dying(true).Provide(t.Context(), alice, id, 1, answers("colour", "blue")) })
	dying.Wait()
	if got, err := tasks.Cancel(t.Context(), alice, id); err != nil || got.State != task.Cancelled {
		t.Errorf("cancel: %+v, %v", got, err)
	}
	queue, err := f.store.Queue(t.Context(), store.QueueConfig{Name: "tasks", MaxMessages: 100_000, MaxBytes: 64 << 20, Lease: 5 * time.Second, MaxDeliveries: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		n, err := queue.Len(t.Context())
		if n == 0 && err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs are left, %v", n, err)
		}
	}
}
