package mcpadapter

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/task"
)

// taskMessage says more about the status of a task, for people; "" if there is no more to say.
func taskMessage(t *task.Task) string {
	switch {
	case t.State == task.Cancelled && t.Err != nil:
		return call.PlainText(t.Err.Message())
	case t.State.Final():
		return ""
	case t.CancelRequested:
		return "it was asked to end, and has not yet"
	case t.Messages > 0:
		return fmt.Sprintf("%d messages of the answer have come so far", t.Messages)
	case t.Started.IsZero():
		return "it waits for a worker"
	}
	return ""
}

// detailedTask returns the members of a task with its result, if it has one. The error is a status: then the result cannot be read now.
// It asks what a client with such abilities can be asked.
func (a *Adapter) detailedTask(ctx context.Context, p *identity.Principal, t *task.Task, can abilities) ([]byte, error) {
	told := mcpStatus(t)
	if t.State == task.InputRequired {
		return a.askingTask(t, can), nil
	}
	if told != "completed" {
		return taskMembers(t, told), nil
	}
	m := a.conf.Catalog.Snapshot().Method(t.Method)
	if broken := unanswered(t, m); broken != nil {
		return appendError(taskMembers(t, "failed"), broken), nil
	}
	res, err := a.taskResult(ctx, p, t, m)
	if err != nil {
		return nil, err
	}
	out := append(taskMembers(t, told), `,"result":{`...)
	return append(res.append(a.appendMeta(out, res.meta, false), true), '}'), nil
}

// unanswered returns the JSON-RPC error of a task that has no result which a tools/call could have; nil if it has.
func unanswered(t *task.Task, m *catalog.Method) *jsonrpc.Error {
	name := t.Tool
	if name == "" {
		name = strings.TrimPrefix(t.Method, "/")
	}
	switch {
	case m == nil && t.Err != nil:
		return rpcError(jsonrpc.CodeInternalError, "%s: %s", codeName(t.Err.Code()), t.Err.Message())
	case m == nil:
		return rpcError(jsonrpc.CodeInternalError, "the call has ended well, but its answer cannot be shown: tool %q is no longer in the catalog", name)
	case t.Err != nil && reasonOf(t.Err.Err()) == task.ReasonUnaskable: // so would the call have been answered without a task
		_, missing, err := questions(m, inputRequired(t.Err.Err()), 0)
		if err == nil {
			err = missingCapability(m, missing)
		}
		return wireError(err)
	}
	return nil
}

// taskResult is the result that the call would have had if it had not become a task.
func (a *Adapter) taskResult(ctx context.Context, p *identity.Principal, t *task.Task, m *catalog.Method) (*result, error) {
	c := call.New(m, call.MCP)
	c.ID, c.Principal, c.Sent = t.ID, p, t.Attempts > 0 // its runs have the task's id
	k := &keeper{method: m, shape: shapeOf(m), options: a.conf.JSON, storing: storing{ctx, c, a.conf.Objects}}
	k.limit(&a.conf)
	err := t.Err.Err()
	if t.State == task.Completed {
		messages, readErr := a.conf.Tasks.Result(ctx, p, t.ID)
		if readErr != nil {
			return nil, readErr
		}
		for _, wire := range messages {
			if err = k.keep(call.NewFrame(m.Desc.Output(), wire)); err != nil {
				break
			}
		}
		if k.failure == nil && k.full == "" {
			a.noteElsewhere(ctx, t, k, messages == nil)
		}
	}
	return a.shown(a.finish(ctx, c, k, err), c), nil
}

// noteElsewhere says in k what of a task's answer is not in the messages that are kept with it.
func (a *Adapter) noteElsewhere(ctx context.Context, t *task.Task, k *keeper, nothing bool) {
	switch {
	case t.URI != "":
		k.link = a.answerAt(ctx, t, k)
		k.failure = status.Newf(codes.ResourceExhausted, "the answer of the task has %d bytes in protobuf, which is too large for a result; it is kept as a resource", t.Size)
	case t.Cut && (nothing || !k.method.Kind().Server):
		k.failure = status.Newf(codes.ResourceExhausted, "the answer of the task has %d bytes in protobuf, which is more than tasks keep; ask for less, such as a smaller page or fewer fields", t.Size)
	case t.Cut && k.shape == asMessage:
		k.full = "no more bytes than tasks keep"
	}
}

// answerAt returns where the whole answer is kept, with what is known of it.
func (a *Adapter) answerAt(ctx context.Context, t *task.Task, k *keeper) *object.Info {
	id := strings.TrimPrefix(t.URI, ObjectURI)
	if a.conf.Objects != nil {
		if info, _, err := a.conf.Objects.Get(ctx, ownerOf(k.call), id); err == nil {
			return &info
		}
	}
	return &object.Info{ID: id, MediaType: "application/json", Size: int(t.Size), Expires: t.Expires}
}
