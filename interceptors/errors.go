package interceptors

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Errors sees to it that every error that leaves the chain is a gRPC status. A status passes as it is, details included. A context's
// error becomes CANCELLED or DEADLINE_EXCEEDED, or the status that the context was cancelled with. Any other error becomes INTERNAL with a
// fixed text, and is logged with a grpcurl line that makes the same call again: what it says is for the operator, not for the caller.
func Errors(o Options) Policy {
	o = o.withDefaults()
	h := &halves{
		enter: func(_ *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) { return stream, nil },
		leave: func(_ *call.Call, stream grpc.ServerStream, err error) error {
			if err == nil {
				return nil
			}
			return asStatus(stream.Context(), &o, err)
		},
	}
	return inHalves("errors", func(*catalog.Method) *halves { return h })
}

func asStatus(ctx context.Context, o *Options, err error) error {
	if st, ok := cause(ctx, err); ok {
		return st.Err()
	}
	if bare, ok := err.(interface{ GRPCStatus() *status.Status }); ok && bare.GRPCStatus() != nil {
		return err
	}
	c := call.FromContext(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, context.Canceled.Error())
	}
	// A status inside a wrapping error is still the call's status, but the text around it is not for the caller.
	if st, ok := wrapped(err); ok {
		logInternal(ctx, o, c, "wrapped status", err)
		return st.Err()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("unexpected end of stream")
	}
	logInternal(ctx, o, c, "internal error", err)
	return internal(c)
}

// cause returns the status with which the call's context was cancelled, if err only says that it was: a mesh that shuts down tells callers so.
func cause(ctx context.Context, err error) (*status.Status, bool) {
	if ctx.Err() == nil || status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
		return nil, false
	}
	return wrapped(context.Cause(ctx))
}

func wrapped(err error) (*status.Status, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) || s.GRPCStatus() == nil || s.GRPCStatus().Code() == codes.OK {
		return nil, false
	}
	return s.GRPCStatus(), true
}

func logInternal(ctx context.Context, o *Options, c *call.Call, msg string, err error) {
	o.Logger.LogAttrs(ctx, slog.LevelError, msg, slog.String("method", c.Method.FullMethod), slog.String("call_id", c.ID),
		slog.String("trace_id", c.TraceID), slog.String("error", err.Error()), slog.String("reproduce", reproduce(c, o.Address)))
}
