package interceptors

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// RetryOptions bound retries.
type RetryOptions struct {
	// MaxAttempts bounds the attempts of one call, the first included. Default 3; 1 turns retries off.
	MaxAttempts int
	// BaseDelay is the most that is waited before the second attempt; it doubles from attempt to attempt, up to MaxDelay, and the wait is drawn
	// evenly between zero and that. Defaults 50 milliseconds and 1 second.
	BaseDelay, MaxDelay time.Duration
	// MaxWait is the longest wait that a backend may ask for with RetryInfo or pushback; for a longer one the caller is told instead. Default 10 seconds.
	MaxWait time.Duration
	// MaxBytes is the largest request that is kept for another attempt. Default 1 MiB.
	MaxBytes int
	// BudgetRatio is how many retries each success earns, per backend; BudgetBurst how many can be saved up; BudgetPerSecond what time earns. Defaults
	// 0.1, 10 and 0.1.
	BudgetRatio, BudgetPerSecond float64
	BudgetBurst                  int
}

func (o RetryOptions) withDefaults() RetryOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 3)
	o.BaseDelay = cmp.Or(o.BaseDelay, 50*time.Millisecond)
	o.MaxDelay = cmp.Or(o.MaxDelay, time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 10*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<20)
	o.BudgetRatio = cmp.Or(o.BudgetRatio, 0.1)
	o.BudgetPerSecond = cmp.Or(o.BudgetPerSecond, 0.1)
	o.BudgetBurst = cmp.Or(o.BudgetBurst, 10)
	return o
}

// backoff draws the wait after an attempt, counted from 1.
func (o *RetryOptions) backoff(attempt int) time.Duration {
	limit := o.MaxDelay
	if shift := attempt - 1; shift < 16 && o.BaseDelay<<shift < limit {
		limit = o.BaseDelay << shift
	}
	return rand.N(limit + 1)
}

// retry makes an attempt again where retry_matrix.csv says so: one that provably was not executed always, any other only if it was transient and
// the contract lets the method be repeated or the backend gets an idempotency key. Streams of requests are tried again only if none was sent.
// Nothing is tried again once a header or message has gone to the caller.
func retry(o AttemptOptions, budgets *budgets) AttemptPolicy {
	return AttemptPolicy{Name: "retry", For: func(m *catalog.Method) grpc.StreamClientInterceptor {
		r := &retrier{o: o.Retry, m: m, budget: budgets.of(m.Backend.Name), failover: m.Failover}
		if o.Retry.MaxAttempts <= 1 && r.failover == "" {
			return nil
		}
		return r.intercept
	}}
}

type retrier struct {
	o        RetryOptions
	m        *catalog.Method
	budget   *retryBudget
	failover string
}

func (r *retrier) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &retrying{r: r, c: call.FromContext(ctx), ctx: ctx, desc: desc, cc: cc, method: method, next: next, opts: opts}
	if !desc.ClientStreams {
		return s, nil
	}
	// Once the stream is open, its requests flow and are gone.
	for {
		s.attempt++
		out, err := next(s.ctx, desc, cc, method, opts...)
		if err == nil {
			return out, nil
		}
		if !s.again(err) {
			return nil, err
		}
	}
}

// retrying is a call with one request, as a stream that may be several attempts.
type retrying struct {
	r      *retrier
	c      *call.Call
	ctx    context.Context
	desc   *grpc.StreamDesc
	cc     *grpc.ClientConn
	method string
	next   grpc.Streamer
	opts   []grpc.CallOption

	request    call.Frame
	kept       bool // request is there for another attempt
	stream     grpc.ClientStream
	attempt    int
	failedOver bool
	settled    bool  // the answer is stream's, or end
	end        error // what RecvMsg returns, if not nil
}

// Context returns the call's.
func (s *retrying) Context() context.Context { return s.ctx }

// SendMsg takes the one request; nothing is sent until the answer is asked for.
func (s *retrying) SendMsg(m any) error {
	f, ok := m.(*call.Frame)
	if !ok {
		return status.Error(codes.Internal, "the messages of an attempt are *call.Frame")
	}
	s.drop()
	s.request, s.kept = f.Retain(), true
	return nil
}

// CloseSend has nothing to do: the one request ends the requests.
func (s *retrying) CloseSend() error { return nil }

// Header returns the header of the attempt that is the answer, as soon as that is known; nil if it has none.
func (s *retrying) Header() (metadata.MD, error) {
	for !s.settled {
		err := s.open()
		if err == nil {
			var header metadata.MD
			if header, err = s.stream.Header(); err == nil && header != nil {
				s.settle(nil)
				return header, nil
			}
			if err == nil { // it has ended without one
				var none call.Frame
				if err = s.stream.RecvMsg(&none); err == nil {
					none.Release()
					err = status.Error(codes.Internal, "an attempt has sent a message without a header")
				}
			}
		}
		s.judge(err)
	}
	if s.stream == nil {
		return nil, nil //nolint:nilnil // there is none, and RecvMsg says why
	}
	return s.stream.Header()
}

// Trailer returns the trailer of the last attempt.
func (s *retrying) Trailer() metadata.MD {
	if s.stream == nil {
		return nil
	}
	return s.stream.Trailer()
}

// RecvMsg takes the next message of the attempt that is the answer.
func (s *retrying) RecvMsg(m any) error {
	for !s.settled {
		err := s.open()
		if err == nil {
			err = s.stream.RecvMsg(m)
		}
		if err == nil {
			s.settle(nil)
			return nil
		}
		s.judge(err)
	}
	if s.end != nil {
		return s.end
	}
	return s.stream.RecvMsg(m)
}

// open begins the attempt, unless one is under way.
func (s *retrying) open() error {
	if s.stream != nil {
		return nil
	}
	s.attempt++
	stream, err := s.next(s.ctx, s.desc, s.cc, s.method, s.opts...)
	if err != nil {
		return err
	}
	s.stream = stream
	err = stream.SendMsg(&s.request)
	if s.last() || s.request.Len() > s.r.o.MaxBytes {
		s.drop()
	}
	if err != nil && !errors.Is(err, io.EOF) { // the status comes with the replies
		return err
	}
	return nil
}

func (s *retrying) last() bool {
	return s.attempt >= s.r.o.MaxAttempts && (s.failedOver || s.r.failover == "")
}

func (s *retrying) drop() {
	s.request.Release()
	s.kept = false
}

func (s *retrying) settle(end error) {
	s.settled, s.end = true, end
	s.drop()
	if end == nil || errors.Is(end, io.EOF) {
		s.r.budget.earn()
	}
}

// judge looks at the end of an attempt: either it is the answer, or the next one begins with open.
func (s *retrying) judge(err error) {
	if errors.Is(err, io.EOF) || !s.again(err) {
		s.settle(err)
		return
	}
	s.stream = nil
}

// again decides about another attempt after err, and waits until it is due.
func (s *retrying) again(err error) bool {
	f := s.describe(err)
	v := s.r.o.decide(f, s.r.o.backoff(s.attempt), s.r.budget.spend)
	if !v.again {
		s.c.BecauseOf(v.why)
		return false
	}
	if v.failover {
		s.failedOver = true
		s.ctx = call.WithTarget(s.ctx, s.r.failover)
		s.c.BecauseOf(v.why)
		return true
	}
	if v.wait > 0 {
		t := time.NewTimer(v.wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.ctx.Done():
			s.c.BecauseOf("the caller has gone, or the deadline has passed")
			return false
		}
	}
	s.c.BecauseOf(v.why)
	return true
}

func (s *retrying) describe(err error) failed {
	st := status.Convert(err)
	f := failed{outcome: call.OutcomeOf(err), code: st.Code(), repeatable: s.r.m.Policy.Retry, keyed: s.c.Keyed(), streamed: s.desc.ClientStreams,
		kept: s.kept || s.desc.ClientStreams || s.last(), attempt: s.attempt, left: 1 << 62, failover: s.r.failover != "" && !s.failedOver}
	var failure *call.Failure
	f.refused = errors.As(err, &failure) && failure.Refused
	if f.outcome != call.NotExecuted {
		f.asked, f.waits = askedWait(st, s.Trailer())
	}
	if deadline, ok := s.ctx.Deadline(); ok {
		f.left = time.Until(deadline)
	}
	if s.ctx.Err() != nil {
		f.left = -1
	}
	return f
}
