package logs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain is what the reasons in ErrorInfo details belong to.
const domain = "logs.agentops"

// Reasons in ErrorInfo details.
const (
	reasonStoreUnavailable = "STORE_UNAVAILABLE"
	reasonStoreFull        = "STORE_FULL"
	reasonRefused          = "ENTRIES_REFUSED"
	reasonCursorGone       = "CURSOR_OUT_OF_RANGE"
	reasonTailInterrupted  = "TAIL_INTERRUPTED"
)

// retryAfter is the pause asked of callers while the store is closed or out of reach.
const retryAfter = 2 * time.Second

// invalid is INVALID_ARGUMENT that names the field at fault.
func invalid(field, description string) error {
	return newStatus(codes.InvalidArgument, field+": "+description, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}},
	})
}

// statusOf turns what an engine returned into the status that the caller gets. Only what the caller can act on crosses; the
// rest is logged.
func statusOf(ctx context.Context, logger *slog.Logger, err error) error {
	var query *QueryError
	var gone *OutOfRangeError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case errors.As(err, &query):
		return invalid("query", query.Error())
	case errors.Is(err, errTies):
		return invalid("query", err.Error())
	case errors.As(err, &gone):
		return newStatus(codes.OutOfRange, "cursor: entries after it may be gone; go on from oldest_cursor, knowing that some were missed",
			info(reasonCursorGone, "oldest_cursor", gone.Oldest.String()))
	case errors.Is(err, ErrClosed), errors.Is(err, ErrUnreachable):
		logger.WarnContext(ctx, "store unavailable", "error", err)
		return newStatus(codes.Unavailable, "log store is not available; try again",
			info(reasonStoreUnavailable), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	case errors.Is(err, ErrRefused):
		logger.WarnContext(ctx, "entries refused", "error", err)
		return newStatus(codes.FailedPrecondition, "log store refused entries of the batch, which are perhaps too old for it; the others may be stored: search before sending any again",
			info(reasonRefused))
	case errors.Is(err, ErrReadOnly):
		return newStatus(codes.ResourceExhausted, ErrReadOnly.Error(), info(reasonStoreFull))
	}
	logger.ErrorContext(ctx, "engine failed", "error", err)
	return status.Error(codes.Internal, "log store failed; the server's log says why")
}

// withCursor adds where to go on to the status of a stream that breaks: in its ErrorInfo, of which a status has at most one.
func withCursor(err error, at Position) error {
	s := status.Convert(err)
	if s.Code() == codes.OutOfRange || s.Code() == codes.InvalidArgument {
		return err
	}
	reason := info(reasonTailInterrupted)
	var details []protoadapt.MessageV1
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d
		case protoadapt.MessageV1:
			details = append(details, d)
		}
	}
	if reason.Metadata == nil {
		reason.Metadata = make(map[string]string, 1)
	}
	reason.Metadata["cursor"] = at.String()
	return newStatus(s.Code(), s.Message(), append(details, reason)...)
}

func info(reason string, metadata ...string) *errdetails.ErrorInfo {
	i := &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{}}
	for n := 0; n+1 < len(metadata); n += 2 {
		i.Metadata[metadata[n]] = metadata[n+1]
	}
	return i
}

func newStatus(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}
