package interceptors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// TestSecondCall shows what a second call with a key gets, after each way in which the first can end.
func TestSecondCall(t *testing.T) {
	for _, c := range []struct {
		method, do         string
		first, second      string
		executions         int
		verdict1, verdict2 string
	}{
		{"Place", "", "OK", "OK", 1, "recorded", "replayed"},
		{"Place", "empty", "OK", "OK", 1, "recorded", "replayed"},
		{"Place", "fail NOT_FOUND", "NotFound", "NotFound", 1, "recorded", "replayed"},
		{"Place", "fail INTERNAL", "Internal", "Internal", 1, "recorded", "replayed"},
		{"Place", "fail FAILED_PRECONDITION", "FailedPrecondition", "FailedPrecondition", 1, "recorded", "replayed"},
		{"Place", "fail-once ABORTED", "Aborted", "OK", 2, "released", "recorded"},
		{"Place", "fail-once RESOURCE_EXHAUSTED", "ResourceExhausted", "OK", 2, "released", "recorded"},
		{"Place", "fail-once UNAVAILABLE+retry", "Unavailable", "OK", 2, "released", "recorded"},
		{"Place", "ask-once", "FailedPrecondition", "OK", 2, "released", "recorded"},
		{"Place", "fail UNAVAILABLE", "Unavailable", "Unknown OUTCOME_UNKNOWN", 1, "unknown", "unknown"},
		{"Place", "fail DEADLINE_EXCEEDED", "DeadlineExceeded", "Unknown OUTCOME_UNKNOWN", 1, "unknown", "unknown"},
		{"Place", "die", "Unavailable OUTCOME_UNKNOWN", "Unknown OUTCOME_UNKNOWN", 1, "unknown", "unknown"},
		{"Place", "huge", "ResourceExhausted", "Unknown OUTCOME_UNKNOWN", 1, "unknown", "unknown"},
		// A backend that knows keys, or whose method may be repeated, gets the call again.
		{"Keyed", "die-once", "Unavailable OUTCOME_UNKNOWN", "OK", 2, "unknown", "recorded"},
		{"Needs", "die-once", "Unavailable OUTCOME_UNKNOWN", "OK", 2, "unknown", "recorded"},
		{"Again", "die-once", "Unavailable OUTCOME_UNKNOWN", "OK", 2, "unknown", "recorded"},
		{"Feed", "three", "OK", "OK", 1, "recorded", "replayed"},
		{"Feed", "fail NOT_FOUND", "NotFound", "NotFound", 1, "recorded", "replayed"},
		// Nothing to protect.
		{"Read", "", "OK", "OK", 2, "", ""},
	} {
		t.Run(c.method+" "+c.do, func(t *testing.T) {
			s := openShop(t)
			handler := s.chain(interceptors.Options{})
			o := order{method: c.method, json: `{"id":"7","do":"` + c.do + `"}`, keys: []string{"k"}}
			first := s.do(t, handler, o)
			second := s.do(t, handler, o)
			for tries := 0; second.reason() == "Unavailable BACKEND_UNAVAILABLE" && tries < 1000; tries++ { // after a death, until it is connected again
				second = s.do(t, handler, o)
			}
			if first.reason() != c.first || second.reason() != c.second || s.executions() != c.executions {
				t.Errorf("first %s (%v), second %s (%v), %d executions; want %s, %s, %d", first.reason(), first.err, second.reason(), second.err, s.executions(), c.first, c.second, c.executions)
			}
			if got := fmt.Sprintf("%q", first.replies); c.verdict2 == "replayed" && fmt.Sprintf("%q", second.replies) != got {
				t.Errorf("replayed %q, want %s", second.replies, got)
			}
			if got1, got2 := verdict(first.c, "idempotency"), verdict(second.c, "idempotency"); got1 != c.verdict1 || got2 != c.verdict2 {
				t.Errorf("decisions %q and %q, want %q and %q", got1, got2, c.verdict1, c.verdict2)
			}
			if second.c.Replayed != (c.verdict2 == "replayed") {
				t.Errorf("Replayed = %v after %q", second.c.Replayed, c.verdict2)
			}
			if !second.c.Replayed {
				return
			}
			if h := second.header; h.Get("toolway-replayed") == nil || len(h.Get("x-shop")) != len(first.header.Get("x-shop")) || len(second.trailer.Get("x-till")) != 1 {
				t.Errorf("replayed header %v and trailer %v; first had %v and %v", h, second.trailer, first.header, first.trailer)
			}
		})
	}
}

func verdict(c *call.Call, name string) string {
	for _, s := range c.Steps {
		if s.Name == name {
			return s.Decided().Verdict
		}
	}
	return ""
}

func TestEmptyReplyIsAReply(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{})
	o := order{method: "Place", json: `{"do":"empty"}`, keys: []string{"k"}}
	s.do(t, handler, o)
	if g := s.do(t, handler, o); g.err != nil || len(g.replies) != 1 || len(g.replies[0]) != 0 {
		t.Errorf("replayed %q, %v; want one reply of no bytes", g.replies, g.err)
	}
}

func TestKeyOfACall(t *testing.T) {
	for _, c := range []struct {
		name, method, json string
		keys               []string
		want, reason       string
	}{
		{"bare", "Place", `{}`, []string{"abc"}, "abc", "OK"},
		{"structured string", "Place", `{}`, []string{`"a\"b\\c"`}, `a"b\c`, "OK"},
		{"with parameters", "Place", `{}`, []string{`"abc" ;x=1`}, "abc", "OK"},
		{"the same twice", "Place", `{}`, []string{"abc", "abc"}, "abc", "OK"},
		{"none", "Place", `{}`, nil, "", "OK"},
		{"the same, quoted and bare", "Place", `{}`, []string{`"abc"`, "abc"}, "abc", "OK"},
		{"two", "Place", `{}`, []string{"abc", "def"}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"empty", "Place", `{}`, []string{""}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"open quote", "Place", `{}`, []string{`"abc`}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"more after the quote", "Place", `{}`, []string{`"abc"d`}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"bad escape", "Place", `{}`, []string{`"a\bc"`}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"ends in an escape", "Place", `{}`, []string{`"abc\`}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"no ASCII", "Place", `{}`, []string{"schlüssel"}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"longest", "Place", `{}`, []string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), "OK"},
		{"too long", "Place", `{}`, []string{strings.Repeat("k", 256)}, "", "InvalidArgument IDEMPOTENCY_KEY_INVALID"},
		{"template", "Keyed", `{"id":"7"}`, nil, "order:7", "OK"},
		{"template before the caller's", "Keyed", `{"id":"7"}`, []string{"abc"}, "order:7", "OK"},
		{"template with nothing to make it of", "Keyed", `{}`, nil, "", "OK"},
		{"the caller's where the template makes none", "Keyed", `{}`, []string{"abc"}, "abc", "OK"},
		{"field", "Field", `{"id":"7"}`, nil, "7", "OK"},
		{"field required and unset", "Field", `{}`, nil, "", "InvalidArgument IDEMPOTENCY_KEY_REQUIRED"},
		{"required", "Needs", `{}`, nil, "", "InvalidArgument IDEMPOTENCY_KEY_REQUIRED"},
		{"required and there", "Needs", `{}`, []string{"abc"}, "abc", "OK"},
		{"request stream", "Import", `{}`, []string{"abc"}, "abc", "OK"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openShop(t)
			g := s.do(t, s.chain(interceptors.Options{}), order{method: c.method, json: c.json, keys: c.keys})
			if g.reason() != c.reason {
				t.Fatalf("%v, want %s", g.err, c.reason)
			}
			if g.c.Key != c.want {
				t.Errorf("Key = %q, want %q", g.c.Key, c.want)
			}
			if seen := s.keys(); c.reason == "OK" && (len(seen) != 1 || seen[c.want] != 1) {
				t.Errorf("the backend saw keys %v, want %q once", seen, c.want)
			} else if c.reason != "OK" && len(seen) != 0 {
				t.Errorf("the backend saw %v of a call that was refused", seen)
			}
		})
	}
}

func TestKeyScope(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{})
	o := order{method: "Place", json: `{"id":"7"}`, keys: []string{"k"}}
	s.do(t, handler, o)
	for i, change := range []func(*order){
		func(o *order) { o.by = &identity.Principal{ID: "ann"} },
		func(o *order) { o.by = &identity.Principal{ID: "ann", Tenant: "t"} },
		func(o *order) { o.by = &identity.Principal{ID: "t", Tenant: "ann"} },
		func(o *order) { o.method = "Feed" },
	} {
		other := o
		change(&other)
		if g := s.do(t, handler, other); g.err != nil || g.c.Replayed {
			t.Errorf("%d: the key of another caller or method: %v, replayed %v", i, g.err, g.c.Replayed)
		}
	}
	if s.executions() != 5 {
		t.Errorf("%d executions, want 5", s.executions())
	}
}

func TestKeyReused(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{})
	first := s.do(t, handler, order{method: "Place", json: `{"id":"7","lines":{"a":1,"b":2}}`, keys: []string{"k"}})
	other := s.do(t, handler, order{method: "Place", json: `{"id":"8","lines":{"a":1,"b":2}}`, keys: []string{"k"}})
	if other.reason() != "InvalidArgument IDEMPOTENCY_KEY_REUSED" || infoOf(other.err).GetMetadata()["call_id"] != first.c.ID {
		t.Errorf("another request: %v, want IDEMPOTENCY_KEY_REUSED that names call %s", other.err, first.c.ID)
	}
	same := s.do(t, handler, order{method: "Place", json: `{"lines":{"b":2,"a":1},"do":"","id":"7"}`, keys: []string{`"k"`}})
	if same.err != nil || !same.c.Replayed {
		t.Errorf("the same request, written differently: %v, replayed %v", same.err, same.c.Replayed)
	}
	if s.executions() != 1 {
		t.Errorf("%d executions, want 1", s.executions())
	}
}

// TestHintsOfMadeKeys has keys that the contract makes: their callers cannot send another one.
func TestHintsOfMadeKeys(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{})
	for _, o := range []order{{method: "Keyed", json: `{"id":"7"}`}, {method: "Place", json: `{"id":"7"}`, keys: []string{"k"}}} {
		if g := s.do(t, handler, o); g.err != nil {
			t.Fatal(g.err)
		}
		made := o.keys == nil
		o.json = `{"id":"7","card":"1"}`
		g := s.do(t, handler, o)
		hint := infoOf(g.err).GetMetadata()["hint"]
		if g.reason() != "InvalidArgument IDEMPOTENCY_KEY_REUSED" || g.c.KeyMade != made || strings.Contains(hint, "a new key") == made || strings.Contains(hint, "made of id") != made {
			t.Errorf("%s: %s, made %t, hint %q", o.method, g.reason(), g.c.KeyMade, hint)
		}
	}
}

func TestMalformedRequestWithKey(t *testing.T) {
	s := openShop(t)
	m := s.Method("/shop.v1.Shop/Place")
	c := call.New(m, call.GRPC)
	c.Forward = metadata.Pairs("idempotency-key", "k")
	_, err := run(t.Context(), c, []byte{0x0a, 0xff}, s.final, interceptors.Idempotency(interceptors.Options{}))
	if reasonOf(err) != "InvalidArgument MALFORMED_REQUEST" || s.executions() != 0 {
		t.Errorf("%v after %d executions, want MALFORMED_REQUEST after none", err, s.executions())
	}
}

// TestManyAtOnce has many callers with one key: one execution, and whoever comes later gets its answer.
func TestManyAtOnce(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{})
	o := order{method: "Place", json: `{"id":"7","do":"wait"}`, keys: []string{"k"}}
	const callers = 100
	var wg sync.WaitGroup
	var busy, first atomic.Int32
	refused := make(chan struct{}, callers)
	for range callers {
		wg.Go(func() {
			switch g := s.do(t, handler, o); g.reason() {
			case "OK":
				first.Add(1)
			case "Aborted IDEMPOTENCY_IN_PROGRESS":
				busy.Add(1)
				refused <- struct{}{}
			default:
				t.Errorf("%v", g.err)
				refused <- struct{}{}
			}
		})
	}
	for range callers - 1 {
		<-refused
	}
	close(s.hold)
	wg.Wait()
	if first.Load() != 1 || busy.Load() != callers-1 || s.executions() != 1 {
		t.Errorf("%d answered, %d told to wait, %d executions; want 1, %d, 1", first.Load(), busy.Load(), s.executions(), callers-1)
	}
	for range 3 {
		if g := s.do(t, handler, o); g.err != nil || !g.c.Replayed || string(g.replies[0]) != "\n\x017" {
			t.Errorf("afterwards: %q, %v, replayed %v", g.replies, g.err, g.c.Replayed)
		}
	}
	if s.executions() != 1 {
		t.Errorf("%d executions, want 1", s.executions())
	}
}

func TestRefusedInsideLeavesTheKeyFree(t *testing.T) {
	s := openShop(t)
	refuse, panics := true, false
	guard := interceptors.Every("guard", func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		switch {
		case panics:
			panic("a bug")
		case refuse:
			return call.Error(codes.ResourceExhausted, "RATE_LIMITED", "too fast")
		}
		return next(srv, stream)
	})
	handler := s.chain(interceptors.Options{}, guard)
	o := order{method: "Place", json: `{"id":"7"}`, keys: []string{"k"}}
	if g := s.do(t, handler, o); g.reason() != "ResourceExhausted RATE_LIMITED" {
		t.Errorf("refused: %v", g.err)
	}
	refuse, panics = false, true
	if g := s.do(t, handler, o); status.Code(g.err) != codes.Internal {
		t.Errorf("panic: %v", g.err)
	}
	panics = false
	if g := s.do(t, handler, o); g.err != nil || g.c.Replayed {
		t.Errorf("afterwards: %v, replayed %v", g.err, g.c.Replayed)
	}
	if s.executions() != 1 {
		t.Errorf("%d executions, want 1", s.executions())
	}
}

// TestPanicAfterDispatch is a mesh that fails between dispatch and record.
func TestPanicAfterDispatch(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{}, interceptors.Every("late", func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		_ = next(srv, stream)
		panic("a bug")
	}))
	o := order{method: "Place", json: `{"id":"7"}`, keys: []string{"k"}}
	if g := s.do(t, handler, o); status.Code(g.err) != codes.Internal {
		t.Errorf("panic: %v", g.err)
	}
	if g := s.do(t, handler, o); g.reason() != "Unknown OUTCOME_UNKNOWN" || s.executions() != 1 {
		t.Errorf("afterwards: %v after %d executions, want OUTCOME_UNKNOWN after 1", g.err, s.executions())
	}
}

// forgetful is a store that cannot record what became of calls, as when a mesh is killed.
type forgetful struct{ interceptors.KeyStore }

func (forgetful) Finish(context.Context, interceptors.Hash, interceptors.KeyRecord) error {
	return errors.New("killed")
}

// instant is a backend that answers at once and counts.
func instant(n *int) grpc.StreamHandler {
	return func(_ any, s grpc.ServerStream) error {
		call.FromContext(s.Context()).MarkSent()
		*n++
		return s.SendMsg(call.NewFrame(nil, nil))
	}
}

// TestCrashBeforeRecord is a mesh that is killed between dispatch and record, and another that shares its store.
func TestCrashBeforeRecord(t *testing.T) {
	snap := contract(t, onceContract)
	synctest.Test(t, func(t *testing.T) {
		s := &shop{Snapshot: snap}
		n := 0
		store := interceptors.NewKeyMemory(0, 0)
		policy := func(store interceptors.KeyStore) call.Handler {
			return interceptors.Chain(instant(&n), interceptors.Idempotency(interceptors.Options{Logger: discard(), Idempotency: interceptors.IdempotencyOptions{Store: store}}))
		}
		for _, c := range []struct {
			method     string
			executions int
			want       string
		}{{"Place", 1, "Unknown OUTCOME_UNKNOWN"}, {"Keyed", 2, "OK"}} {
			n = 0
			o := order{method: c.method, json: `{"id":"7"}`, keys: []string{"k"}} // with a deadline of a minute
			if g := s.do(t, policy(forgetful{store}), o); g.err != nil {
				t.Fatalf("%s: the caller of a call that cannot be recorded: %v, want its answer", c.method, g.err)
			}
			if g := s.do(t, policy(store), o); g.reason() != "Aborted IDEMPOTENCY_IN_PROGRESS" {
				t.Errorf("%s: while the owner may be alive: %v", c.method, g.err)
			}
			time.Sleep(time.Minute + time.Minute + time.Second) // its deadline, and the lease
			if g := s.do(t, policy(store), o); g.reason() != c.want || n != c.executions {
				t.Errorf("%s: %v after %d executions, want %s after %d", c.method, g.err, n, c.want, c.executions)
			}
		}
	})
}

func TestKeysExpire(t *testing.T) {
	snap := contract(t, onceContract)
	synctest.Test(t, func(t *testing.T) {
		s := &shop{Snapshot: snap}
		n := 0
		handler := interceptors.Chain(instant(&n), interceptors.Idempotency(interceptors.Options{Logger: discard()}))
		o := order{method: "Place", json: `{}`, keys: []string{"k"}}
		s.do(t, handler, o)
		time.Sleep(24*time.Hour - time.Second)
		if g := s.do(t, handler, o); !g.c.Replayed || n != 1 {
			t.Errorf("before a day is over: replayed %v, %d executions", g.c.Replayed, n)
		}
		time.Sleep(2 * time.Second)
		if g := s.do(t, handler, o); g.c.Replayed || n != 2 {
			t.Errorf("after a day: replayed %v, %d executions", g.c.Replayed, n)
		}
	})
}

// TestUnknownStaysUnknown repeats a call of unknown outcome, as its backend knows keys, and does not get through.
func TestUnknownStaysUnknown(t *testing.T) {
	s := openShop(t)
	refuse := false
	handler := s.chain(interceptors.Options{}, interceptors.Every("guard", func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if refuse {
			return status.Error(codes.ResourceExhausted, "too fast")
		}
		return next(srv, stream)
	}))
	o := order{method: "Keyed", json: `{"id":"7","do":"fail-once UNAVAILABLE"}`}
	if g := s.do(t, handler, o); status.Code(g.err) != codes.Unavailable {
		t.Fatal(g.err)
	}
	refuse = true
	if g := s.do(t, handler, o); status.Code(g.err) != codes.ResourceExhausted || verdict(g.c, "idempotency") != "unknown" {
		t.Errorf("not let through: %v, %q", g.err, verdict(g.c, "idempotency"))
	}
	other := order{method: "Keyed", json: `{"id":"7"}`}
	if g := s.do(t, handler, other); g.reason() != "InvalidArgument IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("another request with the key: %v", g.err)
	}
	refuse = false
	if g := s.do(t, handler, o); g.err != nil || s.executions() != 2 {
		t.Errorf("let through: %v after %d executions", g.err, s.executions())
	}
}

func TestStoreFails(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{Idempotency: interceptors.IdempotencyOptions{Store: unreachable{}}})
	if g := s.do(t, handler, order{method: "Place", json: `{}`, keys: []string{"k"}}); g.reason() != "Unavailable IDEMPOTENCY_STORE_UNAVAILABLE" || s.executions() != 0 {
		t.Errorf("%v after %d executions, want IDEMPOTENCY_STORE_UNAVAILABLE after none", g.err, s.executions())
	}
	if g := s.do(t, handler, order{method: "Place", json: `{}`}); g.err != nil {
		t.Errorf("a call without a key: %v", g.err)
	}
}

type unreachable struct{ interceptors.KeyStore }

func (unreachable) Begin(context.Context, interceptors.Hash, interceptors.KeyRecord) (interceptors.KeyRecord, bool, error) {
	return interceptors.KeyRecord{}, false, errors.New("no route to host")
}

func TestAnswersThatAreTooLarge(t *testing.T) {
	s := openShop(t)
	for _, c := range []struct {
		name string
		o    interceptors.IdempotencyOptions
	}{
		{"for a record", interceptors.IdempotencyOptions{MaxAnswerBytes: 8 << 10}},
		{"for the store", interceptors.IdempotencyOptions{Store: interceptors.NewKeyMemory(32<<10, 0)}}, // 8 KiB for one caller
	} {
		s.mu.Lock()
		clear(s.executed)
		s.mu.Unlock()
		handler := s.chain(interceptors.Options{Idempotency: c.o})
		o := order{method: "Place", json: `{"do":"big"}`, keys: []string{"k"}}
		if g := s.do(t, handler, o); g.err != nil || len(g.replies) != 1 || len(g.replies[0]) < 16<<10 {
			t.Fatalf("%s: %d replies, %v; want the whole answer", c.name, len(g.replies), g.err)
		}
		g := s.do(t, handler, o)
		if g.reason() != "FailedPrecondition IDEMPOTENCY_ANSWER_NOT_KEPT" || infoOf(g.err).GetMetadata()["code"] != "OK" || s.executions() != 1 {
			t.Errorf("%s: %v after %d executions", c.name, g.err, s.executions())
		}
	}
}

func TestStoreIsFull(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{Idempotency: interceptors.IdempotencyOptions{Store: interceptors.NewKeyMemory(16<<10, 0)}})
	place := func(by, key string) got {
		return s.do(t, handler, order{method: "Place", json: `{"id":"7"}`, keys: []string{key}, by: &identity.Principal{ID: by}})
	}
	kept := 0
	for ; kept < 100; kept++ {
		if g := place("noisy", fmt.Sprint(kept)); g.err != nil {
			if g.reason() != "ResourceExhausted IDEMPOTENCY_SHARE_FULL" {
				t.Fatal(g.err)
			}
			break
		}
	}
	if kept == 0 || kept == 100 {
		t.Fatalf("a caller could keep %d keys in 16 KiB", kept)
	}
	if g := place("noisy", "0"); g.err != nil || !g.c.Replayed {
		t.Errorf("the first key, when there is no more room: %v, replayed %v", g.err, g.c.Replayed)
	}
	if g := place("quiet", "0"); g.err != nil {
		t.Errorf("another caller, beside one that has used up its room: %v", g.err)
	}
	var last got
	for i := 0; i < 100 && last.err == nil; i++ {
		last = place(fmt.Sprint("caller ", i), "0")
	}
	if last.err == nil || last.reason() != "ResourceExhausted IDEMPOTENCY_STORE_FULL" {
		t.Errorf("one of many callers, when there is no more room at all: %v", last.err)
	}
}

// TestKeysOnlyWhereWanted has an operator that keeps no keys for some methods.
func TestKeysOnlyWhereWanted(t *testing.T) {
	s := openShop(t)
	handler := s.chain(interceptors.Options{Idempotency: interceptors.IdempotencyOptions{Applies: func(m *catalog.Method) bool { return m.FullMethod != "/shop.v1.Shop/Place" }}})
	o := order{method: "Place", json: `{}`, keys: []string{"k"}}
	s.do(t, handler, o)
	if g := s.do(t, handler, o); g.err != nil || g.c.Replayed || s.keys()["k"] != 2 {
		t.Errorf("%v, replayed %v, the backend saw %v; want the key forwarded twice", g.err, g.c.Replayed, s.keys())
	}
}
