package incidents_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/incidents"
)

// answers plays a list of answers, the last one again and again.
func answers(list ...func(proto.Message) (proto.Message, error)) func(context.Context, proto.Message) (proto.Message, error) {
	next := make(chan int, 1)
	next <- 0
	return func(_ context.Context, r proto.Message) (proto.Message, error) {
		i := <-next
		next <- min(i+1, len(list)-1)
		return list[i](r)
	}
}

func fails(err error) func(proto.Message) (proto.Message, error) {
	return func(proto.Message) (proto.Message, error) { return nil, err }
}

func is(state workloadsv1.Action_State) func(proto.Message) (proto.Message, error) {
	return func(r proto.Message) (proto.Message, error) { return action(r, state), nil }
}

var (
	notBegun   = fails(status.Error(codes.NotFound, "no such action"))
	notKnown   = fails(refusal(codes.Unavailable, "the connection broke", "OUTCOME_UNKNOWN"))
	succeeded  = is(workloadsv1.Action_STATE_SUCCEEDED)
	refused    = fails(refusal(codes.PermissionDenied, "the call was refused by key:ann: not now", "APPROVAL_REFUSED", "decided_by", "key:ann"))
	inProgress = fails(refusal(codes.Aborted, "another call with the key is under way", "IDEMPOTENCY_IN_PROGRESS"))
)

// Every way in which an action can end, and what was asked on the way.
func TestAction(t *testing.T) {
	list := func(f ...func(proto.Message) (proto.Message, error)) []func(proto.Message) (proto.Message, error) {
		return f
	}
	tests := []struct {
		name     string
		restart  []func(proto.Message) (proto.Message, error)
		lookup   []func(proto.Message) (proto.Message, error)
		outcome  string
		detail   string
		approval string
		restarts int // calls; 0: any number
		lookups  int
	}{
		{name: "at once", restart: list(succeeded), outcome: "succeeded", restarts: 1},
		{name: "held, then approved", restart: list(fails(held("A1")), fails(held("A1")), fails(held("A1")), succeeded), outcome: "succeeded", approval: "A1", restarts: 4},
		{name: "refused", restart: list(fails(held("A1")), refused), outcome: "refused", detail: "not now", approval: "A1", restarts: 2},
		{name: "nobody decides in time", restart: list(fails(held("A1")), fails(held("A2"))), outcome: "expired", detail: "A1", approval: "A1", restarts: 2},
		{name: "outcome unknown, it was done", restart: list(notKnown), lookup: list(succeeded), outcome: "succeeded", restarts: 1, lookups: 1},
		{name: "outcome unknown, it was not begun", restart: list(notKnown, succeeded), lookup: list(notBegun), outcome: "succeeded", restarts: 2, lookups: 1},
		{name: "outcome unknown, and the lookup fails at first", restart: list(notKnown), lookup: list(notKnown, notKnown, succeeded), outcome: "succeeded", restarts: 1, lookups: 3},
		{name: "outcome unknown, and it goes on", restart: list(notKnown), lookup: list(is(workloadsv1.Action_STATE_PENDING), is(workloadsv1.Action_STATE_RUNNING), is(workloadsv1.Action_STATE_FAILED)), outcome: "failed", restarts: 1, lookups: 3},
		{name: "it takes a while", restart: list(is(workloadsv1.Action_STATE_RUNNING)), lookup: list(is(workloadsv1.Action_STATE_RUNNING), succeeded), outcome: "succeeded", restarts: 1, lookups: 2},
		{name: "another call is under way", restart: list(inProgress), lookup: list(is(workloadsv1.Action_STATE_RUNNING), succeeded), outcome: "succeeded", restarts: 1, lookups: 2},
		{name: "it may not be looked up", restart: list(notKnown), lookup: list(fails(status.Error(codes.PermissionDenied, "no"))), outcome: "unknown", restarts: 1, lookups: 1},
		{name: "another generation", restart: list(fails(status.Error(codes.FailedPrecondition, "the generation is 8"))), outcome: "failed", detail: "generation is 8", restarts: 1},
		{name: "a backend that is broken", restart: list(fails(status.Error(codes.Internal, "broken"))), lookup: list(notBegun), outcome: "failed", detail: "broken", restarts: 5, lookups: 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := startTools(t)
			f.on("RestartWorkload", answers(test.restart...))
			if test.lookup != nil {
				f.on("LookupAction", answers(test.lookup...))
			}
			s := start(t, t.TempDir(), f.conn, incidents.Options{})
			d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
			a := d.GetAction()
			if a.GetOutcome() != test.outcome || !strings.Contains(a.GetDetail(), test.detail) || a.GetApprovalId() != test.approval {
				t.Errorf("action: %v, want outcome %q, detail %q, approval %q", a, test.outcome, test.detail, test.approval)
			}
			restarts, lookups := f.got("RestartWorkload"), f.got("LookupAction")
			if len(restarts) != test.restarts || len(lookups) != test.lookups {
				t.Errorf("%d restarts and %d lookups, want %d and %d", len(restarts), len(lookups), test.restarts, test.lookups)
			}
			for _, c := range restarts {
				if c.key != "inc-42:restart:workloads/payment:7" || !proto.Equal(c.request, restarts[0].request) {
					t.Errorf("key %q, request %v: want the same each time", c.key, c.request)
				}
			}
			events := s.follow(t, d.GetName(), "")
			gapless(t, events, 0)
			waits := slices.ContainsFunc(events, func(e *incidentsv1.DiagnosisEvent) bool {
				return e.GetEventType() == "tool_progress" && strings.Contains(e.GetMessage(), "waits for approval "+test.approval)
			})
			if waits != (test.approval != "") {
				t.Errorf("events: %v", events)
			}
		})
	}
}

// While it waits for approval the diagnosis says so, and cancelling ends the waiting.
func TestCancelWhileHeld(t *testing.T) {
	f := startTools(t)
	f.on("RestartWorkload", answers(fails(held("A1"))))
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL)
	if d.GetAction().GetApprovalId() != "A1" || d.GetAction().GetOutcome() != "" {
		t.Errorf("action: %v", d.GetAction())
	}
	d, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	d = s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
	if d.GetAction().GetOutcome() != "cancelled" || !strings.Contains(d.GetFailure(), "A1") {
		t.Errorf("diagnosis: %v", d)
	}
}

// An action that was begun is not undone by cancelling, and the end says what is known of it.
func TestCancelAfterAction(t *testing.T) {
	for state, want := range map[workloadsv1.Action_State]string{
		workloadsv1.Action_STATE_RUNNING: "unknown", workloadsv1.Action_STATE_SUCCEEDED: "succeeded", workloadsv1.Action_STATE_FAILED: "failed",
	} {
		t.Run(want, func(t *testing.T) {
			f := startTools(t)
			f.on("RestartWorkload", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			f.on("LookupAction", answers(is(state)))
			s := start(t, t.TempDir(), f.conn, incidents.Options{})
			d := s.begin(t, request())
			f.await(t, "RestartWorkload", 1)
			if _, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()}); err != nil {
				t.Fatal(err)
			}
			d = s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
			if d.GetAction().GetOutcome() != want || !strings.Contains(d.GetFailure(), "not undone: "+want) {
				t.Errorf("diagnosis: %v, want outcome %q", d, want)
			}
			gapless(t, s.follow(t, d.GetName(), ""), 0)
		})
	}
}

// The waiting ends with the diagnosis' time.
func TestDeadlineWhileHeld(t *testing.T) {
	f := startTools(t)
	f.on("RestartWorkload", answers(fails(held("A1"))))
	s := start(t, t.TempDir(), f.conn, incidents.Options{Planner: script{{Steps: []incidents.Step{restart()}}}})
	req := request()
	req.MaxDuration = durationpb.New(5 * time.Second)
	d := s.await(t, s.begin(t, req).GetName(), incidentsv1.Diagnosis_STATE_FAILED)
	if d.GetAction().GetOutcome() != "expired" || !strings.Contains(d.GetFailure(), "deadline") {
		t.Errorf("diagnosis: %v", d)
	}
}

// However long something waits, the number of its events is bounded.
func TestProgressIsBounded(t *testing.T) {
	f := startTools(t)
	f.on("RestartWorkload", answers(notKnown))
	f.on("LookupAction", answers(notKnown))
	s := start(t, t.TempDir(), f.conn, incidents.Options{MaxProgress: 3, Poll: time.Millisecond})
	d := s.begin(t, request())
	f.await(t, "LookupAction", 20)
	if _, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()}); err != nil {
		t.Fatal(err)
	}
	d = s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
	if got := d.GetAction().GetOutcome(); got != "unknown" {
		t.Errorf("outcome %q, want unknown", got)
	}
	events := s.follow(t, d.GetName(), "")
	gapless(t, events, 0)
	n := 0
	for _, e := range events {
		if e.GetEventType() == "tool_progress" {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d events of progress, want 3: %s", n, fmt.Sprint(types(events)))
	}
}
