package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

// unprocessed are what grpc-go says of a stream that the server has refused before it looked at it (RFC 9113, sections 6.8 and 8.7), once its own
// one more try has met the same. They count only where the backend has answered nothing: anyone can write such a text into a status.
var unprocessed = [...]string{
	"stream terminated by RST_STREAM with error code: REFUSED_STREAM",
	"the stream is rejected because server is draining the connection",
}

// notSent is the failure of an attempt for which there was never a stream. A connection that is closed while it is used, because its backend was
// taken out, is CANCELLED to grpc-go; but the caller has cancelled nothing.
func notSent(ctx context.Context, c *call.Call, backend string, err error) *call.Failure {
	if code := status.Code(err); ctx.Err() == nil && (code == codes.Unavailable || code == codes.Canceled) {
		err = unavailable(c, backend, status.Convert(err).Message())
	} else if code == codes.DeadlineExceeded && ctx.Err() != nil {
		err = call.Error(codes.DeadlineExceeded, "DEADLINE_EXCEEDED", fmt.Sprintf("backend %q could not be reached within the deadline, after %v", backend, since(c)),
			"backend", backend, "hint", "nothing was sent to the backend; give the call more time")
	}
	return &call.Failure{Outcome: call.NotExecuted, Err: err}
}

// notOpened is the failure of an attempt whose stream could not be opened. That a backend carries all the streams that it may is no sign of its
// being down, and another attempt at once would only find the same.
func notOpened(ctx context.Context, c *call.Call, backend string, err error) *call.Failure {
	var full *dial.FullError
	if !errors.As(err, &full) {
		return notSent(ctx, c, backend, err)
	}
	return &call.Failure{Outcome: call.NotExecuted, Refused: true, Err: call.RetryAfter(
		call.Error(codes.Unavailable, "STREAMS_FULL", fmt.Sprintf("backend %q takes no more streams: %v", backend, full), "backend", backend,
			"hint", "nothing was done; end streams that nobody reads, or call again when some have ended. The operator may raise max_connections of the backend, or the bound of its server"), streamsRetry)}
}

// streamsRetry is how long a caller is asked to wait for streams to end.
const streamsRetry = time.Second

// unwritten is the failure of an attempt whose only error is io.EOF: grpc-go gives it, with no status, where the server has ended the stream
// before the request was written, as when it refuses grpc-go's own second try at an unprocessed stream. A successful end has a header or trailer.
func unwritten(c *call.Call, backend string) *call.Failure {
	return &call.Failure{Outcome: call.NotExecuted, Err: unavailable(c, backend, "the stream was ended before the request was sent")}
}

// broken is the failure of an attempt that was under way. A status that the backend sent stays as it is. grpc-go gives no other sign of which it
// is than its own words, without header, trailer and details.
func broken(ctx context.Context, c *call.Call, backend string, err error, header, trailer metadata.MD) *call.Failure {
	st := status.Convert(err)
	silent := header == nil && len(trailer) == 0
	switch {
	case silent && isUnprocessed(st.Message()):
		return &call.Failure{Outcome: call.NotExecuted, Err: unavailable(c, backend, st.Message())}
	case st.Code() == codes.DeadlineExceeded && passed(ctx): // who has noticed first is chance
		if len(st.Proto().GetDetails()) == 0 && local(st.Message()) {
			err = tooLate(c, backend)
		}
		return &call.Failure{Outcome: call.Unknown, Err: err}
	case len(trailer) > 0 || len(st.Proto().GetDetails()) > 0:
		return &call.Failure{Outcome: call.Answered, Err: err}
	}
	switch {
	case st.Code() == codes.DeadlineExceeded && (silent || local(st.Message())):
		return &call.Failure{Outcome: call.Unknown, Err: tooLate(c, backend)}
	case st.Code() == codes.Canceled && ctx.Err() != nil:
		return &call.Failure{Outcome: call.Unknown, Err: err} // the caller, who has gone, or the mesh, which says so itself
	case st.Code() == codes.Unavailable || st.Code() == codes.Canceled:
		if silent || dial.Lost(st.Message()) {
			return &call.Failure{Outcome: call.Unknown, Err: unknown(c, backend, codes.Unavailable, fmt.Sprintf("backend %q is unavailable: %s", backend, dial.Cause(st.Message())))}
		}
	case strings.HasPrefix(st.Message(), rstStream):
		return &call.Failure{Outcome: call.Unknown, Err: unknown(c, backend, st.Code(), fmt.Sprintf("backend %q broke the call off: %s", backend, dial.Cause(st.Message())))}
	}
	return &call.Failure{Outcome: call.Answered, Err: err}
}

// passed says whether the deadline has passed: the clock knows before the context does.
func passed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < 5*time.Millisecond
}

func tooLate(c *call.Call, backend string) error {
	return unknown(c, backend, codes.DeadlineExceeded, fmt.Sprintf("backend %q did not finish within the deadline, after %v", backend, since(c)))
}

const rstStream = "stream terminated by RST_STREAM"

func isUnprocessed(text string) bool {
	for _, u := range unprocessed {
		if text == u {
			return true
		}
	}
	return false
}

// local says whether the text of a DEADLINE_EXCEEDED is grpc-go's own.
func local(text string) bool {
	return text == context.DeadlineExceeded.Error() || strings.Contains(text, "RST_STREAM")
}

func since(c *call.Call) time.Duration { return time.Since(c.Start).Round(time.Millisecond) }

// unavailable is the status of a call that the backend has not taken. A backend that is down already has its tools withdrawn.
func unavailable(c *call.Call, backend, why string) error {
	hint := dial.Explain(why)
	if hint == "" {
		hint = "the backend is down or cannot be reached; nothing was done, so call again when it is back"
	}
	if c.Method.Backend.State == catalog.Down {
		return call.RetryAfter(call.Error(codes.Unavailable, "TOOL_UNAVAILABLE", fmt.Sprintf("backend %q is down: %s", backend, dial.Cause(why)),
			"backend", backend, "hint", hint), call.WithdrawnRetry)
	}
	return call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", fmt.Sprintf("backend %q is unavailable: %s", backend, dial.Cause(why)),
		"backend", backend, "hint", hint)
}

// unknown is the status of a call that may or may not have been executed.
func unknown(c *call.Call, backend string, code codes.Code, text string) error {
	return call.Error(code, "OUTCOME_UNKNOWN", text, "backend", backend, "hint", "the call was under way, so whether it took effect is not known; "+lookup(c))
}

// lookup says how the caller finds out about a call whose outcome is unknown.
func lookup(c *call.Call) string {
	switch {
	case c.Keyed() && c.KeyMade && (c.Method.Policy.Retry || c.Method.DeclaresKey()):
		return "make the same call again: its idempotency key is made of the request, so it is not executed twice"
	case c.Keyed() && !c.KeyMade:
		return "call again with the same idempotency key: it is not executed twice"
	case c.Method.Policy.Retry:
		return "this method may be called again with the same request"
	}
	state := readState(c)
	if c.KeyMade {
		return state + "; the same request has the same idempotency key, so the mesh does not make it twice"
	}
	return state
}

// readState says with what the state can be looked up.
func readState(c *call.Call) string {
	var readers []string
	for _, m := range c.Method.Service.Methods {
		if m != c.Method && m.Tool.Hints.ReadOnly && !m.Desc.IsStreamingClient() {
			readers = append(readers, string(m.Desc.Name()))
		}
		if len(readers) == 3 {
			break
		}
	}
	if len(readers) == 0 {
		return "look up the state before you repeat it"
	}
	return "look up the state, with " + strings.Join(readers, " or ") + ", before you repeat it"
}
