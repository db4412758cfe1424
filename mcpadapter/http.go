package mcpadapter

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/origin"
)

// bodyTimeout bounds the reading of one message, against callers that send it byte by byte.
const bodyTimeout = 30 * time.Second

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

// endpoint is the Streamable HTTP endpoint. It admits requests, reads them as far as routing needs, and hands them to the SDK: those
// of 2026-07-28 to a stateless handler, older ones to a stateless or, with Config.Sessions, a stateful one. The SDK always answers with
// an event stream; reply turns that into JSON where the client wants no stream.
type endpoint struct {
	adapter             *Adapter
	stateless, stateful http.Handler
	cancels             cancels
	// ended are the caller ids that clients ended with DELETE here. Other instances cannot know of them, and take them still.
	ended   recent
	origins *origin.Policy
	key     sessionKey
}

func newEndpoint(a *Adapter) *endpoint {
	e := &endpoint{adapter: a, origins: origin.New(a.conf.AllowedHosts, a.conf.AllowedOrigins), key: newSessionKey()}
	server := func(*http.Request) *mcp.Server { return a.server }
	options := mcp.StreamableHTTPOptions{
		Logger:                       nil,
		DisableLocalhostProtection:   true, // admit does it, with AllowedHosts
		MaxRequestBodyBytes:          -1,   // post does it, before the SDK reads
		PropagateRequestCancellation: true,
	}
	options.Stateless = true
	e.stateless = mcp.NewStreamableHTTPHandler(server, &options)
	if a.conf.Sessions {
		options.Stateless = false
		options.SessionTimeout = a.conf.SessionTimeout
		options.EventStore = mcp.NewMemoryEventStore(nil)
		e.stateful = mcp.NewStreamableHTTPHandler(server, &options)
	}
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.admit(w, r) {
		return
	}
	r, ok := e.authenticate(w, r)
	if !ok {
		return
	}
	if r.Method == http.MethodPost {
		e.post(w, r)
		return
	}
	legacy := first(r.Header, versionHeader) < version20260728
	switch {
	case r.Method == http.MethodGet && legacy && e.stateful != nil:
		e.get(w, r)
	case r.Method == http.MethodDelete && legacy && e.stateful != nil:
		if reply := newReply(w, nil, asEvents); e.ownSession(reply, r) {
			e.serve(e.stateful, reply, r)
		}
	case r.Method == http.MethodDelete && legacy:
		e.delete(w, r)
	default:
		allow := "POST"
		switch {
		case legacy && e.stateful != nil:
			allow = "POST, GET, DELETE"
		case legacy:
			allow = "POST, DELETE"
		}
		w.Header().Set("Allow", allow)
		refuse(w, http.StatusMethodNotAllowed, nil, rpcError(jsonrpc.CodeInvalidRequest, "%s is not offered here: send a JSON-RPC message with POST", r.Method))
	}
}

// get is the stream of a session on which the server speaks unasked.
func (e *endpoint) get(w http.ResponseWriter, r *http.Request) {
	if !accepts(r.Header, "text/event-stream", "text/*", "*/*") {
		refuse(w, http.StatusNotAcceptable, nil, rpcError(jsonrpc.CodeInvalidRequest, "GET opens an event stream: send Accept: text/event-stream"))
		return
	}
	reply := newReply(w, nil, asEvents)
	if !e.ownSession(reply, r) {
		return
	}
	release := e.adapter.changes.watch()
	defer release()
	reply.keepAlive()
	ctx, stop := e.adapter.untilDrained(r.Context())
	defer stop()
	r = r.Clone(ctx)
	r.Header.Set("Accept", "text/event-stream")
	e.serve(e.stateful, reply, r)
}

// post is one JSON-RPC message.
func (e *endpoint) post(w http.ResponseWriter, r *http.Request) {
	if t := first(r.Header, "Content-Type"); mediaType(t) != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, nil, rpcError(jsonrpc.CodeInvalidRequest, "content type is %q: want application/json", t))
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // a recorder in a test has no connection
	s := e.adapter.scratch()
	if err := e.readBody(w, r, s); err != nil {
		refuseBody(w, s.body, err)
		return
	}
	_ = rc.SetReadDeadline(time.Time{})
	if e.quick(w, r, rc, s) {
		e.adapter.free(s)
		return
	}
	e.slow(w, r, s.body)
}

// refuseBody answers a message of which only read has come.
func refuseBody(w http.ResponseWriter, read []byte, err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		id := headID(read[:min(len(read), idWindow)]) // the rest is not read
		refuse(w, http.StatusRequestEntityTooLarge, id, rpcError(jsonrpc.CodeInvalidRequest, "the message is longer than %d bytes", tooLarge.Limit))
		return
	}
	refuse(w, http.StatusBadRequest, nil, rpcError(jsonrpc.CodeParseError, "the message ended early, or took longer than %v", bodyTimeout))
}

// slow is for a message that is not one of the fast path. The SDK may keep the body.
func (e *endpoint) slow(w http.ResponseWriter, r *http.Request, body []byte) {
	msg, rpcErr := parseEnvelope(body)
	if rpcErr != nil {
		refuse(w, http.StatusBadRequest, msg.id, rpcErr)
		return
	}
	form, ok := answerForm(r.Header, msg.method)
	if e.stateful != nil && asks[msg.method] && first(r.Header, versionHeader) < version20260728 && accepts(r.Header, "text/event-stream", "text/*") {
		form = asEvents // a client with a session may be asked
	}
	if !ok {
		refuse(w, http.StatusNotAcceptable, msg.id, rpcError(jsonrpc.CodeInvalidRequest, "nothing that Accept names fits: send Accept: application/json, text/event-stream"))
		return
	}
	version := first(r.Header, versionHeader)
	if version != "" && !slices.Contains(versions, version) {
		refuse(w, http.StatusBadRequest, msg.id, unsupportedVersion(version))
		return
	}
	if msg.method != "" && !e.offers(msg.method, version) {
		unknownMethod(w, msg, version)
		return
	}

	if taskMethods[msg.method] && msg.isRequest() {
		if told, id := plainName(first(r.Header, nameHeader)), taskIDOf(msg.params); told != id {
			refuse(w, http.StatusBadRequest, msg.id, rpcError(mcp.CodeHeaderMismatch, "header mismatch: %s is %q, and params.taskId is %q", nameHeader, cut(told, 100), cut(id, 100)))
			return
		}
	}
	if name, arguments := toolOf(msg); e.adapter.conf.Authenticator != nil && name != "" && e.stepUp(w, r, msg.id, name, arguments) {
		return
	}
	reply := newReply(w, msg.id, form)
	reply.principal, reply.credentials, reply.peer = e.principal(r), call.CredentialsFrom(r.Context()), (*call.Remote)(&r.RemoteAddr)
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json, text/event-stream")
	forget := e.adapter.noteCall(r.Header, msg, reply)
	defer forget()
	if name := first(r.Header, nameHeader); name != "" {
		r.Header.Set(nameHeader, plainName(name)) // the SDK would compare the base64
	}
	if msg.method == "initialize" && msg.isRequest() && version < version20260728 {
		msg.params = withInitializeVersion(msg.params)
		body = msg.encode(msg.id)
	}
	if msg.isRequest() && !keepsID(msg.id) {
		reply.alias = appendString(nil, "toolway-"+rand.Text())
		body = msg.encode(reply.alias)
	}
	if msg.method == "subscriptions/listen" {
		ctx, stop := e.adapter.untilDrained(r.Context())
		defer stop()
		r = r.WithContext(ctx)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if form == asEvents {
		reply.keepAlive()
	}
	if version >= version20260728 {
		e.serve(e.stateless, reply, r)
		return
	}
	e.legacy(reply, r, msg)
}

// legacy serves a message of 2025-06-18 or 2025-11-25.
func (e *endpoint) legacy(reply *reply, r *http.Request, msg envelope) {
	if e.stateful != nil {
		if msg.method != "initialize" && first(r.Header, sessionHeader) == "" {
			reply.refuse(http.StatusBadRequest, rpcError(jsonrpc.CodeInvalidRequest,
				"%s is missing: this server keeps sessions; send initialize, and then the id that its answer has in this header with each message", sessionHeader))
			return
		}
		if e.ownSession(reply, r) {
			defer e.noteCancel(reply, r, msg)()
			e.serve(e.stateful, reply, r)
		}
		return
	}
	session := first(r.Header, sessionHeader)
	if session != "" && !e.knows(r, session) {
		reply.refuse(http.StatusNotFound, noSession(session))
		return
	}
	// What the client names in Mcp-Session-Id is only the scope of its cancel notices: see cancels.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	switch {
	case msg.method == "initialize":
		reply.Header().Set(sessionHeader, newCallerID(e.principal(r)))
	case session != "" && msg.method == "notifications/cancelled":
		e.cancels.cancel(session, msg.params)
	case session != "" && msg.isRequest():
		defer e.cancels.add(session, msg.id, cancel)()
	}
	// The SDK takes the values of this context over to the call, but not its end: followRequest adds that.
	e.serve(e.stateless, reply, r.WithContext(context.WithValue(ctx, requestKey{}, ctx)))
}

func (e *endpoint) serve(h http.Handler, reply *reply, r *http.Request) {
	defer reply.finish()
	h.ServeHTTP(reply, r)
}

// answerForm says in which form the answer to a method goes out: JSON unless only a stream can carry it, or Accept has no JSON.
func answerForm(h http.Header, method string) (form, bool) {
	anything, asksEvents, asksJSON := len(h["Accept"]) == 0, false, false
	for t := range accepted(h) {
		switch t {
		case "*/*":
			anything = true
		case "text/event-stream", "text/*":
			asksEvents = true
		case "application/json", "application/*":
			asksJSON = true
		}
	}
	asksJSON = asksJSON || anything
	switch {
	case method == "subscriptions/listen":
		return asEvents, asksEvents || anything
	case asksEvents && (method == "tools/call" || !asksJSON):
		return asEvents, true
	}
	return asJSON, asksJSON
}

// accepts says whether Accept names one of the media types, whatever its parameters.
func accepts(h http.Header, types ...string) bool {
	for t := range accepted(h) {
		if slices.Contains(types, t) {
			return true
		}
	}
	return false
}

// accepted are the media types that Accept names.
func accepted(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range h["Accept"] {
			for part := range strings.SplitSeq(line, ",") {
				if !yield(mediaType(part)) {
					return
				}
			}
		}
	}
}

// mediaType returns a media type without its parameters, in lower case.
func mediaType(value string) string {
	base, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(base))
}

// first returns the first value of a header field under its canonical name, or "". It is Header.Get without the making of that name.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// knownMethods are the methods that the SDK and this door answer. The SDK answers others with plain text.
var knownMethods = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "subscriptions/listen": true,
	"tools/list": true, "tools/call": true, "completion/complete": true,
	"prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"notifications/initialized": true, "notifications/cancelled": true, "notifications/progress": true, "notifications/roots/list_changed": true,
}

// offers says whether a method is answered at all. A level of logging needs a session that remembers it.
func (e *endpoint) offers(method, version string) bool {
	if taskMethods[method] {
		return e.adapter.conf.Tasks != nil && version >= version20260728
	}
	return knownMethods[method] || method == "logging/setLevel" && version < version20260728 && e.stateful != nil
}

func unknownMethod(w http.ResponseWriter, msg envelope, version string) {
	switch {
	case msg.id == nil:
		w.WriteHeader(http.StatusAccepted) // a notification that means nothing here
	case version >= version20260728:
		refuse(w, http.StatusNotFound, msg.id, rpcError(jsonrpc.CodeMethodNotFound, "method %q is not offered", cut(msg.method, 100)))
	default:
		refuse(w, http.StatusOK, msg.id, rpcError(jsonrpc.CodeMethodNotFound, "method %q is not offered", cut(msg.method, 100)))
	}
}

func unsupportedVersion(version string) *jsonrpc.Error {
	data, err := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: versions, Requested: cut(version, 100)})
	if err != nil {
		data = nil
	}
	e := rpcError(mcp.CodeUnsupportedProtocolVersion, "protocol version %q is not supported; these are: %s", cut(version, 100), strings.Join(versions, ", "))
	e.Data = data
	return e
}

// refuse answers with an HTTP error whose body is a JSON-RPC error, so that clients of either layer see what is wrong.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(errorMessage(id, e)) // a client that has gone needs no answer
}
