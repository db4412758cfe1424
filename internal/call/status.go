package call

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the google.rpc.ErrorInfo domain of errors whose origin is the mesh, not a backend.
const Domain = "toolway"

// ResultFull is the reason of a status by which a door ends a stream of which it has enough: the caller gets what was kept as a result.
const ResultFull = "RESULT_FULL"

// Error returns the status of an error that the mesh itself found: with a google.rpc.ErrorInfo of the reason, in capitals as
// BACKEND_UNAVAILABLE, and its metadata as key, value pairs. The pair "hint" says what the caller can do.
func Error(code codes.Code, reason, message string, pairs ...string) error {
	st := status.New(code, message)
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	for i := 0; i+1 < len(pairs); i += 2 {
		if info.Metadata == nil {
			info.Metadata = make(map[string]string, len(pairs)/2)
		}
		info.Metadata[pairs[i]] = pairs[i+1]
	}
	if detailed, err := st.WithDetails(info); err == nil {
		st = detailed
	}
	return st.Err()
}

// Mend is the hint of an error that refuses a request message for what is wrong in it. before is how many messages of a request stream have come before
// it: these the backend may have taken, although its call is cancelled.
func Mend(what string, before int) string {
	if before == 0 {
		return "mend " + what + " and call again; nothing was sent to the backend"
	}
	return fmt.Sprintf("mend %s; %d of the stream's messages had gone to the backend before this one, and the call was cancelled: look up what they did before you send them again", what, before)
}

// WithdrawnRetry is when a caller may try a withdrawn tool again: about as often as a backend that is down is looked at.
const WithdrawnRetry = 5 * time.Second

// ResyncRequired is the reason by which whoever keeps a stream's messages says that those after the caller's cursor are no longer kept.
const ResyncRequired = "RESYNC_REQUIRED"

// Resync says whether a stream cannot go on from the caller's position: the reason is ResyncRequired, or the code OUT_OF_RANGE, which means
// that only where the caller has a position.
func Resync(st *status.Status, positioned bool) bool {
	if positioned && st.Code() == codes.OutOfRange {
		return true
	}
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.ErrorInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil && info.GetReason() == ResyncRequired {
			return true
		}
	}
	return false
}
