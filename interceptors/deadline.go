package interceptors

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Deadline gives the rest of the chain a budget: what remains of the caller's deadline less a reserve, never more than the method's cap,
// and the default if the caller brings no deadline. It never extends a deadline. A call whose budget is used up ends with
// DEADLINE_EXCEEDED before any backend is called.
func Deadline(o Options) Policy {
	o = o.withDefaults()
	reserve := o.Reserve
	return inHalves("deadline", func(m *catalog.Method) *halves {
		timeout, limit := limits(m, &o)
		return &halves{
			enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
				ctx := stream.Context()
				deadline, ok := budget(ctx, c, reserve, timeout, limit)
				if !ok {
					return stream, nil
				}
				c.Deadline = deadline
				if !time.Now().Before(deadline) {
					return nil, errSpent()
				}
				s := &withDeadline{withContext: withContext{ServerStream: stream}, of: c}
				s.ctx, s.cancel = context.WithDeadline(ctx, deadline)
				return s, nil
			},
			leave: func(c *call.Call, inner grpc.ServerStream, err error) error {
				if s, ok := inner.(*withDeadline); ok && s.of == c {
					s.cancel()
				}
				return err
			},
		}
	})
}

// withDeadline is a stream whose context has a deadline of its own.
type withDeadline struct {
	withContext
	of     *call.Call
	cancel context.CancelFunc
}

func errSpent() error {
	return call.Error(codes.DeadlineExceeded, "DEADLINE_SPENT", "the deadline leaves no time for the backend, which was not called", "hint", "give the call more time")
}

// endedWaiting is the error of a call that has ended while a policy had it wait for its turn at something, which has not come.
func endedWaiting(c *call.Call, policy, at string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		c.Decide(policy, "refused", "the caller went while the call waited")
		return status.FromContextError(err).Err()
	}
	c.Decide(policy, "refused", "the deadline passed while the call waited")
	return call.Error(codes.DeadlineExceeded, "DEADLINE_SPENT", "the deadline passed while the call waited for its turn at "+at+"; the backend was not called",
		"hint", "give the call more time, or make fewer calls at once")
}

// budget returns the backend's deadline, or false if there is none.
func budget(ctx context.Context, c *call.Call, reserve, timeout, limit time.Duration) (time.Time, bool) {
	deadline, ok := ctx.Deadline()
	if ok {
		deadline = deadline.Add(-reserve)
	} else if timeout > 0 {
		deadline, ok = c.Start.Add(timeout), true
	}
	if limit > 0 {
		if latest := c.Start.Add(limit); !ok || latest.Before(deadline) {
			deadline, ok = latest, true
		}
	}
	return deadline, ok
}

func limits(m *catalog.Method, o *Options) (timeout, limit time.Duration) {
	timeout, limit = o.Timeout, o.MaxTimeout
	if m.Kind() != (catalog.Kind{}) {
		timeout, limit = o.StreamTimeout, o.MaxStreamTimeout
	}
	if m.Timeout > 0 {
		timeout = m.Timeout
	}
	if m.MaxTimeout > 0 {
		limit = m.MaxTimeout
	}
	return timeout, limit
}

// withContext is a stream with another context.
type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the other context.
func (s *withContext) Context() context.Context { return s.ctx }
