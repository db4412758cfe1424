// Package interceptors holds the policies of a call, one a file. Each is a grpc.StreamServerInterceptor, so any third party's plugs in too.
package interceptors

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
)

// Default returns the interceptors that every call passes, in DESIGN.md's order, outermost first: recover, observe, deadline, errors.
func Default(o Options) []grpc.StreamServerInterceptor {
	o = o.withDefaults()
	return []grpc.StreamServerInterceptor{Recover(o), Observe(o), Deadline(o), Errors(o)}
}

// Chain returns a handler that runs the interceptors, first one outermost, then final. Every interceptor is told the method's real name
// and kind.
func Chain(final grpc.StreamHandler, chain ...grpc.StreamServerInterceptor) call.Handler {
	h := final
	for i := len(chain) - 1; i >= 0; i-- {
		next, ic := h, chain[i]
		h = func(srv any, stream grpc.ServerStream) error {
			c := call.FromContext(stream.Context())
			if c == nil {
				return errNoCall
			}
			return ic(srv, stream, c.Info(), next)
		}
	}
	return func(stream grpc.ServerStream) error {
		c := call.FromContext(stream.Context())
		if c == nil {
			return errNoCall
		}
		defer c.Finish()
		return h(nil, stream)
	}
}

// errNoCall is a programmer's error: a door or an interceptor has replaced the stream's context by one that does not descend from it.
var errNoCall = status.Error(codes.Internal, "the stream's context carries no call")
