package proxy

import (
	"context"
	"sync"

	"github.com/toolway/toolway/internal/call"
)

// underWay are the streams that have begun and not ended. Unary calls are not among them: it would cost each of them six allocations, and few are left at that time.
type underWay struct {
	mu    sync.Mutex
	calls map[*call.Call]context.CancelCauseFunc
	cause error // of new ones' end, once they are cut
}

// begin returns the context of the call c, which ends when the calls are cut or end is called.
func (u *underWay) begin(ctx context.Context, c *call.Call) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cause != nil {
		cancel(u.cause)
	}
	if u.calls == nil {
		u.calls = map[*call.Call]context.CancelCauseFunc{}
	}
	u.calls[c] = cancel
	return ctx, func() {
		u.mu.Lock()
		delete(u.calls, c)
		u.mu.Unlock()
		cancel(nil)
	}
}

func (u *underWay) cut(cause error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cause = cause
	for _, cancel := range u.calls {
		cancel(cause)
	}
}

// Cut ends the streams under way, and those that still come, with a cause: their callers are told if it is a status. It is for a server that stops, before
// the context of Stop is done: then connections are closed, with unary calls that are left, and nobody can be told any more.
func (s *Server) Cut(cause error) { s.streams.cut(cause) }
