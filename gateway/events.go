package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// lastEventID is the header in which a reader who comes back says how far it got: WHATWG HTML, section 9.2.4.
const lastEventID = "Last-Event-ID"

// The events that are the door's own. A message never has one of these as its event.
const (
	eventEnd      = "end"
	eventError    = "error"
	eventResync   = "resync_required"
	eventDraining = "server_draining"
)

// maxEventID is the length of an id beyond which a reader could not send it back in a header everywhere.
const maxEventID = 4096

// cursors are the fields by which a stream is resumed, and which its events carry; each may be nil. They are immutable.
type cursors struct {
	after, id, event *transcode.Scalar
	path             string // of after
	zero             []byte // wire form that sets the field of after to its zero value
}

// newCursors returns those of a method, whose paths the catalog has checked.
func newCursors(m *catalog.Method) (c cursors) {
	p := &m.Policy
	if !m.Kind().Server {
		return c
	}
	if p.CursorField != "" {
		if param, err := compileParam(m.Desc.Input(), p.CursorField); err == nil {
			c.after, _ = transcode.NewScalar(m.Desc.Input(), p.CursorField)
			c.path, c.zero = p.CursorField, param.zero
		}
	}
	if p.EventIDField != "" {
		c.id, _ = transcode.NewScalar(m.Desc.Output(), p.EventIDField)
	}
	if p.EventTypeField != "" {
		c.event, _ = transcode.NewScalar(m.Desc.Output(), p.EventTypeField)
	}
	return c
}

// appendCursor sets the cursor of a request to what a reader who comes back has seen. It is appended last and so wins over the URL, which
// says where the reader began and stays the same for all the life of a browser's EventSource.
func (m match) appendCursor(wire []byte, r *http.Request) ([]byte, error) {
	if m.cursors.after == nil {
		return wire, nil
	}
	at := r.Header.Get(lastEventID)
	if at == "" || !accepts(r.Header, eventStream) {
		return wire, nil
	}
	wire = append(wire, m.cursors.zero...) // a zero value is not written
	wire, err := m.method.Request().AppendParam(wire, m.cursors.path, []string{at})
	if err != nil {
		return wire, &transcode.Error{Path: lastEventID, Problem: err.Error()}
	}
	return wire, nil
}

// positioned says whether the request says where the stream goes on.
func (c *cursors) positioned(wire []byte) bool {
	if c.after == nil {
		return false
	}
	at, ok := c.after.AppendText(nil, wire)
	return ok && len(at) > 0 && string(at) != "0"
}

// appendHead appends the fields of a message's event before its data. What cannot stand in one is left out: an id that a reader could not
// send back, and a type that is none or the door's own.
func (c *cursors) appendHead(dst, wire []byte) []byte {
	if c.id != nil {
		before := len(dst)
		dst = append(dst, "id: "...)
		at := len(dst)
		if dst, _ = c.id.AppendText(dst, wire); !carries(dst[at:]) {
			dst = dst[:before]
		} else {
			dst = append(dst, '\n')
		}
	}
	if c.event != nil {
		before := len(dst)
		dst = append(dst, "event: "...)
		at := len(dst)
		if dst, _ = c.event.AppendText(dst, wire); !carries(dst[at:]) || own(dst[at:]) {
			dst = dst[:before]
		} else {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// carries says whether a text passes through an event and back through a header unchanged.
func carries(s []byte) bool {
	if len(s) == 0 || len(s) > maxEventID || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) {
			return false
		}
		s = s[n:]
	}
	return true
}

func own(event []byte) bool {
	switch string(event) {
	case eventEnd, eventError, eventResync, eventDraining:
		return true
	}
	return false
}

// appendRetry appends the time after which a reader who loses the stream comes back: at least d and up to twice that, so that the many who
// lose theirs at one time do not come back at one time.
func appendRetry(dst []byte, d time.Duration) []byte {
	ms := max(d.Milliseconds(), 1)
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, ms+rand.Int64N(ms+1), 10)
	return append(dst, '\n')
}

// appendFailure appends the event with which a stream ends that has failed.
func (o *writer) appendFailure(dst []byte, m match, st *status.Status) []byte {
	if o.resync(m, st) {
		// Without an id of its own, so that a reader who comes back by itself begins anew in place of asking for what is gone.
		dst = append(dst, "id:\nevent: "+eventResync+"\ndata: "...)
	} else {
		if at := cursorOf(st); m.cursors.after != nil && m.cursors.id != nil && !o.positioned && !o.sentID && carries([]byte(at)) {
			// The reader has no id yet to come back with, and would miss what arrives until then.
			dst = append(append(append(dst, "id: "...), at...), '\n')
		}
		dst = append(dst, "event: "+eventError+"\ndata: "...)
	}
	dst = append(appendStatus(dst, st.Proto(), m.method.Backend), '\n')
	if delay, ok := retryDelay(st); ok {
		dst = appendRetry(dst, delay)
	}
	return append(dst, '\n')
}

// cursorOf is where a broken stream goes on, as its status says; "" if it does not.
func cursorOf(st *status.Status) string {
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.ErrorInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil && info.GetMetadata()["cursor"] != "" {
			return info.GetMetadata()["cursor"]
		}
	}
	return ""
}

// resync says whether the stream has failed because it cannot go on from where the reader is.
func (o *writer) resync(m match, st *status.Status) bool {
	return m.cursors.after != nil && call.Resync(st, o.positioned || o.sentID)
}

// tells says whether a call that has failed before anything was sent is told of in events all the same. A browser's EventSource gives up for
// good at a status other than 200 and shows nobody why: a reader whose position is gone must hear so, and one who comes back while the
// backend is away must try again.
func (o *writer) tells(ctx context.Context, m match, err error) bool {
	if o.form != events || o.call.Hidden {
		return false
	}
	st := o.gateway.statusOf(ctx, o.id, err)
	if o.resync(m, st) {
		return true
	}
	_, delayed := retryDelay(st)
	return o.returns && (st.Code() == codes.Unavailable || delayed)
}

// retryDelay is the delay of a status's RetryInfo.
func retryDelay(st *status.Status) (time.Duration, bool) {
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil && info.GetRetryDelay() != nil {
			return max(info.GetRetryDelay().AsDuration(), 0), true
		}
	}
	return 0, false
}

// returning says whether a reader of events comes back after it has lost a stream that can be resumed.
func (m match) returning(r *http.Request) bool {
	return m.cursors.after != nil && strings.TrimSpace(r.Header.Get(lastEventID)) != ""
}
