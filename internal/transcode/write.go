package transcode

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// writer turns wire bytes into JSON. It reads the fields in one go as they come, as long as they come in the order in which encoders
// write them; when they do not, or one is split or overridden, the careful path sorts them out first.
type writer struct {
	in      []byte
	o       WriteOptions
	set     *Set
	careful bool // read everything by the careful path
	rare    int  // messages that were read by both
	fault   fault
	problem string   // of faultOther
	path    []string // from the inside out
	recs    []record
	entries []entry
	picks   []pick
	limits
	stream
}

var writers = sync.Pool{New: func() any { return &writer{stream: notStreaming} }}

func (m *Message) writer(wire []byte, o WriteOptions, dst []byte) *writer {
	w := writers.Get().(*writer)
	w.in, w.o, w.set, w.careful, w.rare, w.fault = wire, o, m.set, false, 0, 0
	w.limits.reset(o, len(dst))
	return w
}

func (w *writer) release() {
	w.in, w.set, w.o.Cut = nil, nil, nil
	if len(w.path) > 0 || len(w.places) > 0 {
		clear(w.path)
		clear(w.places)
		w.problem = ""
	}
	w.path, w.recs, w.entries, w.picks, w.places = w.path[:0], w.recs[:0], w.entries[:0], w.picks[:0], w.places[:0]
	const keep = 1 << 14
	if cap(w.recs) > keep || cap(w.entries) > keep {
		return // one huge message must not hold memory for good
	}
	writers.Put(w)
}

// AppendJSON appends the JSON form of the message whose wire bytes are wire. Unknown fields are left out, fields come in the order of
// their numbers and map entries in the order of their keys. An error is an *Error; nothing is appended then.
func (m *Message) AppendJSON(dst, wire []byte, o WriteOptions) ([]byte, error) {
	w := m.writer(wire, o, dst)
	defer w.release()
	p := m.plan()
	out, ok := w.message(dst, p, 0, len(wire), maxWireDepth)
	if !ok {
		// Too much was out of order, or what failed may be overridden by what comes later.
		w.restart(len(dst))
		out, ok = w.message(out[:len(dst)], p, 0, len(wire), maxWireDepth)
	}
	if !ok {
		return dst, w.error(m)
	}
	w.limits.report(o.Cut)
	return out, nil
}

// AppendFieldJSON appends the JSON form of one field of the message (google.api.http response_body), at a dotted path of proto or JSON
// names. A field that is not set is written as its empty form: [], {}, null for a well-known type without one, or the default value; so is
// one in a message that is not set. An error is an *Error.
func (m *Message) AppendFieldJSON(dst []byte, path string, wire []byte, o WriteOptions) ([]byte, error) {
	w := m.writer(wire, o, dst)
	defer w.release()
	w.careful = true
	w.recs = append(w.recs, record{value: value{end: len(wire)}})
	out, ok := w.fieldAt(dst, m.plan(), path, 0, 1, maxWireDepth)
	if !ok {
		return dst, w.error(m)
	}
	w.limits.report(o.Cut)
	return out, nil
}

// fieldAt appends the field at a dotted path in the message whose pieces are recs[from:from+n].
func (w *writer) fieldAt(out []byte, p *plan, path string, from, n, depth int) (_ []byte, ok bool) {
	f, rest, deeper, err := p.step(path, "field path")
	if err != nil {
		w.path = append(w.path, err.Path)
		err.Path = ""
		return out, w.failf("%s", err)
	}
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	for base < len(w.recs) && w.recs[base].num != f.num {
		base++
	}
	n = 0
	for base+n < len(w.recs) && w.recs[base+n].num == f.num {
		n++
	}
	switch {
	case deeper:
		out, ok = w.fieldAt(out, f.msg.plan(), rest, base, n, depth-1)
	case n == 0:
		return w.unset(out, f), true
	default:
		out, _, ok = w.field(out, f, base, n, depth, true)
	}
	if !ok {
		w.within(f)
	}
	return out, ok
}

// restart clears what a first attempt left behind, for an attempt by the careful path.
func (w *writer) restart(start int) {
	w.careful, w.fault = true, 0
	w.path, w.recs, w.entries, w.picks = w.path[:0], w.recs[:0], w.entries[:0], w.picks[:0]
	w.limits.reset(w.o, start)
}

func (w *writer) fail(ft fault) bool {
	w.fault = ft
	return false
}

func (w *writer) failf(format string, args ...any) bool {
	w.fault, w.problem = faultOther, fmt.Sprintf(format, args...)
	return false
}

// within notes, on the way out of a failure, in which field it lies.
func (w *writer) within(f *field) {
	if w.fault != faultRare && w.fault != faultRestart {
		w.path = append(w.path, f.json)
	}
}

func (w *writer) error(m *Message) *Error {
	e := &Error{Problem: w.problem}
	for _, name := range slices.Backward(w.path) {
		e.Path = join(e.Path, name)
	}
	e.Path = boundedPath(e.Path)
	switch w.fault {
	case faultDeep:
		e.Problem = fmt.Sprintf("nested deeper than %d levels", maxWireDepth)
	case faultUTF8:
		e.Problem = "the text is not valid UTF-8"
	case faultOther:
	default:
		e.Problem = fmt.Sprintf("malformed wire bytes of %s", m.desc.FullName())
	}
	return e
}

// message appends the message of in[pos:end].
func (w *writer) message(out []byte, p *plan, pos, end, depth int) ([]byte, bool) {
	if p.known == knownTimestamp && depth >= 0 {
		seconds, nanos, ok := w.instant(pos, end, 0, 0)
		if !ok {
			return out, false
		}
		return w.timestamp(out, seconds, nanos)
	}
	if w.careful || p.known != plain {
		return w.spans(out, p, value{start: pos, end: end}, depth)
	}
	mark, gone, recs, entries, before := len(out), w.gone, len(w.recs), len(w.entries), w.limits.state()
	out, ok := w.fast(out, p, pos, end, depth)
	if ok || w.fault != faultRare {
		return out, ok
	}
	if w.rare++; w.rare > 4 || w.gone != gone {
		return out, w.fail(faultRestart)
	}
	w.fault, w.path, w.recs, w.entries = 0, w.path[:0], w.recs[:recs], w.entries[:entries]
	w.limits.restore(before)
	w.careful = true
	out, ok = w.spans(out[:mark], p, value{start: pos, end: end}, depth)
	w.careful = false
	return out, ok
}

// spans appends the message of one span by the careful path.
func (w *writer) spans(out []byte, p *plan, v value, depth int) ([]byte, bool) {
	base := len(w.recs)
	w.recs = append(w.recs, record{value: v})
	out, ok := w.merged(out, p, base, 1, depth)
	w.recs = w.recs[:base]
	return out, ok
}

// fast appends the message of in[pos:end] in one go, or fails with faultRare.
func (w *writer) fast(out []byte, p *plan, pos, end, depth int) (_ []byte, ok bool) {
	if depth < 0 {
		return out, w.fail(faultDeep)
	}
	if p.messageSet {
		return out, w.noMessageSet(p)
	}
	if w.limited && w.tooDeep() {
		return w.spans(out, p, value{start: pos, end: end}, depth) // knows what is missing
	}
	in := w.in
	out = append(out, '{')
	w.open++
	first, last, oneofs := 1, int32(-1), uint64(0)
	for pos < end {
		num, typ, next := uint64(in[pos]>>3), protowire.Type(in[pos]&7), pos+1
		if in[pos] >= 0x80 || num == 0 {
			if num, typ, next = tagAt(in, pos, end); next < 0 {
				return out, w.fail(faultMalformed)
			}
		}
		i := p.index(num)
		if i < 0 || !p.fields[i].accepts(typ) {
			if i < 0 && p.extendable && p.extension(protowire.Number(num)) >= 0 {
				return out, w.fail(faultRare)
			}
			if pos = skip(in, next, end, num, typ, maxWireDepth); pos < 0 {
				return out, w.fail(faultMalformed)
			}
			continue
		}
		f := &p.fields[i]
		if i <= last || f.oneof >= 0 && oneofs&(1<<(f.oneof&63)) != 0 {
			return out, w.fail(faultRare)
		}
		if f.oneof >= 0 {
			oneofs |= 1 << (f.oneof & 63)
		}
		if w.o.EmitDefaults {
			out, first = w.defaults(out, p, last+1, i, first)
		}
		last = i
		var kept bool
		if out, pos, kept, ok = w.fastField(out, f, typ, next, end, first, depth); !ok {
			w.within(f)
			return out, false
		}
		if kept {
			first = 0
		}
	}
	if w.o.EmitDefaults {
		out, _ = w.defaults(out, p, last+1, int32(len(p.fields)), first)
	}
	w.open--
	return append(out, '}'), true
}

// fastField appends one field, all of a list or map, whose first value begins at in[pos]; kept is false when nothing was to be written.
func (w *writer) fastField(out []byte, f *field, typ protowire.Type, pos, end, first, depth int) (_ []byte, next int, kept, ok bool) {
	mark, places := len(out), len(w.places)
	name := w.name(f)[first:]
	switch {
	case f.list:
		out, pos, kept, ok = w.list(append(out, name...), f, pos, end, typ, depth)
	case f.isMap:
		out, pos, kept, ok = w.mapRun(append(out, name...), f, pos, end, depth)
	default:
		var v value
		if v, pos = valueAt(w.in, pos, end, uint64(f.num), typ); pos < 0 {
			return out, 0, false, w.fail(faultMalformed)
		}
		if f.implicit && zero(f, v) && !w.o.EmitDefaults {
			return out, pos, false, true
		}
		kept = true
		if out = append(out, name...); f.kind == protoreflect.StringKind {
			out, ok = w.text(out, v)
		} else {
			out, ok = w.value(out, f, v, depth)
		}
	}
	switch {
	case !ok:
		return out, 0, false, false
	case !kept:
		out = out[:mark]
		w.nest(places, f.json)
	case w.limited:
		out, kept = w.settle(out, f, mark, places)
	}
	if len(out) >= w.at {
		out, ok = w.pass(out)
	}
	return out, pos, kept, ok
}

func (w *writer) noMessageSet(p *plan) bool {
	return w.failf("%s uses the message set format, which has no JSON form", p.msg.desc.FullName())
}
