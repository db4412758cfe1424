package durable_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// shared is the configuration of meshes that share a store; a short timeout lets calls end soon while it is away.
const shared = "store: {nats: %q, replicas: %d, timeout: 2s}\n"

// TestThreeMeshes has three meshes share one NATS server: what is begun at one goes on at another, and at the third when one is killed.
func TestThreeMeshes(t *testing.T) {
	t.Parallel()
	backend, nats := startCounter(t), nodes(t, 1)
	share(t, backend, nats, 1)
}

// TestThreeMeshesOnThreeNodes is the same on a cluster that keeps three copies.
func TestThreeMeshesOnThreeNodes(t *testing.T) {
	t.Parallel()
	backend, nats := startCounter(t), nodes(t, 3)
	meshes := share(t, backend, nats, 3)
	// A node dies, whichever leads: the rest is a majority.
	nats[0].Kill()
	for n, m := range meshes {
		run.Eventually(t, "a key is kept with two nodes of three", func() bool {
			a, err := m.ask(t.Context(), doors[n], fmt.Sprintf("two of three %d", n))
			return err == nil && a.String() == ok
		})
	}
	nats[0].start(t)
	for key := range map[string]bool{"two of three 0": true, "two of three 1": true} {
		if a, err := meshes[1].ask(t.Context(), "http", key); err != nil || !a.replayed || backend.count(key) != 1 {
			t.Errorf("%s: %v, %v; %d executions", key, a, err, backend.count(key))
		}
	}
}

// share shows what meshes share, kills the first of three, and returns the others.
func share(t *testing.T, backend *counter, nats []*node, replicas int) []*mesh {
	t.Helper()
	ctx := t.Context()
	file := backend.configFile(t, fmt.Sprintf(shared, urls(nats...), replicas))
	meshes := make([]*mesh, 3)
	var starting sync.WaitGroup
	for i := range meshes {
		starting.Go(func() {
			if m, err := run.Serve("--config", file); err == nil {
				meshes[i] = &mesh{Mesh: m}
			} else {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for i, m := range meshes {
		if m == nil {
			t.Fatal("a mesh did not start")
		}
		meshes[i] = connect(t, m.Mesh)
	}
	a, b, c := meshes[0], meshes[1], meshes[2]

	// A key of one holds at all, at each door.
	for i, m := range meshes {
		key := fmt.Sprint("key of ", i)
		if got, err := m.ask(ctx, doors[i], key); err != nil || got.String() != ok || got.replayed {
			t.Fatalf("%s: %v, %v", key, got, err)
		}
		for j, other := range meshes {
			if got, err := other.ask(ctx, doors[(i+j)%3], key); err != nil || got.String() != ok || !got.replayed || got.number != 1 {
				t.Errorf("%s at %d: %v, replayed %v, execution %d, %v", key, j, got, got.replayed, got.number, err)
			}
		}
	}
	// Many callers with one key: one execution, whoever wins.
	var racing sync.WaitGroup
	for n := range 12 {
		racing.Go(func() {
			if got, err := meshes[n%3].ask(ctx, doors[n%2], "race"); err != nil || got.String() != ok && got.String() != underWay {
				t.Errorf("race: %v, %v", got, err)
			}
		})
	}
	racing.Wait()
	if n := backend.count("race"); n != 1 {
		t.Errorf("race: %d executions", n)
	}

	// Held at one, approved at another, used at the third, once.
	heldAt(ctx, t, a, b, c, "abc", backend)

	// The audit of all is at each.
	want := 0
	for _, m := range meshes {
		run.Eventually(t, "the audit has the calls of all", func() bool {
			seen := map[string]int{}
			for _, r := range m.audited(t) {
				seen[r.id()]++
			}
			want = seen["key of 0"]
			return seen["key of 0"] == 4 && seen["key of 1"] == 4 && seen["key of 2"] == 4 && seen["abc"] == 3 && seen["race"] == 12
		})
	}
	if want != 4 {
		t.Errorf("%d records of one key", want)
	}

	// One dies: the others go on with what it had begun.
	got, err := a.label(ctx, "mcp", "left behind")
	if err != nil || got.String() != needed {
		t.Fatalf("held: %v, %v", got, err)
	}
	a.Kill()
	if d, err := b.approve(ctx, got.approval); err != nil || d.code != ok {
		t.Errorf("approve: %v, %v", d, err)
	}
	if got, err = c.label(ctx, "grpc", "left behind"); err != nil || got.String() != ok || backend.count("left behind") != 1 {
		t.Errorf("after the first mesh has died: %v, %v", got, err)
	}
	if got, err = c.ask(ctx, "mcp", "key of 0"); err != nil || !got.replayed || got.number != 1 {
		t.Errorf("key of the mesh that died: %v, %v", got, err)
	}
	return []*mesh{b, c}
}

// heldAt has a call held, approved and used at three meshes.
func heldAt(ctx context.Context, t *testing.T, a, b, c *mesh, id string, backend *counter) {
	t.Helper()
	got, err := a.label(ctx, "grpc", id)
	if err != nil || got.String() != needed {
		t.Fatalf("held: %v, %v", got, err)
	}
	if d, err := b.approve(ctx, got.approval); err != nil || d.code != ok {
		t.Fatalf("approve: %v, %v", d, err)
	}
	if used, err := c.label(ctx, "http", id); err != nil || used.String() != ok || backend.count(id) != 1 {
		t.Fatalf("used: %v, %v; %d executions", used, err, backend.count(id))
	}
	if again, err := a.label(ctx, "mcp", id); err != nil || again.String() != needed || again.approval == got.approval || backend.count(id) != 1 {
		t.Errorf("used twice: %v, %v", again, err)
	}
}

// outage is how long TestStoreGoesAway goes on making calls that are refused, beyond one of each kind.
var outage = flag.Duration("outage", 0, "how long TestStoreGoesAway keeps the store away after its checks")

// TestStoreGoesAway kills the NATS server under a mesh: calls that need it are told so, others go on, /readyz and metrics say it, and when it is
// back everything goes on by itself.
func TestStoreGoesAway(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	backend, nats := startCounter(t), nodes(t, 1)[0]
	refused, slowest := 0, time.Duration(0)
	m := serve(t, "--config", backend.configFile(t, fmt.Sprintf(shared, nats.url, 1)))
	if a, err := m.ask(ctx, "grpc", "before"); err != nil || a.String() != ok {
		t.Fatalf("before: %v, %v", a, err)
	}
	held, err := m.label(ctx, "grpc", "held before")
	if err != nil || held.String() != needed {
		t.Fatalf("held: %v, %v", held, err)
	}
	if d, err := m.approve(ctx, held.approval); err != nil || d.code != ok {
		t.Fatalf("approve: %v, %v", d, err)
	}
	if s, status, err := m.store(ctx); err != nil || s.State != "up" || s.Place != nats.url || status != "ready" {
		t.Errorf("/readyz: %v, %q, %v", s, status, err)
	}

	nats.Kill()
	if s := m.awaitStore(t, "down"); s.Why == "" {
		t.Error("/readyz does not say why the store is down")
	}
	if _, status, err := m.store(ctx); err != nil || status != "ready" {
		t.Errorf("/readyz: %q, %v; calls that need no store can be made", status, err)
	}
	if v := m.metric(t, "toolway_store_up"); v != "0" {
		t.Errorf("toolway_store_up = %q, want 0", v)
	}
	for _, door := range doors {
		for _, key := range []string{"before", "meanwhile"} {
			if a, err := m.ask(ctx, door, key); err != nil || a.String() != noKeys || !a.retry {
				t.Errorf("%s through %s: %v, retry %v, %v", key, door, a, a.retry, err)
			}
		}
		if a, err := m.label(ctx, door, "held before"); err != nil || a.String() != noHolding || !a.retry {
			t.Errorf("approval through %s: %v, retry %v, %v", door, a, a.retry, err)
		}
		if err := m.watch(ctx); err != nil {
			t.Errorf("a call that needs no store: %v", err)
		}
	}
	if a, err := m.approve(ctx, held.approval); err != nil || a.String() != noHolding {
		t.Errorf("approve: %v, %v", a, err)
	}
	if a, err := m.callHTTP(ctx, "/toolway.v1.AuditService/ListCalls", "", "{}"); err != nil || a.String() != noAudit || !a.retry {
		t.Errorf("audit: %v, retry %v, %v", a, a.retry, err)
	}
	if backend.count("meanwhile") != 0 || backend.count("held before") != 0 || backend.count("before") != 1 {
		t.Error("a call was executed whose key or approval could not be kept")
	}

	// However long it lasts, each call is told so at once, and nothing is executed.
	for n, end := 0, time.Now().Add(*outage); time.Now().Before(end); n++ {
		began := time.Now()
		if a, err := m.ask(ctx, doors[n%len(doors)], fmt.Sprint("during ", n)); err != nil || a.String() != noKeys || !a.retry || backend.count(fmt.Sprint("during ", n)) != 0 {
			t.Fatalf("call %d while the store is away: %v, retry %v, %v", n, a, a.retry, err)
		}
		if s, status, err := m.store(ctx); err != nil || s.State != "down" || status != "ready" {
			t.Fatalf("/readyz while the store is away: %v, %q, %v", s, status, err)
		}
		refused, slowest = refused+1, max(slowest, time.Since(began))
	}

	back := time.Now()
	nats.start(t)
	m.awaitStore(t, "up")
	t.Logf("away for %v or more: %d further calls refused, the slowest after %v; up %v after the server was started", *outage, refused, slowest, time.Since(back))
	if v := m.metric(t, "toolway_store_up"); v != "1" {
		t.Errorf("toolway_store_up = %q, want 1", v)
	}
	if a, err := m.ask(ctx, "http", "before"); err != nil || !a.replayed {
		t.Errorf("before, again: %v, replayed %v, %v", a, a.replayed, err)
	}
	// A claim that may have been stored is taken back by and by; then the key is free.
	run.Eventually(t, "the key of a refused call is free", func() bool {
		a, err := m.ask(ctx, "http", "meanwhile")
		return err == nil && a.String() == ok && a.number == 1
	})
	if a, err := m.label(ctx, "grpc", "held before"); err != nil || a.String() != ok {
		t.Errorf("an approved call: %v, %v", a, err)
	}
	// Records of calls that were made meanwhile waited.
	run.Eventually(t, "the audit has the calls that were refused meanwhile", func() bool {
		n := 0
		for _, r := range m.audited(t, "--tool", "probe_ask") {
			if r.id() == "meanwhile" && r.Code == "UNAVAILABLE" {
				n++
			}
		}
		return n == len(doors)
	})
	m.stop(t)
}

// TestAnswerIsRecordedLater takes the server away while a call is at the backend: its caller gets the answer, and the key gets it when the server
// is back.
func TestAnswerIsRecordedLater(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	backend, nats := startCounter(t), nodes(t, 1)[0]
	backend.reached, backend.gate = make(chan string, 1), make(chan struct{})
	m := serve(t, "--config", backend.configFile(t, fmt.Sprintf(shared, nats.url, 1)))
	done := make(chan answer, 1)
	go func() {
		a, err := m.ask(ctx, "http", "gated")
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	<-backend.reached
	nats.Kill()
	m.awaitStore(t, "down")
	close(backend.gate)
	if a := <-done; a.String() != ok {
		t.Fatalf("the call: %v", a)
	}
	nats.start(t)
	run.Eventually(t, "the answer is recorded", func() bool {
		a, err := m.ask(ctx, "grpc", "gated")
		if err == nil && a.String() != underWay && a.String() != noKeys && !a.replayed {
			t.Fatalf("again: %v, replayed %v", a, a.replayed)
		}
		return err == nil && a.replayed && a.number == 1
	})
}

// metric is the value of a metric without labels.
func (m *mesh) metric(t *testing.T, name string) string {
	t.Helper()
	text, err := m.text(t.Context(), "http://"+m.Admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
