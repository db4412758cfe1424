package interceptors

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
)

// verdictOf says what becomes of the key of a call that has ended. State 0 means that the key is free again: nothing was done. replied means
// that the whole answer of a unary call came from the backend, whatever happened to it afterwards.
//
// When in doubt it is KeyUnknown: a call that may have taken effect is never made again for the same key.
func verdictOf(ctx context.Context, c *call.Call, replied bool, err error) KeyState {
	switch outcome := c.Outcome(); {
	case outcome == call.NotExecuted:
		return 0
	case err == nil || replied:
		return KeyDone
	}
	doubt := false // about any attempt, though the last one may have been answered
	for i := range c.Attempts {
		doubt = doubt || c.Attempts[i].Outcome == call.Unknown
	}
	if n := len(c.Attempts); n > 0 && c.Attempts[n-1].Outcome != call.Answered {
		return KeyUnknown
	}
	state := verdictOfStatus(ctx, status.Convert(err))
	if state == 0 && doubt {
		return KeyUnknown
	}
	return state
}

// verdictOfStatus judges by the status with which a backend, or the mesh behind it, has ended the call.
func verdictOfStatus(ctx context.Context, st *status.Status) KeyState {
	info, retry := detailsOf(st.Proto())
	ours := info.GetDomain() == call.Domain
	if asksForInput(st) { // the call comes again with the answers
		return 0
	}
	if ctx.Err() != nil || ours && info.GetReason() == "OUTCOME_UNKNOWN" || transport(st) {
		return KeyUnknown
	}
	switch st.Code() {
	case codes.Unavailable:
		if retry && !ours { // the backend itself wants the call again
			return 0
		}
		return KeyUnknown
	case codes.DeadlineExceeded, codes.Canceled:
		return KeyUnknown
	case codes.Aborted, codes.ResourceExhausted, codes.Unauthenticated, codes.PermissionDenied:
		if !ours { // the backend has turned the call away, and may take it another time
			return 0
		}
	}
	return KeyDone
}

// asksForInput says whether the backend has turned the call away until it is told more: toolway.v1.InputRequired.
func asksForInput(st *status.Status) bool {
	if st.Code() != codes.FailedPrecondition {
		return false
	}
	for _, d := range st.Proto().GetDetails() {
		if d.MessageIs((*toolwayv1.InputRequired)(nil)) {
			return true
		}
	}
	return false
}

// transport says whether the status is grpc-go's own, about a reply that it could not receive or read.
func transport(st *status.Status) bool {
	if len(st.Proto().GetDetails()) > 0 {
		return false
	}
	for _, words := range [...]string{"grpc: ", "transport: ", "stream terminated by RST_STREAM", "error reading from server", "connection error", "unexpected EOF"} {
		if strings.HasPrefix(st.Message(), words) {
			return true
		}
	}
	return false
}

// detailsOf returns the ErrorInfo of a status, and whether it says when to call again.
func detailsOf(st *spb.Status) (info *errdetails.ErrorInfo, retry bool) {
	info = &errdetails.ErrorInfo{}
	for _, d := range st.GetDetails() {
		switch {
		case d.MessageIs(info) && info.GetReason() == "":
			_ = d.UnmarshalTo(info) // what is no ErrorInfo has no domain
		case d.MessageIs((*errdetails.RetryInfo)(nil)):
			retry = true
		}
	}
	return info, retry
}
