package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// questionOf returns what the backend asks for with a status that turns the call away until it is told more, or nil.
func questionOf(st *status.Status) *toolwayv1.InputRequired {
	if st.Code() != codes.FailedPrecondition {
		return nil
	}
	for _, d := range st.Proto().GetDetails() {
		ask := &toolwayv1.InputRequired{}
		if d.MessageIs(ask) && d.UnmarshalTo(ask) == nil {
			return ask
		}
	}
	return nil
}

// withQuestion returns the status with another question in the place of its own.
func withQuestion(st *status.Status, ask *toolwayv1.InputRequired) *status.Status {
	detail, err := anypb.New(ask)
	if err != nil {
		return st
	}
	p := st.Proto()
	p.Details = append(slices.DeleteFunc(p.GetDetails(), func(d *anypb.Any) bool { return d.MessageIs(ask) }), detail)
	return status.FromProto(p)
}

// putTo returns the status with the questions that the maker of a task can be asked: those that are optional are left out if it cannot, and are not
// optional any more if it can, where it has said so. If it cannot be asked what has to be known, the call has failed: then asks is false, and the status
// says why.
func putTo(st *status.Status, unaskable call.Questions) (_ *status.Status, asks bool) {
	ask := questionOf(st)
	missing := map[string]*toolwayv1.InputRequest{}
	for name, r := range ask.GetRequests() {
		switch {
		case unaskable&call.QuestionOf(r) == 0:
			r.Optional = r.GetOptional() && unaskable == 0
		case r.GetOptional():
			delete(ask.Requests, name)
		default:
			missing[name] = r
		}
	}
	if len(missing) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
		return withQuestion(status.Convert(call.Error(codes.FailedPrecondition, ReasonUnaskable, "the backend has to know what the caller has said it cannot be asked: "+names,
			"hint", "make the call from a client that can be asked; what it had done by then stays done")), &toolwayv1.InputRequired{Requests: missing}), false
	}
	st = withQuestion(st, ask)
	if proto.Size(st.Proto()) > maxStatus {
		return status.Convert(call.Error(codes.FailedPrecondition, "INPUT_TOO_LARGE", "the backend asks for input with more bytes than a task keeps", "hint", "make the call without a task")), false
	}
	return st, true
}

// ReasonUnaskable is why a task has failed whose maker cannot be asked what the backend has to know. The status has a toolway.v1.InputRequired with that.
const ReasonUnaskable = "INPUT_IMPOSSIBLE"

type askedPayload struct {
	Message string `json:"message"`
	Round   int    `json:"round"`
}

type providedPayload struct {
	Round int `json:"round"`
	// Answers are the names of the questions that were answered, Left how many have to be still.
	Answers []string `json:"answers"`
	Left    int      `json:"left"`
}

// ask has the task wait for what its backend asks for. The job is done: with the input comes another. If nothing is left that can be asked, the call is
// made again without.
func (r *run) ask(ctx context.Context, st *status.Status) {
	question := questionOf(st)
	unasked := len(question.GetRequests()) == 0 && r.spec.Unaskable != 0
	rec, err := r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		if rec.State.Final() || rec.Worker != r.name {
			return errUnchanged
		}
		rec.Dispatched, rec.Inputs, rec.Given = false, nil, nil
		rec.Round++
		switch {
		case rec.Cancel:
			r.tasks.end(rec, Cancelled, errCancelled("; what it had done by then stays done"))
		case unasked:
			rec.Inputs = encodeAnswers(&toolwayv1.InputResponses{State: question.GetState()}) // the attempt counts: else it might go on for ever
		default:
			rec.State, rec.Status = InputRequired, marshalStatus(st)
			rec.Attempts = max(rec.Attempts-1, 0)
		}
		return nil
	})
	switch {
	case err != nil:
		r.tasks.log.Warn("that a task waits for input is not kept", "task", r.job.ID, "error", err)
		return // the lease ends, and another decides by what the record says
	case rec.State.Final():
		r.wrapUp(ctx, rec)
		return
	case rec.State == Working:
		r.pool.giveBack(r.held(), 0)
		return
	}
	r.tellEvent(ctx, asked, askedPayload{Message: cut(st.Message(), 1<<10), Round: rec.Round})
	r.pool.done(ctx, r.held())
}

// unanswered returns the status of a task without the questions that have been answered.
func (r *record) unanswered(st *status.Status) *status.Status {
	if r.State != InputRequired || r.Given == nil {
		return st
	}
	ask := questionOf(st)
	for name := range decodeAnswers(r.Given).GetResponses() {
		delete(ask.GetRequests(), name)
	}
	return withQuestion(st, ask)
}

func encodeAnswers(a *toolwayv1.InputResponses) []byte {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		return nil // a text that is not UTF-8, which came as a message: it cannot be
	}
	return wire
}

func decodeAnswers(wire []byte) *toolwayv1.InputResponses {
	out := &toolwayv1.InputResponses{}
	_ = proto.Unmarshal(wire, out) // ours
	return out
}

// Reasons of Provide.
const (
	// ReasonNoInput: the task does not wait for input.
	ReasonNoInput = "TASK_NEEDS_NO_INPUT"
	// ReasonOtherRound: it asks other questions by now.
	ReasonOtherRound = "TASK_ASKS_ANEW"
	// ReasonNotAsked: an answer is to nothing that it asks, or that has been answered.
	ReasonNotAsked = "TASK_NOT_ASKED"
)

// ProvideReason says whether a reason is one of these.
func ProvideReason(reason string) bool {
	return reason == ReasonNoInput || reason == ReasonOtherRound || reason == ReasonNotAsked
}

// Provide gives a task of p answers to what its backend has asked, and returns it as it is then. They are kept; once all questions that are not optional
// have one, the task is at work again, and the backend gets the answers as call.InputResponsesKey, with the state that it gave unless they have one. If
// round is not 0 the answers are for that round of questions. The same answers again are no error as long as the call has not been made with them.
//
// Errors are statuses: FAILED_PRECONDITION, reasons ReasonNoInput and ReasonOtherRound; INVALID_ARGUMENT, reasons ReasonNotAsked and INPUT_TOO_LARGE. Then
// none of the answers is kept.
func (t *Tasks) Provide(ctx context.Context, p *identity.Principal, id string, round int, given *toolwayv1.InputResponses) (*Task, error) {
	if _, err := t.find(ctx, p, id); err != nil {
		return nil, err
	}
	left, again := 0, false
	r, err := t.change(ctx, ownerOf(p), id, func(r *record) (err error) {
		if again = r.State == Working && !r.Dispatched && r.Inputs != nil && holds(decodeAnswers(r.Inputs), given); again {
			return errUnchanged
		}
		if left, err = r.provide(round, given); err != nil || r.State == InputRequired {
			return err
		}
		// A task that is said to be at work has its job: the job comes first, and its worker waits for the answers. It stays if they do not come, so one
		// with its id is enough.
		return t.enqueue(ctx, r, p, fmt.Sprintf("%s.%d", r.ID, r.Round))
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound()
	case err != nil && r != nil:
		return nil, err
	case err != nil:
		return nil, t.unkept("provide input for a task", err)
	}
	if !again {
		t.tell(ctx, r.ID, provided, providedPayload{Round: r.Round, Answers: slices.Sorted(maps.Keys(given.GetResponses())), Left: left})
	}
	return r.view(), nil
}

// provide keeps answers, and has the task go on if nothing is left that has to be answered.
func (r *record) provide(round int, given *toolwayv1.InputResponses) (left int, err error) {
	switch {
	case r.State != InputRequired:
		return 0, call.Error(codes.FailedPrecondition, ReasonNoInput, "the task does not wait for input: it is "+string(r.State))
	case round != 0 && round != r.Round:
		return 0, call.Error(codes.FailedPrecondition, ReasonOtherRound, fmt.Sprintf("the answers are for round %d of the task's questions, and it asks in round %d", round, r.Round), "hint", "get the task, and answer what it asks now")
	}
	st := r.view().Err
	if st == nil {
		st = status.New(codes.OK, "")
	}
	ask, all := questionOf(st), decodeAnswers(r.Given)
	if all.Responses == nil {
		all.Responses = map[string]*toolwayv1.InputResponse{}
	}
	for _, name := range slices.Sorted(maps.Keys(given.GetResponses())) {
		if ask.GetRequests()[name] == nil {
			return 0, call.Error(codes.InvalidArgument, ReasonNotAsked, fmt.Sprintf("responses[%q] is no answer to what the task asks: it asks %q", cut(name, 100), slices.Sorted(maps.Keys(ask.GetRequests()))), "hint", "get the task, and answer what it asks now")
		}
		all.Responses[name] = given.GetResponses()[name]
	}
	all.State = ask.GetState()
	if len(given.GetState()) > 0 {
		all.State = given.GetState()
	}
	if proto.Size(all) > maxStatus {
		return 0, call.Error(codes.InvalidArgument, "INPUT_TOO_LARGE", fmt.Sprintf("the answers have %d bytes, and a task keeps %d", proto.Size(all), maxStatus), "hint", "give what was asked for, and no more")
	}
	for name, q := range ask.GetRequests() {
		if all.GetResponses()[name] == nil && !q.GetOptional() {
			left++
		}
	}
	if left > 0 {
		r.Given = encodeAnswers(all)
		return left, nil
	}
	r.State, r.Status, r.Given, r.Inputs = Working, nil, nil, encodeAnswers(all)
	return 0, nil
}

// holds says whether all has each of the answers of some.
func holds(all, some *toolwayv1.InputResponses) bool {
	for name, one := range some.GetResponses() {
		if !proto.Equal(all.GetResponses()[name], one) {
			return false
		}
	}
	return true
}
