package workloads_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/process"
)

func TestGetAndList(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		labelled := sleeper("b", 1)
		labelled.Labels = map[string]string{"tier": "front"}
		s := start(t, open(), startOptions{list: []process.Workload{labelled, sleeper("a", 0), sleeper("c", 2)}})
		w := s.running("workloads/c")
		if w.GetReplicas() != 2 || w.GetReadyReplicas() != 2 || w.GetGeneration() != 1 || w.GetEtag() == "" || w.GetStartTime() == nil || w.GetCrashes() != 0 {
			t.Errorf("c = %v, want two ready replicas of generation 1", w)
		}
		eventually(t, "a is stopped", func() bool { return s.get("workloads/a").GetState() == workloadsv1.Workload_STATE_STOPPED })
		if got := s.running("workloads/b").GetLabels()["tier"]; got != "front" {
			t.Errorf("label = %q, want front", got)
		}
		var names []string
		for token := ""; ; {
			page, err := s.ListWorkloads(within(t), &workloadsv1.ListWorkloadsRequest{PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range page.GetWorkloads() {
				names = append(names, w.GetName())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if want := []string{"workloads/a", "workloads/b", "workloads/c"}; !slices.Equal(names, want) {
			t.Errorf("list = %q, want %q", names, want)
		}
	})
}

// A restart replaces every replica, a scaling sets their number, and each raises the generation and changes the etag once.
func TestChanges(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{})
		before := s.running("workloads/web")
		a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc-1", Generation: 1, Etag: before.GetEtag(), Reason: "it hangs"})
		if err != nil {
			t.Fatal(err)
		}
		if a.GetId() != "inc-1:restart:web:1" || a.GetState() != workloadsv1.Action_STATE_PENDING || a.GetReplayed() || a.GetKind() != workloadsv1.Action_KIND_RESTART || a.GetWorkload() != "workloads/web" || a.GetPrincipal() != "" {
			t.Errorf("action = %v", a)
		}
		if done := s.settled(a); done.GetState() != workloadsv1.Action_STATE_SUCCEEDED || done.GetFailure() != "" {
			t.Errorf("restart ends as %v", done)
		}
		after := s.running("workloads/web")
		if after.GetGeneration() != 2 || after.GetEtag() == before.GetEtag() || !after.GetStartTime().AsTime().After(before.GetStartTime().AsTime()) || after.GetReadyReplicas() != 2 || after.GetCrashes() != 0 {
			t.Errorf("after the restart: %v; before: %v", after, before)
		}
		for i, replicas := range []int32{3, 0} {
			a, err := s.ScaleWorkload(within(t), &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc-1", Generation: 2 + int64(i), Replicas: replicas})
			if err != nil {
				t.Fatal(err)
			}
			if done := s.settled(a); done.GetState() != workloadsv1.Action_STATE_SUCCEEDED || done.GetReplicas() != replicas {
				t.Errorf("scaling to %d ends as %v", replicas, done)
			}
			if w := s.get("workloads/web"); w.GetReplicas() != replicas || w.GetReadyReplicas() != replicas || w.GetGeneration() != 3+int64(i) {
				t.Errorf("scaled to %d: %v", replicas, w)
			}
		}
	})
}

// The same change is made once, however often and at once it is asked for; what it has come to can be looked up.
func TestOnce(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{})
		w := s.running("workloads/web")
		lookup := &workloadsv1.LookupActionRequest{Name: "workloads/web", Incident: "inc", Kind: workloadsv1.Action_KIND_SCALE, Generation: 1}
		_, err := s.LookupAction(within(t), lookup)
		wantInfo(t, err, codes.NotFound, "ACTION_NOT_FOUND")
		req := &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Replicas: 3, Etag: w.GetEtag()}
		var mu sync.Mutex
		var first int
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				mine := proto.CloneOf(req)
				mine.Reason = fmt.Sprintf("try %d", i)
				a, err := s.ScaleWorkload(within(t), mine)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || a.GetId() != "inc:scale:web:1" {
					t.Errorf("call %d = %v, %v", i, a, err)
				}
				if !a.GetReplayed() {
					first++
				}
			})
		}
		calls.Wait()
		if first != 1 {
			t.Errorf("%d calls were the first, want 1", first)
		}
		a, err := s.LookupAction(within(t), lookup)
		if err != nil {
			t.Fatal(err)
		}
		if a = s.settled(a); a.GetState() != workloadsv1.Action_STATE_SUCCEEDED {
			t.Errorf("ends as %v", a)
		}
		if w := s.get("workloads/web"); w.GetGeneration() != 2 || w.GetReplicas() != 3 {
			t.Errorf("after 16 calls: %v, want one change", w)
		}
		// Also once it is done, and though generation and etag are old by now.
		if a, err := s.ScaleWorkload(within(t), req); err != nil || !a.GetReplayed() || a.GetState() != workloadsv1.Action_STATE_SUCCEEDED {
			t.Errorf("repeated = %v, %v, want the recorded action", a, err)
		}
		req.Replicas = 4
		_, err = s.ScaleWorkload(within(t), req)
		md := wantInfo(t, err, codes.AlreadyExists, "ACTION_CONFLICT")
		if md["action"] != "inc:scale:web:1" || md["replicas"] != "3" || md["state"] != "STATE_SUCCEEDED" {
			t.Errorf("metadata = %v, want what was recorded", md)
		}
		if r, ok := detail[*errdetails.ResourceInfo](err); !ok || r.GetResourceName() != "inc:scale:web:1" {
			t.Errorf("ResourceInfo = %v", r)
		}
	})
}

// Of many changes decided on the same state one is made.
func TestOptimisticConcurrency(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{})
		w := s.running("workloads/web")
		var mu sync.Mutex
		codesSeen := map[codes.Code]int{}
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				req := &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: fmt.Sprintf("inc-%d", i), Generation: 1}
				if i%2 == 0 {
					req.Etag = w.GetEtag()
				}
				_, err := s.RestartWorkload(within(t), req)
				code := codes.OK
				if err != nil {
					info, _ := detail[*errdetails.ErrorInfo](err)
					want := map[bool]string{true: "ETAG_MISMATCH", false: "GENERATION_MISMATCH"}[i%2 == 0]
					if info.GetReason() != want || info.GetMetadata()["generation"] != "2" || info.GetMetadata()["etag"] == "" {
						t.Errorf("call %d: %v %v, want %s with the present etag and generation", i, err, info, want)
					}
					code = codes.Aborted
				}
				mu.Lock()
				defer mu.Unlock()
				codesSeen[code]++
			})
		}
		calls.Wait()
		if codesSeen[codes.OK] != 1 || codesSeen[codes.Aborted] != 7 {
			t.Errorf("outcomes = %v, want one change", codesSeen)
		}
		_, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "late", Generation: 2, Etag: w.GetEtag()})
		wantCode(t, err, codes.Aborted)
		_, err = s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "late", Generation: 7})
		wantCode(t, err, codes.FailedPrecondition)
		if p, ok := detail[*errdetails.PreconditionFailure](err); !ok || p.GetViolations()[0].GetSubject() != "workloads/web" {
			t.Errorf("PreconditionFailure = %v", p)
		}
	})
}

func TestRefuses(t *testing.T) {
	store := databases["sqlite"](t)()
	s := start(t, store, startOptions{Options: workloads.Options{MaxReplicas: 5}})
	restart := func(change func(*workloadsv1.RestartWorkloadRequest)) error {
		req := &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1}
		change(req)
		_, err := s.RestartWorkload(within(t), req)
		return err
	}
	scale := func(replicas int32) error {
		_, err := s.ScaleWorkload(within(t), &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Replicas: replicas})
		return err
	}
	get := func(name string) error {
		_, err := s.GetWorkload(within(t), &workloadsv1.GetWorkloadRequest{Name: name})
		return err
	}
	list := func(req *workloadsv1.ListWorkloadsRequest) error {
		_, err := s.ListWorkloads(within(t), req)
		return err
	}
	watch := func(req *workloadsv1.WatchWorkloadRequest) error {
		stream, err := s.WatchWorkload(within(t), req)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	lookup := func(kind workloadsv1.Action_Kind) error {
		_, err := s.LookupAction(within(t), &workloadsv1.LookupActionRequest{Name: "workloads/web", Incident: "inc", Kind: kind, Generation: 1})
		return err
	}
	for _, c := range []struct {
		name  string
		err   error
		code  codes.Code
		field string
	}{
		{"no collection", get("web"), codes.InvalidArgument, "name"},
		{"all", get("workloads/-"), codes.InvalidArgument, "name"},
		{"deeper", get("workloads/a/b"), codes.InvalidArgument, "name"},
		{"control", get("workloads/a\n"), codes.InvalidArgument, "name"},
		{"unknown", get("workloads/other"), codes.NotFound, ""},
		{"unknown to change", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Name = "workloads/other" }), codes.NotFound, ""},
		{"no incident", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Incident = "" }), codes.InvalidArgument, "incident"},
		{"incident with a colon", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Incident = "a:b" }), codes.InvalidArgument, "incident"},
		{"long incident", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Incident = strings.Repeat("a", 65) }), codes.InvalidArgument, "incident"},
		{"no generation", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Generation = 0 }), codes.InvalidArgument, "generation"},
		{"long reason", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Reason = strings.Repeat("a", 1025) }), codes.InvalidArgument, "reason"},
		{"reason with a zero", restart(func(r *workloadsv1.RestartWorkloadRequest) { r.Reason = "a\x00" }), codes.InvalidArgument, "reason"},
		{"too many", scale(6), codes.InvalidArgument, "replicas"},
		{"too few", scale(-1), codes.InvalidArgument, "replicas"},
		{"no kind", lookup(0), codes.InvalidArgument, "kind"},
		{"other kind", lookup(9), codes.InvalidArgument, "kind"},
		{"large page", list(&workloadsv1.ListWorkloadsRequest{PageSize: 1001}), codes.InvalidArgument, "page_size"},
		{"page token", list(&workloadsv1.ListWorkloadsRequest{PageToken: "x"}), codes.InvalidArgument, "page_token"},
		{"cursor", watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/-", Cursor: "x"}), codes.InvalidArgument, "cursor"},
		{"watch of none", watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/other"}), codes.NotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantCode(t, c.err, c.code)
			if bad, ok := detail[*errdetails.BadRequest](c.err); c.field != "" && (!ok || bad.GetFieldViolations()[0].GetField() != c.field) {
				t.Errorf("BadRequest = %v, want field %s", bad, c.field)
			}
		})
	}
}

// What was acknowledged and not begun when the service ended is done by the next one, once; its events arrive.
func TestGoesOnAfterCrash(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{})
		s.running("workloads/web")
		s.stop()

		// This one records and does nothing, as if it were killed right after the commit.
		s = start(t, open(), startOptions{idle: true})
		snapshot := s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/web"}, func([]*workloadsv1.WatchWorkloadResponse) bool { return true })
		a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.stop()

		s = start(t, open(), startOptions{})
		if done := s.settled(a); done.GetState() != workloadsv1.Action_STATE_SUCCEEDED {
			t.Errorf("ends as %v", done)
		}
		var types []string
		s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/web", Cursor: snapshot[0].GetCursor()}, func(got []*workloadsv1.WatchWorkloadResponse) bool {
			last := got[len(got)-1]
			if last.GetAction() != nil {
				types = append(types, last.GetEventType())
			}
			return last.GetEventType() == "action_succeeded"
		})
		if want := []string{"action_pending", "action_running", "action_succeeded"}; !slices.Equal(types, want) {
			t.Errorf("events of the action = %q, want %q", types, want)
		}
		if again, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1}); err != nil || !again.GetReplayed() {
			t.Errorf("repeated = %v, %v, want the recorded action", again, err)
		}
		if w := s.get("workloads/web"); w.GetGeneration() != 2 {
			t.Errorf("generation = %d, want 2: one change", w.GetGeneration())
		}
	})
}

// A workload that does not come up makes the action fail in the end, and says why; a later one may mend it.
func TestActionFails(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		one := int32(0)
		broken := process.Workload{Name: "web", Command: []string{"/bin/sh", "-c", "exit 7"}, Replicas: &one, Ready: process.Ready{After: process.Duration(time.Minute)}}
		s := start(t, open(), startOptions{list: []process.Workload{broken}, Options: workloads.Options{ActionTimeout: 500 * time.Millisecond}})
		a, err := s.ScaleWorkload(within(t), &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Replicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		if a = s.settled(a); a.GetState() != workloadsv1.Action_STATE_FAILED || !strings.Contains(a.GetFailure(), "not seen as wanted") {
			t.Errorf("ends as %v, want FAILED that says why", a)
		}
		eventually(t, "the workload is degraded", func() bool {
			w := s.get("workloads/web")
			return w.GetState() == workloadsv1.Workload_STATE_DEGRADED && w.GetCrashes() > 1 && strings.Contains(w.GetLastExit(), "exit status 7")
		})
		a, err = s.ScaleWorkload(within(t), &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 2, Replicas: 0})
		if err != nil {
			t.Fatal(err)
		}
		if a = s.settled(a); a.GetState() != workloadsv1.Action_STATE_SUCCEEDED {
			t.Errorf("scaling down ends as %v", a)
		}
	})
}

// What the configuration wants is taken over when it changes; what is not in it any more is gone.
func TestConfigurationChanges(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{list: []process.Workload{sleeper("web", 1), sleeper("old", 1)}})
		a, err := s.ScaleWorkload(within(t), &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Replicas: 2})
		if err != nil {
			t.Fatal(err)
		}
		s.settled(a)
		s.stop()

		s = start(t, open(), startOptions{list: []process.Workload{sleeper("web", 1)}})
		if w := s.running("workloads/web"); w.GetReplicas() != 2 || w.GetGeneration() != 2 {
			t.Errorf("with the same configuration: %v, want what was scaled to", w)
		}
		_, err = s.GetWorkload(within(t), &workloadsv1.GetWorkloadRequest{Name: "workloads/old"})
		wantInfo(t, err, codes.NotFound, "WORKLOAD_NOT_FOUND")
		s.stop()

		s = start(t, open(), startOptions{list: []process.Workload{sleeper("web", 3), sleeper("old", 1)}})
		if w := s.running("workloads/web"); w.GetReplicas() != 3 || w.GetGeneration() != 3 {
			t.Errorf("with another number: %v, want that, as a new generation", w)
		}
		if w := s.running("workloads/old"); w.GetGeneration() != 1 {
			t.Errorf("back again: %v", w)
		}
	})
}

// A database that is away is told as such, and calls work again when it is back.
func TestDatabaseAway(t *testing.T) {
	store := databases["postgres"](t)()
	s := start(t, store, startOptions{})
	s.running("workloads/web")
	s.stop()
	for _, url := range []string{"postgres://nobody@127.0.0.1:1/none", "host=/nonexistent dbname=none"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := workloads.OpenPostgres(ctx, url)
		cancel()
		if err == nil || !strings.Contains(err.Error(), workloads.ErrUnreachable.Error()) {
			t.Errorf("OpenPostgres(%q) = %v, want that it %v", url, err, workloads.ErrUnreachable)
		}
	}
}
