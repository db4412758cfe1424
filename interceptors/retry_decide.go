package interceptors

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
)

// failed is all that decides whether an attempt is followed by another: the inputs of retry_matrix.csv.
type failed struct {
	outcome call.Outcome
	code    codes.Code
	// refused says that the mesh let the attempt not through: the breaker is open, or there is no connection for another stream.
	refused bool
	// repeatable says that the contract lets the method be repeated, keyed that the backend gets an idempotency key.
	repeatable, keyed bool
	// streamed says that the caller streams requests, some of which may be gone.
	streamed bool
	// kept says that the request is still at hand.
	kept bool
	// onward says that a header or message has been sent to the caller.
	onward bool
	// asked is how long the backend asks callers to wait; negative: not to call again. It counts if waits is true.
	asked time.Duration
	waits bool
	// attempt counts from 1.
	attempt int
	// left is the time until the deadline; negative if the caller has gone.
	left time.Duration
	// failover says that another backend may still be tried.
	failover bool
}

// verdict is what follows.
type verdict struct {
	again bool
	// failover says that the next attempt goes to the other backend, at once.
	failover bool
	// wait is how long at least until the next attempt.
	wait time.Duration
	// why is for people and audit.
	why string
}

func no(why string) verdict { return verdict{why: why} }

// decide applies the retry matrix. budget is asked last, since asking spends.
func (o *RetryOptions) decide(f failed, backoff time.Duration, budget func() bool) verdict {
	switch {
	case f.onward:
		return no("part of the answer has been sent on")
	case f.left < 0:
		return no("the caller has gone, or the deadline has passed")
	case !f.kept:
		return no("the request is no longer at hand")
	case f.streamed && f.outcome != call.NotExecuted:
		return no("requests of a stream cannot be sent again")
	}
	if f.outcome == call.NotExecuted && f.code == codes.Unavailable && f.failover {
		return verdict{again: true, failover: true, why: "not executed; the other backend takes it"}
	}
	if f.refused {
		return no("the mesh lets no attempt through now")
	}
	if why := f.hopeless(); why != "" {
		return no(why)
	}
	wait := backoff
	if f.waits {
		wait = f.asked
	}
	switch {
	case f.attempt >= o.MaxAttempts:
		return no("the attempts are used up")
	case f.waits && f.asked < 0:
		return no("the backend asks not to be called again")
	case f.waits && f.asked > o.MaxWait:
		return no("the backend asks for more time than the mesh waits")
	case wait >= f.left:
		return no("the deadline leaves no time")
	case !budget():
		return no("the retry budget is used up")
	}
	return verdict{again: true, wait: wait, why: f.because()}
}

// hopeless says why no further attempt may or would help, or "".
func (f *failed) hopeless() string {
	switch f.outcome {
	case call.NotExecuted:
		if f.code == codes.Unavailable {
			return ""
		}
		return "the error is not transient"
	case call.Answered:
		if f.code != codes.Unavailable && (f.code != codes.ResourceExhausted || !f.waits) {
			return "the error is not transient"
		}
	default:
		if f.code != codes.Unavailable {
			return "the error is not transient"
		}
	}
	if !f.repeatable && !f.keyed {
		return "the call may have taken effect, and has no idempotency key"
	}
	return ""
}

func (f *failed) because() string {
	switch {
	case f.outcome == call.NotExecuted:
		return "retried: not executed"
	case f.keyed && !f.repeatable:
		return "retried: transient, with an idempotency key"
	}
	return "retried: transient, and the method is idempotent"
}

// pushbackKey is the trailer by which a server says when to retry, or, with a negative number, not to (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// askedWait returns how long a backend asks callers to wait, by pushback, which counts first, or by RetryInfo.
func askedWait(st *status.Status, trailer metadata.MD) (time.Duration, bool) {
	if vs := trailer[pushbackKey]; len(vs) > 0 {
		ms, err := strconv.ParseInt(vs[0], 10, 32)
		if err != nil || ms < 0 || len(vs) > 1 {
			return -1, true
		}
		return time.Duration(ms) * time.Millisecond, true
	}
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil && info.GetRetryDelay() != nil {
			return max(info.GetRetryDelay().AsDuration(), 0), true
		}
	}
	return 0, false
}
