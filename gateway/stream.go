package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/apart"
	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/call"
)

// pendingBytes is how much a stream holds for a caller who reads slowly: when it is full, the backend waits.
const pendingBytes = 64 << 10

var errStalled = errors.New("caller does not read")

// stream runs a call with many replies.
//
// The chain has a goroutine of its own, which encodes replies into a small buffer; the request's goroutine, which alone touches w, sends what is
// there and flushes. An event is sent at once when that is idle, and several go together when it is not. A stream of events that falls silent may leave
// the request's goroutine: see park.
//
// It is true if the stream has done so, and ends its life itself.
func (g *Gateway) stream(ctx context.Context, life *lifetime, x *exchange, m match, c *call.Call, requests *requestSource) (left bool) {
	if !canFlush(x.w) {
		g.logger.Error("response writer cannot flush: a wrapper around it has no Unwrap method", "call_id", c.ID)
		g.fail(x, nil, status.Error(codes.Internal, "the server cannot stream"))
		return false
	}
	out := &writer{
		gateway: g, match: m, call: c, id: x.id, life: life, wake: make(chan struct{}, 1), space: make(chan struct{}, 1), finish: make(chan struct{}), done: make(chan struct{}),
	}
	switch {
	case accepts(x.r.Header, eventStream):
		out.form = events
		out.positioned, out.returns = m.cursors.positioned(requests.wire), m.returning(x.r)
	case m.rawResponse:
		out.form = raw
	}
	stream := call.NewStream(ctx, c, requests.next, func(f *call.Frame) error { return out.message(ctx, f) }, out.header)
	if requests.interrupt != nil {
		stream.OnStop(requests.interrupt)
	}
	out.stream, out.requests = stream, requests
	go func() {
		apart.Room()
		var err error
		defer out.outcome(&err)
		err = out.gateway.handler(out.stream)
	}()
	sink := &sink{w: x.w, rc: http.NewResponseController(x.w), clears: x.r.ProtoMajor >= 2, chunked: x.r.ProtoAtLeast(1, 1), parks: life.detached}
	if out.run(ctx, sink) {
		return true
	}
	<-out.finish
	switch {
	case !out.committed && out.err == nil && c.Task != "":
		g.accepted(x, c)
	case !out.committed:
		markReplayed(x.w.Header(), c.Replayed)
		g.failed(x, m, c, out.err)
	case out.failure != nil:
		out.dropped(ctx)
		panic(http.ErrAbortHandler)
	case out.err != nil && out.form == raw:
		// There is no place for a status in a raw body: only a cut connection tells the caller that it is not whole.
		panic(http.ErrAbortHandler)
	}
	return false
}

// lifetime is how long a call with many replies may go on.
type lifetime struct {
	// cancel ends the call; nil is context.Canceled.
	cancel context.CancelCauseFunc
	// detached says that the call can outlive its request's context, once release has been called: it then ends by cancel alone.
	detached bool
	release  func() bool
}

// live returns the context of a call with many replies, which ends after limit, if that is not 0. Only readers of events may be parked: they hold a
// connection each anyway.
func (g *Gateway) live(r *http.Request, m match, limit time.Duration) (context.Context, *lifetime) {
	request := r.Context()
	detached := g.parkAfter > 0 && r.ProtoMajor == 1 && r.Method != http.MethodHead && !m.method.Kind().Client && accepts(r.Header, eventStream)
	ctx := request
	if detached {
		ctx = context.WithoutCancel(request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	life := &lifetime{cancel: cancel}
	if detached {
		life.detached, life.release = true, context.AfterFunc(request, func() { cancel(context.Cause(request)) })
	}
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		life.cancel = func(cause error) {
			cancel(cause)
			stop()
		}
	}
	return ctx, life
}

// form is how replies are framed.
type form uint8

const (
	lines form = iota
	events
	raw
)

// writer is what a stream sends to the caller.
type writer struct {
	gateway *Gateway
	match   match
	id      ids
	life    *lifetime
	form    form
	// For the chain's goroutine alone.
	call     *call.Call
	stream   *call.Stream
	requests *requestSource
	// Of a reader of events: whether the request says where to go on, and whether it has lost the stream before.
	positioned, returns bool

	wake, space chan struct{} // capacity 1
	finish      chan struct{} // closed when the chain has returned
	done        chan struct{} // closed when nothing is sent any more

	failure error // of sending; valid when done is closed
	err     error // of the chain; valid when finish is closed

	mu          sync.Mutex
	pending     []byte // nil, or from buffer.Take
	md          metadata.MD
	contentType string
	replayed    bool
	committed   bool
	sentID      bool // a message with a cursor has been passed on
	ended       bool // the chain has returned
	drained     bool // the reader has been told that the server stops
	trailer     *status.Status
	parked      *parked // nil while the request's goroutine sends
}

// sink is where the request's goroutine sends to.
type sink struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	clears  bool // write deadlines must be taken back after each write (HTTP/2 fires them when idle too)
	chunked bool // as it goes over HTTP/1
	parks   bool // it may be left: see park; for events over HTTP/1 alone
	sent    bool // the header
}

// outcome is deferred where the chain runs.
func (o *writer) outcome(err *error) {
	ctx := o.stream.Context()
	if r := recover(); r != nil {
		o.gateway.panicked(ctx, o.call.Method.FullMethod, r)
		*err = status.Error(codes.Internal, "internal error; the log has the cause")
	}
	o.end(ctx, o.requests.blame(*err))
}

// header commits the stream: the backend has accepted the call.
func (o *writer) header(md metadata.MD) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replayed = o.call.Replayed
	if o.form != raw { // a raw body's type comes with its first message
		o.commit(md)
	}
	o.md = md
	return nil
}

// begin commits a stream of which nothing has come for a while: readers and proxies want to see a header. A raw one's is not known yet.
func (o *writer) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.form != raw {
		o.commit(o.md)
	}
}

func (o *writer) commit(md metadata.MD) {
	if !o.committed && !o.ended {
		o.committed, o.md = true, md
	}
	o.notify()
}

// notify has what is pending sent.
func (o *writer) notify() {
	if o.parked != nil {
		o.parked.notify(o)
		return
	}
	signal(o.wake)
}

// message encodes one reply and waits while the buffer is full.
func (o *writer) message(ctx context.Context, f *call.Frame) error {
	for {
		o.mu.Lock()
		if len(o.pending) < pendingBytes {
			err := o.encode(f)
			if err == nil {
				o.commit(o.md)
			}
			o.mu.Unlock()
			return err
		}
		o.mu.Unlock()
		select {
		case <-o.space:
		case <-o.done:
			return status.Error(codes.Canceled, errStalled.Error())
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (o *writer) encode(f *call.Frame) (err error) {
	m := o.match
	if o.pending == nil {
		o.pending = *buffer.Take(buffer.ForJSON(f.Len()))
	}
	before := len(o.pending)
	defer func() {
		if err != nil {
			o.pending = o.pending[:before]
		}
	}()
	switch o.form {
	case events:
		o.pending = m.cursors.appendHead(o.pending, f.Bytes())
		o.sentID = m.cursors.id != nil
		o.pending = append(o.pending, "data: "...)
		o.pending, err = o.gateway.appendJSONReply(o.pending, m, f)
		o.pending = append(o.pending, "\n\n"...)
	case raw:
		var contentType string
		o.pending, contentType, err = o.gateway.appendReply(o.pending, m, f)
		if !o.committed {
			o.contentType = contentType
		}
	default:
		o.pending, err = o.gateway.appendJSONReply(o.pending, m, f)
		o.pending = append(o.pending, '\n')
	}
	return err
}

// end is the chain's outcome. If nothing has been sent and the answer is still to be written, err is not nil and the stream is not committed.
func (o *writer) end(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.replayed = err, o.call.Replayed
	if task := err == nil && o.call.Task != "" && !o.committed; !task { // of a task there is nothing to send
		o.committed = o.committed || err == nil || o.tells(ctx, o.match, err)
		if o.committed {
			o.finishWith(ctx, err)
		}
	}
	o.ended = true
	close(o.finish)
	o.notify()
}

func (o *writer) finishWith(ctx context.Context, err error) {
	st := status.New(codes.OK, "")
	if err != nil {
		st = o.gateway.statusOf(ctx, o.id, err)
	}
	o.trailer = st
	switch {
	case o.form == events && err != nil:
		o.pending = o.appendFailure(o.pending, o.match, st)
	case o.form == events:
		o.pending = append(o.pending, "event: "+eventEnd+"\ndata: {}\n\n"...)
	case o.form == lines && err != nil:
		o.pending = append(o.pending, `{"error":`...)
		o.pending = appendStatus(o.pending, st.Proto(), o.match.method.Backend)
		o.pending = append(o.pending, "}\n"...)
	}
}

var errPanic = errors.New("the writer has panicked")

// run sends on the request's goroutine until all is sent, or nothing can be. It is true if the stream has left that goroutine.
func (o *writer) run(ctx context.Context, to *sink) (left bool) {
	defer func() {
		if r := recover(); r != nil {
			o.gateway.panicked(ctx, o.call.Method.FullMethod, r)
			o.failure = errPanic
			o.life.cancel(nil)
		}
		if !left {
			close(o.done)
		}
	}()
	silence := time.NewTimer(o.gateway.grace)
	defer silence.Stop()
	drain := o.gateway.drain
	for {
		last := false
		select {
		case <-o.wake:
		case <-silence.C:
			switch {
			case !to.sent:
				o.begin()
			case to.parks && o.park(to):
				return true
			default:
				o.beat()
			}
			silence.Reset(o.gateway.heartbeat)
		case <-drain:
			drain = nil
			o.draining()
		case <-o.finish:
			last = true
		}
		wrote, err := o.send(ctx, to, last)
		if err != nil {
			o.failure = err
			o.life.cancel(nil)
			return false
		}
		if last {
			return false
		}
		if wrote {
			silence.Reset(o.silence(to))
		}
	}
}

// silence is how long nothing may be sent before something is done about it.
func (o *writer) silence(to *sink) time.Duration {
	if to.parks {
		return min(o.gateway.parkAfter, o.gateway.heartbeat)
	}
	return o.gateway.heartbeat
}

// beat adds a comment, so that proxies do not end a silent stream.
func (o *writer) beat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.form == events && o.committed && !o.ended && len(o.pending) == 0 {
		o.pending = append(*buffer.Take(0), ": keep-alive\n\n"...)
		o.notify()
	}
}

func (o *writer) draining() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellDraining()
}

// tellDraining is draining with the mutex held.
func (o *writer) tellDraining() {
	if o.form == events && o.trailer == nil && !o.drained {
		o.drained = true
		o.pending = append(o.pending, "event: "+eventDraining+"\ndata: {}\n"...)
		o.pending = append(appendRetry(o.pending, o.gateway.reconnect), '\n')
		o.notify()
	}
}

// send writes what is pending, after the header if that has not been sent, and flushes.
func (o *writer) send(ctx context.Context, to *sink, last bool) (bool, error) {
	out, committed := o.take()
	if !committed || to.sent && len(out) == 0 && !last {
		return false, nil
	}
	// Every write has its own deadline, which replaces the server's: a long stream is not cut, a caller who does not read is.
	if err := to.rc.SetWriteDeadline(time.Now().Add(o.gateway.stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false, err
	}
	if !to.sent {
		to.sent = true
		if to.parks { // a connection that is parked serves no further request: who reads must know before the end, and in any case
			to.w.Header().Set("Connection", "close")
		}
		o.writeHeader(to.w)
		if o.form == events {
			out = slices.Insert(out, 0, append(appendRetry(nil, o.gateway.reconnect), '\n')...)
		}
	}
	if _, err := to.w.Write(out); err != nil {
		return true, err
	}
	buffer.Give(&out)
	if last && o.trailer != nil && o.form == lines {
		to.w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(o.trailer.Code())))
	}
	if err := to.rc.Flush(); err != nil {
		return true, err
	}
	return true, to.clear(ctx, last)
}

// take takes what is pending, if the stream is committed.
func (o *writer) take() (out []byte, committed bool) {
	o.mu.Lock()
	if !o.committed {
		o.mu.Unlock()
		return nil, false
	}
	out, o.pending = o.pending, nil
	o.mu.Unlock()
	signal(o.space)
	return out, true
}

// clear takes the write deadline back where it would hit later: on HTTP/2 while idle, on HTTP/1 the connection's next request, unless the
// server sets a deadline for each request itself.
func (o *sink) clear(ctx context.Context, last bool) error {
	if !o.clears && !last {
		return nil
	}
	if _, write := timeouts(ctx); !o.clears && write > 0 {
		return nil
	}
	if err := o.rc.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// timeouts are those of the http.Server, which gives every request on a connection deadlines of its own by them; 0 if there are none.
func timeouts(ctx context.Context) (read, write time.Duration) {
	if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		return srv.ReadTimeout, srv.WriteTimeout
	}
	return 0, 0
}

func (o *writer) writeHeader(w http.ResponseWriter) {
	o.mu.Lock()
	md, contentType, replayed := o.md, o.contentType, o.replayed
	o.mu.Unlock()
	h := w.Header()
	markReplayed(h, replayed)
	o.gateway.replyHeader(h, md)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	switch o.form {
	case events:
		h.Set("Content-Type", eventStream)
	case raw:
		setContentType(h, contentType, true)
	default:
		h.Set("Content-Type", ndjson)
	}
	w.WriteHeader(http.StatusOK)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// accepts says whether the caller names the media type, with a weight other than zero.
func accepts(h http.Header, want string) bool {
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			typ, params, err := mime.ParseMediaType(part)
			if err != nil || typ != want {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// canFlush looks through wrappers, as http.ResponseController does, before anything is sent.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}
