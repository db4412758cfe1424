package interceptors

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
)

// downReasons are the mesh's own for a backend that cannot be called, or whose connection broke. What a backend itself calls UNAVAILABLE is
// its answer.
var downReasons = map[string]bool{"BACKEND_UNAVAILABLE": true, "CIRCUIT_OPEN": true, "TOOL_UNAVAILABLE": true, "OUTCOME_UNKNOWN": true}

// down says whether the mesh could not reach a backend, so that an old reply is better than none.
func down(err error) bool {
	st := status.Convert(err)
	if st.Code() != codes.Unavailable {
		return false
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == call.Domain && downReasons[info.GetReason()] {
			return true
		}
	}
	return false
}
