package runbooks

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain is what the reasons in ErrorInfo details belong to.
const domain = "runbooks.agentops"

// Reasons in ErrorInfo details.
const (
	reasonNotFound = "RUNBOOK_NOT_FOUND"
	reasonStopping = "SERVER_STOPPING"
)

// retryAfter is the pause asked of callers while the server stops.
const retryAfter = 2 * time.Second

// invalid is INVALID_ARGUMENT that names the field at fault.
func invalid(field, description string) error {
	return newStatus(codes.InvalidArgument, field+": "+description, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}},
	})
}

func notFound(name string) error {
	return newStatus(codes.NotFound, "no runbook has this name; search or list to find one that exists",
		&errdetails.ResourceInfo{ResourceType: resourceType, ResourceName: collection + name},
		&errdetails.ErrorInfo{Reason: reasonNotFound, Domain: domain, Metadata: map[string]string{"name": collection + name}})
}

func stopping() error {
	return newStatus(codes.Unavailable, "server is stopping; go on elsewhere or after the delay",
		&errdetails.ErrorInfo{Reason: reasonStopping, Domain: domain},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
}

// failed is the status for an error of the library, which only the log gets to see.
func failed(ctx context.Context, logger *slog.Logger, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	logger.ErrorContext(ctx, "search failed", "error", err)
	return status.Error(codes.Internal, "search failed; the server's log says why")
}

func newStatus(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}
