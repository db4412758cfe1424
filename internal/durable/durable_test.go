package durable_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/durable"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
)

func record(t *testing.T, m *toolwayv1.AuditRecord) audit.Record {
	t.Helper()
	r, err := audit.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Timeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func hash(s string) interceptors.Hash { return sha256.Sum256([]byte(s)) }

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ctx := t.Context()
	keys, err := durable.OpenKeys(ctx, s, 0, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	id := hash("key")
	claim := interceptors.KeyRecord{
		Caller: hash("caller"), Request: hash("request"), State: interceptors.KeyRunning, Owner: "call-1",
		Lease: time.Now().Add(time.Minute), Expires: time.Now().Add(time.Hour),
	}
	first, mine, err := keys.Begin(ctx, id, claim)
	if err != nil || !mine || first.Revision == 0 {
		t.Fatalf("Begin: %+v, %v, %v, want it mine", first, mine, err)
	}
	other := claim
	other.Owner = "call-2"
	if have, mine, err := keys.Begin(ctx, id, other); err != nil || mine || have.Owner != "call-1" || have.Request != claim.Request || have.Revision != first.Revision {
		t.Errorf("a second Begin: %+v, %v, %v, want the first's", have, mine, err)
	}
	if err := keys.Finish(ctx, id, other); !errors.Is(err, interceptors.ErrKeyLost) {
		t.Errorf("Finish by another: %v, want ErrKeyLost", err)
	}
	done := claim
	done.State, done.Replies = interceptors.KeyDone, [][]byte{{}, []byte("reply\x00\xff")}
	done.Header, done.Trailer = metadata.MD{"x-bin": {"\x00\xff"}}, metadata.MD{"y": {"1", "2"}}
	if err := keys.Finish(ctx, id, done); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = open(t, dir) // after a restart
	if keys, err = durable.OpenKeys(ctx, s, 0, 0, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	have, mine, err := keys.Begin(ctx, id, other)
	if err != nil || mine || have.State != interceptors.KeyDone || len(have.Replies) != 2 || len(have.Replies[0]) != 0 || string(have.Replies[1]) != "reply\x00\xff" ||
		have.Header["x-bin"][0] != "\x00\xff" || len(have.Trailer["y"]) != 2 {
		t.Errorf("after a restart: %+v, %v, %v, want the answer", have, mine, err)
	}
	// Taking over a record by its revision, and giving it up.
	other.Revision = have.Revision
	if _, mine, err := keys.Begin(ctx, id, other); err != nil || !mine {
		t.Errorf("Begin over a revision: %v, %v, want it mine", mine, err)
	}
	other.State = 0
	if err := keys.Finish(ctx, id, other); err != nil {
		t.Error(err)
	}
	if _, mine, err := keys.Begin(ctx, id, claim); err != nil || !mine {
		t.Errorf("Begin after the key was given up: %v, %v, want it mine", mine, err)
	}
}

// TestKeyTooLarge keeps a record whose answer is too large, without the answer.
func TestKeyTooLarge(t *testing.T) {
	ctx := t.Context()
	keys, err := durable.OpenKeys(ctx, open(t, t.TempDir()), 0, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := interceptors.KeyRecord{State: interceptors.KeyRunning, Owner: "c", Lease: time.Now().Add(time.Minute), Expires: time.Now().Add(time.Hour)}
	if _, _, err := keys.Begin(ctx, hash("k"), r); err != nil {
		t.Fatal(err)
	}
	r.State, r.Replies = interceptors.KeyDone, [][]byte{make([]byte, 5<<20)}
	if err := keys.Finish(ctx, hash("k"), r); err != nil {
		t.Fatal(err)
	}
	if have, _, err := keys.Begin(ctx, hash("k"), interceptors.KeyRecord{State: interceptors.KeyRunning, Owner: "d", Expires: time.Now().Add(time.Hour)}); err != nil || !have.Cut || have.State != interceptors.KeyDone {
		t.Errorf("record %+v, %v, want it done and cut", have, err)
	}
}

// TestKeyShares bounds what one caller has of the table, at all instances and whoever has written it: others have room, and what is there goes on.
func TestKeyShares(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	var instances []*durable.Keys
	openKeys := func() *durable.Keys {
		keys, err := durable.OpenKeys(ctx, s, 256<<10, 32<<10, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(keys.Close)
		return keys
	}
	instances = append(instances, openKeys(), openKeys())
	begin := func(at *durable.Keys, caller, key string, ttl time.Duration) (interceptors.KeyRecord, error) {
		r := interceptors.KeyRecord{Caller: hash(caller), State: interceptors.KeyRunning, Owner: key, Lease: time.Now().Add(ttl), Expires: time.Now().Add(ttl)}
		have, _, err := at.Begin(ctx, hash(caller+key), r)
		return have, err
	}
	first, err := begin(instances[0], "noisy", "first", time.Hour)
	n := 1
	for ; err == nil && n < 1000; n++ {
		_, err = begin(instances[0], "noisy", fmt.Sprint(n), 5*time.Second)
	}
	if !errors.Is(err, interceptors.ErrKeyShareFull) || n < 10 {
		t.Fatalf("a caller beyond its share got %v after %d keys, want ErrKeyShareFull", err, n)
	}
	instances = append(instances, openKeys())
	for i, one := range instances {
		refused := func() bool {
			_, err := begin(one, "noisy", fmt.Sprint("more", i), time.Second)
			return errors.Is(err, interceptors.ErrKeyShareFull)
		}
		for began := time.Now(); !refused(); time.Sleep(10 * time.Millisecond) { // it follows the others
			if time.Since(began) > time.Minute {
				t.Fatalf("instance %d does not heed the share", i)
			}
			if i == 0 {
				t.Fatal("the instance where the share was filled does not heed it")
			}
		}
		if _, err := begin(one, "quiet", fmt.Sprint(i), time.Hour); err != nil {
			t.Errorf("another caller at instance %d: %v", i, err)
		}
		if have, err := begin(one, "noisy", "first", time.Hour); err != nil || have.Owner != first.Owner {
			t.Errorf("a key that is there, at instance %d: %+v, %v", i, have, err)
		}
	}
	first.State, first.Replies = interceptors.KeyDone, [][]byte{make([]byte, 8<<10)}
	if err := instances[0].Finish(ctx, hash("noisyfirst"), first); err != nil {
		t.Errorf("Finish in a full share: %v", err)
	}
	if have, err := begin(instances[1], "noisy", "first", time.Hour); err != nil || have.State != interceptors.KeyDone || !have.Cut {
		t.Errorf("record %+v, %v, want it done, and without an answer that the share has no room for", have, err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) { // keys expire
		if _, err := begin(instances[2], "noisy", "later", time.Hour); err == nil {
			return
		} else if !errors.Is(err, interceptors.ErrKeyShareFull) || time.Since(began) > time.Minute {
			t.Fatalf("a new key once others have expired: %v", err)
		}
	}
}

// TestKeysFull refuses new keys when there is no room, and records what is under way.
func TestKeysFull(t *testing.T) {
	ctx := t.Context()
	keys, err := durable.OpenKeys(ctx, open(t, t.TempDir()), 64<<10, 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	begin := func(key string) (interceptors.KeyRecord, error) {
		r := interceptors.KeyRecord{State: interceptors.KeyRunning, Owner: key, Lease: time.Now().Add(time.Minute), Expires: time.Now().Add(time.Hour)}
		have, _, err := keys.Begin(ctx, hash(key), r)
		return have, err
	}
	first, err := begin("first")
	for i := 0; err == nil && i < 1000; i++ {
		_, err = begin(fmt.Sprint(i))
	}
	if !errors.Is(err, interceptors.ErrKeysFull) {
		t.Fatalf("Begin in a full table = %v, want ErrKeysFull", err)
	}
	first.State, first.Replies = interceptors.KeyDone, [][]byte{make([]byte, 1000)}
	if err := keys.Finish(ctx, hash("first"), first); err != nil {
		t.Errorf("Finish in a full table: %v", err)
	}
	if have, err := begin("first"); err != nil || have.State != interceptors.KeyDone || len(have.Replies) != 1 {
		t.Errorf("record %+v, %v, want it done with its answer", have, err)
	}
}

// TestOneOwner has many calls of two instances want one key at once.
func TestOneOwner(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	var instances [2]*durable.Keys
	for i := range instances {
		var err error
		if instances[i], err = durable.OpenKeys(ctx, s, 0, 0, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	var owners atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, mine, err := instances[i%2].Begin(ctx, hash("k"), interceptors.KeyRecord{State: interceptors.KeyRunning, Owner: fmt.Sprint(i), Expires: time.Now().Add(time.Hour)})
			if err != nil {
				t.Error(err)
			}
			if mine {
				owners.Add(1)
			}
		})
	}
	wg.Wait()
	if owners.Load() != 1 {
		t.Errorf("%d calls own the key, want one", owners.Load())
	}
}

func TestApprovals(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	here, err := durable.OpenApprovals(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := durable.OpenApprovals(ctx, s) // another instance
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	wanted := interceptors.ApprovalRecord{ID: "id-1", Binding: hash("b"), Request: hash("r"), State: interceptors.ApprovalPending, Tenant: "t", Principal: "p", Arguments: `{"a":1}`, Created: time.Now(), Expires: time.Now().Add(time.Hour)}
	held, err := here.Hold(ctx, wanted)
	if err != nil || held.Revision == 0 {
		t.Fatal(held, err)
	}
	again := wanted
	again.ID = "id-2"
	if have, err := there.Hold(ctx, again); err != nil || have.ID != "id-1" || have.Binding != wanted.Binding || have.Request != wanted.Request || have.Arguments != wanted.Arguments {
		t.Errorf("the same call again: %+v, %v, want the approval that is there", have, err)
	}
	list, changed, err := there.List(ctx, 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("list %+v, %v", list, err)
	}
	held.State = interceptors.ApprovalApproved
	approved, err := here.Swap(ctx, held)
	if err != nil || approved.Revision <= held.Revision {
		t.Fatalf("Swap: %+v, %v", approved, err)
	}
	if _, err := there.Swap(ctx, held); !errors.Is(err, interceptors.ErrApprovalChanged) {
		t.Errorf("Swap of an old revision: %v, want ErrApprovalChanged", err)
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("the other instance did not hear of the change")
	}
	if list, _, err = there.List(ctx, held.Revision); err != nil || len(list) != 1 || list[0].State != interceptors.ApprovalApproved {
		t.Errorf("changes since the holding: %+v, %v", list, err)
	}
	approved.State = interceptors.ApprovalUsed
	if _, err := there.Swap(ctx, approved); err != nil {
		t.Fatal(err)
	}
	if have, err := here.Hold(ctx, again); err != nil || have.ID != "id-2" {
		t.Errorf("the call after its approval was used: %+v, %v, want a new approval", have, err)
	}
	if _, found, err := here.Get(ctx, "../odd id\x00"); err != nil || found {
		t.Errorf("an id that nobody gave: %v, %v, want none", found, err)
	}
}

// TestOneApproval has the same call held by many at once: one approval comes of it.
func TestOneApproval(t *testing.T) {
	ctx := t.Context()
	a, err := durable.OpenApprovals(ctx, open(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r, err := a.Hold(ctx, interceptors.ApprovalRecord{ID: fmt.Sprint("id-", i), Binding: hash("b"), State: interceptors.ApprovalPending, Expires: time.Now().Add(time.Hour)})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[r.ID] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("approvals %v, want one", ids)
	}
}

func TestObjects(t *testing.T) {
	ctx := t.Context()
	o, err := durable.OpenObjects(ctx, open(t, t.TempDir()), "results", object.Limits{MaxObjectBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	owner := object.Owner{Tenant: "t", Principal: "p"}
	info, err := o.Put(ctx, owner, "application/json", []byte(`{"a":1}`))
	if err != nil || info.Size != 7 || info.Expires.IsZero() {
		t.Fatal(info, err)
	}
	if got, data, err := o.Get(ctx, owner, info.ID); err != nil || string(data) != `{"a":1}` || got.SHA256 != info.SHA256 || got.MediaType != "application/json" {
		t.Errorf("Get: %+v %s, %v", got, data, err)
	}
	for _, who := range []object.Owner{{Tenant: "u", Principal: "p"}, {Tenant: "t", Principal: "q"}, {}} {
		if _, _, err := o.Get(ctx, who, info.ID); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("Get by %+v: %v, want ErrNotFound", who, err)
		}
	}
	for _, until := range []time.Time{time.Now().Add(time.Minute), time.Now().Add(-time.Minute)} {
		info, err := o.Keep(ctx, owner, "x", []byte("y"), until)
		if err != nil || !info.Expires.Equal(until) {
			t.Errorf("Keep until %v = %+v, %v", until, info, err)
		}
		if _, _, err := o.Get(ctx, owner, info.ID); errors.Is(err, object.ErrNotFound) != until.Before(time.Now()) {
			t.Errorf("Get of what is kept until %v: %v", until, err)
		}
	}
	if _, err := o.Put(ctx, owner, "x", make([]byte, 1<<20+1)); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("an object beyond the bound: %v, want ErrTooLarge", err)
	}
}

func TestAudit(t *testing.T) {
	for _, required := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir)
		ctx := context.Background()
		a, err := durable.OpenAudit(ctx, s, durable.AuditOptions{Required: required, Recent: 10})
		if err != nil {
			t.Fatal(err)
		}
		const n = 60
		for i := range n {
			if err := a.Record(ctx, record(t, &toolwayv1.AuditRecord{CallId: fmt.Sprintf("c%02d", i), Principal: fmt.Sprint("p", i%2), StartedAt: timestamppb.Now()})); err != nil {
				t.Fatal(err)
			}
		}
		get := func(id string) *toolwayv1.AuditRecord {
			r, err := a.Get(ctx, id)
			if err != nil {
				t.Errorf("Get(%q): %v", id, err)
			}
			return r
		}
		if get("c59") == nil {
			t.Error("a record is not found right after it was made")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		s.Close()

		s = open(t, dir)
		if a, err = durable.OpenAudit(ctx, s, durable.AuditOptions{}); err != nil {
			t.Fatal(err)
		}
		if r := get("c07"); r == nil || !proto.Equal(r, &toolwayv1.AuditRecord{CallId: "c07", Principal: "p1", StartedAt: r.GetStartedAt()}) {
			t.Errorf("required %v: after a restart the record is %v", required, r)
		}
		if get("never") != nil {
			t.Error("a call that never was has a record")
		}
		seen := map[string]bool{}
		for before := uint64(0); ; {
			page, more, err := a.List(ctx, audit.Page{Before: before, Limit: 7}, func(r *toolwayv1.AuditRecord) bool { return r.GetPrincipal() == "p1" })
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				if seen[r.GetCallId()] {
					t.Errorf("%s comes twice", r.GetCallId())
				}
				seen[r.GetCallId()] = true
			}
			if before = more; more == 0 {
				break
			}
		}
		if len(seen) != n/2 {
			t.Errorf("required %v: %d records of p1 in pages, want %d", required, len(seen), n/2)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAuditOfRuns shows that each run of a task, which are calls with one id, has its record, and that a record written twice is one.
func TestAuditOfRuns(t *testing.T) {
	ctx, s := t.Context(), open(t, t.TempDir())
	begun := time.Now()
	run := func(after time.Duration, code string) *toolwayv1.AuditRecord {
		return &toolwayv1.AuditRecord{CallId: "task", StartedAt: timestamppb.New(begun.Add(after)), Code: code}
	}
	var instances [2]*durable.Audit
	for i := range instances {
		a, err := durable.OpenAudit(ctx, s, durable.AuditOptions{Required: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}()
		instances[i] = a
	}
	for i, r := range []*toolwayv1.AuditRecord{run(0, "FAILED_PRECONDITION"), run(time.Second, "OK"), run(time.Second, "OK")} {
		if err := instances[min(i, 1)].Record(ctx, record(t, r)); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range instances {
		if r, err := a.Get(ctx, "task"); err != nil || r.GetCode() != "OK" {
			t.Errorf("instance %d: Get = %v, %v; want the run that began last", i, r, err)
		}
	}
	records, _, err := instances[0].List(ctx, audit.Page{Limit: 10}, func(*toolwayv1.AuditRecord) bool { return true })
	if err != nil || len(records) != 2 || records[0].GetCode() != "OK" || records[1].GetCode() != "FAILED_PRECONDITION" {
		t.Errorf("List = %v, %v; want both runs, the newest first", records, err)
	}
}

// TestAuditInShortPages shows that what one call looks through bounds a page, not what can be found.
func TestAuditInShortPages(t *testing.T) {
	ctx := t.Context()
	a, err := durable.OpenAudit(ctx, open(t, t.TempDir()), durable.AuditOptions{Recent: 1, Searched: 7})
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		if err := a.Record(ctx, record(t, &toolwayv1.AuditRecord{CallId: fmt.Sprint(i), Principal: fmt.Sprint("p", i%25), StartedAt: timestamppb.Now()})); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "50 records are written", func() bool {
		total := 0
		for p := (audit.Page{Limit: n}); ; {
			page, more, err := a.List(ctx, p, func(*toolwayv1.AuditRecord) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			total += len(page)
			if p.Before = more; more == 0 {
				return total == n
			}
		}
	})
	found, pages := 0, 0
	for p := (audit.Page{Limit: 10}); ; {
		page, more, err := a.List(ctx, p, func(r *toolwayv1.AuditRecord) bool { return r.GetPrincipal() == "p3" })
		if err != nil {
			t.Fatal(err)
		}
		found += len(page)
		pages++
		if p.Before = more; more == 0 {
			break
		}
	}
	if found != 2 || pages != n/7+1 {
		t.Errorf("%d records in %d pages, want 2 in %d", found, pages, n/7+1)
	}
	// All were appended within the last minutes: what began later than now and the clocks' difference is not looked for.
	if page, more, err := a.List(ctx, audit.Page{Limit: 10, Since: time.Now().Add(time.Hour)}, func(*toolwayv1.AuditRecord) bool { return true }); len(page) != 0 || more != 0 || err != nil {
		t.Errorf("records of the future: %d, %d, %v", len(page), more, err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Record(ctx, record(t, &toolwayv1.AuditRecord{CallId: "late"})); err == nil {
		t.Error("a record after the end is kept, or so it says")
	}
}

func wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so after a minute", what)
		}
	}
}

// TestKeysOfADeadProcess shows that in a store of one process the calls of the one before it count as ended at once.
func TestKeysOfADeadProcess(t *testing.T) {
	dir, ctx, now := t.TempDir(), t.Context(), time.Now()
	s := open(t, dir)
	keys, err := durable.OpenKeys(ctx, s, 0, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	claim := interceptors.KeyRecord{Request: hash("r"), State: interceptors.KeyRunning, Owner: "first", Lease: now.Add(time.Hour), Expires: now.Add(time.Hour)}
	if _, mine, err := keys.Begin(ctx, hash("k"), claim); !mine || err != nil {
		t.Fatalf("Begin = %v, %v", mine, err)
	}
	again := claim
	again.Owner = "second"
	if have, mine, err := keys.Begin(ctx, hash("k"), again); mine || err != nil || !have.Lease.Equal(claim.Lease) {
		t.Errorf("while it runs: %v, %v, %v", have, mine, err)
	}
	keys.Close()
	s.Close()

	if keys, err = durable.OpenKeys(ctx, open(t, dir), 0, 0, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	have, mine, err := keys.Begin(ctx, hash("k"), again)
	if mine || err != nil || have.Owner != "first" || have.State != interceptors.KeyRunning || have.Lease.After(now) {
		t.Errorf("after the process: %v, %v, %v; want the first one's record with its lease over", have, mine, err)
	}
}
