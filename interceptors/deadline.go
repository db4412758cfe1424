package interceptors

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Deadline gives the rest of the chain a budget: what remains of the caller's deadline less a reserve, never more than the method's cap,
// and the default if the caller brings no deadline. It never extends a deadline. A call whose budget is used up ends with
// DEADLINE_EXCEEDED before any backend is called.
func Deadline(o Options) Policy {
	o = o.withDefaults()
	return Every("deadline", func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		c := call.FromContext(ctx)
		deadline, ok := budget(ctx, c, o)
		if !ok {
			return handler(srv, stream)
		}
		c.Deadline = deadline
		if !time.Now().Before(deadline) {
			return call.Error(codes.DeadlineExceeded, "DEADLINE_SPENT", "the deadline leaves no time for the backend, which was not called",
				"hint", "give the call more time")
		}
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		return handler(srv, &withContext{stream, ctx})
	})
}

// budget returns the backend's deadline, or false if there is none.
func budget(ctx context.Context, c *call.Call, o Options) (time.Time, bool) {
	timeout, limit := limits(c.Method, o)
	deadline, ok := ctx.Deadline()
	if ok {
		deadline = deadline.Add(-o.Reserve)
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

func limits(m *catalog.Method, o Options) (timeout, limit time.Duration) {
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
