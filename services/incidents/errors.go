package incidents

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
const domain = "incidents.agentops"

// Reasons in ErrorInfo details.
const (
	reasonUnknown     = "DIAGNOSIS_NOT_FOUND"
	reasonConflict    = "DIAGNOSIS_CONFLICT"
	reasonTooMany     = "TOO_MANY_DIAGNOSES"
	reasonStopping    = "SERVICE_STOPPING"
	reasonStore       = "STORE_UNAVAILABLE"
	reasonInterrupted = "WATCH_INTERRUPTED"
)

// retryAfter is the pause asked of callers while something is short.
const retryAfter = 2 * time.Second

// invalid is INVALID_ARGUMENT that names the field at fault.
func invalid(field, description string) error {
	return newStatus(codes.InvalidArgument, field+": "+description, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}},
	})
}

// statusOf turns an error of the store into the status that the caller gets. What it says of this machine goes to the log.
func statusOf(ctx context.Context, logger *slog.Logger, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, errUnknown):
		return newStatus(codes.NotFound, "name: there is no such diagnosis", info(reasonUnknown))
	case errors.Is(err, errTooMany):
		return newStatus(codes.ResourceExhausted, "as many diagnoses run as are allowed; try again when some have ended",
			info(reasonTooMany), &errdetails.RetryInfo{RetryDelay: durationpb.New(10 * retryAfter)})
	case errors.Is(err, errStopping):
		return newStatus(codes.Unavailable, "the service is stopping; try again", info(reasonStopping), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	logger.ErrorContext(ctx, "store failed", "error", err)
	return newStatus(codes.Unavailable, "the store of diagnoses failed; try again, the server's log says why", info(reasonStore), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
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

// failure is what a tool's error says.
type failure struct {
	code     codes.Code
	message  string
	reason   string            // of its ErrorInfo, as all below
	domain   string            // "toolway": the mesh itself found the error
	metadata map[string]string // not nil
	retry    time.Duration     // of its RetryInfo; 0: none
}

// failureOf reads a tool's error, which is a status or a context's error.
func failureOf(err error) failure {
	s := status.Convert(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		s = status.FromContextError(err)
	}
	f := failure{code: s.Code(), message: clip(s.Message(), maxText), metadata: map[string]string{}}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			f.reason, f.domain = clip(d.GetReason(), 64), d.GetDomain()
			if d.GetMetadata() != nil {
				f.metadata = d.GetMetadata()
			}
		case *errdetails.RetryInfo:
			f.retry = min(max(d.GetRetryDelay().AsDuration(), 0), time.Minute)
		}
	}
	return f
}

// passing says whether the same call may well succeed a little later.
func (f failure) passing() bool {
	switch f.code {
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted:
		return f.code == codes.Unavailable || f.retry > 0
	}
	return false
}
