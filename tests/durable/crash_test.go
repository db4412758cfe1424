package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// write is one keyed call, or one held call, and what its caller was told of it.
type write struct {
	door string
	id   string
	// told is the last answer; "" if the mesh was gone before it came.
	told answer
	// held, approved and made say what of a held call was acknowledged.
	approval             string
	approved, made, held bool
}

// TestKillMinusNine kills the mesh with SIGKILL at random points while callers at every door make keyed calls and have calls approved, and starts it
// anew on the same directory: what was acknowledged is there, and nothing was executed twice.
func TestKillMinusNine(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	dir := t.TempDir()
	file := backend.configFile(t, "audit: {required: true}\n")
	const rounds, callers, perRound = 5, 12, 120
	var earlier []*write
	answered := map[string]bool{} // ids of calls that were answered with OK
	lost, replays, unknowns := 0, 0, 0
	for round := range rounds {
		m := serve(t, "--config", file, "--data", dir)
		for _, w := range earlier {
			switch got := m.again(t, w, backend); {
			case w.made:
				replays++
			case got == unknown:
				unknowns++
			}
			if n := backend.count(w.id); n > 1 {
				t.Errorf("%s was executed %d times", w.id, n)
			}
		}
		audited := map[string]bool{}
		for _, r := range m.audited(t) {
			if r.Code == ok {
				audited[r.id()] = true
			}
		}
		for id := range answered {
			if !audited[id] {
				t.Errorf("round %d: the audit has no record of %s, which was answered", round, id)
			}
		}
		if t.Failed() {
			return
		}
		earlier = m.work(t.Context(), fmt.Sprint(round), callers, int64(perRound/2+rand.IntN(perRound)))
		for _, w := range earlier {
			if w.made {
				answered[w.id] = true
			} else {
				lost++
			}
		}
	}
	m := serve(t, "--config", file, "--data", dir)
	for _, w := range earlier {
		if m.again(t, w, backend) == unknown {
			unknowns++
		}
	}
	backend.mu.Lock()
	for id, n := range backend.times {
		if n > 1 {
			t.Errorf("%s was executed %d times", id, n)
		}
	}
	t.Logf("%d kills: %d executions, %d calls answered, %d cut off, of which %d are OUTCOME_UNKNOWN", rounds, len(backend.times), len(answered), lost, unknowns)
	backend.mu.Unlock()
	if len(answered) < rounds*perRound/4 {
		t.Errorf("only %d calls were answered: the test shows little", len(answered))
	}
	m.stop(t)
}

// work makes calls until the mesh, which it kills after so many answers, is gone. It returns what was begun.
func (m *mesh) work(ctx context.Context, round string, callers int, answers int64) []*write {
	var (
		mu    sync.Mutex
		begun []*write
		left  atomic.Int64
		group sync.WaitGroup
	)
	left.Store(answers)
	for n := range callers {
		group.Go(func() {
			for i := 0; ; i++ {
				w := &write{door: doors[(n+i)%len(doors)], id: fmt.Sprintf("ask-%s-%d-%d", round, n, i)}
				step := m.keyed
				if n%4 == 0 {
					w.id, step = strings.Replace(w.id, "ask", "label", 1), m.approvedCall
				}
				mu.Lock()
				begun = append(begun, w)
				mu.Unlock()
				if err := step(ctx, w); err != nil {
					return // the mesh is gone
				}
				if left.Add(-1) == 0 {
					m.Kill()
				}
			}
		})
	}
	group.Wait()
	return begun
}

// keyed makes a keyed call.
func (m *mesh) keyed(ctx context.Context, w *write) error {
	a, err := m.ask(ctx, w.door, w.id)
	if err == nil {
		w.told, w.made = a, a.code == ok
	}
	return err
}

// approvedCall has a call held, approved and executed.
func (m *mesh) approvedCall(ctx context.Context, w *write) error {
	a, err := m.label(ctx, w.door, w.id)
	if err != nil {
		return err
	}
	w.told, w.approval, w.held = a, a.approval, a.String() == needed
	if a, err = m.approve(ctx, w.approval); err != nil {
		return err
	}
	w.told, w.approved = a, a.code == ok
	if a, err = m.label(ctx, w.door, w.id); err != nil {
		return err
	}
	w.told, w.made = a, a.code == ok
	return nil
}

// again makes the call of an earlier process once more, at another door, and checks the answer against what its caller had been told.
func (m *mesh) again(t *testing.T, w *write, backend *counter) string {
	t.Helper()
	ctx, door := t.Context(), doors[rand.IntN(len(doors))]
	if strings.HasPrefix(w.id, "label") {
		m.labelAgain(t, w, door, backend)
		return ""
	}
	a, err := m.ask(ctx, door, w.id)
	if err != nil {
		t.Errorf("%s at %s: %v", w.id, door, err)
		return ""
	}
	switch {
	case w.made && (a.String() != ok || !a.replayed || a.number != 1):
		t.Errorf("%s was answered through %s, and is %v (replayed %v, execution %d) through %s", w.id, w.door, a, a.replayed, a.number, door)
	case a.String() == ok && a.number == 1:
	case a.String() == unknown:
		// Whoever was cut off is told so again and again, and nothing is done.
		before := backend.count(w.id)
		if b, err := m.ask(ctx, "http", w.id); err != nil || b.String() != unknown || backend.count(w.id) != before {
			t.Errorf("%s: unknown, then %v, %v", w.id, b, err)
		}
	default:
		t.Errorf("%s through %s was %v before, and is %v (execution %d) now", w.id, w.door, w.told, a, a.number)
	}
	return a.String()
}

// labelAgain is again for a call that needs approval.
func (m *mesh) labelAgain(t *testing.T, w *write, door string, backend *counter) {
	t.Helper()
	ctx := t.Context()
	before := backend.count(w.id)
	state := ""
	if w.held {
		var err error
		if state, err = m.approval(ctx, w.approval); err != nil {
			t.Errorf("%s was held, and its approval is lost: %v", w.id, err)
			return
		}
	}
	switch {
	case w.made && (state != "STATE_USED" || before != 1):
		t.Errorf("%s was executed, and its approval is %s; executions: %d", w.id, state, before)
	case w.approved && state != "STATE_APPROVED" && state != "STATE_USED":
		t.Errorf("%s was approved, and is %s", w.id, state)
	}
	a, err := m.label(ctx, door, w.id)
	switch {
	case err != nil:
		t.Errorf("%s: %v", w.id, err)
	case state == "STATE_APPROVED" && (a.String() != ok || backend.count(w.id) != 1):
		t.Errorf("%s was approved, and is %v; executions: %d", w.id, a, backend.count(w.id))
	case state != "STATE_APPROVED" && (a.String() != needed || backend.count(w.id) != before):
		t.Errorf("%s: its approval is %q, and it is %v; executions: %d, before %d", w.id, state, a, backend.count(w.id), before)
	}
}

// TestDrainKeeps ends a mesh with SIGTERM while calls are under way: what was answered is there.
func TestDrainKeeps(t *testing.T) {
	t.Parallel()
	backend := startCounter(t)
	dir, file := t.TempDir(), backend.configFile(t, "")
	m := serve(t, "--config", file, "--data", dir)
	var group sync.WaitGroup
	var answered sync.Map
	for n := range 6 {
		group.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("drain-%d-%d", n, i)
				a, err := m.ask(t.Context(), doors[n%len(doors)], key)
				if err != nil || a.code != ok {
					return
				}
				answered.Store(key, true)
				if n == 0 && i == 20 {
					m.stop(t)
				}
			}
		})
	}
	group.Wait()
	m = serve(t, "--config", file, "--data", dir)
	defer m.stop(t)
	audited := map[string]bool{}
	for _, r := range m.audited(t) {
		audited[r.id()] = true
	}
	n := 0
	answered.Range(func(key, _ any) bool {
		n++
		if a, err := m.ask(t.Context(), "grpc", key.(string)); err != nil || !a.replayed || a.number != 1 {
			t.Errorf("%v: %v, replayed %v, %v", key, a, a.replayed, err)
		}
		if !audited[key.(string)] {
			t.Errorf("%v is not in the audit", key)
		}
		return true
	})
	if n < 20 {
		t.Errorf("%d calls were answered", n)
	}
}
