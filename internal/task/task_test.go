package task_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/task"
)

func TestLifeOfATask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "echo", "")
	got, types := f.ended(tasks, alice, id)
	if got.State != task.Completed || got.Attempts != 1 || got.Ended.IsZero() || got.Method != unary {
		t.Errorf("task %+v: want it completed in one attempt", got)
	}
	if want := []string{"task_created", "tool_started", "tool_completed", "task_completed"}; !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	replies, err := tasks.Result(t.Context(), alice, id)
	if err != nil || len(replies) != 1 {
		t.Fatalf("result %q, %v: want one message", replies, err)
	}
	var reply testpb.SimpleResponse
	if err := proto.Unmarshal(replies[0], &reply); err != nil || string(reply.GetPayload().GetBody()) != "echo" {
		t.Errorf("reply %v, %v", &reply, err)
	}
	text, err := tasks.JSON(got, replies)
	if err != nil || string(text) != `{"payload":{"body":"ZWNobw=="}}` {
		t.Errorf("result as JSON %s, %v", text, err)
	}
	if !f.server.sawKey(id) {
		t.Errorf("the backend has not seen the task's id %q as key", id)
	}
	// Watching what has ended ends, from any cursor.
	var last uint64
	if err := tasks.Watch(t.Context(), alice, id, 0, func(e task.Event) error { last = e.Sequence; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := tasks.Watch(t.Context(), alice, id, last, func(e task.Event) error { return fmt.Errorf("event %v after the last one", e) }); err != nil {
		t.Error(err)
	}
	wantCode(t, tasks.Watch(t.Context(), alice, id, last+1000, func(task.Event) error { return nil }), codes.InvalidArgument)
}

func TestFailureIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	got, types := f.ended(tasks, alice, f.must(tasks, alice, unary, "fail", ""))
	if got.State != task.Failed || got.Err.Code() != codes.FailedPrecondition || got.Err.Message() != "as you like" {
		t.Errorf("task %+v: want the backend's status", got)
	}
	if types[len(types)-1] != "task_failed" {
		t.Errorf("events %v: want task_failed last", types)
	}
}

// TestPanicEndsTheRun pins that a worker survives what makes a run panic, and that the task ends all the same.
func TestPanicEndsTheRun(t *testing.T) {
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	p := tasks.Start(func(grpc.ServerStream) error { panic("a fault") })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		p.Drain(ctx)
	})
	got, _ := f.ended(tasks, alice, f.must(tasks, alice, unary, "echo", ""))
	if got.State != task.OutcomeUnknown {
		t.Errorf("task %+v: want its outcome unknown", got)
	}
}

func TestTasksBelongToTheirCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	id := f.must(tasks, alice, unary, "echo", "")
	for _, who := range []*identity.Principal{bob, other, nil} {
		_, err := tasks.Get(t.Context(), who, id)
		wantCode(t, err, codes.NotFound)
		_, err = tasks.Cancel(t.Context(), who, id)
		wantCode(t, err, codes.NotFound)
		_, err = tasks.Result(t.Context(), who, id)
		wantCode(t, err, codes.NotFound)
		wantCode(t, tasks.Watch(t.Context(), who, id, 0, func(task.Event) error { return nil }), codes.NotFound)
		if list, _, err := tasks.List(t.Context(), who, "", 50, ""); err != nil || len(list) != 0 {
			t.Errorf("others see %v, %v", list, err)
		}
	}
	for _, bad := range []string{"", "x", strings.Repeat(">", 32), strings.Repeat("a.", 16), strings.Repeat("0", 32)} {
		_, err := tasks.Get(t.Context(), alice, bad)
		wantCode(t, err, codes.NotFound)
	}
}

func TestSameKeyIsTheSameTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	id := f.must(tasks, alice, unary, "echo", "k1")
	if second := f.must(tasks, alice, unary, "echo", "k1"); second != id {
		t.Errorf("the same key made tasks %s and %s", id, second)
	}
	_, err := f.submit(tasks, alice, unary, request("other"), "k1")
	wantCode(t, err, codes.InvalidArgument)
	if theirs := f.must(tasks, bob, unary, "echo", "k1"); theirs == id {
		t.Error("another caller's key is the same")
	}
	f.start(tasks)
	f.ended(tasks, alice, id)
	if third := f.must(tasks, alice, unary, "echo", "k1"); third != id {
		t.Errorf("the same key made tasks %s and, once that had ended, %s", id, third)
	}
	if n := f.server.count("echo"); n > 2 { // alice's and bob's
		t.Errorf("%d calls, want one for each caller", n)
	}
}

func TestCancelBeforeItBegins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	id := f.must(tasks, alice, unary, "echo", "")
	got, err := tasks.Cancel(t.Context(), alice, id)
	if err != nil || got.State != task.Cancelled {
		t.Fatalf("cancelled: %+v, %v", got, err)
	}
	f.start(tasks)
	f.ended(tasks, alice, f.must(tasks, alice, unary, "fail", "")) // a later one has had its turn
	if got, _ := f.ended(tasks, alice, id); got.State != task.Cancelled || f.server.count("echo") != 0 {
		t.Errorf("task %+v, %d calls: want it cancelled without a call", got, f.server.count("echo"))
	}
}

func TestCancelReachesTheBackendFromAnotherInstance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks, elsewhere := f.tasks(task.Config{Lease: time.Minute}), f.tasks(task.Config{Lease: time.Minute})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "wait", "")
	f.begun()
	if got, err := elsewhere.Cancel(t.Context(), alice, id); err != nil || !got.CancelRequested {
		t.Fatalf("cancel: %+v, %v", got, err)
	}
	got, _ := f.ended(elsewhere, alice, id)
	if got.State != task.Cancelled {
		t.Errorf("task %+v: want it cancelled", got)
	}
	f.wait(f.server.cancelled, "cancelled")
	if again, err := tasks.Cancel(t.Context(), alice, id); err != nil || again.State != task.Cancelled {
		t.Errorf("cancel again: %+v, %v", again, err)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{MaxEvents: 3, MaxResultBytes: 1000})
	f.start(tasks)
	in := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("abc")}, ResponseParameters: make([]*testpb.ResponseParameters, 5)}
	for i := range in.ResponseParameters {
		in.ResponseParameters[i] = &testpb.ResponseParameters{}
	}
	id, err := f.submit(tasks, alice, stream, in, "")
	if err != nil {
		t.Fatal(err)
	}
	got, types := f.ended(tasks, alice, id)
	if n := strings.Count(strings.Join(types, " "), "tool_progress"); n != 3 || got.Messages != 5 {
		t.Errorf("%d progress events and %d messages, want 3 and 5", n, got.Messages)
	}
	replies, err := tasks.Result(t.Context(), alice, id)
	if err != nil || len(replies) != 5 || got.Cut {
		t.Errorf("%d replies, %v, cut %v; want 5", len(replies), err, got.Cut)
	}
	if text, err := tasks.JSON(got, replies[:2]); err != nil || string(text) != `[{"payload":{"body":"YWJj"}},{"payload":{"body":"YWJj"}}]` {
		t.Errorf("as JSON %s, %v", text, err)
	}

	in.Payload.Body = make([]byte, 300)
	if id, err = f.submit(tasks, alice, stream, in, ""); err != nil {
		t.Fatal(err)
	}
	got, _ = f.ended(tasks, alice, id)
	replies, err = tasks.Result(t.Context(), alice, id)
	if err != nil || len(replies) != 3 || !got.Cut || got.State != task.Completed {
		t.Errorf("%d replies, %v of %+v; want the first 3, and that they are not all", len(replies), err, got)
	}
}

func TestLargeRequestAndAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{MaxRequestBytes: 3 << 20})
	f.start(tasks)
	text := "echo " + strings.Repeat("x", 900<<10)
	id := f.must(tasks, alice, unary, text, "")
	got, _ := f.ended(tasks, alice, id)
	replies, err := tasks.Result(t.Context(), alice, id)
	if err != nil || len(replies) != 1 || len(replies[0]) < 900<<10 {
		t.Errorf("%d replies of %+v, %v", len(replies), got, err)
	}
	_, err = f.submit(tasks, alice, unary, request(strings.Repeat("x", 4<<20)), "")
	wantCode(t, err, codes.ResourceExhausted)
}

// A worker is lost while its call runs.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		want   task.State
		calls  int
	}{
		{again, task.Completed, 2},
		{unary, task.OutcomeUnknown, 1},
	} {
		t.Run(c.method[strings.LastIndexByte(c.method, '/')+1:], func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tasks := f.tasks(task.Config{Lease: 2 * time.Second})
			lost := tasks.Start(f.runs(tasks))
			id := f.must(tasks, alice, c.method, "wait", "")
			f.begun()
			lost.Abandon()
			close(f.server.release)
			f.start(f.tasks(task.Config{Lease: 2 * time.Second}))
			got, _ := f.ended(tasks, alice, id)
			if n := f.server.count("wait"); got.State != c.want || n != c.calls {
				t.Errorf("task %+v after %d calls, want %s after %d", got, n, c.want, c.calls)
			}
		})
	}
}

func TestDrainLeavesTasksToOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{Lease: time.Minute})
	first := tasks.Start(f.runs(tasks))
	id := f.must(tasks, alice, again, "wait", "")
	f.begun()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first.Drain(ctx)
	close(f.server.release)
	f.start(tasks)
	if got, _ := f.ended(tasks, alice, id); got.State != task.Completed || got.Attempts != 2 {
		t.Errorf("task %+v: want it completed by the other pool", got)
	}
}

func TestTwoPoolsShareWorkAndOneIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.tasks(task.Config{Workers: 8, Lease: 2 * time.Second}), f.tasks(task.Config{Workers: 8, Lease: 2 * time.Second})
	lost := first.Start(f.runs(first))
	f.start(second)
	const n = 40
	var ids []string
	for i := range n {
		ids = append(ids, f.must(first, alice, again, fmt.Sprintf("wait %d", i), ""))
	}
	for range 16 { // both are full
		f.begun()
	}
	lost.Abandon()
	close(f.server.release)
	for i, id := range ids {
		if got, _ := f.ended(second, alice, id); got.State != task.Completed {
			t.Errorf("task %d: %+v", i, got)
		}
	}
}

func TestManyTasksAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{Workers: 16, PerTenant: 8})
	f.start(tasks)
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id, err := f.submit(tasks, alice, unary, request(fmt.Sprintf("echo %d", i)), "")
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			if err := tasks.Watch(ctx, alice, id, 0, func(task.Event) error { return nil }); err != nil {
				t.Error(err)
			}
			if got, err := tasks.Get(ctx, alice, id); err != nil || got.State != task.Completed {
				t.Errorf("task %d: %+v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if c := f.server.count(fmt.Sprintf("echo %d", i)); c != 1 {
			t.Errorf("task %d was called %d times", i, c)
		}
	}
}

// Watchers that break off at random and go on from their cursor see every event once, in order.
func TestWatchersResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	in := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("abc")}}
	for range 100 {
		in.ResponseParameters = append(in.ResponseParameters, &testpb.ResponseParameters{})
	}
	ids := make([]string, 4)
	for i := range ids {
		var err error
		if ids[i], err = f.submit(tasks, alice, stream, in, ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			var seen []task.Event
			var after uint64
			for {
				left := rnd.IntN(30)
				err := tasks.Watch(ctx, alice, ids[w%len(ids)], after, func(e task.Event) error {
					if left--; left < 0 {
						return errStop
					}
					seen, after = append(seen, e), e.Sequence
					return nil
				})
				if err == nil {
					break
				}
				if !errors.Is(err, errStop) {
					t.Error(err)
					return
				}
			}
			progress := 0
			for i, e := range seen {
				if i > 0 && e.Sequence <= seen[i-1].Sequence {
					t.Errorf("event %d after %d", e.Sequence, seen[i-1].Sequence)
				}
				if e.Type == "tool_progress" {
					if progress++; !strings.Contains(string(e.Payload), fmt.Sprintf(`"count":%d,`, progress)) {
						t.Errorf("progress %s, want number %d", e.Payload, progress)
					}
				}
			}
			if progress != 100 || len(seen) != 104 || !seen[103].Final() {
				t.Errorf("watcher %d saw %d events, %d of progress; want 104 and 100, the last one final", w, len(seen), progress)
			}
		})
	}
	wg.Wait()
}

// Of a task whose first events are past the retention, a watcher without a cursor is told so, and gets what is kept, the last event in any case: it is what a
// watcher is told to do whose cursor is past it.
func TestWatchPastRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	ended := f.must(tasks, alice, unary, "echo", "")
	f.ended(tasks, alice, ended)
	running := f.must(tasks, alice, unary, "wait", "")
	f.begun()
	in := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("abc")}}
	for range 100 {
		in.ResponseParameters = append(in.ResponseParameters, &testpb.ResponseParameters{})
	}
	filler, err := f.submit(tasks, alice, stream, in, "")
	if err != nil {
		t.Fatal(err)
	}
	f.ended(tasks, alice, filler)
	if _, err := f.store.Log(t.Context(), store.LogConfig{Name: "tasks", MaxBytes: 4 << 10, MaxEventBytes: 1 << 10}); err != nil { // the same log, with less room
		t.Fatal(err)
	}
	for _, id := range []string{ended, running, filler} {
		err := tasks.Watch(t.Context(), alice, id, 1, func(task.Event) error { return nil })
		if status.Code(err) != codes.OutOfRange || reasonOf(err) != "RESYNC_REQUIRED" {
			t.Errorf("watch after an event that is forgotten = %v, want RESYNC_REQUIRED", err)
		}
	}
	close(f.server.release)
	for id, want := range map[string][]string{ended: {"task_events_dropped", "task_completed"}, running: {"task_events_dropped", "tool_completed", "task_completed"}} {
		if _, types := f.ended(tasks, alice, id); !slices.Equal(types, want) {
			t.Errorf("watch from the beginning gives %q, want %q", types, want)
		}
	}
	if _, types := f.ended(tasks, alice, filler); len(types) > 50 || types[0] != "task_events_dropped" || types[len(types)-1] != "task_completed" {
		t.Errorf("watch from the beginning gives %q, want the last of 104 events, after one that says so", types)
	}
	whole := f.must(tasks, alice, unary, "echo", "")
	if _, types := f.ended(tasks, alice, whole); types[0] != "task_created" {
		t.Errorf("watch of a task with all its events gives %q", types)
	}
}

// What has changed since the submission counts: a run passes the policies again.
func TestRunsPassThePoliciesAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	id := f.must(tasks, alice, unary, "echo", "")
	o := f.options(tasks)
	revoked := interceptors.Every("revoked", func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		c := call.FromContext(s.Context())
		return call.Error(codes.PermissionDenied, "REVOKED", fmt.Sprintf("%s of %s at %s may not call any more (%s)", c.Principal.ID, c.Principal.Tenant, c.Door, c.Task))
	})
	p := tasks.Start(interceptors.Chain(f.router.Handle, append(interceptors.Runs(interceptors.Default(o), o), revoked)...))
	defer p.Drain(t.Context())
	got, _ := f.ended(tasks, alice, id)
	if got.State != task.Failed || got.Err.Code() != codes.PermissionDenied || got.Err.Message() != "alice of acme at grpc may not call any more ("+id+")" {
		t.Errorf("task %+v: want it refused, as its caller's", got)
	}
}

// A backend that is down is waited for.
func TestBackendThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	var tries atomic.Int32
	p := tasks.Start(interceptors.Chain(func(srv any, s grpc.ServerStream) error {
		if tries.Add(1) <= 3 {
			return call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", "it is away")
		}
		return f.router.Handle(srv, s)
	}))
	defer p.Drain(t.Context())
	got, _ := f.ended(tasks, alice, f.must(tasks, alice, unary, "echo", ""))
	if got.State != task.Completed || got.Attempts != 1 {
		t.Errorf("task %+v: want it completed, and only one attempt that counts", got)
	}
}

// A backend that does not heed that its call is cancelled has executed it: what is known of it counts.
func TestCancelledCallThatTheBackendGoesOnWith(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id := f.must(tasks, alice, unary, "stubborn", "")
	f.begun()
	if _, err := tasks.Cancel(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	got, _ := f.ended(tasks, alice, id)
	close(f.server.release)
	if got.State != task.Cancelled || !strings.Contains(got.Err.Message(), "stays done") {
		t.Errorf("task %+v: want it cancelled, and that it may have done something", got)
	}
}
