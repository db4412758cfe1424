package interceptors

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Quarantine refuses calls of methods whose definition has changed since it was reviewed, with FAILED_PRECONDITION / TOOL_QUARANTINED. It
// is in no other method's chain.
func Quarantine(Options) Policy {
	return Policy{Name: "quarantine", For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		if m.Quarantine == "" {
			return nil
		}
		err := call.Error(codes.FailedPrecondition, "TOOL_QUARANTINED", m.FullMethod+" is quarantined: its definition is not the one that was reviewed",
			"hint", "do not call it again: the operator has to review the change (toolway diff) and accept it (toolway lock)")
		return func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			if c := call.FromContext(stream.Context()); c != nil {
				c.Decide("quarantine", "refused", m.Quarantine)
			}
			return err
		}
	}}
}
