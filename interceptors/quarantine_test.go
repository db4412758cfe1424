package interceptors_test

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

func TestQuarantine(t *testing.T) {
	p := interceptors.Quarantine(interceptors.Options{})
	m := method(t, "UnaryCall")
	if p.For(m) != nil {
		t.Errorf("a method that is not quarantined has the policy in its chain")
	}
	held := *m
	held.Quarantine = "its description changed"
	c := call.New(&held, call.HTTP)
	_, err := run(t.Context(), c, nil, func(any, grpc.ServerStream) error {
		t.Error("the backend was called")
		return nil
	}, p)
	st := status.Convert(err)
	if st.Code() != codes.FailedPrecondition || len(st.Details()) == 0 {
		t.Fatalf("error = %v, want FAILED_PRECONDITION with a reason", err)
	}
	info, ok := st.Details()[0].(*errdetails.ErrorInfo)
	if !ok || info.GetReason() != "TOOL_QUARANTINED" || info.GetMetadata()["hint"] == "" {
		t.Errorf("detail = %v, want the reason TOOL_QUARANTINED and a hint", st.Details()[0])
	}
	if s := c.Steps[0]; s.Name != "quarantine" || s.Decided() != (call.Decision{Verdict: "refused", Detail: "its description changed"}) {
		t.Errorf("step = %+v, want what was decided and why", s)
	}
}
