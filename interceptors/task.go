package interceptors

import (
	"bytes"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Submitter takes calls that are to run as tasks. *task.Tasks is one.
type Submitter interface {
	// Submit keeps the call c, which is borrowed, and its request, which it may keep, and returns the id of its task once nothing can lose it. The same
	// call again, by its key, gets the id of the first one's task. Errors are statuses.
	Submit(ctx context.Context, c *call.Call, request []byte) (id string, err error)
}

// TaskOptions are what Task needs.
type TaskOptions struct {
	// Submitter takes the calls. Nil: no call becomes a task.
	Submitter Submitter
	// Runs are the bounds of calls that are runs of tasks; see Runs.
	Runs RunOptions
}

const taskName = "task"

// Task makes a task of a call whose caller wants one (Call.Async): it hands the call to the submitter, sets Call.Task and the header
// toolway-task, and ends the call without a reply, or with an empty one where there has to be one. The call has passed all policies by then;
// its run passes them again: see Runs. Calls of methods that run only as tasks are FAILED_PRECONDITION, reason TASK_REQUIRED, if their
// caller waits for the answer.
func Task(o Options) Policy {
	submitter := o.Task.Submitter
	return inHalves(taskName, func(m *catalog.Method) *halves {
		if submitter == nil || !m.Taskable() {
			return nil
		}
		return &halves{enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
			if c.Async == nil {
				if m.Policy.Task == catalog.TaskRequired && c.Door != call.CLI {
					c.Decide(taskName, "refused", "calls of this method run as tasks")
					return nil, call.Error(codes.FailedPrecondition, "TASK_REQUIRED", "calls of "+nameOf(m)+" take long, and run only as tasks",
						"hint", "ask for a task: HTTP header Prefer: respond-async, gRPC metadata prefer: respond-async, or toolway.v1.TaskService/CreateTask; nothing was done")
				}
				return stream, nil
			}
			return nil, submit(submitter, c, stream)
		}}
	})
}

func submit(submitter Submitter, c *call.Call, stream grpc.ServerStream) error {
	f, err := call.Request(stream)
	if err != nil {
		return err
	}
	id, err := submitter.Submit(stream.Context(), c, bytes.Clone(f.Bytes()))
	if err != nil {
		c.Decide(taskName, "refused", "the task cannot be kept")
		return err
	}
	c.Task = id
	c.Decide(taskName, "submitted", "task "+id)
	if err := stream.SetHeader(metadata.Pairs(call.TaskHeader, id)); err != nil {
		return err
	}
	if c.Method.Kind().Server {
		return nil
	}
	return stream.SendMsg(call.NewFrame(c.Method.Desc.Output(), nil))
}
