package interceptors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// BreakerOptions say when a backend is left alone.
type BreakerOptions struct {
	// Off turns breakers off.
	Off bool
	// Rate is the share of attempts that must fail within Window, of at least MinAttempts. Defaults 0.5, 10 seconds, 20.
	Rate        float64
	Window      time.Duration
	MinAttempts int
	// Open is how long the backend is left alone before probes; it varies by a fifth. Default 2 seconds.
	Open time.Duration
	// Probes is how many attempts in a row must succeed then. Default 3.
	Probes int
	// SlowAfter is how long an attempt must have taken for its deadline to count as the backend's failure: callers with no time to spare open no
	// breaker. Default 1 second.
	SlowAfter time.Duration
}

func (o BreakerOptions) withDefaults() BreakerOptions {
	o.Rate = cmp.Or(o.Rate, 0.5)
	o.Window = cmp.Or(o.Window, 10*time.Second)
	o.MinAttempts = cmp.Or(o.MinAttempts, 20)
	o.Open = cmp.Or(o.Open, 2*time.Second)
	o.Probes = cmp.Or(o.Probes, 3)
	o.SlowAfter = cmp.Or(o.SlowAfter, time.Second)
	return o
}

// Breakers are the breakers of all backends. They are safe for concurrent use.
type Breakers struct {
	o        BreakerOptions
	log      *slog.Logger
	changes  metric.Int64Counter // nil: not measured
	refusals metric.Int64Counter

	mu    sync.Mutex
	named map[string]*breaker
}

func newBreakers(o AttemptOptions) *Breakers {
	b := &Breakers{o: o.Breaker, log: o.Logger, named: map[string]*breaker{}}
	if o.Meter != nil {
		m := o.Meter.Meter(scope)
		b.changes, _ = m.Int64Counter("toolway.breaker.changes", metric.WithDescription("Changes of a backend's breaker."), metric.WithUnit("{change}"))
		b.refusals, _ = m.Int64Counter("toolway.breaker.refusals", metric.WithDescription("Attempts that an open breaker let not through."), metric.WithUnit("{attempt}"))
	}
	return b
}

// State returns "closed", "open" or "half-open" for a backend; a backend without a breaker is closed.
func (b *Breakers) State(backend string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br := b.named[backend]; br != nil {
		return br.circuit.State().String()
	}
	return circuitbreaker.ClosedState.String()
}

func (b *Breakers) of(backend string) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br := b.named[backend]; br != nil {
		return br
	}
	br := &breaker{backend: backend, slow: b.o.SlowAfter}
	changed := func(e circuitbreaker.StateChangedEvent) { b.changed(backend, e) }
	br.circuit = circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(b.o.Rate, uint(b.o.MinAttempts), b.o.Window). //nolint:gosec // configuration has checked that it is positive
		WithDelay(b.o.Open).WithJitterFactor(0.2).
		WithSuccessThreshold(uint(b.o.Probes)). //nolint:gosec // as above
		OnStateChanged(changed).Build()
	if b.refusals != nil {
		set := metric.WithAttributeSet(attribute.NewSet(attribute.String("backend", backend)))
		br.refused = func() { b.refusals.Add(context.Background(), 1, set) }
	}
	b.named[backend] = br
	return br
}

func (b *Breakers) changed(backend string, e circuitbreaker.StateChangedEvent) {
	level := slog.LevelInfo
	if e.NewState == circuitbreaker.OpenState {
		level = slog.LevelWarn
	}
	b.log.LogAttrs(context.Background(), level, "breaker", slog.String("backend", backend), slog.String("from", e.OldState.String()), slog.String("to", e.NewState.String()))
	if b.changes != nil {
		b.changes.Add(context.Background(), 1, metric.WithAttributes(attribute.String("backend", backend), attribute.String("to", e.NewState.String())))
	}
}

// policy leaves a backend alone that answers nothing well: connections that break, UNAVAILABLE and deadlines count, statuses of the application
// do not, nor do attempts that were never sent, since a connection that cannot be made fails at once anyway. An attempt that it does not let
// through is UNAVAILABLE with CIRCUIT_OPEN and RetryInfo, and provably not executed.
func (b *Breakers) policy() AttemptPolicy {
	return AttemptPolicy{Name: "breaker", For: func(m *catalog.Method) grpc.StreamClientInterceptor {
		if b.o.Off {
			return nil
		}
		own := b.of(m.Backend.Name)
		return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			br := own
			if target := call.Target(ctx, call.FromContext(ctx)); target != own.backend {
				br = b.of(target)
			}
			return br.intercept(ctx, desc, cc, method, next, opts...)
		}
	}}
}

type breaker struct {
	backend string
	slow    time.Duration
	circuit circuitbreaker.CircuitBreaker[any]
	refused func() // counts; nil if not measured
}

func (b *breaker) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !b.circuit.TryAcquirePermit() {
		if b.refused != nil {
			b.refused()
		}
		return nil, b.refuse(call.FromContext(ctx))
	}
	start := time.Now()
	out, err := next(ctx, desc, cc, method, opts...)
	if err != nil {
		b.record(ctx, start, err)
		return nil, err
	}
	s := &watched{ClientStream: out, b: b, start: start, streams: desc.ClientStreams || desc.ServerStreams}
	if s.streams && b.circuit.IsHalfOpen() {
		// A stream may stay silent for hours; that it could be opened is what a probe finds out.
		b.circuit.RecordSuccess()
		s.recorded.Store(true)
	}
	return s, nil
}

func (b *breaker) refuse(c *call.Call) error {
	i := c.BeginAttempt(b.backend)
	c.EndAttempt(i, "", codes.Unavailable, call.NotExecuted)
	err := call.Error(codes.Unavailable, "CIRCUIT_OPEN", fmt.Sprintf("backend %q is left alone for a while, since too many of its calls have failed", b.backend),
		"backend", b.backend, "hint", "nothing was done; wait, then call again")
	return &call.Failure{Outcome: call.NotExecuted, Refused: true, Err: call.RetryAfter(err, max(b.circuit.RemainingDelay(), 100*time.Millisecond))}
}

// record notes how an attempt has ended. A permit of a breaker that is half open must be given back by a result.
func (b *breaker) record(ctx context.Context, start time.Time, err error) {
	switch b.verdict(ctx, start, err) {
	case succeeded:
		b.circuit.RecordSuccess()
	case failedBadly:
		b.circuit.RecordFailure()
	case saysNothing:
		if b.circuit.IsHalfOpen() {
			b.circuit.RecordFailure()
		}
	}
}

type health int

const (
	succeeded health = iota
	failedBadly
	saysNothing
)

// verdict says what an attempt tells about its backend.
func (b *breaker) verdict(ctx context.Context, start time.Time, err error) health {
	if err == nil || errors.Is(err, io.EOF) {
		return succeeded
	}
	outcome, code := call.OutcomeOf(err), status.Code(err)
	switch {
	case outcome == call.NotExecuted, code == codes.Canceled:
		return saysNothing
	case code == codes.DeadlineExceeded && outcome == call.Unknown:
		if time.Since(start) < b.slow {
			return saysNothing
		}
		return failedBadly
	case ctx.Err() != nil && outcome == call.Unknown:
		return saysNothing
	case code == codes.Unavailable, outcome == call.Unknown:
		return failedBadly
	}
	return succeeded // an answer of the application's, whatever it says
}

// watched is an attempt whose first sign of life, or end, is recorded.
type watched struct {
	grpc.ClientStream
	b        *breaker
	start    time.Time
	streams  bool
	recorded atomic.Bool
}

func (s *watched) record(err error) {
	if s.recorded.CompareAndSwap(false, true) {
		s.b.record(s.Context(), s.start, err)
	}
}

// Header records the header of a stream as a success. What follows its absence, and how a unary attempt has ended, RecvMsg finds out.
func (s *watched) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil || md != nil && s.streams {
		s.record(err)
	}
	return md, err
}

// RecvMsg records the first message, or the end.
func (s *watched) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if !s.recorded.Load() {
		s.record(err)
	}
	return err
}
