package task

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// find returns the record of a task of p. That of another is not found, since it has another key.
func (t *Tasks) find(ctx context.Context, p *identity.Principal, id string) (*record, error) {
	if !validID(id) {
		return nil, notFound()
	}
	r, err := t.load(ctx, ownerOf(p), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound()
	case err != nil:
		return nil, t.unkept("read a task", err)
	case !time.Now().Before(r.Expires):
		return nil, notFound()
	}
	return r, nil
}

// Get returns a task of p, or NOT_FOUND.
func (t *Tasks) Get(ctx context.Context, p *identity.Principal, id string) (*Task, error) {
	r, err := t.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if !r.State.Final() && time.Now().After(t.overdue(r)) {
		if r, err = t.settle(ctx, r.owner, r.ID); err != nil {
			return nil, t.unkept("end a task", err)
		}
	}
	return r.view(), nil
}

// Result returns the answer of a task of p that has completed, as the messages that came; nil if the task has none, or it is kept elsewhere.
func (t *Tasks) Result(ctx context.Context, p *identity.Principal, id string) ([][]byte, error) {
	r, err := t.find(ctx, p, id)
	if err != nil || r.State != Completed || r.URI != "" || r.Size > int64(t.conf.MaxInlineBytes) {
		return nil, err
	}
	blob, err := t.get(ctx, key("o", r.owner, id))
	if errors.Is(err, store.ErrNotFound) && r.Cut {
		return nil, nil
	}
	if err != nil {
		return nil, t.unkept("read the answer of a task", err)
	}
	return split(blob), nil
}

// split returns the messages of a blob, each of which has its length before it.
func split(blob []byte) [][]byte {
	out := [][]byte{}
	for len(blob) > 0 {
		m, n := protowire.ConsumeBytes(blob)
		if n < 0 {
			break
		}
		out, blob = append(out, m), blob[n:]
	}
	return out
}

// List returns tasks of p, the newest first: at most size, those in a state if that is not "", after the page that next came with. next is "" after the
// last page. A task that is made meanwhile is on no later page, and what ends or goes moves none to another. It reads the records of the page only.
func (t *Tasks) List(ctx context.Context, p *identity.Principal, state State, size int, page string) (tasks []*Task, next string, err error) {
	var after *place
	if page != "" {
		at, err := placeOf(page)
		if err != nil {
			return nil, "", err
		}
		after = &at
	}
	owner := ownerOf(p)
	if err := t.index.current(ctx, owner); err != nil {
		return nil, "", t.unkept("list tasks", err)
	}
	for {
		want := size - len(tasks) + 1 // one more says whether there is another page
		found := t.index.before(owner, after, state, want)
		for _, at := range found {
			if len(tasks) == size {
				return tasks, after.token(), nil
			}
			after = &at
			r, err := t.load(ctx, owner, hex.EncodeToString(at.id[:]))
			switch {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return nil, "", t.unkept("list tasks", err)
			case (state == "" || r.State == state) && time.Now().Before(r.Expires):
				tasks = append(tasks, r.view())
			}
		}
		if len(found) < want {
			return tasks, "", nil
		}
	}
}

// Cancel asks for the end of a task of p, and returns it as it is then. One that has not begun ends at once. One that runs is cancelled, on
// whatever instance; the final state says what became of it. One that has ended stays as it is.
func (t *Tasks) Cancel(ctx context.Context, p *identity.Principal, id string) (*Task, error) {
	if _, err := t.find(ctx, p, id); err != nil {
		return nil, err
	}
	r, err := t.change(ctx, ownerOf(p), id, func(r *record) error {
		switch {
		case r.State.Final() || r.Cancel:
			return errUnchanged
		case !r.Dispatched:
			t.end(r, Cancelled, errCancelled(""))
		}
		r.Cancel = true
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound()
	case err != nil:
		return nil, t.unkept("cancel a task", err)
	}
	if r.State.Final() {
		if err := t.close(ctx, r); err != nil {
			return nil, t.unkept("append the last event of a task", err)
		}
	}
	return r.view(), nil
}

func errCancelled(doubt string) *status.Status {
	text := "the task was cancelled before its call was made"
	if doubt != "" {
		text = "the task was cancelled while its call ran" + doubt
	}
	return status.Convert(call.Error(codes.Canceled, "TASK_CANCELLED", text))
}

// end sets the final state. Whoever does so writes the record by compare-and-set.
func (t *Tasks) end(r *record, s State, st *status.Status) {
	r.State, r.Ended, r.Operation = s, time.Now(), ""
	r.Expires = r.Ended.Add(r.TTL)
	if st != nil {
		r.Status = marshalStatus(st)
	}
}

// overdue is when a task that has not ended has nobody any more who sees to it: by its deadline if it waits for input, else a worker may be about to end it.
func (t *Tasks) overdue(r *record) time.Time {
	if r.State == InputRequired {
		return r.Deadline
	}
	return r.Deadline.Add(t.conf.Lease + 30*time.Second)
}

// settle ends a task that is overdue.
func (t *Tasks) settle(ctx context.Context, owner, id string) (*record, error) {
	r, err := t.change(ctx, owner, id, func(r *record) error {
		if r.State.Final() || time.Now().Before(t.overdue(r)) {
			return errUnchanged
		}
		t.lose(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !r.State.Final() {
		return r, nil
	}
	return r, t.close(ctx, r)
}

// lose ends a task that nobody can go on with.
func (t *Tasks) lose(r *record) {
	if r.Dispatched && !t.repeatable(r) {
		t.end(r, OutcomeUnknown, errUnknown("the worker that made the call was lost"))
		return
	}
	t.end(r, Failed, status.Convert(call.Error(codes.DeadlineExceeded, "TASK_DEADLINE", "the task was not done by its deadline", "hint", "make it anew, with more time")))
}

func errUnknown(why string) *status.Status {
	return status.Convert(call.Error(codes.Unknown, "OUTCOME_UNKNOWN", why+", and whether the call took effect is not known",
		"hint", "it is not made again: look up the state, and make a new task if it still has to be done"))
}

// repeatable says whether the call can be made again although it may have been made: the method may be repeated, or its backend knows the key.
func (t *Tasks) repeatable(r *record) bool {
	m := t.conf.Catalog.Snapshot().Method(r.Method)
	return m != nil && (m.Policy.Retry || r.Keyed)
}

// JSON returns the answer's messages as JSON: one value, or a list if the method streams its answer. It needs the method in the catalog.
func (t *Tasks) JSON(task *Task, messages [][]byte) (json.RawMessage, error) {
	m := t.conf.Catalog.Snapshot().Method(task.Method)
	if m == nil {
		return nil, call.Error(codes.FailedPrecondition, "METHOD_GONE", "the method "+task.Method[1:]+" is no longer in the catalog, so its answer cannot be shown as JSON", "hint", "get the task with as_protobuf")
	}
	return asJSON(m, messages)
}
