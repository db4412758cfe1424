package durable_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/run"
)

// events reads the events of a task over SSE, from a cursor on, until they end.
func (m *mesh) events(ctx context.Context, id, after string) (types, ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL("/v1/tasks/"+id+"/events"), http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := m.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	id, data := "", ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if i := strings.Index(data, `"eventType":"`); i >= 0 {
				kind, _, _ := strings.Cut(data[i+len(`"eventType":"`):], `"`)
				types, ids = append(types, kind), append(ids, id)
			}
			data = ""
		}
	}
	return types, ids, nil
}

// TestTasksAtTheDoors makes tasks of calls at the gRPC and HTTP doors, and sees them at both.
func TestTasksAtTheDoors(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	m := serve(t, "--config", backend.configFile(t, ""), "--data", t.TempDir())
	client := toolwayv1.NewTaskServiceClient(m.conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*run.Patience)
	defer cancel()

	made, err := m.makeTask(ctx, "by-http", true)
	if err != nil {
		t.Fatal(err)
	}
	m.awaitTask(t, made.ID)
	types, ids, err := m.events(ctx, made.ID, "")
	if want := []string{"task_created", "tool_started", "tool_completed", "task_completed"}; err != nil || !slices.Equal(types, want) {
		t.Fatalf("events %v, %v; want %v", types, err, want)
	}
	if rest, _, err := m.events(ctx, made.ID, ids[1]); err != nil || !slices.Equal(rest, types[2:]) {
		t.Errorf("events after the second: %v, %v", rest, err)
	}

	var header metadata.MD
	if _, err := probev1.NewProbeClient(m.conn).Ask(metadata.AppendToOutgoingContext(ctx, "prefer", "wait=5, respond-async", "idempotency-key", "by-grpc"), &probev1.AskRequest{Text: "x"}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	id := strings.Join(header.Get("toolway-task"), "")
	watch, err := client.WatchTask(ctx, &toolwayv1.WatchTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for {
		e, err := watch.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("watch %q: %v", id, err)
		}
		last = e.GetEvent().GetEventType()
	}
	if last != "task_completed" {
		t.Errorf("the last event is %q", last)
	}
	got, err := client.GetTask(ctx, &toolwayv1.GetTaskRequest{Id: id, AsProtobuf: true})
	if err != nil {
		t.Fatal(err)
	}
	reply := new(probev1.AskResponse)
	if replies := got.GetTask().GetResult().GetReplies(); len(replies) != 1 || replies[0].UnmarshalTo(reply) != nil || reply.GetText() != "x" || reply.GetNumber() != 1 {
		t.Errorf("task %v: want the reply", got)
	}
	list, err := client.ListTasks(ctx, &toolwayv1.ListTasksRequest{State: toolwayv1.Task_STATE_COMPLETED})
	if err != nil || len(list.GetTasks()) != 2 || list.GetTasks()[0].GetId() != id {
		t.Errorf("list %v, %v: want both, the newest first", list, err)
	}
	// What a call is refused for, its task is refused for.
	if _, err := client.CreateTask(ctx, &toolwayv1.CreateTaskRequest{Method: "probe.v1.Probe/Label"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a task of a call that needs approval: %v", err)
	}
	for _, c := range []struct {
		method string
		want   codes.Code
	}{{"probe.v1.Probe/Nothing", codes.NotFound}, {"toolway.v1.TaskService/ListTasks", codes.FailedPrecondition}, {"probe_ask", codes.InvalidArgument}} { // the last one has no key
		if _, err := client.CreateTask(ctx, &toolwayv1.CreateTaskRequest{Method: c.method}); status.Code(err) != c.want {
			t.Errorf("a task of %s: %v, want %v", c.method, err, c.want)
		}
	}
	for _, in := range []*toolwayv1.CreateTaskRequest{{Timeout: durationpb.New(-time.Second)}, {Ttl: durationpb.New(-time.Second)}} {
		in.Method, in.IdempotencyKey = "probe.v1.Probe/Ask", "never"
		if _, err := client.CreateTask(ctx, in); status.Code(err) != codes.InvalidArgument || backend.count("never") != 0 {
			t.Errorf("a task with %v: %v, want it refused", in, err)
		}
	}
	m.stop(t)
}

// TestWithoutAStoreThereAreNoTasks has calls answered, whatever their caller prefers.
func TestWithoutAStoreThereAreNoTasks(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	m := serve(t, "--config", backend.configFile(t, ""))
	client := toolwayv1.NewTaskServiceClient(m.conn)
	if _, err := client.ListTasks(t.Context(), &toolwayv1.ListTasksRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("list: %v", err)
	}
	var header metadata.MD
	out, err := probev1.NewProbeClient(m.conn).Ask(metadata.AppendToOutgoingContext(t.Context(), "prefer", "respond-async", "idempotency-key", "k"), &probev1.AskRequest{Text: "x"}, grpc.Header(&header))
	if err != nil || out.GetNumber() != 1 || len(header.Get("toolway-task")) > 0 {
		t.Errorf("answer %v, %v, header %v", out, err, header)
	}
	m.stop(t)
}

// TestCallWithATasksKey makes calls with the key of a task that runs: they are told where to see it, and get its answer once it is there.
func TestCallWithATasksKey(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	backend.reached = make(chan string, 100)
	release := backend.hold("long")
	m := serve(t, "--config", backend.configFile(t, ""), "--data", t.TempDir())
	made, err := m.makeTaskOf(t.Context(), "long", `{"id":"long","text":"hello"}`, true)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-backend.reached:
	case <-time.After(run.Patience):
		t.Fatal("the task has not begun")
	}
	for _, door := range doors {
		if a, err := m.ask(t.Context(), door, "long"); err != nil || a.String() != underWay || a.status != "/v1/tasks/"+made.ID || !a.retry {
			t.Errorf("%s: %v, %v, status_uri %q; want that of the task", door, a, err, a.status)
		}
	}
	release()
	m.awaitTask(t, made.ID)
	for _, door := range doors {
		if a, err := m.ask(t.Context(), door, "long"); err != nil || a.code != ok || !a.replayed || a.number != 1 {
			t.Errorf("%s: %v, %v, number %d; want the task's answer", door, a, err, a.number)
		}
	}
	m.stop(t)
}
