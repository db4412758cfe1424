package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/hangup"
)

// A stream over HTTP/1 holds some 25 KiB of net/http: a goroutine with a deep stack, one that waits for the caller to go, and the buffers of the
// connection and of the answer. One of events that is silent is parked: the connection is taken over, the request's goroutine ends, and what is left
// is the chain's goroutine. That the caller goes is noticed for all of them in one place. What is to be sent, as chunks of the answer that has begun,
// is sent by a goroutine that lives as long as there is something. The answer's header has said "Connection: close" (RFC 9112, section 9.6):
// otherwise a client could send its next request on a connection that the end of the stream closes.

// parked is a stream that has left net/http. Its fields are guarded by the writer's mutex.
type parked struct {
	conn    *hangup.Conn
	chunked bool
	sending bool // a goroutine is at it
	beat    *time.Timer
	gone    chan struct{} // closed when the caller has gone, or conn is closed
}

// closingGrace is how long the caller of a parked stream may take to close its side after the end: closing before it has read all could lose what is on
// the way.
const closingGrace = time.Second

// park takes the connection over, if that can be done and nothing is to be sent. It is true if it has: the request's handler must return then.
func (o *writer) park(to *sink) bool {
	o.mu.Lock()
	silent := len(o.pending) == 0 && !o.ended
	o.mu.Unlock()
	if !silent {
		return false
	}
	o.gateway.parking.add(o)       // first, so that a server that is shut down knows of it at any time
	conn, _, err := to.rc.Hijack() // what is buffered of a further request gets no answer
	if err != nil {
		o.gateway.parking.remove(o)
		to.parks = false
		return false
	}
	p := &parked{chunked: to.chunked, gone: make(chan struct{})}
	o.life.release()
	p.conn = o.gateway.parking.watcher.Watch(conn, func() {
		o.life.cancel(nil)
		close(p.gone)
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parked = p
	p.beat = time.AfterFunc(o.gateway.heartbeat, o.beat)
	if o.pending != nil || o.ended { // it came meanwhile
		p.notify(o)
	}
	select {
	case <-o.gateway.drain:
		o.tellDraining()
	default:
	}
	return true
}

// notify starts a goroutine that sends what is pending, unless there is one. It is called with the mutex held.
func (p *parked) notify(o *writer) {
	if !p.sending {
		p.sending = true
		go o.sendParked(p)
	}
}

// sendParked sends until nothing is pending, and ends the stream once the chain has returned.
func (o *writer) sendParked(p *parked) {
	for {
		o.mu.Lock()
		out, ended, failed := o.pending, o.ended, o.failure != nil
		o.pending = nil
		if len(out) == 0 && !ended || failed && !ended {
			p.sending = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		signal(o.space)
		if ended {
			o.endParked(p, out)
			return
		}
		if err := o.write(p, out, false); err != nil {
			o.fail(p, err)
		}
	}
}

// fail ends a call whose caller cannot be reached.
func (o *writer) fail(p *parked, err error) {
	_ = p.conn.Close()
	o.mu.Lock()
	o.failure = err
	close(o.done) // a message that waits for space need not any more
	o.mu.Unlock()
	o.dropped(context.Background())
	o.life.cancel(nil)
}

// endParked sends the last of a stream and closes its connection.
func (o *writer) endParked(p *parked, out []byte) {
	select {
	case <-p.gone: // nobody is there
	default:
		if o.failure == nil {
			o.failure = o.write(p, out, true)
		}
		if o.failure == nil {
			closeWrite(p.conn.Conn)
			grace := time.NewTimer(closingGrace)
			select {
			case <-p.gone:
			case <-grace.C:
			}
			grace.Stop()
		} else {
			o.dropped(context.Background())
		}
	}
	_ = p.conn.Close()
	p.beat.Stop()
	o.life.cancel(nil)
	o.gateway.parking.remove(o)
}

// hangUp closes the connection of a stream that is parked.
func (o *writer) hangUp() {
	o.life.cancel(nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.parked != nil {
		_ = o.parked.conn.Close()
	}
}

// dropped tells the log of a stream whose caller cannot be reached.
func (o *writer) dropped(ctx context.Context) {
	o.gateway.logger.LogAttrs(ctx, slog.LevelInfo, "stream dropped", slog.String("call_id", o.call.ID), slog.String("method", o.call.Method.FullMethod), slog.Any("error", o.failure))
}

// write sends what is given as a chunk of the answer, and its end after the last, in one write.
func (o *writer) write(p *parked, out []byte, last bool) error {
	framed := *buffer.Take(len(out) + 32)
	chunk := p.chunked && len(out) > 0
	if chunk {
		framed = append(strconv.AppendUint(framed, uint64(len(out)), 16), "\r\n"...)
	}
	framed = append(framed, out...)
	buffer.Give(&out)
	if chunk {
		framed = append(framed, "\r\n"...)
	}
	if p.chunked && last {
		framed = append(framed, "0\r\n\r\n"...)
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(o.gateway.stall)); err != nil {
		return err
	}
	p.beat.Reset(o.gateway.heartbeat)
	_, err := p.conn.Write(framed)
	buffer.Give(&framed)
	return err
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it is closed anyway
	}
}

var (
	_ interface{ CloseWrite() error } = (*net.TCPConn)(nil)
	_ interface{ CloseWrite() error } = (*tls.Conn)(nil)
	_ http.Hijacker                   // what http.ResponseController.Hijack asks for
)

// parking is the streams that are parked.
type parking struct {
	watcher hangup.Watcher
	mu      sync.Mutex
	streams map[*writer]bool
	empty   chan struct{} // closed when there are none; nil while there never were
	cause   error         // why no more are to be, once they are cut
}

func (p *parking) add(o *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) == 0 {
		p.streams, p.empty = map[*writer]bool{}, make(chan struct{})
	}
	p.streams[o] = true
	if p.cause != nil {
		o.life.cancel(p.cause)
	}
}

func (p *parking) cut(cause error) {
	p.mu.Lock()
	p.cause = cause
	p.mu.Unlock()
	p.each(func(o *writer) { o.life.cancel(cause) })
}

func (p *parking) remove(o *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, o)
	if len(p.streams) == 0 {
		close(p.empty)
	}
}

// each calls f for every stream that is parked now.
func (p *parking) each(f func(*writer)) {
	p.mu.Lock()
	all := make([]*writer, 0, len(p.streams))
	for o := range p.streams {
		all = append(all, o)
	}
	p.mu.Unlock()
	for _, o := range all {
		f(o)
	}
}

func (p *parking) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		n, empty := len(p.streams), p.empty
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
