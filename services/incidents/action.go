package incidents

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// How an action ends, as the contract names it.
const (
	actionSucceeded = "succeeded"
	actionFailed    = "failed"
	actionRefused   = "refused"
	actionExpired   = "expired"
	actionCancelled = "cancelled"
	actionUnknown   = "unknown"
)

// maxTries is how often an action is asked for that fails for reasons unknown and is, by the record, not begun.
const maxTries = 5

// act has something changed. It asks the mesh for it until it is through: held for approval it asks again and again, and after an answer that does not say
// whether it was done it looks up what was recorded. The same request with the same key is made each time, after a kill too, so it is done once. It returns nil
// if ctx ended before; its errors are those of the store.
func (s *Server) act(ctx context.Context, r *record, step *stepRow, tool tool, request proto.Message, again bool) (*outcome, error) {
	a := r.Action
	key := actionKey(r, tool.kind)
	pause := backoff{least: s.options.Poll}
	look, tries := again, 0
	for ctx.Err() == nil {
		if look {
			found, f := s.lookup(ctx, r, tool.kind)
			switch {
			case found != nil:
				return s.follow(ctx, r, step, tool.kind, found)
			case ctx.Err() != nil:
				return nil, nil //nolint:nilerr // whoever ended ctx says what becomes of the step
			case f.code == codes.NotFound:
				look = false
			case !f.passing() && f.code != codes.DeadlineExceeded && f.code != codes.Internal && f.code != codes.Unknown:
				return &outcome{Result: f.result(), action: actionUnknown}, nil
			default:
				if err := s.note(ctx, r.id, step.number, "what became of it cannot be looked up yet: "+f.message); err != nil {
					return nil, err
				}
				_ = sleep(ctx, pause.next(f.retry))
				continue
			}
		}
		reply, err := s.attempt(ctx, r, tool, key, request)
		if err == nil {
			return s.follow(ctx, r, step, tool.kind, reply)
		}
		f := failureOf(err)
		if ctx.Err() != nil {
			return nil, nil //nolint:nilerr // as above
		}
		switch {
		case f.domain == "toolway" && f.reason == "APPROVAL_REQUIRED":
			id := f.metadata["approval_id"]
			if a.GetApprovalId() != "" && a.GetApprovalId() != id {
				return &outcome{Result: Result{Code: f.code, Reason: f.reason, Message: fmt.Sprintf("nobody decided about approval %s in time", a.GetApprovalId())}, action: actionExpired}, nil
			}
			if a.GetApprovalId() == "" {
				a.ApprovalId = clip(id, 128)
				if err := s.held(ctx, r.id, step.number, a.ApprovalId, f.metadata["expires"]); err != nil {
					return nil, err
				}
			}
		case f.domain == "toolway" && f.reason == "APPROVAL_REFUSED":
			return &outcome{Result: f.result(), action: actionRefused}, nil
		case f.domain == "toolway" && f.code == codes.Aborted, f.code == codes.ResourceExhausted && f.retry > 0:
			// Another call with the key is under way, or the mesh asks for patience.
			look = true
		case f.code == codes.Unavailable, f.code == codes.DeadlineExceeded, f.code == codes.Canceled:
			look = true
			if err := s.note(ctx, r.id, step.number, fmt.Sprintf("whether it was done is not known (%s); looking it up", codeName(f.code))); err != nil {
				return nil, err
			}
		case f.code == codes.Unknown, f.code == codes.Internal, f.code == codes.DataLoss:
			look = true
			if tries++; tries == maxTries {
				return &outcome{Result: f.result(), action: actionFailed}, nil
			}
		default:
			return &outcome{Result: f.result(), action: actionFailed}, nil
		}
		_ = sleep(ctx, pause.next(f.retry))
	}
	return nil, nil
}

// attempt asks for the action once.
func (s *Server) attempt(ctx context.Context, r *record, tool tool, key string, request proto.Message) (*workloadsv1.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.options.CallTimeout)
	defer cancel()
	reply, err := tool.call(ctx, s.mesh, r.Trace, key, request)
	if err != nil {
		return nil, err
	}
	return reply.(*workloadsv1.Action), nil
}

// actionKey is the idempotency key of an action: the same as the contract's template makes, for services that stand without a mesh.
func actionKey(r *record, kind workloadsv1.Action_Kind) string {
	verb := "restart"
	if kind == workloadsv1.Action_KIND_SCALE {
		verb = "scale"
	}
	return fmt.Sprintf("%s:%s:%s:%d", r.Incident, verb, r.Action.GetWorkload(), r.Action.GetGeneration())
}

// lookup asks what is recorded of the action.
func (s *Server) lookup(ctx context.Context, r *record, kind workloadsv1.Action_Kind) (*workloadsv1.Action, failure) {
	ctx, cancel := context.WithTimeout(ctx, s.options.CallTimeout)
	defer cancel()
	reply, err := toolbox["workloads_lookup_action"].call(ctx, s.mesh, r.Trace, "", &workloadsv1.LookupActionRequest{
		Name: r.Action.GetWorkload(), Incident: r.Incident, Kind: kind, Generation: r.Action.GetGeneration(),
	})
	if err != nil {
		return nil, failureOf(err)
	}
	return reply.(*workloadsv1.Action), failure{}
}

// follow waits until an action that is recorded has ended.
func (s *Server) follow(ctx context.Context, r *record, step *stepRow, kind workloadsv1.Action_Kind, action *workloadsv1.Action) (*outcome, error) {
	pause := backoff{least: s.options.Poll / 4}
	told := workloadsv1.Action_STATE_UNSPECIFIED
	for {
		switch action.GetState() {
		case workloadsv1.Action_STATE_SUCCEEDED, workloadsv1.Action_STATE_FAILED:
			b, cut, err := fit(action, s.options.MaxEvidenceBytes)
			if err != nil {
				return &outcome{Result: Result{Code: codes.Internal, Message: clip(err.Error(), maxText)}, action: actionUnknown}, nil
			}
			out := &outcome{Result: Result{Code: codes.OK, Reply: b, Cut: cut}, action: actionSucceeded}
			if action.GetState() == workloadsv1.Action_STATE_FAILED {
				out.action, out.Message = actionFailed, clip(action.GetFailure(), maxText)
			}
			return out, nil
		}
		if action.GetState() != told {
			told = action.GetState()
			if err := s.note(ctx, r.id, step.number, "the action is recorded, and "+strings.ToLower(strings.TrimPrefix(told.String(), "STATE_"))); err != nil {
				return nil, err
			}
		}
		if err := sleep(ctx, pause.next(0)); err != nil {
			return nil, nil //nolint:nilerr // as above
		}
		if now, f := s.lookup(ctx, r, kind); now != nil {
			action = now
		} else if f.code == codes.NotFound {
			return &outcome{Result: Result{Code: f.code, Message: "the action was recorded, and is not any more"}, action: actionUnknown}, nil
		}
	}
}

// settlePatience is how long the end of a diagnosis waits to learn what became of its action.
const settlePatience = 5 * time.Second

// settle says, at the end of a diagnosis whose action has no outcome, what that is: the one given if the action was not begun.
func (s *Server) settle(ctx context.Context, r *record, step *stepRow, otherwise, why string) (action, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	kind := toolbox[step.Tool].kind
	found, f := s.lookup(ctx, r, kind)
	if found == nil && f.code == codes.NotFound && sleep(ctx, s.options.Poll/2) == nil {
		// A call that was cancelled on its way may have been recorded since.
		found, f = s.lookup(ctx, r, kind)
	}
	switch {
	case found == nil && f.code == codes.NotFound:
		return otherwise, why
	case found == nil:
		return actionUnknown, "it cannot be looked up: " + f.message
	case found.GetState() == workloadsv1.Action_STATE_SUCCEEDED:
		return actionSucceeded, ""
	case found.GetState() == workloadsv1.Action_STATE_FAILED:
		return actionFailed, clip(found.GetFailure(), maxText)
	}
	return actionUnknown, "it was begun and had not ended; workloads_lookup_action tells what becomes of it"
}

// held records that an action waits for approval.
func (s *Server) held(ctx context.Context, id string, number int, approval, expires string) error {
	_, err := s.store.update(ctx, id, func(c *change) error {
		c.State = incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL
		c.Action.ApprovalId = approval
		message := "waits for approval " + approval
		if t, err := time.Parse(time.RFC3339, expires); err == nil {
			message += ", until " + t.UTC().Format(time.RFC3339)
		}
		s.progress(c, c.step(number), message)
		return nil
	})
	return err
}

// note records progress of a step.
func (s *Server) note(ctx context.Context, id string, number int, message string) error {
	_, err := s.store.update(ctx, id, func(c *change) error {
		s.progress(c, c.step(number), message)
		return nil
	})
	return err
}

// backoff is a pause that grows by half each time, to ten times the least.
type backoff struct{ least, last time.Duration }

// next returns the next pause, at least so long as is asked for.
func (b *backoff) next(asked time.Duration) time.Duration {
	b.last = min(max(b.least, b.last*3/2), 10*b.least)
	return max(b.last, asked)
}
