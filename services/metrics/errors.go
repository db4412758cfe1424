package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain is what the reasons in ErrorInfo details belong to.
const domain = "metrics.agentops"

// Reasons in ErrorInfo details.
const (
	reasonSyntax      = "QUERY_SYNTAX"
	reasonFailed      = "QUERY_FAILED"
	reasonTooLarge    = "QUERY_TOO_LARGE"
	reasonUnavailable = "ENGINE_UNAVAILABLE"
	reasonCursorGone  = "CURSOR_OUT_OF_RANGE"
	reasonInterrupted = "WATCH_INTERRUPTED"
)

// maxDescriptionBytes bounds what an engine can say of a query.
const maxDescriptionBytes = 2 << 10

// retryAfter is the pause asked of callers while the engine is closed or out of reach.
const retryAfter = 2 * time.Second

// invalid is INVALID_ARGUMENT that names the field at fault.
func invalid(field, description string, more ...protoadapt.MessageV1) error {
	description = cut(description, maxDescriptionBytes)
	return newStatus(codes.InvalidArgument, field+": "+description, append([]protoadapt.MessageV1{&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}},
	}}, more...)...)
}

// gone is OUT_OF_RANGE for a cursor whose samples are no longer there.
func gone(oldest cursor) error {
	return newStatus(codes.OutOfRange, "cursor: samples after it may be gone; go on from oldest_cursor, knowing that some instants were missed",
		info(reasonCursorGone, "oldest_cursor", oldest.String()))
}

// statusOf turns what an engine returned for the query in a field into the status that the caller gets. Only what the caller can act on crosses;
// the rest is logged.
func statusOf(ctx context.Context, logger *slog.Logger, field string, err error) error {
	var query *QueryError
	var large *TooLargeError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case errors.As(err, &query):
		if query.Parsed {
			return invalid(field, query.Error(), info(reasonFailed))
		}
		detail := info(reasonSyntax)
		if query.Position >= 0 {
			detail.Metadata["byte"] = strconv.Itoa(query.Position)
		}
		return invalid(field, query.Error(), detail)
	case errors.As(err, &large):
		return newStatus(codes.ResourceExhausted, fmt.Sprintf("%s: %s; narrow the %s or its range, or aggregate", field, cut(large.Text, maxDescriptionBytes), field), info(reasonTooLarge))
	case errors.Is(err, ErrClosed), errors.Is(err, ErrUnreachable):
		logger.WarnContext(ctx, "engine unavailable", "error", err)
		return newStatus(codes.Unavailable, "metric engine is not available; try again",
			info(reasonUnavailable), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	logger.ErrorContext(ctx, "engine failed", "error", err)
	return status.Error(codes.Internal, "metric engine failed; the server's log says why")
}

// withCursor adds where to go on to the status of a stream that breaks: in its ErrorInfo, of which a status has at most one.
func withCursor(err error, at cursor) error {
	s := status.Convert(err)
	if s.Code() == codes.OutOfRange || s.Code() == codes.InvalidArgument {
		return err
	}
	reason := info(reasonInterrupted)
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
