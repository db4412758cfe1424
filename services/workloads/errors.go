package workloads

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// domain is what the reasons in ErrorInfo details belong to.
const domain = "workloads.agentops"

// Reasons in ErrorInfo details.
const (
	reasonEtag        = "ETAG_MISMATCH"
	reasonGeneration  = "GENERATION_MISMATCH"
	reasonConflict    = "ACTION_CONFLICT"
	reasonNotFound    = "WORKLOAD_NOT_FOUND"
	reasonNoAction    = "ACTION_NOT_FOUND"
	reasonUnavailable = "STORE_UNAVAILABLE"
	reasonCursorGone  = "CURSOR_OUT_OF_RANGE"
	reasonInterrupted = "WATCH_INTERRUPTED"
)

// retryAfter is the pause asked of callers while the database or the place is out of reach.
const retryAfter = 2 * time.Second

// errDraining ends watches when the server is about to stop.
var errDraining = errors.New("the service is stopping")

// invalid is INVALID_ARGUMENT that names the field at fault.
func invalid(field, description string) error {
	return newStatus(codes.InvalidArgument, field+": "+description, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}},
	})
}

func notFound(name string) error {
	return newStatus(codes.NotFound, "there is no workload "+strconv.Quote(name)+"; ListWorkloads has those that there are",
		info(reasonNotFound, "workload", name), &errdetails.ResourceInfo{ResourceType: "workloads.agentops.dev/Workload", ResourceName: name})
}

// noAction says that an action was never begun, so that asking for it is safe.
func noAction(id string) error {
	return newStatus(codes.NotFound, "action "+strconv.Quote(id)+" was never begun; asking for it is safe", info(reasonNoAction, "action", id))
}

// etagMismatch says that a workload is not what the caller has seen.
func etagMismatch(w *workloadsv1.Workload) error {
	return newStatus(codes.Aborted, w.GetName()+" has changed since the etag was read; read it again and decide anew",
		info(reasonEtag, "workload", w.GetName(), "etag", w.GetEtag(), "generation", strconv.FormatInt(w.GetGeneration(), 10)))
}

func generationMismatch(w *workloadsv1.Workload, given int64) error {
	present := strconv.FormatInt(w.GetGeneration(), 10)
	text := "generation " + strconv.FormatInt(given, 10) + " is not the present one, which is " + present + "; read the workload again and decide anew"
	return newStatus(codes.FailedPrecondition, w.GetName()+": "+text,
		info(reasonGeneration, "workload", w.GetName(), "etag", w.GetEtag(), "generation", present),
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: reasonGeneration, Subject: w.GetName(), Description: text}}})
}

// conflict says that the same action was asked for with other parameters.
func conflict(recorded *workloadsv1.Action) error {
	return newStatus(codes.AlreadyExists, "action "+strconv.Quote(recorded.GetId())+" was asked for with replicas "+strconv.Itoa(int(recorded.GetReplicas()))+
		"; LookupAction says what became of it; for another number read the workload again and give its generation",
		info(reasonConflict, "action", recorded.GetId(), "replicas", strconv.Itoa(int(recorded.GetReplicas())), "state", recorded.GetState().String()),
		&errdetails.ResourceInfo{ResourceType: "workloads.agentops.dev/Action", ResourceName: recorded.GetId()})
}

// outOfRange says that events after a cursor may be gone.
func outOfRange() error {
	return newStatus(codes.OutOfRange, "cursor: events after it may be gone; begin without one, which sends what is now", info(reasonCursorGone))
}

// statusOf turns what the store or driver returned into the status that the caller gets. Only what the caller can act on crosses; the rest is logged.
func statusOf(ctx context.Context, logger *slog.Logger, err error) error {
	var typed interface{ GRPCStatus() *status.Status }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		return err
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case errors.Is(err, errDraining):
		return newStatus(codes.Unavailable, errDraining.Error(), info(reasonUnavailable), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	case errors.Is(err, ErrUnreachable):
		logger.WarnContext(ctx, "database or driver unavailable", "error", err)
		return newStatus(codes.Unavailable, "database or driver is not available; a change may have been recorded: repeat the same call, or ask LookupAction",
			info(reasonUnavailable), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	logger.ErrorContext(ctx, "call failed", "error", err)
	return status.Error(codes.Internal, "database or driver failed; the server's log says why")
}

// withCursor adds where to go on to the status of a stream that breaks: in its ErrorInfo, of which a status has at most one.
func withCursor(err error, at position) error {
	s := status.Convert(err)
	if s.Code() == codes.OutOfRange || s.Code() == codes.InvalidArgument || s.Code() == codes.NotFound {
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
