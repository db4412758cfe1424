package task

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/apart"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// The types of events.
const (
	created   = "task_created"
	started   = "tool_started"
	progress  = "tool_progress"
	completed = "tool_completed"
	succeeded = "task_completed"
	failed    = "task_failed"
	asked     = "task_input_required"
	provided  = "task_input_provided"
	dropped   = "task_events_dropped" // not in the log: whoever watches is told so
)

// Event is something that happened to a task.
type Event struct {
	// Sequence orders the events of all tasks.
	Sequence uint64
	TaskID   string
	// Type is task_created, tool_started, tool_progress, tool_completed, task_input_required, task_input_provided, task_completed or task_failed. The
	// last two end the task. A task_events_dropped stands for those that the log had to forget before the ones that follow.
	Type string
	Time time.Time
	// Payload is a JSON object, or empty.
	Payload json.RawMessage
}

// Final says whether the event is the task's last.
func (e *Event) Final() bool { return e.Type == succeeded || e.Type == failed }

// ChangesState says whether the state of the task, or what it asks for, has changed with the event: it has by the time that the event comes.
func (e *Event) ChangesState() bool { return e.Type == asked || e.Type == provided || e.Final() }

// stored is an event as the log has it.
type stored struct {
	Type    string          `json:"t"`
	Payload json.RawMessage `json:"p,omitempty"`
}

type createdPayload struct {
	Method string `json:"method"`
	Tool   string `json:"tool,omitempty"`
}

type startedPayload struct {
	Attempt int `json:"attempt"`
}

// progressPayload is one message of a streamed answer, of the attempt that is under way.
type progressPayload struct {
	Message json.RawMessage `json:"message,omitempty"` // left out if it is too large
	Count   int64           `json:"count"`
	Bytes   int             `json:"bytes"`
}

type completedPayload struct {
	Code     string `json:"code"`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
}

type droppedPayload struct {
	Message string `json:"message"`
}

type endPayload struct {
	State   State  `json:"state"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// append appends an event to a task's. An id makes the second of two appends of it within two minutes none.
func (t *Tasks) append(ctx context.Context, id, typ string, payload any, once string) (uint64, error) {
	return t.events.Append(ctx, id, encode(stored{Type: typ, Payload: encode(payload)}), once)
}

// tell appends an event that is not the last. One that the store does not take is missing: the record and the answer are what counts.
func (t *Tasks) tell(ctx context.Context, id, typ string, payload any) {
	if _, err := t.append(ctx, id, typ, payload, ""); err != nil {
		t.log.Warn("an event of a task is not kept", "task", id, "type", typ, "error", err)
	}
}

// decodeEvent reads an event of the log.
func decodeEvent(e store.Event) (Event, error) {
	var s stored
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return Event{}, err
	}
	return Event{Sequence: e.Sequence, TaskID: e.Subject, Type: s.Type, Time: e.Time, Payload: s.Payload}, nil
}

// close appends the event that ends a task's, unless it is there.
func (t *Tasks) close(ctx context.Context, r *record) error {
	last, err := t.events.Last(ctx, r.ID)
	switch {
	case err == nil:
		if e, err := decodeEvent(last); err == nil && e.Final() {
			return nil
		}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	typ, p := succeeded, endPayload{State: r.State}
	if r.State != Completed {
		typ = failed
		if v := r.view(); v.Err != nil {
			p.Code, p.Message = v.Err.Code().String(), cut(v.Err.Message(), 1<<10)
		}
	}
	// Of several that append it, one does.
	_, err = t.events.AppendAfter(ctx, r.ID, encode(stored{Type: typ, Payload: encode(p)}), last.Sequence)
	if errors.Is(err, store.ErrConflict) {
		return t.close(ctx, r)
	}
	return err
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}

// errEnd ends the following of a task's events.
var errEnd = errors.New("end")

// Watch gives each event of a task of p after a sequence, 0 for all that are kept, to each, in order, without gap or repetition, as they come, and returns
// nil after the last one. If the first ones are no longer kept, an event that says so comes in their place. A slow reader slows nobody. Errors are
// statuses: OUT_OF_RANGE, reason RESYNC_REQUIRED, if events after the sequence, or after the last one that was given, have been forgotten; each's error;
// that of ctx.
func (t *Tasks) Watch(ctx context.Context, p *identity.Principal, id string, after uint64, each func(Event) error) error {
	var r *record
	var begin uint64
	var err error
	apart.Run(func() { r, begin, err = t.watched(ctx, p, id, after) })
	if errors.Is(err, errEnd) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !r.State.Final() { // what nobody sees to any more ends here
		overdue := time.AfterFunc(time.Until(t.overdue(r)), func() { _, _ = t.settle(ctx, r.owner, r.ID) })
		defer overdue.Stop()
	}
	told := after > 0
	tell := func(upTo uint64) error {
		told = true
		return each(forgotten(id, upTo))
	}
	if !told && begin >= r.First {
		apart.Run(func() { err = tell(begin) })
		if err != nil {
			return err
		}
	}
	if after == 0 {
		begin = 0 // what is forgotten meanwhile must not end it
	}
	err = t.events.Follow(ctx, id, begin, func(e store.Event) error {
		if !told && e.Sequence > r.First {
			if err := tell(e.Sequence - 1); err != nil {
				return err
			}
		}
		told, after = true, e.Sequence
		return give(e, each)
	})
	switch {
	case errors.Is(err, errEnd):
		return nil
	case errors.Is(err, store.ErrExpired):
		return resync(after)
	}
	return err
}

// watched returns the task whose events a caller may have, and the sequence after which they begin; errEnd if there is none after the one given.
func (t *Tasks) watched(ctx context.Context, p *identity.Principal, id string, after uint64) (r *record, begin uint64, err error) {
	if r, err = t.find(ctx, p, id); err != nil {
		return nil, 0, err
	}
	first, last, err := t.events.Bounds(ctx)
	known := after <= last
	if err == nil && !known {
		known, err = t.events.Reached(ctx, after)
	}
	begin = max(after, r.First-1) // what is of another task came before
	switch {
	case err != nil:
		return nil, 0, t.unkept("read the events of a task", err)
	case after == 0: // what is kept of them: this is how a reader goes on that was told to begin anew
		begin = max(first, r.First) - 1
	case begin == r.First-1 && first > r.First:
		return nil, 0, resync(after)
	case !known:
		return nil, 0, call.Error(codes.InvalidArgument, "EVENT_ID", "the last_event_id is of no event that there has been", "hint", "begin again without it")
	}
	if !r.State.Final() {
		return r, begin, nil
	}
	if begin >= r.First {
		// Nothing comes after the last event: whoever has it is told so at once.
		last, err := t.events.Last(ctx, id)
		if err == nil {
			if e, err := decodeEvent(last); err == nil && e.Final() && e.Sequence <= after {
				return nil, 0, errEnd
			}
		}
	}
	if err := t.close(ctx, r); err != nil {
		return nil, 0, t.unkept("append the last event of a task", err)
	}
	return r, begin, nil
}

// give gives an event of the log to each; its error is errEnd after the last one.
func give(e store.Event, each func(Event) error) error {
	ev, err := decodeEvent(e)
	if err != nil {
		return err
	}
	if err := each(ev); err != nil {
		return err
	}
	if ev.Final() {
		return errEnd
	}
	return nil
}

// forgotten is the event in place of those up to a sequence, which a reader can go on after as after any other.
func forgotten(id string, upTo uint64) Event {
	return Event{Sequence: upTo, TaskID: id, Type: dropped, Time: time.Now(), Payload: encode(droppedPayload{"earlier events of this task are no longer kept: get the task for its present state"})}
}

func resync(after uint64) error {
	return call.Error(codes.OutOfRange, "RESYNC_REQUIRED", "events after "+strconv.FormatUint(after, 10)+" are no longer kept",
		"hint", "get the task for its present state, and watch it without last_event_id")
}
