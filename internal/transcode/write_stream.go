package transcode

import (
	"io"
	"math"
	"sync"
)

// pieceBytes is how much text WriteJSON gathers before it passes it on.
const pieceBytes = 32 << 10

// stream takes text that no longer changes out of a writer's hands.
type stream struct {
	at   int // length of text at which it is passed on; math.MaxInt while it may still change
	most int // bytes passed on beyond which it is not worth going on
	gone int // bytes passed on
	to   io.Writer
	err  error // of to
}

// notStreaming is how a writer stands in the pool.
var notStreaming = stream{at: math.MaxInt, most: math.MaxInt}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// giveBack puts a buffer from the pool back, now with the array of b, unless that has grown large.
func giveBack(buf *[]byte, b []byte) {
	if cap(b) <= 4*pieceBytes {
		*buf = b
	}
	buffers.Put(buf)
}

// WriteJSON writes the text that AppendJSON makes, in pieces of about 32 KiB, and holds no more of it than a piece and the longest single
// value in it. A text longer than a piece is made twice: first to see that the message is sound, so that to gets nothing of one that is
// not. Held whole are what a google.protobuf.Any contains, and a text that MaxBytes cuts. An error is an *Error, or that of to, which may
// have got a part then.
func (m *Message) WriteJSON(to io.Writer, wire []byte, o WriteOptions) error {
	buf := buffers.Get().(*[]byte)
	out, err := m.writeJSON(to, (*buf)[:0], wire, o, pieceBytes)
	giveBack(buf, out)
	return err
}

// writeJSON is WriteJSON with a buffer, which it returns for further use.
func (m *Message) writeJSON(to io.Writer, buf, wire []byte, o WriteOptions, piece int) ([]byte, error) {
	whole := o
	o.MaxBytes = 0
	w := m.writer(wire, o, nil)
	defer func() {
		w.stream = notStreaming
		w.release()
	}()
	p := m.plan()
	w.at = piece
	if whole.MaxBytes > 0 {
		w.most = softBytes(whole.MaxBytes)
	}
	out, ok := w.message(buf, p, 0, len(wire), maxWireDepth)
	if !ok && w.gone <= w.most {
		w.restart(0)
		w.gone = 0
		out, ok = w.message(out[:0], p, 0, len(wire), maxWireDepth)
	}
	switch size := w.gone + len(out); {
	case whole.MaxBytes > 0 && (!ok || size > w.most): // what is cut away may hold what failed
		out, err := m.AppendJSON(out[:0], wire, whole)
		if err != nil {
			return out, err
		}
		_, err = to.Write(out)
		return out, err
	case !ok:
		return out, w.error(m)
	case w.gone > 0:
		careful := w.careful
		w.restart(0)
		w.careful, w.rare, w.gone, w.to = careful, 0, 0, to
		out, ok = w.message(out[:0], p, 0, len(wire), maxWireDepth)
	}
	switch {
	case w.err != nil:
		return out, w.err
	case !ok:
		return out, w.error(m)
	}
	w.limits.report(o.Cut)
	_, err := to.Write(out)
	return out, err
}

// pass passes the text on.
func (w *writer) pass(out []byte) ([]byte, bool) {
	w.gone += len(out)
	if w.gone > w.most {
		return out[:0], w.failf("longer than %d bytes", w.most)
	}
	if w.to != nil {
		if _, w.err = w.to.Write(out); w.err != nil {
			return out[:0], w.failf("write: %v", w.err)
		}
	}
	return out[:0], true
}
