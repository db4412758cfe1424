package interceptors_test

import (
	"context"
	"fmt"
	"sync"
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

const readable = `syntax = "proto3"; package acme.v1; import "toolway/v1/options.proto"; import "google/protobuf/duration.proto";
	message Q { string q = 1; map<string, string> m = 2; } message A { string a = 1; }
	service S {
		rpc Get(Q) returns (A) { option (toolway.v1.method) = {read_only: true, cache_ttl: {seconds: 60}}; }
		rpc Twin(Q) returns (A) { option (toolway.v1.method) = {read_only: true, cache_ttl: {seconds: 60}}; }
		rpc Live(Q) returns (A) { option (toolway.v1.method) = {read_only: true}; }
		rpc Set(Q) returns (A) { option (toolway.v1.method) = {cache_ttl: {seconds: 60}}; }
		rpc Watch(Q) returns (stream A) { option (toolway.v1.method) = {read_only: true, cache_ttl: {seconds: 60}}; }
	}`

// reading is a mesh of one policy, whose backend counts its calls.
type reading struct {
	t       *testing.T
	s       *catalog.Snapshot
	calls   int
	mu      sync.Mutex
	answer  func(ctx context.Context, n int) (string, error)
	handler call.Handler
}

func newReading(t *testing.T, o interceptors.CacheOptions) *reading {
	r := &reading{t: t, s: contract(t, readable)}
	r.handler = interceptors.Chain(func(_ any, s grpc.ServerStream) error {
		var f call.Frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		f.Release()
		r.mu.Lock()
		r.calls++
		n := r.calls
		r.mu.Unlock()
		text, err := fmt.Sprintf("answer %d", n), error(nil)
		if r.answer != nil {
			text, err = r.answer(s.Context(), n)
		}
		if err != nil {
			return err
		}
		if err := s.SetHeader(metadata.Pairs("x-own", "leader")); err != nil {
			return err
		}
		return s.SendMsg(call.NewFrame(nil, append([]byte{0x0a, byte(len(text))}, text...)))
	}, interceptors.Cache(interceptors.Options{Cache: o}))
	return r
}

// get makes a call and returns its reply, or its code.
func (r *reading) get(ctx context.Context, method, request string, change ...func(*call.Call)) (string, *call.Call, metadata.MD) {
	m := r.s.Method("/acme.v1.S/" + method)
	c := call.New(m, call.MCP)
	for _, f := range change {
		f(c)
	}
	got := ""
	stream := call.NewStream(ctx, c, call.One(call.NewFrame(nil, requestOf(r.t, m, request))), func(f *call.Frame) error {
		got = string(f.Bytes()[2:])
		return nil
	}, nil)
	if err := r.handler(stream); err != nil {
		got = status.Code(err).String()
	}
	return got, c, stream.Header()
}

func as(p *identity.Principal) func(*call.Call) { return func(c *call.Call) { c.Principal = p } }

func TestCacheTellsCallsApart(t *testing.T) {
	r := newReading(t, interceptors.CacheOptions{})
	header := func(md metadata.MD) func(*call.Call) { return func(c *call.Call) { c.Forward = md } }
	ann, bob := &identity.Principal{ID: "ann", Tenant: "t", Scopes: []string{"a"}}, &identity.Principal{ID: "bob", Tenant: "t", Scopes: []string{"a"}}
	for _, c := range []struct {
		name, method, request string
		change                []func(*call.Call)
		want                  string
	}{
		{"first", "Get", `{"q":"x"}`, nil, "answer 1"},
		{"again", "Get", `{"q":"x"}`, nil, "answer 1"},
		{"another trace", "Get", `{"q":"x"}`, []func(*call.Call){header(metadata.Pairs("traceparent", "00-1"))}, "answer 1"},
		{"another request", "Get", `{"q":"y"}`, nil, "answer 2"},
		{"another method", "Twin", `{"q":"x"}`, nil, "answer 3"},
		{"somebody", "Get", `{"q":"x"}`, []func(*call.Call){as(ann)}, "answer 4"},
		{"somebody with the same rights", "Get", `{"q":"x"}`, []func(*call.Call){as(bob)}, "answer 4"},
		{"another tenant", "Get", `{"q":"x"}`, []func(*call.Call){as(&identity.Principal{ID: "ann", Tenant: "u", Scopes: []string{"a"}})}, "answer 5"},
		{"other rights", "Get", `{"q":"x"}`, []func(*call.Call){as(&identity.Principal{ID: "ann", Tenant: "t", Scopes: []string{"a", "b"}})}, "answer 6"},
		{"other metadata", "Get", `{"q":"x"}`, []func(*call.Call){header(metadata.Pairs("x-acme-locale", "de"))}, "answer 7"},
		{"other metadata again", "Get", `{"q":"x"}`, []func(*call.Call){header(metadata.Pairs("x-acme-locale", "de"))}, "answer 7"},
		{"a map", "Get", `{"m":{"a":"1","b":"2"}}`, nil, "answer 8"},
		{"a map in another order", "Get", `{"m":{"b":"2","a":"1"}}`, nil, "answer 8"},
		{"not cacheable", "Live", `{"q":"x"}`, nil, "answer 9"},
		{"not cacheable again", "Live", `{"q":"x"}`, nil, "answer 10"},
		{"a write", "Set", `{"q":"x"}`, nil, "answer 11"},
		{"a write again", "Set", `{"q":"x"}`, nil, "answer 12"},
		{"a stream", "Watch", `{"q":"x"}`, nil, "answer 13"},
		{"a stream again", "Watch", `{"q":"x"}`, nil, "answer 14"},
	} {
		got, cl, md := r.get(t.Context(), c.method, c.request, c.change...)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if hit := fmt.Sprint(md["toolway-cache"]) == "[hit]"; hit != cl.Freshness.Cached || hit == (fmt.Sprint(md["x-own"]) == "[leader]") {
			t.Errorf("%s: header %v, freshness %+v, want a hit marked and nothing of the backend's header", c.name, md, cl.Freshness)
		}
	}
}

func TestCacheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t, interceptors.CacheOptions{})
		r.get(t.Context(), "Get", `{}`)
		time.Sleep(59 * time.Second)
		if got, c, md := r.get(t.Context(), "Get", `{}`); got != "answer 1" || c.Freshness != (call.Freshness{Cached: true, Age: 59 * time.Second, Remaining: time.Second}) || fmt.Sprint(md["toolway-age"]) != "[59]" {
			t.Errorf("after 59s: %q %+v %v", got, c.Freshness, md)
		}
		time.Sleep(time.Second)
		if got, c, _ := r.get(t.Context(), "Get", `{}`); got != "answer 2" || c.Freshness != (call.Freshness{Remaining: time.Minute}) {
			t.Errorf("after 60s: %q %+v, want a new answer", got, c.Freshness)
		}
	})
}

func TestCacheKeepsNoFailure(t *testing.T) {
	r := newReading(t, interceptors.CacheOptions{})
	r.answer = func(_ context.Context, n int) (string, error) {
		if n == 1 {
			return "", status.Error(codes.NotFound, "not yet")
		}
		return "found", nil
	}
	if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "NotFound" {
		t.Fatalf("%q", got)
	}
	if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "found" {
		t.Errorf("after a failure: %q, want a new try", got)
	}
}

// TestCacheStale has a backend that goes away and comes back.
func TestCacheStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t, interceptors.CacheOptions{Stale: 10 * time.Minute})
		away := call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", "gone")
		err := away
		r.answer = func(_ context.Context, n int) (string, error) {
			if n == 1 {
				return "old", nil
			}
			return "new", err
		}
		step := func(after time.Duration, want string, stale bool) {
			t.Helper()
			time.Sleep(after)
			got, c, md := r.get(t.Context(), "Get", `{}`)
			if got != want || c.Freshness.Stale != stale || (fmt.Sprint(md["toolway-stale"]) == "[true]") != stale {
				t.Errorf("%q stale %v %v, want %q stale %v", got, c.Freshness.Stale, md, want, stale)
			}
		}
		step(0, "old", false)
		step(2*time.Minute, "old", true)
		err = call.Error(codes.Unavailable, "CIRCUIT_OPEN", "open")
		step(0, "old", true)
		err = status.Error(codes.Unavailable, "the backend's own words")
		step(0, "Unavailable", false)
		err = status.Error(codes.NotFound, "deleted")
		step(0, "NotFound", false)
		err = away
		step(9*time.Minute, "Unavailable", false)
		err = nil
		step(0, "new", false)
	})
}

// TestCacheShares has many equal calls at the same time.
func TestCacheShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t, interceptors.CacheOptions{})
		open := make(chan struct{})
		r.answer = func(ctx context.Context, n int) (string, error) {
			select {
			case <-open:
				return fmt.Sprint("answer ", n), nil
			case <-ctx.Done():
				return "", status.FromContextError(ctx.Err()).Err()
			}
		}
		first, cancel := context.WithCancel(t.Context())
		results := make(chan string, 10)
		go func() {
			got, _, _ := r.get(first, "Get", `{}`)
			results <- "leader: " + got
		}()
		synctest.Wait()
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		go func() {
			got, _, _ := r.get(short, "Get", `{}`)
			results <- "short: " + got
		}()
		for range 3 {
			go func() {
				got, _, _ := r.get(t.Context(), "Get", `{}`)
				results <- got
			}()
		}
		synctest.Wait()
		cancel() // whose call the others wait for
		synctest.Wait()
		if got := <-results; got != "short: DeadlineExceeded" {
			t.Errorf("%q, want the one with a short deadline to end alone", got)
		}
		close(open)
		synctest.Wait()
		seen := map[string]int{}
		for range 4 {
			seen[<-results]++
		}
		if seen["answer 1"] != 3 || r.calls != 1 {
			t.Errorf("results %v of %d calls, want the answer of one call three times", seen, r.calls)
		}
	})
}

// TestCacheAbandons sees a call cancelled when nobody waits for it any more.
func TestCacheAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t, interceptors.CacheOptions{})
		ended := false
		r.answer = func(ctx context.Context, _ int) (string, error) {
			<-ctx.Done()
			ended = true
			return "", status.FromContextError(ctx.Err()).Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() { r.get(ctx, "Get", `{}`) })
		}
		synctest.Wait()
		cancel()
		waiting.Wait()
		if !ended {
			t.Error("the call goes on although nobody waits")
		}
	})
}

// TestCacheDeadline has waiters whose deadline is later than that of the call that they wait for.
func TestCacheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t, interceptors.CacheOptions{})
		r.answer = func(ctx context.Context, n int) (string, error) {
			select {
			case <-time.After(2 * time.Second):
				return fmt.Sprint("answer ", n), nil
			case <-ctx.Done():
				return "", status.FromContextError(ctx.Err()).Err()
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if got, _, _ := r.get(short, "Get", `{}`); got != "DeadlineExceeded" {
				t.Errorf("the short one: %q", got)
			}
		})
		synctest.Wait()
		if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "answer 2" {
			t.Errorf("the patient one: %q, want a call of its own", got)
		}
		waiting.Wait()
	})
}

// TestCacheDeadlineIsNoCancellation has a deadline pass at the one who makes the call: the backend's call must not be cancelled instead.
func TestCacheDeadlineIsNoCancellation(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newReading(t, interceptors.CacheOptions{})
			r.answer = func(ctx context.Context, _ int) (string, error) {
				<-ctx.Done()
				return "", status.FromContextError(ctx.Err()).Err()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got, _, _ := r.get(ctx, "Get", `{}`); got != "DeadlineExceeded" {
				t.Fatalf("%q, want DeadlineExceeded", got)
			}
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	r := newReading(t, interceptors.CacheOptions{MaxBytes: 1000, MaxReplyBytes: 100})
	big := false
	r.answer = func(_ context.Context, n int) (string, error) {
		if big {
			return fmt.Sprintf("%0110d", n), nil
		}
		return fmt.Sprint(n), nil
	}
	for _, q := range []string{"a", "b", "c", "d", "e"} { // about 260 bytes each
		r.get(t.Context(), "Get", `{"q":"`+q+`"}`)
	}
	if got, _, _ := r.get(t.Context(), "Get", `{"q":"e"}`); got != "5" {
		t.Errorf("the newest: %q, want it kept", got)
	}
	if got, _, _ := r.get(t.Context(), "Get", `{"q":"a"}`); got != "6" {
		t.Errorf("the oldest: %q, want it gone to make room", got)
	}
	big = true
	r.get(t.Context(), "Get", `{"q":"big"}`)
	if _, c, _ := r.get(t.Context(), "Get", `{"q":"big"}`); c.Freshness.Cached {
		t.Error("a reply that is too large was kept")
	}
}

// TestCacheLeavesRefusalsAlone has a call that its door refuses beside equal ones that it takes.
func TestCacheLeavesRefusalsAlone(t *testing.T) {
	r := newReading(t, interceptors.CacheOptions{})
	refused := func(c *call.Call) { c.Refuse(status.Error(codes.InvalidArgument, "not like this")) }
	if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "answer 1" {
		t.Fatalf("%q", got)
	}
	if got, _, _ := r.get(t.Context(), "Get", `{}`, refused); got != "InvalidArgument" {
		t.Errorf("refused by the door: %q, want the refusal, not a kept answer", got)
	}
	if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "answer 1" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestCacheAfterAPanic(t *testing.T) {
	r := newReading(t, interceptors.CacheOptions{})
	r.answer = func(_ context.Context, n int) (string, error) {
		if n == 1 {
			panic("x")
		}
		return "fine", nil
	}
	func() {
		defer func() { _ = recover() }()
		r.get(t.Context(), "Get", `{}`)
	}()
	if got, _, _ := r.get(t.Context(), "Get", `{}`); got != "fine" {
		t.Errorf("after a panic: %q", got)
	}
}

func BenchmarkCache(b *testing.B) {
	m := contract(b, readable).Method("/acme.v1.S/Get")
	request := requestOf(b, m, `{"q":"something","m":{"a":"1","b":"2"}}`)
	reply := call.NewFrame(nil, append([]byte{0x0a, 100}, make([]byte, 100)...))
	final := func(_ any, s grpc.ServerStream) error {
		var f call.Frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		return s.SendMsg(reply)
	}
	p := &identity.Principal{ID: "ann", Tenant: "t", Scopes: []string{"a", "b"}}
	for _, c := range []struct {
		name  string
		chain []interceptors.Policy
	}{{"none", nil}, {"hit", []interceptors.Policy{interceptors.Cache(interceptors.Options{})}}, {"miss", []interceptors.Policy{interceptors.Cache(interceptors.Options{Cache: interceptors.CacheOptions{MaxReplyBytes: 1}})}}} {
		b.Run(c.name, func(b *testing.B) {
			h := interceptors.Chain(final, c.chain...)
			b.ReportAllocs()
			for b.Loop() {
				cl := call.New(m, call.GRPC)
				cl.Principal = p
				if err := h(call.NewStream(b.Context(), cl, call.One(call.NewFrame(nil, request)), func(*call.Frame) error { return nil }, nil)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
