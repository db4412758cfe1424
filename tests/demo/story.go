package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"

	"github.com/toolway/toolway/tests/internal/run"
)

// The W3C trace of the whole story: the agent begins it, and every call that follows from that belongs to it.
const (
	traceID = "5ca1ab1e0ddba11ca5caded0facade01"
	trace   = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// incident is what the agent calls the incident.
const incident = "inc-2042"

// story is the story and those who act in it.
type story struct {
	*printer

	world    *world
	agent    *agent
	browser  *web
	approver *web
	intruder *web // the agent at the HTTP door, where it has no more rights than at its own

	diagnosis string
	payment   *workloadsv1.Workload // before the restart
	events    []*incidentsv1.DiagnosisEvent
	breaks    int
}

func newStory(ctx context.Context, w *world, p *printer) (*story, error) {
	a, err := w.agent(ctx, trace)
	if err != nil {
		return nil, err
	}
	s := &story{printer: p, world: w, agent: a, browser: w.web("browser"), approver: w.web("approver"), intruder: w.web("agent")}
	s.approver.trace, s.intruder.trace = trace, trace
	return s, nil
}

// tell tells the story. It ends with an error where anything is not as it should be.
func (s *story) tell(ctx context.Context) error {
	defer func() { _ = s.agent.session.Close() }() // the story is over
	s.line(`
A shop is running: checkout calls inventory and payment, payment calls inventory, and 40 orders a second come in.
Five services stand behind one mesh: logs and metrics watch the shop, workloads runs its processes, runbooks has what people wrote down, incidents diagnoses.
Everybody goes through the mesh, each with an API key of its own, by the door that suits:

   agent       an AI agent's host           MCP    http://%[1]s/mcp/incident
   browser     a page that shows what goes  HTTP   http://%[1]s (JSON, and events by SSE)
   approver    a person on call             HTTP   http://%[1]s
   incidents   the incident service itself  gRPC   %[2]s, to call the tools that it diagnoses with

Who did what at which door, and what came of it:`, s.world.addr["HTTP"], s.world.addr["GRPC"])
	for _, step := range []func(context.Context) error{s.works, s.breaksDown, s.diagnose, s.wait, s.approve, s.recover, s.again, s.trail} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// works shows that orders go through before anything happens.
func (s *story) works(ctx context.Context) error {
	s.step("The shop works")
	ratio, err := s.untilFailing(ctx, func(ratio float64) bool { return ratio < 0.05 })
	if err != nil {
		return err
	}
	s.payment = &workloadsv1.Workload{}
	if _, err := s.browser.do(ctx, http.MethodGet, "/v1/workloads/payment", nil, s.payment); err != nil {
		return err
	}
	s.did("browser", "HTTP", "GET /v1/metrics:query", fmt.Sprintf("%.0f %% of the orders fail", ratio*100))
	s.did("browser", "HTTP", "GET /v1/workloads/payment", fmt.Sprintf("%s, generation %d, %d crashes", s.payment.GetState(), s.payment.GetGeneration(), s.payment.GetCrashes()))
	return nil
}

// breaksDown switches the fault on, behind everybody's back.
func (s *story) breaksDown(ctx context.Context) error {
	s.step("Payment gets a fault", "It no longer closes the answers that it gets from inventory, so every fourth charge loses a connection for good. Nobody is told.")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.world.addr["PAYMENT"]+"/fault", strings.NewReader(`{"leak": 0.25}`))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("switch the fault on: %s", resp.Status)
	}
	ratio, err := s.untilFailing(ctx, func(ratio float64) bool { return ratio > 0.6 })
	if err != nil {
		return err
	}
	s.did("browser", "HTTP", "GET /v1/metrics:query", fmt.Sprintf("%.0f %% of the orders fail", ratio*100))
	return nil
}

// untilFailing asks for the share of orders that fail until it is as wanted.
func (s *story) untilFailing(ctx context.Context, wanted func(float64) bool) (ratio float64, err error) {
	ok := run.Poll(run.Patience, func() bool {
		var known bool
		ratio, known, err = s.browser.failing(ctx, "checkout")
		if err != nil || known && wanted(ratio) {
			return true
		}
		return sleep(ctx, 200*time.Millisecond) != nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && !ok {
		err = fmt.Errorf("after %s still %.0f %% of the orders fail", run.Patience, ratio*100)
	}
	return ratio, err
}

// diagnose has the agent ask for a diagnosis, twice.
func (s *story) diagnose(ctx context.Context) error {
	s.step("An agent asks for a diagnosis", "Its host retries, as hosts do when an answer is lost: the mesh knows the request by its key, and one diagnosis runs.")
	arguments := map[string]any{"incident": incident, "requestId": "1", "service": "checkout", "symptom": "orders fail", "remediate": true}
	for i := range 2 {
		var d incidentsv1.Diagnosis
		replayed, no, err := s.agent.call(ctx, "incidents_start_diagnosis", arguments, &d)
		if err != nil || no != nil {
			return errors.Join(err, unexpected("start a diagnosis", no))
		}
		result := d.GetName() + ", started by " + d.GetPrincipal() + ", trace " + d.GetTraceId()
		if replayed {
			result = d.GetName() + ": the answer of the first call, replayed"
		}
		if i == 1 && (!replayed || d.GetName() != s.diagnosis) {
			return fmt.Errorf("the second call started %s, the first %s", d.GetName(), s.diagnosis)
		}
		if d.GetPrincipal() != "key:agent" || d.GetTraceId() != traceID {
			return fmt.Errorf("the diagnosis does not know who started it, in which trace: %v", &d)
		}
		s.did("agent", "MCP", `tools/call incidents_start_diagnosis {"incident":"`+incident+`","service":"checkout","remediate":true,…}`, result)
		s.diagnosis = d.GetName()
	}
	return nil
}

// wait follows the events until the restart waits for approval, and has the service killed then; the reading goes on behind.
func (s *story) wait(ctx context.Context) error {
	s.step("A browser follows it by server-sent events, and somebody kills the incident service",
		"The service calls its tools through the mesh's gRPC door, at the same time where they do not depend on each other. What a restart needs is in the contract of",
		"workloads: the approval of another principal. Once it waits for that, the service gets kill -9 and is started again: it goes on, and the reader misses nothing.")
	s.did("browser", "HTTP", "GET /v1/"+s.diagnosis+"/events  (Accept: text/event-stream)", "")
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *incidentsv1.DiagnosisEvent, 1000)
	over := make(chan error, 1)
	go func() {
		over <- s.browser.events(reading, s.diagnosis, func(e *incidentsv1.DiagnosisEvent) { events <- e }, func(why string) {
			s.breaks++
			s.line("   %16s → %s", "", why)
		})
		close(events)
	}()
	killed := false
	for e := range events {
		s.event(e)
		if e.GetEventType() != "tool_progress" || !strings.Contains(e.GetMessage(), "waits for approval") || killed {
			continue
		}
		killed = true
		old := s.world.incidents()
		s.did("somebody", "", fmt.Sprintf("kill -9 %d", old.PID()), "the incident service is dead, and is started again")
		old.Kill()
		s.world.forget(old)
		if _, err := s.world.startIncidents(); err != nil {
			return err
		}
		if err := s.decide(ctx); err != nil {
			return err
		}
	}
	if err := <-over; err != nil {
		return err
	}
	if !killed || s.breaks == 0 {
		return fmt.Errorf("the service was killed: %t, the stream broke %d times", killed, s.breaks)
	}
	for i, e := range s.events {
		if number(e) != strconv.Itoa(i+1) {
			return fmt.Errorf("event %d has the id %s", i+1, e.GetEventId())
		}
	}
	s.line("   %16s → %d events, numbered 1 to %d: none is missing, none came twice", "", len(s.events), len(s.events))
	return nil
}

// event tells an event, and keeps it.
func (s *story) event(e *incidentsv1.DiagnosisEvent) {
	s.events = append(s.events, e)
	subject := e.GetAgent()
	if e.GetTool() != "" {
		subject = e.GetTool()
	}
	text := e.GetMessage()
	if e.GetCode() != "" && e.GetCode() != "OK" {
		text = e.GetCode() + " " + text
	}
	if len(text) > 150 {
		text = text[:strings.LastIndex(text[:150], " ")] + " …"
	}
	s.line("   %16s %3s  %-15s  %-17s %s", "", number(e), e.GetEventType(), subject, text)
}

// number is the event's position, which its id begins with.
func number(e *incidentsv1.DiagnosisEvent) string {
	position, _, _ := strings.Cut(e.GetEventId(), "-")
	return position
}

// decide has the approval refused to the agent, and given by the approver.
func (s *story) decide(ctx context.Context) error {
	s.step("The restart is held until a second principal agrees")
	var d incidentsv1.Diagnosis
	if err := s.untilServed(ctx, &d); err != nil {
		return err
	}
	id := d.GetAction().GetApprovalId()
	if d.GetState() != incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL || id == "" {
		return fmt.Errorf("the diagnosis does not wait for approval: %v", &d)
	}
	if code, err := s.intruder.do(ctx, http.MethodPost, "/v1/approvals/"+id+":approve", map[string]string{"comment": "I am sure"}, &toolwayv1.HeldCall{}); code != http.StatusNotFound {
		return fmt.Errorf("the agent approves: %d, %w", code, err)
	}
	s.did("agent", "HTTP", "POST /v1/approvals/"+id+":approve", "404 NOT_FOUND: whoever can neither decide about it nor asked for it does not know of it")
	return s.approveHeld(ctx, id, "the evidence is sound")
}

// untilServed waits until the incident service answers again.
func (s *story) untilServed(ctx context.Context, d *incidentsv1.Diagnosis) error {
	var last error
	ok := run.Poll(run.Patience, func() bool {
		_, last = s.browser.do(ctx, http.MethodGet, "/v1/"+s.diagnosis, nil, d)
		return last == nil || sleep(ctx, 100*time.Millisecond) != nil
	})
	if !ok || ctx.Err() != nil {
		return errors.Join(last, ctx.Err())
	}
	return nil
}

// approveHeld has the approver look at a held call and agree to it.
func (s *story) approveHeld(ctx context.Context, id, comment string) error {
	var held toolwayv1.HeldCall
	if _, err := s.approver.do(ctx, http.MethodGet, "/v1/approvals/"+id, nil, &held); err != nil {
		return err
	}
	s.did("approver", "HTTP", "GET /v1/approvals/"+id, fmt.Sprintf("%s wants to call %s\n%s", held.GetPrincipal(), held.GetTool(), held.GetArguments()))
	if _, err := s.approver.do(ctx, http.MethodPost, "/v1/approvals/"+id+":approve", map[string]string{"comment": comment}, &held); err != nil {
		return err
	}
	s.did("approver", "HTTP", "POST /v1/approvals/"+id+":approve  (or: toolway approvals approve "+id+")", held.GetState().String()+" by "+held.GetDecidedBy()+": "+held.GetComment())
	return nil
}

// approve has the agent read what came of it.
func (s *story) approve(ctx context.Context) error {
	s.step("The agent reads the findings")
	var d incidentsv1.Diagnosis
	if _, no, err := s.agent.call(ctx, "incidents_get_diagnosis", map[string]any{"name": s.diagnosis}, &d); err != nil || no != nil {
		return errors.Join(err, unexpected("read the diagnosis", no))
	}
	if d.GetState() != incidentsv1.Diagnosis_STATE_COMPLETED || len(d.GetFindings()) == 0 || d.GetAction().GetOutcome() != "succeeded" || d.GetAction().GetWorkload() != "workloads/payment" {
		return fmt.Errorf("the diagnosis did not come to a restart of payment: %v", &d)
	}
	first := d.GetFindings()[0]
	text := fmt.Sprintf("%s  (confidence %.2f, %s)", first.GetCause(), first.GetConfidence(), first.GetRunbook())
	for _, e := range first.GetEvidence() {
		text += fmt.Sprintf("\n  %-16s %s", e.GetTool(), e.GetSummary())
	}
	s.did("agent", "MCP", "tools/call incidents_get_diagnosis", text+fmt.Sprintf("\nrestart of payment: %s, approval %s", d.GetAction().GetOutcome(), d.GetAction().GetApprovalId()))
	return nil
}

// recover shows that the shop works again.
func (s *story) recover(ctx context.Context) error {
	s.step("The shop has recovered")
	ratio, err := s.untilFailing(ctx, func(ratio float64) bool { return ratio < 0.05 })
	if err != nil {
		return err
	}
	s.did("browser", "HTTP", "GET /v1/metrics:query", fmt.Sprintf("%.0f %% of the orders fail", ratio*100))
	return nil
}

// again has the agent ask for the same restart itself, and shows that nothing is restarted.
func (s *story) again(ctx context.Context) error {
	s.step("The agent asks for the same restart once more",
		"Approvals are for one caller and one request, so this one is held anew. And even once it is approved nothing is restarted: workloads knows the action by incident, kind,",
		"workload and generation, and answers with what it has recorded.")
	before := &workloadsv1.Workload{}
	if _, err := s.browser.do(ctx, http.MethodGet, "/v1/workloads/payment", nil, before); err != nil {
		return err
	}
	arguments := map[string]any{"name": "workloads/payment", "incident": incident, "generation": fmt.Sprint(s.payment.GetGeneration()), "reason": "to be on the safe side"}
	var action workloadsv1.Action
	_, no, err := s.agent.call(ctx, "workloads_restart", arguments, &action)
	if err != nil {
		return err
	}
	if no == nil || no.Reason != "APPROVAL_REQUIRED" {
		return fmt.Errorf("the agent's own restart was not held: %v, %v", &action, no)
	}
	s.did("agent", "MCP", "tools/call workloads_restart", no.Code+" "+no.Reason+" "+no.Metadata["approval_id"])
	if err := s.approveHeld(ctx, no.Metadata["approval_id"], "it will not hurt"); err != nil {
		return err
	}
	if _, no, err = s.agent.call(ctx, "workloads_restart", arguments, &action); err != nil || no != nil {
		return errors.Join(err, unexpected("the approved restart", no))
	}
	if !action.GetReplayed() || action.GetPrincipal() != "key:incidents" {
		return fmt.Errorf("the restart was not answered from the record: %v", &action)
	}
	s.did("agent", "MCP", "tools/call workloads_restart", fmt.Sprintf("%s, replayed: the restart that %s asked for at %s", action.GetState(), action.GetPrincipal(), action.GetCreateTime().AsTime().Format(time.TimeOnly)))
	after := &workloadsv1.Workload{}
	if _, err := s.browser.do(ctx, http.MethodGet, "/v1/workloads/payment", nil, after); err != nil {
		return err
	}
	if after.GetGeneration() != s.payment.GetGeneration()+1 || !after.GetStartTime().AsTime().Equal(before.GetStartTime().AsTime()) || !after.GetStartTime().AsTime().After(s.payment.GetStartTime().AsTime()) {
		return fmt.Errorf("payment was not restarted exactly once: %v, then %v, then %v", s.payment, before, after)
	}
	s.did("browser", "HTTP", "GET /v1/workloads/payment", fmt.Sprintf("generation %d, running since %s: it was restarted once", after.GetGeneration(), after.GetStartTime().AsTime().Format(time.TimeOnly)))
	return nil
}

// trail reads the audit of the whole story by its trace.
func (s *story) trail(ctx context.Context) error {
	s.step("The trail is read back from the audit", "toolway audit list --trace "+traceID,
		"Every call that followed from the agent's first one has its trace id, whoever made it and whichever door it came through. The oldest is first; calls that were the same are told once.")
	var records []*toolwayv1.AuditRecord
	var lacking string
	ok := run.Poll(run.Patience, func() bool {
		code, out, stderr, err := run.Output(nil, s.world.binaries["toolway"], "audit", "list", "--mesh", "http://"+s.world.addr["HTTP"], "--token-file", s.world.path("approver.key"), "--trace", traceID, "--json", "--limit", "500")
		if err != nil || code != 0 {
			s.line("   %s", stderr)
			return false
		}
		records = records[:0]
		for line := range bytes.Lines(out) {
			r := &toolwayv1.AuditRecord{}
			if protojson.Unmarshal(line, r) == nil {
				records = append(records, r)
			}
		}
		lacking = lacks(records)
		return lacking == "" || sleep(ctx, 200*time.Millisecond) != nil
	})
	slices.Reverse(records)
	if !ok || ctx.Err() != nil {
		return fmt.Errorf("the trail of %d records is not as it should be: %s", len(records), lacking)
	}
	s.line("\n   %-14s %-5s %-28s %5s  %s", "WHO", "DOOR", "WHAT", "CALLS", "RESULT")
	type row struct {
		who, door, what, result string
		calls                   int
	}
	var rows []*row
	for _, r := range records {
		what := r.GetTool()
		if what == "" {
			what = r.GetMethod()[strings.LastIndex(r.GetMethod(), ".")+1:]
		}
		result := r.GetCode()
		if r.GetReason() != "" {
			result += " " + r.GetReason()
		}
		if r.GetApprovalId() != "" && r.GetCode() == "OK" {
			result += ", approval " + r.GetApprovalId()
		}
		one := row{who: r.GetPrincipal(), door: r.GetDoor(), what: what, result: result}
		if n := len(rows); n > 0 && rows[n-1].who == one.who && rows[n-1].door == one.door && rows[n-1].what == one.what && rows[n-1].result == one.result {
			rows[n-1].calls++
			continue
		}
		one.calls = 1
		rows = append(rows, &one)
	}
	for _, r := range rows {
		s.line("   %-14s %-5s %-28s %5d  %s", r.who, r.door, r.what, r.calls, r.result)
	}
	return nil
}

// lacks says what the trail does not have, or has too often: "" if it is as it should be. Of restarts that a backend got there are two: one of the incident
// service, one of the agent.
func lacks(records []*toolwayv1.AuditRecord) string {
	got := map[string]int{}
	for _, r := range records {
		if r.GetTraceId() != traceID {
			return "a record of another trace: " + r.GetCallId()
		}
		got[strings.Join([]string{r.GetPrincipal(), r.GetDoor(), r.GetMethod()[strings.LastIndex(r.GetMethod(), "/")+1:], r.GetCode(), r.GetReason()}, " ")]++
	}
	for want, times := range map[string]int{
		"key:agent mcp StartDiagnosis OK ":                                         2,
		"key:incidents grpc SearchLogs OK ":                                        2,
		"key:incidents grpc QueryInstant OK ":                                      9,
		"key:incidents grpc SearchRunbooks OK ":                                    3,
		"key:incidents grpc GetWorkload OK ":                                       2,
		"key:incidents grpc RestartWorkload FAILED_PRECONDITION APPROVAL_REQUIRED": 1,
		"key:incidents grpc RestartWorkload OK ":                                   1,
		"key:agent http Approve NOT_FOUND APPROVAL_NOT_FOUND":                      1,
		"key:approver http Approve OK ":                                            2,
		"key:agent mcp RestartWorkload FAILED_PRECONDITION APPROVAL_REQUIRED":      1,
		"key:agent mcp RestartWorkload OK ":                                        1,
	} {
		if got[want] < times || strings.HasSuffix(want, "RestartWorkload OK ") && got[want] != times {
			return fmt.Sprintf("%q is there %d times, not %d; all are %v", want, got[want], times, got)
		}
	}
	return ""
}

// unexpected is an error for a refusal where there should be none; nil for none.
func unexpected(what string, no *refused) error {
	if no == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %s: %s", what, no.Code, no.Reason, no.Message)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
