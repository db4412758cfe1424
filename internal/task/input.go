package task

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// asksForInput says whether the backend has turned the call away until it is told more: toolway.v1.InputRequired.
func asksForInput(st *status.Status) bool {
	if st.Code() != codes.FailedPrecondition {
		return false
	}
	for _, d := range st.Proto().GetDetails() {
		if d.MessageIs((*toolwayv1.InputRequired)(nil)) {
			return true
		}
	}
	return false
}

type askedPayload struct {
	Message string `json:"message"`
}

// ask has the task wait for what its backend asks for. The job is done: with the input comes another.
func (r *run) ask(ctx context.Context, st *status.Status) {
	rec, err := r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		if rec.State.Final() || rec.Worker != r.name {
			return errUnchanged
		}
		rec.State, rec.Dispatched, rec.Status, rec.Inputs = InputRequired, false, marshalStatus(st), nil
		rec.Attempts = max(rec.Attempts-1, 0)
		if rec.Cancel {
			r.tasks.end(rec, Cancelled, errCancelled("; what it had done by then stays done"))
		}
		return nil
	})
	if err != nil {
		r.tasks.log.Warn("that a task waits for input is not kept", "task", r.job.ID, "error", err)
		return // the lease ends, and another decides by what the record says
	}
	if rec.State.Final() {
		r.wrapUp(ctx, rec)
		return
	}
	r.tellEvent(ctx, asked, askedPayload{Message: cut(st.Message(), 1<<10)})
	r.pool.done(ctx, r.held())
}

// Provide gives a task of p what its backend has asked for, an encoded toolway.v1.InputResponses, and returns it as it is then: at work again. The backend
// gets it as call.InputResponsesKey. A task that does not wait for input is FAILED_PRECONDITION, reason TASK_NEEDS_NO_INPUT.
func (t *Tasks) Provide(ctx context.Context, p *identity.Principal, id string, responses []byte) (*Task, error) {
	if _, err := t.find(ctx, p, id); err != nil {
		return nil, err
	}
	if len(responses) > maxStatus {
		return nil, call.Error(codes.InvalidArgument, "INPUT_TOO_LARGE", "the input is too large for a task", "hint", "give what was asked for, and no more")
	}
	owner := ownerOf(p)
	var question []byte
	r, err := t.change(ctx, owner, id, func(r *record) error {
		if r.State != InputRequired {
			return call.Error(codes.FailedPrecondition, "TASK_NEEDS_NO_INPUT", "the task does not wait for input: it is "+string(r.State))
		}
		question = r.Status
		r.State, r.Status, r.Inputs = Working, nil, responses
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound()
	case err != nil && r != nil:
		return nil, err
	case err != nil:
		return nil, t.unkept("provide input for a task", err)
	}
	if err := t.enqueue(ctx, r, p, id+newID()); err != nil {
		// It asks again, so that the caller can provide again.
		_, _ = t.change(ctx, owner, id, func(r *record) error {
			if r.State != Working || r.Dispatched {
				return errUnchanged
			}
			r.State, r.Status = InputRequired, question
			return nil
		})
		return nil, err
	}
	return r.view(), nil
}
