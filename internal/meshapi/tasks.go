package meshapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/task"
	"github.com/toolway/toolway/internal/transcode"
)

// TaskOptions are what the task service needs.
type TaskOptions struct {
	// Tasks are the tasks. Nil: the service says that there are none, and how to have them.
	Tasks *task.Tasks
	// Snapshot returns the catalog as it is.
	Snapshot func() *catalog.Snapshot
	// Handler makes the calls that become tasks: the whole chain.
	Handler call.Handler
}

// RegisterTasks adds toolway.v1.TaskService to r.
func RegisterTasks(r grpc.ServiceRegistrar, o TaskOptions) {
	if o.Tasks == nil {
		toolwayv1.RegisterTaskServiceServer(r, noTasks{})
		return
	}
	toolwayv1.RegisterTaskServiceServer(r, &tasks{TaskOptions: o})
}

type tasks struct {
	toolwayv1.UnimplementedTaskServiceServer
	TaskOptions
}

// CreateTask makes a call that becomes a task.
func (s *tasks) CreateTask(ctx context.Context, in *toolwayv1.CreateTaskRequest) (*toolwayv1.CreateTaskResponse, error) {
	outer := call.FromContext(ctx)
	m := s.method(in.GetMethod(), outer.Door)
	if m == nil {
		return nil, unknownMethod(in.GetMethod())
	}
	if !m.Taskable() {
		return nil, call.Error(codes.FailedPrecondition, "TASK_IMPOSSIBLE", "calls of "+in.GetMethod()+" do not run as tasks: it streams its requests, is the mesh's own, or its contract forbids it",
			"hint", "call the method itself")
	}
	if in.GetTimeout().AsDuration() < 0 || in.GetTtl().AsDuration() < 0 {
		return nil, call.Error(codes.InvalidArgument, "TASK_TIME", "timeout or ttl is negative", "hint", "leave it out for the default")
	}
	wire, err := taskRequest(m, in)
	if err != nil {
		return nil, err
	}
	c := call.New(m, outer.Door)
	c.Principal, c.Credentials, c.Protocol, c.Confirm, c.Asker = outer.Principal, outer.Credentials, outer.Protocol, outer.Confirm, outer.Asker
	c.Async = &call.Async{Timeout: in.GetTimeout().AsDuration(), TTL: in.GetTtl().AsDuration()}
	if c.Forward = maps.Clone(outer.Forward); c.Forward == nil {
		c.Forward = metadata.MD{}
	}
	delete(c.Forward, call.KeyHeader)
	if key := in.GetIdempotencyKey(); key != "" {
		c.Forward[call.KeyHeader] = []string{key}
	}
	stream := call.NewStream(ctx, c, call.One(call.NewFrame(m.Desc.Input(), wire)), func(*call.Frame) error { return nil }, nil)
	switch err := s.Handler(stream); {
	case c.Hidden:
		return nil, unknownMethod(in.GetMethod())
	case err != nil:
		return nil, err
	}
	id := c.Task
	if id == "" {
		return nil, call.Error(codes.AlreadyExists, "CALL_ANSWERED", "the call with this idempotency key was made without a task, and is answered", "hint", "make the call itself with the same key: you get its answer")
	}
	t, err := s.Tasks.Get(ctx, principalOf(ctx), id)
	if err != nil {
		return nil, err
	}
	return &toolwayv1.CreateTaskResponse{Task: shownTask(ctx, t)}, nil
}

// method returns what a caller names, by the method's name or the tool's, if the door has it.
func (s *tasks) method(name string, door call.Door) *catalog.Method {
	snapshot := s.Snapshot()
	m := snapshot.Method("/" + strings.TrimPrefix(name, "/"))
	if m == nil {
		m = snapshot.Tool(name)
	}
	bit := map[call.Door]catalog.Doors{call.GRPC: catalog.DoorGRPC, call.HTTP: catalog.DoorHTTP, call.MCP: catalog.DoorMCP}[door]
	if m == nil || !m.Exposed(bit) {
		return nil
	}
	return m
}

func unknownMethod(name string) error {
	return call.Error(codes.NotFound, "METHOD_NOT_FOUND", fmt.Sprintf("there is no method or tool %q", name), "hint", "name it as package.Service/Method, or as the tool")
}

// taskRequest returns the request of the call as wire bytes.
func taskRequest(m *catalog.Method, in *toolwayv1.CreateTaskRequest) ([]byte, error) {
	bad := func(err error) error {
		return call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the request has to be a "+string(m.Desc.Input().FullName()))
	}
	if in.GetArguments() == nil {
		if err := m.Request().Check(in.GetRequest()); err != nil {
			return nil, bad(err)
		}
		return in.GetRequest(), nil
	}
	if len(in.GetRequest()) > 0 {
		return nil, call.Error(codes.InvalidArgument, "TWO_REQUESTS", "arguments and request are both set", "hint", "set one of the two")
	}
	text, err := protojson.Marshal(in.GetArguments())
	if err != nil {
		return nil, bad(err)
	}
	wire, err := m.Request().AppendWire(nil, text, transcode.ReadOptions{})
	if err != nil {
		return nil, bad(err)
	}
	return wire, nil
}

// GetTask returns a task with its result.
func (s *tasks) GetTask(ctx context.Context, in *toolwayv1.GetTaskRequest) (*toolwayv1.GetTaskResponse, error) {
	p := principalOf(ctx)
	t, err := s.Tasks.Get(ctx, p, in.GetId())
	if err != nil {
		return nil, err
	}
	out := shownTask(ctx, t)
	if t.State == task.Completed {
		out.Result = &toolwayv1.TaskResult{SizeBytes: uint64(t.Size), Uri: t.URI, Cut: t.Cut} //nolint:gosec // a size
		messages, err := s.Tasks.Result(ctx, p, t.ID)
		switch {
		case err != nil:
			return nil, err
		case messages == nil:
		case in.GetAsProtobuf():
			for _, wire := range messages {
				out.Result.Replies = append(out.Result.Replies, &anypb.Any{TypeUrl: "type.googleapis.com/" + t.Output, Value: wire})
			}
		default:
			text, err := s.Tasks.JSON(t, messages)
			if err != nil {
				return nil, err
			}
			out.Result.Value = new(structpb.Value)
			if err := protojson.Unmarshal(text, out.Result.Value); err != nil {
				return nil, call.Error(codes.Internal, "REPLY_NOT_SHOWN", "the answer cannot be shown as JSON: "+err.Error(), "hint", "get the task with as_protobuf")
			}
		}
	}
	return &toolwayv1.GetTaskResponse{Task: out}, nil
}

const (
	defaultTasks = 50
	maxTasks     = 500
)

// ListTasks returns the caller's tasks.
func (s *tasks) ListTasks(ctx context.Context, in *toolwayv1.ListTasksRequest) (*toolwayv1.ListTasksResponse, error) {
	size := int(in.GetPageSize())
	if size < 0 || size > maxTasks {
		return nil, call.Error(codes.InvalidArgument, "PAGE_SIZE", fmt.Sprintf("page_size is %d: want 0 to %d", size, maxTasks))
	}
	var state task.State
	for of, shown := range taskStates {
		if shown == in.GetState() {
			state = of
		}
	}
	list, next, err := s.Tasks.List(ctx, principalOf(ctx), state, cmp.Or(size, defaultTasks), in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &toolwayv1.ListTasksResponse{NextPageToken: next}
	for _, t := range list {
		out.Tasks = append(out.Tasks, shownTask(ctx, t))
	}
	return out, nil
}

// CancelTask asks for the end of a task.
func (s *tasks) CancelTask(ctx context.Context, in *toolwayv1.CancelTaskRequest) (*toolwayv1.CancelTaskResponse, error) {
	t, err := s.Tasks.Cancel(ctx, principalOf(ctx), in.GetId())
	if err != nil {
		return nil, err
	}
	return &toolwayv1.CancelTaskResponse{Task: shownTask(ctx, t)}, nil
}

// ProvideTaskInput gives a task what its backend has asked for.
func (s *tasks) ProvideTaskInput(ctx context.Context, in *toolwayv1.ProvideTaskInputRequest) (*toolwayv1.ProvideTaskInputResponse, error) {
	t, err := s.Tasks.Provide(ctx, principalOf(ctx), in.GetId(), int(in.GetInputRound()), in.GetResponses())
	if err != nil {
		return nil, err
	}
	return &toolwayv1.ProvideTaskInputResponse{Task: shownTask(ctx, t)}, nil
}

// WatchTask sends a task's events.
func (s *tasks) WatchTask(in *toolwayv1.WatchTaskRequest, stream grpc.ServerStreamingServer[toolwayv1.WatchTaskResponse]) error {
	var after uint64
	if id := in.GetLastEventId(); id != "" {
		var err error
		if after, err = strconv.ParseUint(id, 10, 64); err != nil {
			return call.Error(codes.InvalidArgument, "EVENT_ID", "last_event_id is of no event", "hint", "give the event_id of an event of this task, or leave it out")
		}
	}
	ctx := stream.Context()
	return s.Tasks.Watch(ctx, principalOf(ctx), in.GetId(), after, func(e task.Event) error {
		out := &toolwayv1.TaskEvent{EventId: strconv.FormatUint(e.Sequence, 10), TaskId: e.TaskID, EventType: e.Type, OccurredAt: timestamppb.New(e.Time)}
		if len(e.Payload) > 0 {
			out.Payload = new(structpb.Struct)
			if err := protojson.Unmarshal(e.Payload, out.Payload); err != nil {
				return fmt.Errorf("event %d of task %s: %w", e.Sequence, e.TaskID, err)
			}
		}
		return stream.Send(&toolwayv1.WatchTaskResponse{Event: out})
	})
}

var taskStates = map[task.State]toolwayv1.Task_State{
	task.Working: toolwayv1.Task_STATE_WORKING, task.InputRequired: toolwayv1.Task_STATE_INPUT_REQUIRED, task.Completed: toolwayv1.Task_STATE_COMPLETED,
	task.Failed: toolwayv1.Task_STATE_FAILED, task.Cancelled: toolwayv1.Task_STATE_CANCELLED, task.OutcomeUnknown: toolwayv1.Task_STATE_OUTCOME_UNKNOWN,
}

// shownTask is a task as callers see it, without its result.
func shownTask(ctx context.Context, t *task.Task) *toolwayv1.Task {
	at := func(when time.Time) *timestamppb.Timestamp {
		if when.IsZero() {
			return nil
		}
		return timestamppb.New(when)
	}
	out := &toolwayv1.Task{
		Id: t.ID, Method: strings.TrimPrefix(t.Method, "/"), Tool: t.Tool, State: taskStates[t.State], CreatedAt: at(t.Created), UpdatedAt: at(t.Updated), StartedAt: at(t.Started),
		EndedAt: at(t.Ended), Deadline: at(t.Deadline), ExpiresAt: at(t.Expires), Attempts: uint32(t.Attempts), CancelRequested: t.CancelRequested, InputRound: uint32(t.Round), //nolint:gosec // small
	}
	if t.Messages > 0 {
		out.Progress = &toolwayv1.TaskProgress{Messages: uint64(t.Messages), Bytes: uint64(t.Bytes)} //nolint:gosec // sizes
	}
	if t.Err != nil {
		out.Error = t.Err.Proto()
		for _, d := range t.Err.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				out.ErrorReason = d.GetReason()
			case *toolwayv1.InputRequired:
				out.InputRequired = d
			}
		}
		if c := call.FromContext(ctx); c == nil || c.Door != call.GRPC {
			out.Error = &spb.Status{Code: out.Error.GetCode(), Message: out.Error.GetMessage()}
		}
	}
	return out
}

// noTasks is the service of a mesh that keeps no tasks.
type noTasks struct {
	toolwayv1.UnimplementedTaskServiceServer
}

func errNoTasks() error {
	return call.Error(codes.FailedPrecondition, "TASKS_OFF", "this mesh keeps no tasks, since it keeps no state", "hint", "start it with a data directory (--data DIR) or a cluster (--nats URL)")
}

// CreateTask refuses.
func (noTasks) CreateTask(context.Context, *toolwayv1.CreateTaskRequest) (*toolwayv1.CreateTaskResponse, error) {
	return nil, errNoTasks()
}

// GetTask refuses.
func (noTasks) GetTask(context.Context, *toolwayv1.GetTaskRequest) (*toolwayv1.GetTaskResponse, error) {
	return nil, errNoTasks()
}

// ListTasks refuses.
func (noTasks) ListTasks(context.Context, *toolwayv1.ListTasksRequest) (*toolwayv1.ListTasksResponse, error) {
	return nil, errNoTasks()
}

// CancelTask refuses.
func (noTasks) CancelTask(context.Context, *toolwayv1.CancelTaskRequest) (*toolwayv1.CancelTaskResponse, error) {
	return nil, errNoTasks()
}

// ProvideTaskInput refuses.
func (noTasks) ProvideTaskInput(context.Context, *toolwayv1.ProvideTaskInputRequest) (*toolwayv1.ProvideTaskInputResponse, error) {
	return nil, errNoTasks()
}

// WatchTask refuses.
func (noTasks) WatchTask(*toolwayv1.WatchTaskRequest, grpc.ServerStreamingServer[toolwayv1.WatchTaskResponse]) error {
	return errNoTasks()
}
