package mcpadapter

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// form is the form in which an answer goes out.
type form int

const (
	asEvents form = iota
	asJSON
)

const (
	// keepAliveEvery is how often a silent event stream gets a comment, so that no proxy takes it for dead: many cut after 60 seconds,
	// some after 30.
	keepAliveEvery = 15 * time.Second
	// writeStall is how long a client may take no bytes before it is given up.
	writeStall = time.Minute
)

// reply is the http.ResponseWriter that the SDK writes to. It turns the SDK's plain-text errors into JSON-RPC errors, its event stream
// into JSON where that was asked for, keeps silent streams alive, and tells proxies not to buffer.
type reply struct {
	w    http.ResponseWriter
	rc   http.ResponseController
	id   json.RawMessage
	form form
	// buffers says that a small answer never waits for the client: HTTP/1, where the fast path answers.
	buffers bool
	// alias is the id under which the SDK knows the request, where it could not keep the client's own; nil otherwise.
	alias []byte
	// principal and credentials are the caller's, where callers are asked who they are; bind makes a session's id the caller's own.
	principal   *identity.Principal
	credentials call.Credentials
	// peer is the caller's address.
	peer net.Addr
	bind func(id string) string
	// head is what the SDK and this door set; it goes to w with the first byte, so that the keep-alive timer never shares it.
	head http.Header

	mu     sync.Mutex
	status int // as sent to w; 0 before
	// plain is the status of a plain-text error, whose text is in text.
	plain  int
	text   bytes.Buffer
	answer []byte // the JSON answer, in the form asJSON
	timer  *time.Timer
	ticks  bool // the timer does
	late   bool // what the timer calls has begun, and may still wait for mu
	done   bool
	muted  bool // the request was cancelled: what comes is no answer to it
}

// newReply returns a reply to w for the request id. finish must be called.
func newReply(w http.ResponseWriter, id json.RawMessage, f form) *reply {
	return &reply{w: w, rc: *http.NewResponseController(w), id: id, form: f, head: http.Header{}}
}

// keepAlive begins to send comments while nothing else is sent.
func (r *reply) keepAlive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks = true
	if r.timer == nil {
		r.timer = time.AfterFunc(keepAliveEvery, r.comment)
		return
	}
	r.timer.Reset(keepAliveEvery)
}

func (r *reply) comment() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done || r.plain != 0 {
		return
	}
	if r.status == 0 {
		r.open(http.StatusOK, eventType)
	}
	if r.send([]byte(": still here\n\n")) == nil {
		r.timer.Reset(keepAliveEvery)
	}
}

// beginStream sends the header of an event stream, unless it is out already. The comment is for proxies that keep a header until there is
// something after it.
func (r *reply) beginStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done || r.plain != 0 || r.status != 0 || r.form != asEvents {
		return
	}
	r.open(http.StatusOK, eventType)
	_ = r.send([]byte(": taken\n\n")) // a client that has gone is noticed by the context
}

// event sends one event of the fast path.
func (r *reply) event(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.open(http.StatusOK, eventType)
	}
	_ = r.send(p) // a client that has gone is noticed by the context
}

// The values of headers, shared by all answers of the fast path.
var (
	eventType = []string{"text/event-stream"}
	jsonType  = []string{"application/json"}
	noCache   = []string{"no-cache, no-transform"}
	noBuffer  = []string{"no"}
)

// open begins an answer of the fast path.
func (r *reply) open(status int, contentType []string) {
	h := r.w.Header()
	h["Content-Type"], h["Cache-Control"] = contentType, noCache
	if &contentType[0] == &eventType[0] {
		h["X-Accel-Buffering"] = noBuffer
	}
	r.status = status
	r.w.WriteHeader(status)
}

// conclude sends the answer of the fast path, and ends the reply. The length goes first if nothing else did: the whole answer is then
// one write, and an event stream of a single event is as long as that.
func (r *reply) conclude(answer quickAnswer, modern bool) {
	r.stop()
	pieces := answer.pieces
	if r.status == 0 {
		status, contentType := http.StatusOK, eventType
		refused := answer.refused && modern
		if refused {
			status = http.StatusBadRequest
		}
		if refused || r.form == asJSON {
			pieces, contentType = answer.bare(0), jsonType
		}
		if r.buffers && size(pieces) <= bufferedBytes {
			r.open(status, contentType)
			r.write(pieces)
			return // net/http counts it, and sends it with the header, when the handler has returned; the socket has room for it
		}
		r.w.Header()["Content-Length"] = []string{strconv.Itoa(size(pieces))}
		r.open(status, contentType)
	}
	// Writers without deadlines, such as those of tests, have none to set.
	_ = r.rc.SetWriteDeadline(time.Now().Add(writeStall))
	r.write(pieces)
	_ = r.rc.Flush()
	_ = r.rc.SetWriteDeadline(time.Time{}) // the connection may carry another request
}

// write writes an answer. A client that has gone needs none.
func (r *reply) write(pieces [3][]byte) {
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if _, err := r.w.Write(p); err != nil {
			return
		}
	}
}

// bufferedBytes is the size of an answer that net/http takes without writing to the connection.
const bufferedBytes = 2048

// Header returns the header to be sent.
func (r *reply) Header() http.Header { return r.head }

// WriteHeader begins the answer, or the collection of a plain-text error.
func (r *reply) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(status)
}

func (r *reply) writeHeader(status int) {
	if r.status != 0 || r.plain != 0 {
		return
	}
	if status >= 400 && strings.HasPrefix(r.head.Get("Content-Type"), "text/plain") {
		r.plain = status
		return
	}
	if r.form == asJSON && status == http.StatusOK {
		return // finish sends it, with the answer
	}
	r.begin(status, r.head)
}

// begin sends the header.
func (r *reply) begin(status int, head http.Header) {
	h := r.w.Header()
	for name, values := range head {
		h[name] = values
	}
	if id := h.Get(sessionHeader); id != "" && r.bind != nil {
		h.Set(sessionHeader, r.bind(id))
	}
	h.Del("Connection") // the SDK's keep-alive, which HTTP/2 forbids
	if h.Get("Content-Type") == "text/event-stream" {
		h.Set("X-Accel-Buffering", "no")
	}
	r.status = status
	r.w.WriteHeader(status)
}

// Write sends one event, or a part of an error.
func (r *reply) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.writeHeader(http.StatusOK)
	}
	if r.plain != 0 {
		return r.text.Write(p)
	}
	n := len(p)
	if r.alias != nil {
		p = bytes.ReplaceAll(p, r.alias, r.id)
	}
	isEvent := r.head.Get("Content-Type") == "text/event-stream"
	switch {
	case r.muted && (!isEvent || answerIn(p) != nil):
		return n, nil
	case r.form == asJSON && isEvent:
		r.keepAnswer(p)
		return n, nil
	case r.form == asJSON && r.status == 0:
		r.begin(http.StatusOK, r.head)
	case r.form == asEvents && !isEvent && r.w.Header().Get("Content-Type") == "text/event-stream":
		// The header of a stream is out already: a comment kept it alive.
		event := append([]byte("event: message\ndata: "), p...)
		return n, r.send(append(event, "\n\n"...))
	}
	return n, r.send(p)
}

func (r *reply) send(p []byte) error {
	// Writers without deadlines, such as those of tests, have none to set.
	_ = r.rc.SetWriteDeadline(time.Now().Add(writeStall))
	if _, err := r.w.Write(p); err != nil {
		return err
	}
	return r.rc.Flush()
}

// keepAnswer keeps the message of an event if it is the answer; what else the SDK sends has no place in a JSON answer.
func (r *reply) keepAnswer(event []byte) {
	if answer := answerIn(event); answer != nil {
		r.answer = bytes.Clone(answer)
	}
}

// answerIn returns the message of an event if it is a response, or nil.
func answerIn(event []byte) []byte {
	for line := range bytes.Lines(event) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var msg struct {
			Method *string         `json:"method"`
			ID     json.RawMessage `json:"id"`
		}
		if err := json.Unmarshal(data, &msg); err == nil && msg.Method == nil && msg.ID != nil {
			return bytes.TrimSpace(data)
		}
	}
	return nil
}

// mute keeps the answer back. What has gone out already stays.
func (r *reply) mute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muted = true
}

// FlushError does nothing: every event is flushed as it is written.
func (r *reply) FlushError() error { return nil }

// stop ends the comments: none is sent once it has returned.
func (r *reply) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// end is stop, with the mutex held.
func (r *reply) end() {
	r.done = true
	if r.ticks {
		r.ticks = false
		r.late = !r.timer.Stop()
	}
}

// clear makes r, which has been stopped, what it was before its request. It is false if r cannot serve another one.
func (r *reply) clear() bool {
	if r.late {
		return false
	}
	timer := r.timer
	*r = reply{}
	r.timer = timer
	return true
}

// refuse answers with an error of this door instead of the SDK's answer.
func (r *reply) refuse(status int, e *jsonrpc.Error) {
	r.stop()
	refuse(r.w, status, r.id, e)
}

// finish sends what is left when the SDK has returned.
func (r *reply) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	switch {
	case r.plain != 0:
		e := rpcError(jsonrpc.CodeInvalidRequest, "%s", strings.TrimSpace(r.text.String()))
		if r.plain >= 500 {
			e.Code = jsonrpc.CodeInternalError
		}
		if allow := r.head.Get("Allow"); allow != "" {
			r.w.Header().Set("Allow", allow)
		}
		refuse(r.w, r.plain, r.id, e)
	case r.muted && r.status == 0:
		r.begin(http.StatusAccepted, http.Header{})
	case r.form == asJSON && r.status == 0 && r.answer != nil:
		r.head.Set("Content-Type", "application/json")
		r.begin(http.StatusOK, r.head)
		_ = r.send(r.answer) // a client that has gone needs no answer
	case r.form == asJSON && r.status == 0:
		refuse(r.w, http.StatusInternalServerError, r.id, rpcError(jsonrpc.CodeInternalError, "the call ended without an answer"))
	}
	if r.status != 0 {
		_ = r.rc.SetWriteDeadline(time.Time{}) // the connection may carry another request
	}
}
