package workloads_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/process"
)

// A stream that goes on from any of its cursors gets what came after it: every event, none twice.
func TestWatchResumes(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{list: []process.Workload{sleeper("a", 1), sleeper("b", 1), sleeper("c", 0)}})
		s.running("workloads/a")
		s.running("workloads/b")
		snapshots := s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/-"}, func(got []*workloadsv1.WatchWorkloadResponse) bool { return len(got) == 3 })
		for i, name := range []string{"workloads/a", "workloads/b", "workloads/c"} {
			if m := snapshots[i]; m.GetEventType() != "snapshot" || m.GetWorkload().GetName() != name || m.GetCursor() == "" || m.GetOccurredAt() == nil {
				t.Fatalf("message %d = %v, want a snapshot of %s", i, m, name)
			}
		}
		// One that broke off amid the snapshot gets the rest of it.
		rest := s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/-", Cursor: snapshots[0].GetCursor()}, func(got []*workloadsv1.WatchWorkloadResponse) bool { return len(got) == 2 })
		if rest[0].GetWorkload().GetName() != "workloads/b" || rest[1].GetWorkload().GetName() != "workloads/c" || rest[1].GetCursor() != snapshots[2].GetCursor() {
			t.Errorf("rest of the snapshot = %v", rest)
		}
		var last *workloadsv1.Action
		for i := range 3 {
			a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/a", Incident: fmt.Sprintf("inc-%d", i), Generation: 1 + int64(i)})
			if err != nil {
				t.Fatal(err)
			}
			last = s.settled(a)
		}
		ended := func(got []*workloadsv1.WatchWorkloadResponse) bool {
			e := got[len(got)-1]
			return e.GetEventType() == "action_succeeded" && e.GetAction().GetId() == last.GetId()
		}
		all := s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/-", Cursor: snapshots[2].GetCursor()}, ended)
		ids := map[string]bool{}
		var types []string
		for _, e := range all {
			if ids[e.GetCursor()] {
				t.Errorf("id %q twice", e.GetCursor())
			}
			ids[e.GetCursor()] = true
			if a := e.GetAction(); a != nil {
				types = append(types, a.GetIncident()+" "+e.GetEventType())
			}
			if e.GetWorkload().GetName() == "" {
				t.Errorf("event %v has no workload", e)
			}
		}
		var want []string
		for i := range 3 {
			for _, e := range []string{"action_pending", "action_running", "action_succeeded"} {
				want = append(want, fmt.Sprintf("inc-%d %s", i, e))
			}
		}
		if !slices.Equal(types, want) {
			t.Errorf("events = %q, want %q", types, want)
		}
		for i := range all[:len(all)-1] {
			got := s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/-", Cursor: all[i].GetCursor()}, ended)
			if len(got) != len(all)-1-i || got[0].GetCursor() != all[i+1].GetCursor() {
				t.Fatalf("from event %d: %d events, want the %d after it", i, len(got), len(all)-1-i)
			}
		}
		// Those of one workload alone.
		for _, e := range s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/a", Cursor: snapshots[2].GetCursor()}, ended) {
			if e.GetWorkload().GetName() != "workloads/a" {
				t.Errorf("watch of a has %v", e)
			}
		}
	})
}

// A crash of a replica is an event too.
func TestWatchTellsOfCrashes(t *testing.T) {
	one := int32(1)
	crasher := process.Workload{Name: "web", Command: []string{"/bin/sh", "-c", "sleep 0.05; kill -9 $$"}, Replicas: &one, Ready: process.Ready{After: process.Duration(time.Millisecond)}}
	s := start(t, databases["sqlite"](t)(), startOptions{list: []process.Workload{crasher}})
	s.watch(&workloadsv1.WatchWorkloadRequest{Name: "workloads/web"}, func(got []*workloadsv1.WatchWorkloadResponse) bool {
		w := got[len(got)-1].GetWorkload()
		return w.GetCrashes() > 0 && w.GetLastExit() == "replica 0: signal: killed"
	})
}

// A watch that the service ends says where to go on; a cursor past the retention, or of another database, is told as such.
func TestWatchBreaks(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{Options: workloads.Options{Retention: time.Nanosecond}})
		s.running("workloads/web")
		stream, err := s.WatchWorkload(within(t), &workloadsv1.WatchWorkloadRequest{Name: "workloads/web"})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		s.server.Drain()
		for err == nil {
			_, err = stream.Recv()
		}
		if md := wantInfo(t, err, codes.Unavailable, "STORE_UNAVAILABLE"); md["cursor"] == "" {
			t.Errorf("metadata = %v, want the cursor", md)
		}
		a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.settled(a)
		s.stop()

		s = start(t, open(), startOptions{Options: workloads.Options{Retention: time.Nanosecond}}) // prunes as it starts
		eventually(t, "the cursor is past the retention", func() bool {
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			stream, err := s.WatchWorkload(ctx, &workloadsv1.WatchWorkloadRequest{Name: "workloads/web", Cursor: first.GetCursor()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = stream.Recv(); err == nil {
				return false
			}
			wantInfo(t, err, codes.OutOfRange, "CURSOR_OUT_OF_RANGE")
			return true
		})
		other := start(t, databases["sqlite"](t)(), startOptions{})
		stream, err = other.WatchWorkload(within(t), &workloadsv1.WatchWorkloadRequest{Name: "workloads/web", Cursor: first.GetCursor()})
		if err == nil {
			_, err = stream.Recv()
		}
		wantInfo(t, err, codes.OutOfRange, "CURSOR_OUT_OF_RANGE")
	})
}

// lossy takes events as a consumer does that crashes between taking one and saying so.
type lossy struct {
	mu    sync.Mutex
	tries int
	got   []string          // every delivery
	seen  map[string]string // once each, by id
}

func (l *lossy) Publish(_ context.Context, e workloads.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries++
	l.got = append(l.got, e.Message.GetCursor())
	if l.seen == nil {
		l.seen = map[string]string{}
	}
	l.seen[e.Message.GetCursor()] = e.Message.GetEventType()
	if l.tries%3 == 0 {
		return errors.New("lost the answer")
	}
	return nil
}

// A publisher gets every event at least once and in order, over restarts of the service; with repeats left out, once.
func TestPublishes(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		consumer := &lossy{}
		s := start(t, open(), startOptions{idle: true})
		a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.stop() // before anything was published
		s = start(t, open(), startOptions{publish: consumer})
		s.settled(a)
		eventually(t, "the end of the action is published", func() bool {
			consumer.mu.Lock()
			defer consumer.mu.Unlock()
			for _, kind := range consumer.seen {
				if kind == "action_succeeded" {
					return true
				}
			}
			return false
		})
		s.stop()
		counts := map[string]int{}
		for _, kind := range consumer.seen {
			counts[kind]++
		}
		for _, kind := range []string{"action_pending", "action_running", "action_succeeded"} {
			if counts[kind] != 1 {
				t.Errorf("%s: %d events with ids of their own, want 1 (%v)", kind, counts[kind], counts)
			}
		}
		var order []string
		for i, id := range consumer.got {
			if i == 0 || id != consumer.got[i-1] {
				order = append(order, id)
			}
		}
		if len(order) != len(consumer.seen) {
			t.Errorf("%d deliveries in %d runs of %d events, want repeats right after the first", len(consumer.got), len(order), len(consumer.seen))
		}
		if len(consumer.got) <= len(consumer.seen) {
			t.Errorf("%d deliveries of %d events, want some again", len(consumer.got), len(consumer.seen))
		}
	})
}

// A publisher that was away for longer than events are kept goes on with those that there are.
func TestPublisherBehindRetention(t *testing.T) {
	onEach(t, func(t *testing.T, open func() *workloads.Store) {
		s := start(t, open(), startOptions{publish: &lossy{}})
		s.running("workloads/web")
		s.stop()
		s = start(t, open(), startOptions{Options: workloads.Options{Retention: time.Nanosecond}}) // prunes as it starts
		first := s.running("workloads/web")
		s.stop()
		consumer := &lossy{}
		s = start(t, open(), startOptions{publish: consumer})
		a, err := s.RestartWorkload(within(t), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: first.GetGeneration()})
		if err != nil {
			t.Fatal(err)
		}
		s.settled(a)
		eventually(t, "the end of the action is published", func() bool {
			consumer.mu.Lock()
			defer consumer.mu.Unlock()
			for _, kind := range consumer.seen {
				if kind == "action_succeeded" {
					return true
				}
			}
			return false
		})
	})
}
