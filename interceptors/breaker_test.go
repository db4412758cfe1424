package interceptors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/dial"
)

// TestOutage has a backend that answers nothing but UNAVAILABLE: retries must not make it worse.
func TestOutage(t *testing.T) {
	const calls = 1000
	for _, broken := range []bool{false, true} {
		f := &faulty{unary: func(context.Context, int64) error { return status.Error(codes.Unavailable, "down") }}
		o := quick()
		o.Breaker = interceptors.BreakerOptions{Off: !broken, Open: time.Hour}
		r, breakers := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
		m := method(t, "UnaryCall")
		m.Policy.Retry = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		refused := 0
		for range calls {
			_, _, err := attempt(ctx, r, m, "")
			if status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
			if reason(err) == "CIRCUIT_OPEN" {
				refused++
			}
		}
		n := f.calls.Load()
		t.Logf("breaker %v: %d calls made %d attempts at the backend: amplification %.3f; %d calls were refused by the breaker", broken, calls, n, float64(n)/calls, refused)
		if float64(n) > 1.1*calls {
			t.Errorf("amplification %.3f, want at most 1.1", float64(n)/calls)
		}
		if broken && (breakers.State("echo") != "open" || n > 40 || refused < calls-40) {
			t.Errorf("breaker is %s after %d attempts, %d calls refused", breakers.State("echo"), n, refused)
		}
	}
}

// TestBreaker opens on failures, tells callers how long to wait, probes, and closes when the backend is well again.
func TestBreaker(t *testing.T) {
	var well atomic.Bool
	f := &faulty{unary: func(context.Context, int64) error {
		if well.Load() {
			return nil
		}
		return status.Error(codes.Unavailable, "down")
	}}
	o := quick()
	o.Breaker = interceptors.BreakerOptions{Open: 50 * time.Millisecond}
	r, breakers := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
	m := method(t, "UnaryCall")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	var err error
	for reason(err) != "CIRCUIT_OPEN" && ctx.Err() == nil {
		_, _, err = attempt(ctx, r, m, "")
	}
	opened := time.Since(start)
	wait := false
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			wait = info.GetRetryDelay().AsDuration() > 0
		}
	}
	if !wait {
		t.Errorf("refusal %v has no RetryInfo", status.Convert(err).Details())
	}
	well.Store(true)
	start = time.Now()
	for breakers.State("echo") != "closed" && ctx.Err() == nil {
		_, _, _ = attempt(ctx, r, m, "")
	}
	if s := breakers.State("echo"); s != "closed" {
		t.Errorf("breaker is %s", s)
	}
	t.Logf("open after %d failures in %v, closed %v after the backend was well (open for 50ms, 3 probes)", f.calls.Load(), opened, time.Since(start))
	if _, _, err := attempt(ctx, r, m, ""); err != nil {
		t.Error(err)
	}
}

// TestBreakerIgnoresAnswers has an application that refuses everything, and callers with no time: neither opens a breaker.
func TestBreakerIgnoresAnswers(t *testing.T) {
	f := &faulty{unary: func(context.Context, int64) error { return status.Error(codes.Internal, "bug") }}
	o := quick()
	o.Breaker = interceptors.BreakerOptions{MinAttempts: 5}
	r, breakers := router(o, map[string]*dial.Conn{"echo": serveFaulty(t, f)})
	for range 20 {
		if _, _, err := attempt(t.Context(), r, method(t, "UnaryCall"), ""); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
	}
	f.unary = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _, _ = attempt(ctx, r, method(t, "UnaryCall"), "")
		cancel()
	}
	if s := breakers.State("echo"); s != "closed" {
		t.Errorf("breaker is %s", s)
	}
}
