package mcpadapter

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/call"
)

const (
	methodHeader = "Mcp-Method"
	nameHeader   = "Mcp-Name"
)

// quick answers a message on the fast path, and says whether it was one for it. If not, nothing has been done.
func (e *endpoint) quick(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, s *scratch) bool {
	if e.adapter.conf.sdkOnly {
		return false
	}
	q := &s.quick
	if !q.scan(s.body) || !e.adapter.offersQuick(q) || !e.quickHeader(r, q) {
		return false
	}
	form, ok := answerForm(r.Header, q.method)
	if !ok {
		return false
	}
	if q.method == "tools/call" && e.stepUp(w, r, q.id, q.name, q.arguments) {
		return true
	}
	ctx, from := r.Context(), &s.call.caller
	from.header, from.protocol, from.peer = r.Header, or(first(r.Header, versionHeader), version20250618), (*call.Remote)(&r.RemoteAddr)
	reply := &s.reply
	reply.w, reply.rc, reply.id, reply.form, reply.buffers = w, *rc, q.id, form, r.ProtoMajor < 2
	if q.modern() {
		from.client = client{modern: true, can: q.meta.can}
	}
	defer reply.stop() // also when a handler panics
	if q.method == "tools/call" {
		if session := first(r.Header, sessionHeader); session != "" && !q.modern() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer e.cancels.add(session, q.id, cancel)()
		}
		if form == asEvents {
			reply.tells(from, q)
		}
	}
	res, err := e.adapter.callQuick(ctx, q, s)
	e.concludeQuick(ctx, q, s, res, err)
	return true
}

// concludeQuick answers q, with res or err if it calls a tool.
func (e *endpoint) concludeQuick(ctx context.Context, q *quickRequest, s *scratch, res *result, err error) {
	s.reply.conclude(e.adapter.writeQuick(ctx, q, s, res, err), q.modern())
}

// tells has the call of q tell how it gets on, as far as the client wants to know.
func (r *reply) tells(from *caller, q *quickRequest) {
	if q.meta.token != nil {
		from.begin = r.beginStream
		from.notify = func(p step) { r.event(append(appendProgress([]byte(eventBegin), q.meta.token, p), eventEnd...)) }
	}
	if level := logLevel(q.meta.logLevel); level != 0 && q.modern() {
		from.begin = r.beginStream
		from.log = &logSink{from: level, send: func(data []byte, level mcp.LoggingLevel, logger string) {
			r.event(append(appendLog([]byte(eventBegin), data, level, logger), eventEnd...))
		}}
	}
	r.keepAlive()
}

// quickHeader says whether the header of a request is one that the SDK would take. Of 2026-07-28 it has to say again what the body says.
func (e *endpoint) quickHeader(r *http.Request, q *quickRequest) bool {
	h := r.Header
	if len(h["Last-Event-Id"]) > 0 {
		return false
	}
	if contentType := first(h, "Content-Type"); contentType != "application/json" {
		if base, _, err := mime.ParseMediaType(contentType); err != nil || base != "application/json" {
			return false
		}
	}
	version := first(h, versionHeader)
	if q.modern() {
		return version == q.meta.version && first(h, methodHeader) == q.method && (q.name == "" || plainName(first(h, nameHeader)) == q.name)
	}
	if e.stateful != nil || version != "" && version != version20250618 && version != version20251125 {
		return false
	}
	session := first(h, sessionHeader)
	return session == "" || e.knows(r, session)
}

// plainName returns what an Mcp-Name header means: names that a header cannot carry come in base64.
func plainName(name string) string {
	encoded, ok := strings.CutPrefix(name, "=?base64?")
	if !ok {
		return name
	}
	encoded, ok = strings.CutSuffix(encoded, "?=")
	if !ok {
		return name
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !utf8.Valid(raw) {
		return name
	}
	return string(raw)
}

// readBody reads the body of r into s, up to the bound on it. Of a body that announces how long it is, net/http reads no more.
func (e *endpoint) readBody(w http.ResponseWriter, r *http.Request, s *scratch) error {
	body, most := io.Reader(r.Body), int64(e.adapter.conf.MaxRequestBytes)
	if r.ContentLength < 0 || r.ContentLength > most {
		body = http.MaxBytesReader(w, r.Body, most)
	}
	s.body = s.body[:0]
	if n := min(r.ContentLength+1, buffer.Small); int64(cap(s.body)) < n {
		s.body = make([]byte, 0, max(n, 1024))
	}
	for {
		n, err := body.Read(s.body[len(s.body):cap(s.body)])
		s.body = s.body[:len(s.body)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(s.body) == cap(s.body) {
			s.body = append(s.body, 0)[:len(s.body)]
		}
	}
}
