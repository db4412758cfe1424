package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// Bounds of what a planner says, and of what is quoted.
const (
	maxText     = 500 // bytes of a sentence
	maxJSON     = 2048
	maxFindings = 10
	maxEvidence = 20
	maxParallel = 8 // calls of one diagnosis at a time
)

var agentPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// errDeadline is the cause by which a diagnosis stops whose time is over.
var errDeadline = errors.New("the deadline of the diagnosis has passed")

// diagnose brings a diagnosis to its end, or leaves it where it is when ctx ends with errStopping.
func (s *Server) diagnose(ctx context.Context, id string) {
	for {
		err := s.drive(ctx, id)
		if err == nil || errors.Is(context.Cause(ctx), errStopping) {
			return
		}
		// The store cannot be written. What is not recorded is not done, so it goes on from the last record once it can.
		s.options.Logger.Error("diagnosis is stuck", "diagnosis", id, "error", err)
		if sleep(s.working, retryAfter) != nil {
			return
		}
	}
}

// drive goes on with a diagnosis from what is recorded of it. Its errors are those of the store.
func (s *Server) drive(ctx context.Context, id string) error {
	r, steps, err := s.store.load(context.WithoutCancel(ctx), id)
	if err != nil || r.ended() {
		return err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, r.Deadline.AsTime(), errDeadline)
	defer cancel()
	for !r.ended() {
		cause := context.Cause(ctx)
		if r.Cancelled && cause == nil {
			cause = errCancelled
		}
		open := slices.DeleteFunc(slices.Clone(steps), func(step *stepRow) bool { return step.Result != nil })
		switch {
		case errors.Is(cause, errStopping):
			return nil
		case cause != nil:
			err = s.abandon(ctx, r, steps, cause)
		case len(open) > 0:
			err = s.take(ctx, r, open)
		default:
			err = s.plan(ctx, r, steps)
		}
		if err == nil {
			r, steps, err = s.store.load(context.WithoutCancel(ctx), id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plan asks the planner what comes next, and records it.
func (s *Server) plan(ctx context.Context, r *record, steps []*stepRow) error {
	decision, err := s.ask(ctx, r, steps)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the diagnosis is to stop; whatever the planner says of that is no matter
	}
	var next []*stepRow
	var action *incidentsv1.ProposedAction
	if err == nil {
		next, action, err = s.check(r, steps, decision)
	}
	if err != nil {
		return s.end(ctx, r.id, incidentsv1.Diagnosis_STATE_FAILED, "the planner: "+clip(err.Error(), maxText))
	}
	if len(next) == 0 {
		return s.complete(ctx, r.id, decision)
	}
	_, err = s.store.update(ctx, r.id, func(c *change) error {
		c.Rounds++
		c.Findings = decision.Findings
		if action != nil {
			c.Action = action
		}
		var agents []string
		for _, step := range next {
			step.number, step.round = len(c.steps)+1, c.Rounds
			c.steps = append(c.steps, step)
			c.touch(step)
			if !slices.Contains(agents, step.Agent) {
				agents = append(agents, step.Agent)
				c.event(happened(eventAgentStarted, step.Agent, step.Agent+" begins"))
			}
		}
		return nil
	})
	return err
}

// ask asks the planner, whose panics are errors: another process would be asked the same.
func (s *Server) ask(ctx context.Context, r *record, steps []*stepRow) (_ Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Logger.ErrorContext(ctx, "planner panicked", "diagnosis", r.id, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	c := Case{
		Diagnosis: r.Name, Incident: r.Incident, Service: r.Service, Symptom: r.Symptom, Remediate: r.Remediate,
		Created: r.CreateTime.AsTime(), Deadline: r.Deadline.AsTime(), Now: time.Now().UTC(),
		Steps: make([]Step, len(steps)), Findings: r.Findings, Action: r.Action,
	}
	for i, step := range steps {
		c.Steps[i] = step.Step
	}
	d, err := s.options.Planner.Plan(ctx, c)
	d.Findings = bound(d.Findings)
	return d, err
}

// check makes steps of a decision, or says what in it is not allowed.
func (s *Server) check(r *record, old []*stepRow, d Decision) (next []*stepRow, action *incidentsv1.ProposedAction, err error) {
	if n := len(old) + len(d.Steps); n > s.options.MaxSteps {
		return nil, nil, fmt.Errorf("it wants %d steps, %d are allowed", n, s.options.MaxSteps)
	}
	for _, step := range d.Steps {
		tool, ok := toolbox[step.Tool]
		if !ok {
			return nil, nil, fmt.Errorf("there is no tool %q; use one of %s", clip(step.Tool, 64), strings.Join(Tools(), ", "))
		}
		if !agentPattern.MatchString(step.Agent) {
			return nil, nil, fmt.Errorf("agent %q is not %s", clip(step.Agent, 64), agentPattern)
		}
		request, err := tool.parse(step.Arguments)
		if err != nil {
			return nil, nil, fmt.Errorf("arguments of %s: %w", step.Tool, err)
		}
		if tool.changes() {
			switch {
			case !r.Remediate:
				return nil, nil, fmt.Errorf("%s changes something, and this diagnosis may not remediate", step.Tool)
			case r.Action != nil || action != nil:
				return nil, nil, fmt.Errorf("%s would be a second action; a diagnosis takes one", step.Tool)
			}
			action = s.bind(r, step.Tool, request)
		}
		if step.Arguments, err = compact(request); err != nil {
			return nil, nil, fmt.Errorf("arguments of %s: %w", step.Tool, err)
		}
		if len(step.Arguments) > s.options.MaxEvidenceBytes {
			return nil, nil, fmt.Errorf("arguments of %s are %d bytes, %d are allowed", step.Tool, len(step.Arguments), s.options.MaxEvidenceBytes)
		}
		step.Message, step.Note = clip(step.Message, maxText), clip(step.Note, maxText)
		next = append(next, &stepRow{Step: step})
	}
	return next, action, nil
}

// bind makes a request that changes something one of this diagnosis, whatever the planner wrote, and returns what is proposed.
func (s *Server) bind(r *record, tool string, request proto.Message) *incidentsv1.ProposedAction {
	on := fmt.Sprintf(" (%s, started by %s)", r.Name, cmp.Or(r.Principal, "nobody known"))
	switch q := request.(type) {
	case *workloadsv1.RestartWorkloadRequest:
		q.Incident, q.Reason = r.Incident, clip(q.GetReason(), maxText)+on
		return &incidentsv1.ProposedAction{Tool: tool, Workload: q.GetName(), Generation: q.GetGeneration()}
	case *workloadsv1.ScaleWorkloadRequest:
		q.Incident, q.Reason = r.Incident, clip(q.GetReason(), maxText)+on
		return &incidentsv1.ProposedAction{Tool: tool, Workload: q.GetName(), Generation: q.GetGeneration()}
	}
	panic(fmt.Sprintf("tool %q changes something by a %T, which bind does not know", tool, request))
}

// bound cuts findings to what a diagnosis may hold.
func bound(findings []*incidentsv1.Finding) []*incidentsv1.Finding {
	findings = slices.DeleteFunc(slices.Clone(findings), func(f *incidentsv1.Finding) bool { return f == nil })
	findings = findings[:min(len(findings), maxFindings)]
	for i, f := range findings {
		f = proto.CloneOf(f)
		f.Cause, f.Runbook = clip(f.GetCause(), maxText), clip(f.GetRunbook(), maxText)
		if f.Confidence = min(max(f.GetConfidence(), 0), 1); math.IsNaN(f.Confidence) {
			f.Confidence = 0
		}
		f.Evidence = f.Evidence[:min(len(f.Evidence), maxEvidence)]
		for _, e := range f.Evidence {
			e.Tool, e.Summary, e.RequestJson = clip(e.GetTool(), 64), clip(e.GetSummary(), maxText), clip(e.GetRequestJson(), maxJSON)
		}
		findings[i] = f
	}
	return findings
}

// take takes steps at the same time, and records what comes of each.
func (s *Server) take(ctx context.Context, r *record, open []*stepRow) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallel)
	for _, step := range open {
		group.Go(func() error { return s.step(ctx, r, step) })
	}
	return group.Wait()
}

// step takes one step. Whatever ends ctx leaves it without a result.
func (s *Server) step(ctx context.Context, r *record, step *stepRow) error {
	if err := sleep(ctx, step.Delay); err != nil {
		return nil //nolint:nilerr // whoever ended ctx says what becomes of the step
	}
	tool := toolbox[step.Tool]
	if tool.method == "" { // recorded by another version of this program
		return s.done(ctx, r.id, step.number, outcome{Result: Result{Code: codes.Unimplemented, Message: fmt.Sprintf("there is no tool %q any more", step.Tool)}})
	}
	request, err := tool.parse(step.Arguments)
	if err != nil {
		return s.done(ctx, r.id, step.number, outcome{Result: Result{Code: codes.Internal, Message: "recorded arguments: " + clip(err.Error(), maxText)}})
	}
	again := step.started
	if err := s.started(ctx, r.id, step.number); err != nil {
		return err
	}
	var out *outcome
	if tool.changes() {
		out, err = s.act(ctx, r, step, tool, request, again)
	} else {
		out = s.read(ctx, r, tool, request)
	}
	if err != nil || out == nil {
		return err
	}
	return s.done(ctx, r.id, step.number, *out)
}

// started records that a step's call may be made from now on.
func (s *Server) started(ctx context.Context, id string, number int) error {
	_, err := s.store.update(ctx, id, func(c *change) error {
		step := c.step(number)
		if step.started {
			s.progress(c, step, "asked again, since the service was stopped meanwhile")
			return nil
		}
		step.started = true
		c.touch(step)
		c.event(ofStep(eventToolStarted, step, cmp.Or(step.Message, step.Tool)))
		return nil
	})
	return err
}

// progress adds an event of type tool_progress, unless there were too many.
func (s *Server) progress(c *change, step *stepRow, message string) {
	if c.Progress++; c.Progress <= s.options.MaxProgress {
		c.event(ofStep(eventToolProgress, step, message))
	}
}

// outcome is what came of a step; of one that changes something also how the action ended.
type outcome struct {
	Result
	action string
	brief  string // the reply in a few words, for readers of events
}

// done records what came of a step.
func (s *Server) done(ctx context.Context, id string, number int, out outcome) error {
	_, err := s.store.update(ctx, id, func(c *change) error {
		c.result(c.step(number), out)
		return nil
	})
	return err
}

// result gives a step its result, with the events of it.
func (c *change) result(step *stepRow, out outcome) {
	out.Ended = time.Now().UTC()
	step.Result = &out.Result
	c.touch(step)
	if c.State == incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL && out.action != "" {
		c.State = incidentsv1.Diagnosis_STATE_RUNNING
	}
	if out.action != "" {
		c.Action.Outcome, c.Action.Detail = out.action, out.Message
	}
	if step.started {
		text := cmp.Or(out.action, out.brief, "answered")
		if out.Message != "" {
			text = out.Message
			if out.action != "" {
				text = out.action + ": " + out.Message
			}
		}
		e := ofStep(eventToolCompleted, step, text)
		e.Code = codeName(out.Code)
		c.event(e)
	}
	for _, other := range c.steps {
		if other.round == step.round && other.Agent == step.Agent && other.Result == nil {
			return
		}
	}
	c.event(happened(eventAgentCompleted, step.Agent, step.Agent+" is done"))
}

// read calls a tool that changes nothing, again if that may help. It returns nil if the diagnosis is not to go on.
func (s *Server) read(ctx context.Context, r *record, tool tool, request proto.Message) *outcome {
	bounded, cancel := context.WithTimeout(ctx, s.options.CallTimeout) // never beyond ctx's own deadline
	defer cancel()
	const attempts = 3
	for attempt := 1; ; attempt++ {
		reply, err := tool.call(bounded, s.mesh, r.Trace, "", request)
		if err == nil {
			b, cut, err := fit(reply, s.options.MaxEvidenceBytes)
			if err != nil {
				return &outcome{Result: Result{Code: codes.Internal, Message: clip(err.Error(), maxText)}}
			}
			return &outcome{Result: Result{Code: codes.OK, Reply: b, Cut: cut}, brief: brief(reply)}
		}
		if ctx.Err() != nil {
			return nil
		}
		f := failureOf(err)
		if !f.passing() || attempt == attempts || sleep(bounded, max(f.retry, time.Duration(attempt)*100*time.Millisecond)) != nil {
			if ctx.Err() != nil {
				return nil
			}
			return &outcome{Result: f.result()}
		}
	}
}

func (f failure) result() Result { return Result{Code: f.code, Reason: f.reason, Message: f.message} }

// complete ends a diagnosis well.
func (s *Server) complete(ctx context.Context, id string, d Decision) error {
	summary := d.Summary
	if summary == "" && len(d.Findings) > 0 {
		summary = d.Findings[0].GetCause()
	}
	_, err := s.store.update(ctx, id, func(c *change) error {
		c.Findings = d.Findings
		c.State, c.EndTime = incidentsv1.Diagnosis_STATE_COMPLETED, timestamppb.Now()
		c.event(happened(eventTaskCompleted, "", cmp.Or(clip(summary, maxText), "nothing was found")))
		return nil
	})
	return err
}

// end ends a diagnosis badly.
func (s *Server) end(ctx context.Context, id string, state incidentsv1.Diagnosis_State, message string) error {
	_, err := s.store.update(ctx, id, func(c *change) error {
		c.fail(state, message)
		return nil
	})
	return err
}

func (c *change) fail(state incidentsv1.Diagnosis_State, message string) {
	c.State, c.EndTime, c.Failure = state, timestamppb.Now(), message
	c.event(happened(eventTaskFailed, "", message))
}

// abandon ends a diagnosis that was cancelled, or whose time is over, with what its open steps have come to.
func (s *Server) abandon(ctx context.Context, r *record, steps []*stepRow, cause error) error {
	state, ended, action := incidentsv1.Diagnosis_STATE_FAILED, codes.DeadlineExceeded, actionExpired
	if errors.Is(cause, errCancelled) {
		state, ended, action = incidentsv1.Diagnosis_STATE_CANCELLED, codes.Canceled, actionCancelled
	}
	message := cause.Error()
	if r.State == incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL {
		message += fmt.Sprintf(" while it waited for approval %s", r.Action.GetApprovalId())
	}
	detail := message
	if r.Action != nil && r.Action.Outcome == "" {
		if acting := pending(steps); acting != nil && acting.started {
			action, detail = s.settle(ctx, r, acting, action, message)
			if action != actionExpired && action != actionCancelled {
				message += fmt.Sprintf("; its action is not undone: %s", action)
			}
		}
	}
	_, err := s.store.update(ctx, r.id, func(c *change) error {
		for _, step := range c.steps {
			if step.Result != nil {
				continue
			}
			out := outcome{Result: Result{Code: ended, Message: cause.Error()}}
			if toolbox[step.Tool].changes() {
				out.action, out.Message = action, detail
			}
			c.result(step, out)
		}
		c.fail(state, message)
		return nil
	})
	return err
}

// pending returns the step that changes something, if it has no result yet.
func pending(steps []*stepRow) *stepRow {
	for _, step := range steps {
		if step.Result == nil && toolbox[step.Tool].changes() {
			return step
		}
	}
	return nil
}

// happened is an event of an agent, or of the whole diagnosis.
func happened(kind, agent, message string) *incidentsv1.DiagnosisEvent {
	return &incidentsv1.DiagnosisEvent{EventType: kind, OccurredAt: timestamppb.Now(), Agent: agent, Message: clip(message, maxText)}
}

// ofStep is an event of a step.
func ofStep(kind string, step *stepRow, message string) *incidentsv1.DiagnosisEvent {
	e := happened(kind, step.Agent, message)
	e.Tool, e.CallId = step.Tool, fmt.Sprint(step.number)
	return e
}

// codeName is a code as the contract of gRPC writes it, such as "NOT_FOUND".
func codeName(c codes.Code) string { return code.Code(c).String() }

// sleep waits, or returns why ctx ended before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decode reads a reply that was recorded. Fields that this version does not know are left out.
var decode = protojson.UnmarshalOptions{DiscardUnknown: true}
