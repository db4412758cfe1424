package gateway

import (
	"context"
	"errors"
	"log/slog"
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

	"github.com/toolway/toolway/internal/call"
)

// pendingBytes is how much a stream holds for a caller who reads slowly: when it is full, the backend waits.
const pendingBytes = 64 << 10

var errStalled = errors.New("caller does not read")

// stream runs a call with many replies.
//
// The chain's goroutine encodes replies into a small buffer; one writer goroutine, which alone touches w until it has ended, sends what is
// there and flushes. An event is sent at once when the writer is idle, and several go together when it is not.
func (g *Gateway) stream(ctx context.Context, cancel context.CancelFunc, x *exchange, m match, c *call.Call, requests *requestSource) {
	if !canFlush(x.w) {
		g.logger.Error("response writer cannot flush: a wrapper around it has no Unwrap method", "call_id", c.ID)
		g.fail(x, nil, status.Error(codes.Internal, "the server cannot stream"))
		return
	}
	out := &writer{
		gateway: g, call: c, id: x.id, w: x.w, rc: http.NewResponseController(x.w), cancel: cancel, clears: x.r.ProtoMajor >= 2,
		wake: make(chan struct{}, 1), space: make(chan struct{}, 1), finish: make(chan struct{}), done: make(chan struct{}),
	}
	switch {
	case accepts(x.r.Header, eventStream):
		out.form = events
		out.positioned, out.returns = m.cursors.positioned(requests.wire), m.returning(x.r)
	case m.rawResponse:
		out.form = raw
	}
	stream := call.NewStream(ctx, c, requests.next, func(f *call.Frame) error { return out.message(ctx, m, f) }, out.header)
	if requests.interrupt != nil {
		stream.OnStop(requests.interrupt)
	}
	go out.run(ctx)
	defer out.stop()
	err := requests.blame(g.handler(stream))
	if err == nil && c.Task != "" {
		out.stop() // it has nothing to send
		g.accepted(x, c)
		return
	}
	committed := out.end(ctx, m, err)
	switch {
	case !committed:
		markReplayed(x.w.Header(), c.Replayed)
		g.failed(x, m, c, err)
	case out.failure != nil:
		g.logger.LogAttrs(ctx, slog.LevelInfo, "stream dropped", slog.String("call_id", c.ID), slog.String("method", m.method.FullMethod), slog.Any("error", out.failure))
		panic(http.ErrAbortHandler)
	case err != nil && out.form == raw:
		// There is no place for a status in a raw body: only a cut connection tells the caller that it is not whole.
		panic(http.ErrAbortHandler)
	}
}

// form is how replies are framed.
type form uint8

const (
	lines form = iota
	events
	raw
)

// writer sends a stream to the caller.
type writer struct {
	gateway *Gateway
	call    *call.Call // for the chain's goroutine alone
	id      ids
	w       http.ResponseWriter
	rc      *http.ResponseController
	cancel  context.CancelFunc // of the call
	clears  bool               // write deadlines must be taken back after each write (HTTP/2 fires them when idle too)
	form    form
	// Of a reader of events: whether the request says where to go on, and whether it has lost the stream before.
	positioned, returns bool

	wake, space  chan struct{} // capacity 1
	finish, done chan struct{}
	stopping     sync.Once

	failure error // of the writer goroutine; valid when done is closed

	mu          sync.Mutex
	pending     []byte
	spare       []byte
	md          metadata.MD
	contentType string
	replayed    bool
	committed   bool
	sentID      bool // a message with a cursor has been passed on
	refused     bool // the call has failed before anything was sent: nothing will be, here
	trailer     *status.Status
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

func (o *writer) commit(md metadata.MD) {
	if !o.committed && !o.refused {
		o.committed, o.md = true, md
	}
	signal(o.wake)
}

// message encodes one reply and waits while the buffer is full.
func (o *writer) message(ctx context.Context, m match, f *call.Frame) error {
	for {
		o.mu.Lock()
		if len(o.pending) < pendingBytes {
			err := o.encode(m, f)
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

func (o *writer) encode(m match, f *call.Frame) (err error) {
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

// end hands the outcome to the writer goroutine, waits for it and reports whether anything has been sent. If not, err is not nil and the
// answer is still to be written.
func (o *writer) end(ctx context.Context, m match, err error) bool {
	o.mu.Lock()
	o.replayed = o.call.Replayed
	if err == nil || !o.committed && o.tells(ctx, m, err) {
		o.committed = true
	}
	if o.committed {
		o.finishWith(ctx, m, err)
	}
	o.refused = !o.committed
	o.mu.Unlock()
	o.stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.committed
}

// stop ends the writer goroutine after what is pending, and waits for it.
func (o *writer) stop() {
	o.stopping.Do(func() { close(o.finish) })
	<-o.done
}

func (o *writer) finishWith(ctx context.Context, m match, err error) {
	st := status.New(codes.OK, "")
	if err != nil {
		st = o.gateway.statusOf(ctx, o.id, err)
	}
	o.trailer = st
	switch {
	case o.form == events && err != nil:
		o.pending = o.appendFailure(o.pending, m, st)
	case o.form == events:
		o.pending = append(o.pending, "event: "+eventEnd+"\ndata: {}\n\n"...)
	case o.form == lines && err != nil:
		o.pending = append(o.pending, `{"error":`...)
		o.pending = appendStatus(o.pending, st.Proto(), m.method.Backend)
		o.pending = append(o.pending, "}\n"...)
	}
}

var errPanic = errors.New("the writer has panicked")

// run is the writer goroutine.
func (o *writer) run(ctx context.Context) {
	defer close(o.done)
	defer func() {
		if r := recover(); r != nil {
			o.gateway.panicked(ctx, o.call.Method.FullMethod, r)
			o.failure = errPanic
			o.cancel()
		}
	}()
	grace := time.NewTimer(o.gateway.grace)
	defer grace.Stop()
	beat := time.NewTimer(o.gateway.heartbeat)
	defer beat.Stop()
	drain := o.gateway.drain
	sent := false
	for {
		last := false
		select {
		case <-o.wake:
		case <-grace.C:
			o.mu.Lock()
			if o.form != raw {
				o.commit(o.md)
			}
			o.mu.Unlock()
		case <-beat.C:
			o.beat()
			beat.Reset(o.gateway.heartbeat)
		case <-drain:
			drain = nil
			o.draining()
		case <-o.finish:
			last = true
		}
		wrote, err := o.send(ctx, sent, last)
		sent = sent || wrote
		if err != nil {
			o.failure = err
			o.cancel()
			return
		}
		if last {
			return
		}
		if wrote {
			beat.Reset(o.gateway.heartbeat)
		}
	}
}

// beat adds a comment, so that proxies do not end a silent stream.
func (o *writer) beat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.form == events && o.committed && len(o.pending) == 0 {
		o.pending = append(o.pending, ": keep-alive\n\n"...)
	}
}

func (o *writer) draining() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.form == events && o.trailer == nil {
		o.pending = append(o.pending, "event: "+eventDraining+"\ndata: {}\n"...)
		o.pending = append(appendRetry(o.pending, o.gateway.reconnect), '\n')
	}
}

// send writes what is pending, after the header if that has not been sent, and flushes.
func (o *writer) send(ctx context.Context, sent, last bool) (bool, error) {
	o.mu.Lock()
	if !o.committed {
		o.mu.Unlock()
		return false, nil
	}
	out := o.pending
	o.pending, o.spare = o.spare[:0], nil
	md, contentType, trailer, replayed := o.md, o.contentType, o.trailer, o.replayed
	o.mu.Unlock()
	signal(o.space)
	if sent && len(out) == 0 && !last {
		o.recycle(out)
		return false, nil
	}
	// Every write has its own deadline, which replaces the server's: a long stream is not cut, a caller who does not read is.
	if err := o.rc.SetWriteDeadline(time.Now().Add(o.gateway.stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false, err
	}
	if !sent {
		markReplayed(o.w.Header(), replayed)
		o.writeHeader(md, contentType)
		if o.form == events {
			out = slices.Insert(out, 0, append(appendRetry(nil, o.gateway.reconnect), '\n')...)
		}
	}
	if _, err := o.w.Write(out); err != nil {
		return true, err
	}
	o.recycle(out)
	if trailer != nil && last && o.form == lines {
		o.w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(trailer.Code())))
	}
	if err := o.rc.Flush(); err != nil {
		return true, err
	}
	return true, o.clear(ctx, last)
}

// clear takes the write deadline back where it would hit later: on HTTP/2 while idle, on HTTP/1 the connection's next request, unless the
// server sets a deadline for each request itself.
func (o *writer) clear(ctx context.Context, last bool) error {
	if !o.clears && !last {
		return nil
	}
	if !o.clears && serverSetsDeadlines(ctx) {
		return nil
	}
	if err := o.rc.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// serverSetsDeadlines says whether net/http gives every request on a connection a write deadline of its own.
func serverSetsDeadlines(ctx context.Context) bool {
	srv, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	return ok && srv.WriteTimeout > 0
}

func (o *writer) recycle(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cap(b) <= 2*pendingBytes {
		o.spare = b[:0]
	}
}

func (o *writer) writeHeader(md metadata.MD, contentType string) {
	h := o.w.Header()
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
	o.w.WriteHeader(http.StatusOK)
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
