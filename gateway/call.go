package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

const (
	requestIDHeader = "X-Request-Id"
	callIDHeader    = "Toolway-Call-Id"
	confirmHeader   = "Toolway-Confirm"
	replayedHeader  = "Idempotent-Replayed"
	ndjson          = "application/x-ndjson"
	eventStream     = "text/event-stream"
)

// ids name one request.
type ids struct {
	request string // what the caller calls it, in X-Request-Id; the call's id if the caller gave none
	call    string // what logs and audit call it: 32 hex digits, also a W3C trace id
}

// exchange is one HTTP request and its answer, with room for what nearly every one needs, in one allocation.
type exchange struct {
	w  http.ResponseWriter
	r  *http.Request
	id ids
	// call is the call that it makes; nil if it makes none.
	call *call.Call
	// conditional says that the request brings an etag by If-Match.
	conditional bool
	source      requestSource
	answer      answer
	room        [2]string // for the values of the route's variables
	ids         [2]string // of id, as values of headers
	peer        call.Remote
}

// newIDs takes the caller's id if it is fit for logs and headers. The call's own id only has to be unique, not secret.
func newIDs(given string) ids {
	own := call.NewID()
	if given == "" || len(given) > 128 || strings.IndexFunc(given, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) >= 0 {
		return ids{own, own}
	}
	return ids{given, own}
}

// serve makes the call that a route stands for.
func (g *Gateway) serve(x *exchange, m match) {
	r := x.r
	timeout, limited, badTimeout := parseTimeout(header(r, "Grpc-Timeout"))
	ctx, left := r.Context(), false
	var life *lifetime
	switch {
	case m.method.Kind().Server:
		ctx, life = g.live(r, m, timeout)
		defer func() {
			if !left {
				life.cancel(nil)
			}
		}()
	case limited:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c := &call.Call{ID: x.id.call, Method: m.method, Door: call.HTTP, Protocol: r.Proto, Peer: &x.peer, Start: time.Now(), Forward: g.forward(x), Credentials: identity.RequestCredentials(r), Confirm: header(r, confirmHeader)}
	x.call = c
	if g.tasks && m.method.Taskable() && (m.method.Policy.Task == catalog.TaskRequired || call.WantsTask(r.Header["Prefer"])) {
		c.Async = &call.Async{}
	}
	if err := cmp.Or(badTimeout, g.checkURL(r, m.method)); err != nil {
		g.refused(ctx, x, m, c, err)
		return
	}
	requests, err := g.requests(ctx, x, m)
	if err != nil {
		g.refused(ctx, x, m, c, err)
		return
	}
	if requests.stop != nil {
		defer requests.stop()
	}
	if m.method.Kind().Server {
		if left = g.stream(ctx, life, x, m, c, requests); left {
			x.w, x.r = nil, nil // the call goes on, and must not hold what net/http is done with
		}
		return
	}
	g.unary(ctx, x, m, c, requests)
}

// refused ends a call whose request cannot be read, after it has passed the chain, so that who calls is asked first, and observe and audit
// see it. What the chain finds first is told in place of err.
func (g *Gateway) refused(ctx context.Context, x *exchange, m match, c *call.Call, err error) {
	why := g.statusOf(ctx, x.id, err).Err()
	c.Refuse(why)
	stream := call.NewStream(ctx, c, call.Refused(why), func(*call.Frame) error { return why }, nil)
	if found := g.handler(stream); found != nil && !errors.Is(found, why) {
		g.failed(x, m, c, found)
		return
	}
	g.fail(x, m.method.Backend, err)
}

// failed answers a call that has failed: as if there were no such route, if the caller may not know of the method.
func (g *Gateway) failed(x *exchange, m match, c *call.Call, err error) {
	if c.Hidden {
		ctx := call.WithPrincipal(x.r.Context(), c.Principal)
		g.fail(x, nil, refuse(http.StatusNotFound, codes.NotFound, g.notFound(ctx, g.current().snapshot, x.r.Method, x.r.URL.Path)))
		return
	}
	g.fail(x, m.method.Backend, err)
}

// forward is the metadata that may cross to the backend.
func (g *Gateway) forward(x *exchange) metadata.MD {
	md := g.rules.FilterText(x.r.Header)
	if g.rules.Allowed(requestIDHeader) {
		md["x-request-id"] = x.ids[:1:1]
	}
	return md
}

// header is r.Header.Get for a key that is in the canonical form.
func header(r *http.Request, key string) string {
	if vs := r.Header[key]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// requests returns the call's request messages. Everything that can be wrong with a single request is found here, before the chain runs.
func (g *Gateway) requests(ctx context.Context, x *exchange, m match) (*requestSource, error) {
	if m.method.Kind().Client && m.body == wholeBody && !m.rawBody {
		if header(x.r, ifMatchHeader) != "" {
			return nil, unmatchable("this method takes a stream of requests, and no etag; leave the header out")
		}
		return g.lines(ctx, x, m)
	}
	wire, err := g.requestWire(x, m)
	if err != nil {
		return nil, err
	}
	if wire, err = m.appendCursor(wire, x.r); err != nil {
		return nil, err
	}
	if wire, err = m.appendIfMatch(wire, x); err != nil {
		return nil, err
	}
	s := &x.source
	s.only, s.wire = call.NewFrame(m.method.Desc.Input(), wire), wire
	s.next = s.one
	return s, nil
}

// requestSource gives the request messages one by one, and remembers what was wrong with one of them.
type requestSource struct {
	next      func() (*call.Frame, error)
	only      *call.Frame // a single message, until it is given
	wire      []byte      // of a single message
	interrupt func()      // makes next return; nil if it never blocks
	stop      func()      // ends the reading and waits; may be nil
	err       error       // of next, if it was the caller's fault
}

// one gives the single message.
func (s *requestSource) one() (*call.Frame, error) {
	f := s.only
	if s.only = nil; f == nil {
		return nil, io.EOF
	}
	return f, nil
}

// blame prefers what was wrong with a request message over the status that this caused.
func (s *requestSource) blame(err error) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return err
}

// answer is the one reply of a call, as it goes to the caller.
type answer struct {
	gateway     *Gateway
	match       match
	body        *[]byte // nil until there is a reply
	contentType string
	tagged      bool   // the caller wants the etag
	etag        []byte // the resource's own
}

// reply takes the reply from the chain.
func (a *answer) reply(f *call.Frame) (err error) {
	if a.body != nil {
		return status.Error(codes.Internal, "backend sent a second reply to a unary call")
	}
	if a.tagged && a.match.etags.reply != nil {
		a.etag, _ = a.match.etags.reply.AppendText(nil, f.Bytes())
	}
	a.body = buffer.Take(buffer.ForJSON(f.Len()))
	*a.body, a.contentType, err = a.gateway.appendReply(*a.body, a.match, f)
	return err
}

func (a *answer) release() {
	if a.body != nil {
		buffer.Give(a.body)
	}
}

// unary runs a call with one reply: nothing is written before the call has ended.
func (g *Gateway) unary(ctx context.Context, x *exchange, m match, c *call.Call, requests *requestSource) {
	a := &x.answer
	a.gateway, a.match, a.tagged = g, m, reads(x.r)
	defer a.release()
	stream := call.NewStream(ctx, c, requests.next, a.reply, nil)
	if requests.interrupt != nil {
		stream.OnStop(requests.interrupt)
	}
	err := requests.blame(g.handler(stream))
	markReplayed(x.w.Header(), c.Replayed)
	if err == nil && a.body == nil {
		err = status.Error(codes.Internal, "backend sent no reply")
	}
	if err != nil {
		g.failed(x, m, c, err)
		return
	}
	if c.Task != "" {
		g.accepted(x, c)
		return
	}
	h := x.w.Header()
	g.replyHeader(h, stream.Header())
	same := fresh(h, x.r, &c.Freshness, *a.body, a.etag)
	if failedMatch(x.r, h) { // before If-None-Match: RFC 9110 section 13.2.2
		g.fail(x, m.method.Backend, refuse(http.StatusPreconditionFailed, codes.Aborted, "If-Match: what there is now has another etag"))
		return
	}
	if same {
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	setContentType(h, a.contentType, m.rawResponse)
	g.write(x, http.StatusOK, *a.body)
}

// appendReply appends a reply in the form that the route asks for.
func (g *Gateway) appendReply(dst []byte, m match, f *call.Frame) (body []byte, contentType string, err error) {
	if !m.rawResponse {
		dst, err = g.appendJSONReply(dst, m, f)
		return dst, "application/json", err
	}
	contentType, data, ok := httpBody(f.Bytes(), m.responsePath)
	if !ok {
		return dst, "", malformed(m, nil)
	}
	return append(dst, data...), contentType, nil
}

func (g *Gateway) appendJSONReply(dst []byte, m match, f *call.Frame) ([]byte, error) {
	var err error
	if m.responseBody != "" {
		dst, err = m.method.Response().AppendFieldJSON(dst, m.responseBody, f.Bytes(), g.json)
	} else {
		dst, err = m.method.Response().AppendJSON(dst, f.Bytes(), g.json)
	}
	if err != nil {
		return dst, malformed(m, err)
	}
	return dst, nil
}

// malformed is the status of a reply that cannot be shown: bytes that are no message, or a value that has no JSON form, such as a time after the
// year 9999.
func malformed(m match, err error) error {
	text := fmt.Sprintf("backend %q sent a malformed %s", m.method.Backend.Name, m.method.Desc.Output().FullName())
	if err != nil {
		text = "the backend's reply cannot be shown as JSON: " + err.Error()
	}
	return call.Error(codes.Internal, "REPLY_NOT_SHOWN", text, "backend", m.method.Backend.Name,
		"hint", "the backend did its work, only its reply cannot be shown; do not repeat a call that changes something")
}

// Values of headers that every answer has, shared by all: adding to one copies it.
var (
	jsonType = []string{"application/json"}
	nosniff  = []string{"nosniff"}
)

// setContentType sets the type of an answer. What a backend may choose freely must not run as a page of this origin.
func setContentType(h http.Header, contentType string, raw bool) {
	if !raw {
		h["Content-Type"] = jsonType
		return
	}
	if contentType == "" || strings.ContainsAny(contentType, "\r\n") {
		contentType = "application/octet-stream"
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

// markReplayed says that the answer is that of an earlier call with the same idempotency key.
func markReplayed(h http.Header, replayed bool) {
	if replayed {
		h.Set(replayedHeader, "true")
	}
}

// replyHeader passes on the backend's header metadata that the rules allow, but nothing that steers a browser or repeats the request.
func (g *Gateway) replyHeader(h http.Header, md metadata.MD) {
	for k, vs := range md {
		if !strings.HasPrefix(k, "x-") || k == "x-request-id" || strings.HasPrefix(k, "x-content-") || strings.HasPrefix(k, "x-accel-") || !g.rules.Allowed(k) {
			continue
		}
		for _, v := range vs {
			if strings.HasSuffix(k, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			if strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
				h.Add(k, v)
			}
		}
	}
}
