package incidents_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/incidents"
)

// A diagnosis from the symptom at checkout to the cause at payment, the restart and the proof that it helped.
func TestDiagnosis(t *testing.T) {
	f := startTools(t)
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	ctx := metadata.AppendToOutgoingContext(within(t), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	d, err := s.StartDiagnosis(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	if d.GetState() != incidentsv1.Diagnosis_STATE_RUNNING || d.GetTraceId() != "0af7651916cd43dd8448eb211c80319c" || d.GetDeadline().AsTime().Sub(d.GetCreateTime().AsTime()) != 15*time.Minute {
		t.Errorf("started: %v", d)
	}
	events := s.follow(t, d.GetName(), "")
	gapless(t, events, 0)
	got := types(events)
	for _, want := range []string{"task_created", "agent_started triage", "tool_completed triage workloads_get OK", "agent_started logs", "agent_started metrics", "agent_started runbooks",
		"tool_completed logs logs_search OK", "tool_completed metrics metrics_query OK", "tool_completed runbooks runbooks_search OK", "tool_completed remedy workloads_restart OK", "task_completed"} {
		if !slices.Contains(got, want) {
			t.Errorf("events = %q, want %q among them", got, want)
		}
	}
	d = s.get(t, d.GetName())
	if d.GetState() != incidentsv1.Diagnosis_STATE_COMPLETED || d.GetEndTime() == nil || d.GetFailure() != "" {
		t.Fatalf("ended: %v", d)
	}
	first := d.GetFindings()[0]
	if !strings.HasPrefix(first.GetCause(), "payment runs out of connections") || first.GetConfidence() < 0.9 || first.GetRunbook() != "runbooks/payment-connections" {
		t.Errorf("first finding: %v", first)
	}
	for _, want := range []string{"2 of the last 3 errors of checkout are of calls to payment", "no free connection in the pool", "80 % of the requests to payment fail", "100 % of the connections", "fell to 0 %"} {
		if !slices.ContainsFunc(first.GetEvidence(), func(e *incidentsv1.Evidence) bool {
			return strings.Contains(e.GetSummary(), want) && e.GetTool() != "" && strings.HasPrefix(e.GetRequestJson(), "{")
		}) {
			t.Errorf("evidence = %v, want %q among it", first.GetEvidence(), want)
		}
	}
	if a := d.GetAction(); a.GetTool() != "workloads_restart" || a.GetWorkload() != "workloads/payment" || a.GetGeneration() != 7 || a.GetOutcome() != "succeeded" {
		t.Errorf("action: %v", a)
	}

	// All calls belong to one trace, each to a span of its own, within the diagnosis' deadline; the one that changes something has a key.
	spans := map[string]bool{}
	for _, c := range f.got("") {
		parts := strings.Split(c.traceparent, "-")
		if len(parts) != 4 || parts[1] != d.GetTraceId() || parts[3] != "01" || spans[parts[2]] {
			t.Errorf("%s: traceparent %q, want a new span of %s", c.method, c.traceparent, d.GetTraceId())
		}
		spans[parts[2]] = true
		if c.deadline.IsZero() || c.deadline.After(d.GetDeadline().AsTime().Add(time.Second)) {
			t.Errorf("%s: deadline %v, the diagnosis' is %v", c.method, c.deadline, d.GetDeadline().AsTime())
		}
	}
	restarts := f.got("RestartWorkload")
	if len(restarts) != 1 || restarts[0].key != "inc-42:restart:workloads/payment:7" {
		t.Fatalf("restarts: %v", restarts)
	}
	if r := restarts[0].request.(*workloadsv1.RestartWorkloadRequest); r.GetIncident() != "inc-42" || !strings.Contains(r.GetReason(), d.GetName()) {
		t.Errorf("restart: %v", r)
	}
}

// Without remediate nothing is proposed, however clear the evidence.
func TestOnlyFindings(t *testing.T) {
	f := startTools(t)
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	req := request()
	req.Remediate = false
	d := s.await(t, s.begin(t, req).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	if d.GetAction() != nil || f.restarted() || d.GetFindings()[0].GetConfidence() < 0.9 {
		t.Errorf("diagnosis: %v", d)
	}
}

// What does not depend on each other is asked at the same time: none of the six questions is answered before all were asked.
func TestParallel(t *testing.T) {
	f := startTools(t)
	var mu sync.Mutex
	inside, all := 0, make(chan struct{})
	meet := func(ctx context.Context) error {
		mu.Lock()
		if inside++; inside == 6 {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, method := range []string{"SearchLogs", "QueryInstant", "SearchRunbooks"} {
		answer := f.answers[method]
		f.on(method, func(ctx context.Context, r proto.Message) (proto.Message, error) {
			if err := meet(ctx); err != nil {
				return nil, err
			}
			return answer(ctx, r)
		})
	}
	s := start(t, t.TempDir(), f.conn, incidents.Options{Planner: incidents.Rules{MaxHops: 1}})
	req := request()
	req.Remediate = false
	s.await(t, s.begin(t, req).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
}

// A tool that fails is evidence that lacks, not the end. One that may be better soon is asked again.
func TestToolsFail(t *testing.T) {
	f := startTools(t)
	f.on("SearchLogs", func(context.Context, proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.PermissionDenied, "no")
	})
	f.on("SearchRunbooks", func(context.Context, proto.Message) (proto.Message, error) {
		if len(f.got("SearchRunbooks")) < 3 {
			return nil, status.Error(codes.Unavailable, "soon")
		}
		return nil, status.Error(codes.Internal, "broken")
	})
	f.on("QueryInstant", func(context.Context, proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.InvalidArgument, "what?")
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	if n := len(f.got("SearchRunbooks")); n != 3 {
		t.Errorf("runbooks were searched %d times, want 3", n)
	}
	first := d.GetFindings()[0]
	if first.GetConfidence() > 0.2 || f.restarted() || !strings.Contains(fmt.Sprint(first.GetEvidence()), "could not be asked: PERMISSION_DENIED no") {
		t.Errorf("finding: %v", first)
	}
	if got := types(s.follow(t, d.GetName(), "")); !slices.Contains(got, "tool_completed logs logs_search PERMISSION_DENIED") {
		t.Errorf("events: %q", got)
	}
}

func TestStartAgain(t *testing.T) {
	f := startTools(t)
	dir := t.TempDir()
	s := start(t, dir, f.conn, incidents.Options{})
	first := s.begin(t, request())
	if again := s.begin(t, request()); again.GetName() != first.GetName() {
		t.Errorf("the same request: %s, want %s", again.GetName(), first.GetName())
	}
	other := request()
	other.RequestId = "2"
	if d := s.begin(t, other); d.GetName() == first.GetName() {
		t.Error("another request_id has the same diagnosis")
	}
	other = request()
	other.Service = "payment"
	_, err := s.StartDiagnosis(within(t), other)
	wantCode(t, err, codes.AlreadyExists)
	if got := wantInfo(t, err, "DIAGNOSIS_CONFLICT")["name"]; got != first.GetName() {
		t.Errorf("conflict with %q, want %q", got, first.GetName())
	}
	s.await(t, first.GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{})
	if again := s.begin(t, request()); again.GetName() != first.GetName() || again.GetState() != incidentsv1.Diagnosis_STATE_COMPLETED {
		t.Errorf("after a restart: %v", again)
	}
}

func TestStartRefuses(t *testing.T) {
	s := start(t, t.TempDir(), startTools(t).conn, incidents.Options{})
	tests := []struct {
		field  string
		change func(*incidentsv1.StartDiagnosisRequest)
	}{
		{"incident", func(r *incidentsv1.StartDiagnosisRequest) { r.Incident = "" }},
		{"incident", func(r *incidentsv1.StartDiagnosisRequest) { r.Incident = "a b" }},
		{"incident", func(r *incidentsv1.StartDiagnosisRequest) { r.Incident = strings.Repeat("x", 65) }},
		{"service", func(r *incidentsv1.StartDiagnosisRequest) { r.Service = `x"} or up{a="` }},
		{"service", func(r *incidentsv1.StartDiagnosisRequest) { r.Service = "" }},
		{"request_id", func(r *incidentsv1.StartDiagnosisRequest) { r.RequestId = strings.Repeat("x", 129) }},
		{"symptom", func(r *incidentsv1.StartDiagnosisRequest) { r.Symptom = strings.Repeat("x", 1025) }},
		{"max_duration", func(r *incidentsv1.StartDiagnosisRequest) { r.MaxDuration = durationpb.New(0) }},
		{"max_duration", func(r *incidentsv1.StartDiagnosisRequest) { r.MaxDuration = durationpb.New(25 * time.Hour) }},
		{"max_duration", func(r *incidentsv1.StartDiagnosisRequest) {
			r.MaxDuration = &durationpb.Duration{Seconds: 1, Nanos: -1}
		}},
	}
	for i, test := range tests {
		t.Run(fmt.Sprint(test.field, i), func(t *testing.T) {
			req := request()
			test.change(req)
			_, err := s.StartDiagnosis(within(t), req)
			wantCode(t, err, codes.InvalidArgument)
			if bad, ok := detail[*errdetails.BadRequest](err); !ok || bad.GetFieldViolations()[0].GetField() != test.field {
				t.Errorf("details of %v = %v, want field %q", err, bad, test.field)
			}
		})
	}
}

func TestTooMany(t *testing.T) {
	f := startTools(t)
	f.on("GetWorkload", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{MaxRunning: 2})
	var names []string
	for i := range 2 {
		req := request()
		req.RequestId = fmt.Sprint(i)
		names = append(names, s.begin(t, req).GetName())
	}
	_, err := s.StartDiagnosis(within(t), request())
	wantCode(t, err, codes.ResourceExhausted)
	wantInfo(t, err, "TOO_MANY_DIAGNOSES")
	if _, ok := detail[*errdetails.RetryInfo](err); !ok {
		t.Errorf("%v does not say when to try again", err)
	}
	if _, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: names[0]}); err != nil {
		t.Fatal(err)
	}
	s.await(t, names[0], incidentsv1.Diagnosis_STATE_CANCELLED)
	s.begin(t, request())
}

func TestList(t *testing.T) {
	f := startTools(t)
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	var want []string
	for i := range 5 {
		req := request()
		req.RequestId, req.Incident = fmt.Sprint(i), fmt.Sprint("inc-", i%2)
		want = append([]string{s.begin(t, req).GetName()}, want...)
	}
	list := func(incident string, size int32) (names []string) {
		req := &incidentsv1.ListDiagnosesRequest{Incident: incident, PageSize: size}
		for {
			resp, err := s.ListDiagnoses(within(t), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range resp.GetDiagnoses() {
				names = append(names, d.GetName())
			}
			if resp.GetNextPageToken() == "" {
				return names
			}
			req.PageToken = resp.GetNextPageToken()
		}
	}
	for _, size := range []int32{0, 1, 2, 5} {
		if got := list("", size); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", size, got, want)
		}
	}
	if got, want := list("inc-0", 2), []string{want[0], want[2], want[4]}; !slices.Equal(got, want) {
		t.Errorf("of one incident: %q, want %q", got, want)
	}
	first, err := s.ListDiagnoses(within(t), &incidentsv1.ListDiagnosesRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*incidentsv1.ListDiagnosesRequest{
		{PageSize: -1}, {PageSize: 1001}, {PageToken: "nonsense"}, {PageToken: "bm9uZQ"}, {PageToken: first.GetNextPageToken(), Incident: "inc-1"}, {PageToken: first.GetNextPageToken() + "\n"},
	} {
		_, err := s.ListDiagnoses(within(t), req)
		wantCode(t, err, codes.InvalidArgument)
	}
}

func TestUnknown(t *testing.T) {
	s := start(t, t.TempDir(), startTools(t).conn, incidents.Options{})
	for name, want := range map[string]codes.Code{"diagnoses/" + strings.Repeat("0", 32): codes.NotFound, "diagnoses/x": codes.InvalidArgument, "": codes.InvalidArgument} {
		_, err := s.GetDiagnosis(within(t), &incidentsv1.GetDiagnosisRequest{Name: name})
		wantCode(t, err, want)
		_, err = s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: name})
		wantCode(t, err, want)
		stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: name})
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, want)
	}
}

// Calls in flight are cancelled where they are.
func TestCancel(t *testing.T) {
	f := startTools(t)
	gone := make(chan error, 10)
	f.on("SearchLogs", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		gone <- ctx.Err()
		return nil, ctx.Err()
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	d := s.begin(t, request())
	f.await(t, "SearchLogs", 1)
	d, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the call ended with %v, want cancelled", err)
		}
	case <-time.After(patience):
		t.Fatal("the call goes on")
	}
	d = s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
	events := s.follow(t, d.GetName(), "")
	gapless(t, events, 0)
	if got := types(events); !slices.Contains(got, "tool_completed logs logs_search CANCELLED") || got[len(got)-1] != "task_failed" {
		t.Errorf("events: %q", got)
	}
	if again, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()}); err != nil || !proto.Equal(again, d) {
		t.Errorf("once more: %v, %v, want it as it is", again, err)
	}
	if f.restarted() {
		t.Error("it was restarted")
	}
}

func TestDeadline(t *testing.T) {
	f := startTools(t)
	f.on("SearchLogs", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	req := request()
	req.MaxDuration = durationpb.New(time.Second)
	d := s.await(t, s.begin(t, req).GetName(), incidentsv1.Diagnosis_STATE_FAILED)
	if !strings.Contains(d.GetFailure(), "deadline") {
		t.Errorf("error: %q", d.GetFailure())
	}
	gapless(t, s.follow(t, d.GetName(), ""), 0)
}

// One process at a time has the data.
func TestOpenTwice(t *testing.T) {
	f := startTools(t)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	start(t, dir, f.conn, incidents.Options{})
	if _, err := incidents.Open(dir, f.conn, incidents.Options{}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Open = %v, want that another process has it", err)
	}
}

// Long replies are cut, and are still what they are.
func TestLongReplies(t *testing.T) {
	f := startTools(t)
	f.on("SearchLogs", func(context.Context, proto.Message) (proto.Message, error) {
		resp := &logsv1.SearchLogsResponse{}
		for range 50 {
			resp.Entries = append(resp.Entries, &logsv1.LogEntry{Message: "connection pool exhausted " + strings.Repeat("é", 10_000), Fields: map[string]string{"long": strings.Repeat("x", 5000)}})
		}
		return resp, nil
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{MaxEvidenceBytes: 4096})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	if n := proto.Size(d); n > 16<<10 {
		t.Errorf("the diagnosis has %d bytes", n)
	}
	if !strings.Contains(fmt.Sprint(d.GetFindings()[0].GetEvidence()), "connection pool exhausted") {
		t.Errorf("finding: %v", d.GetFindings()[0])
	}
}
