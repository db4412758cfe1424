package interceptors

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Recover turns a panic inside the chain into INTERNAL with a fixed text, and logs it with the stack and the call's id. It stands
// outermost, so that nothing else has to be safe against panics.
func Recover(o Options) Policy {
	o = o.withDefaults()
	h := &halves{
		enter: func(_ *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) { return stream, nil },
		caught: func(c *call.Call, stream grpc.ServerStream, panicked any) error {
			o.Logger.LogAttrs(stream.Context(), slog.LevelError, "panic in a call", slog.String("method", c.Method.FullMethod),
				slog.String("call_id", c.ID), slog.String("trace_id", c.TraceID), slog.String("panic", fmt.Sprint(panicked)), slog.String("stack", string(debug.Stack())))
			return internal(c)
		},
	}
	return inHalves("recover", func(*catalog.Method) *halves { return h })
}

// internal is the one text that callers see of what went wrong inside; the log has the rest under the call's id.
func internal(c *call.Call) error {
	return call.Error(codes.Internal, "INTERNAL", "internal error; the log has the cause under call id "+c.ID, "call_id", c.ID)
}
