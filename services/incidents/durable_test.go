package incidents_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/incidents"
)

// Whoever watches from any event on gets every event after it, once and in order, while the diagnosis goes on and after it; and so does who comes back again and again.
func TestWatch(t *testing.T) {
	f := startTools(t)
	goOn := make(chan struct{})
	answer := f.answers["SearchLogs"]
	f.on("SearchLogs", func(ctx context.Context, r proto.Message) (proto.Message, error) {
		select {
		case <-goOn:
			return answer(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	d := s.begin(t, request())
	var readers sync.WaitGroup
	for i := range 20 {
		readers.Go(func() {
			at, left := 0, i%5
			for {
				stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: d.GetName(), Cursor: cursorOf(d.GetName(), at)})
				if err != nil {
					t.Error(err)
					return
				}
				if left == 0 {
					events, err := drain(stream)
					if err != nil {
						t.Error(err)
					}
					gapless(t, events, at)
					return
				}
				left--
				for range 1 + rand.IntN(6) {
					e, err := stream.Recv()
					if err != nil {
						break // it has ended
					}
					if at++; e.GetEventId() != cursorOf(d.GetName(), at) {
						t.Errorf("event %s, want %d", e.GetEventId(), at)
					}
				}
			}
		})
	}
	f.await(t, "SearchLogs", 1)
	close(goOn)
	readers.Wait()
	all := s.follow(t, d.GetName(), "")
	gapless(t, all, 0)
	if got := s.follow(t, d.GetName(), all[len(all)-1].GetEventId()); len(got) != 0 {
		t.Errorf("after the last one: %v", got)
	}
	first := all[0].GetEventId()
	for _, cursor := range []string{
		"x", "1", "-1", "01" + first[1:], "1.0" + first[1:], first + "\n", first + "-", cursorOf(d.GetName(), len(all)+1), cursorOf(d.GetName(), -1),
		cursorOf("diagnoses/0123456789abcdef0123456789abcdef", 1), "99999999999999999999" + first[1:],
	} {
		stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: d.GetName(), Cursor: cursor})
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, codes.InvalidArgument)
	}
}

// A watch that the service ends says where to go on.
func TestWatchIsInterrupted(t *testing.T) {
	f := startTools(t)
	f.on("SearchLogs", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{})
	d := s.begin(t, request())
	stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: d.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEventType() == "tool_started" && e.GetTool() == "logs_search" {
			break
		}
	}
	s.server.Drain()
	rest, err := drain(stream)
	wantCode(t, err, codes.Unavailable)
	if cursor := wantInfo(t, err, "SERVICE_STOPPING")["cursor"]; len(rest) > 0 && cursor != rest[len(rest)-1].GetEventId() || cursor == "" {
		t.Errorf("cursor %q after %v", cursor, rest)
	}
	_, err = s.StartDiagnosis(within(t), &incidentsv1.StartDiagnosisRequest{Incident: "other", Service: "checkout"})
	wantCode(t, err, codes.Unavailable)
}

// A service that is stopped at any moment goes on where it was: steps with a result are not taken again, the write keeps its key, events have no gap.
func TestGoesOn(t *testing.T) {
	f := startTools(t)
	dir := t.TempDir()
	approved := make(chan struct{})
	f.on("RestartWorkload", func(_ context.Context, r proto.Message) (proto.Message, error) {
		select {
		case <-approved:
			return action(r, workloadsv1.Action_STATE_SUCCEEDED), nil
		default:
			return nil, held("A1")
		}
	})
	// The first question of each of these kinds gets no answer while the service lives.
	for _, method := range []string{"GetWorkload", "SearchLogs", "SearchRunbooks"} {
		answer := f.answers[method]
		f.on(method, func(ctx context.Context, r proto.Message) (proto.Message, error) {
			if len(f.got(method)) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answer(ctx, r)
		})
	}
	s := start(t, dir, f.conn, incidents.Options{})
	d := s.begin(t, request())
	f.await(t, "GetWorkload", 1)
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{})
	f.await(t, "SearchLogs", 1) // asked at the same time
	f.await(t, "SearchRunbooks", 1)
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{})
	s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL)
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{})
	f.await(t, "LookupAction", 1) // whether it was done meanwhile is the first question
	stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: d.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	close(approved)
	seen, err := drain(stream)
	if err != nil {
		t.Fatal(err)
	}
	gapless(t, seen, 0)
	ended := s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	if ended.GetTraceId() != d.GetTraceId() || ended.GetAction().GetOutcome() != "succeeded" || ended.GetAction().GetApprovalId() != "A1" {
		t.Errorf("diagnosis: %v", ended)
	}
	if !slices.ContainsFunc(seen, func(e *incidentsv1.DiagnosisEvent) bool { return strings.Contains(e.GetMessage(), "asked again") }) {
		t.Errorf("no event says that something was asked again: %q", types(seen))
	}
	for _, c := range f.got("RestartWorkload") {
		if c.key != "inc-42:restart:workloads/payment:7" {
			t.Errorf("key %q", c.key)
		}
	}
	// The questions of payment were never interrupted, so none of them was asked twice.
	asked := map[string]int{}
	for _, c := range f.got("") {
		if q := fmt.Sprint(c.request); strings.Contains(q, "payment") && !strings.HasSuffix(c.method, "Workload") && !strings.HasSuffix(c.method, "LookupAction") {
			asked[c.method+q]++
		}
	}
	for q, n := range asked {
		if n > 1 && !strings.Contains(q, "5..") {
			t.Errorf("asked %d times: %s", n, q)
		}
	}
}

// A cancellation that was acknowledged holds, though the service was stopped before it could act on it.
func TestCancelledWhileStopped(t *testing.T) {
	f := startTools(t)
	dir := t.TempDir()
	f.on("RestartWorkload", answers(fails(held("A1"))))
	s := start(t, dir, f.conn, incidents.Options{})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_WAITING_FOR_APPROVAL)
	s.server.Drain()
	cancelled := make(chan error, 1)
	go func() {
		_, err := s.CancelDiagnosis(context.WithoutCancel(t.Context()), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()})
		cancelled <- err
	}()
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{})
	d = s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
	gapless(t, s.follow(t, d.GetName(), ""), 0)
}

// What has ended long ago is forgotten.
func TestRetention(t *testing.T) {
	f := startTools(t)
	dir := t.TempDir()
	s := start(t, dir, f.conn, incidents.Options{})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	s.stop()
	s = start(t, dir, f.conn, incidents.Options{Retention: time.Nanosecond})
	eventually(t, "it is forgotten", func() bool {
		resp, err := s.ListDiagnoses(within(t), &incidentsv1.ListDiagnosesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetDiagnoses()) == 0
	})
	_, err := s.GetDiagnosis(within(t), &incidentsv1.GetDiagnosisRequest{Name: d.GetName()})
	wantCode(t, err, codes.NotFound)
}
