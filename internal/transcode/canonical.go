package transcode

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Check reports whether wire is well-formed for the message, nested messages too. It looks into no google.protobuf.Any. An error is an
// *Error.
func (m *Message) Check(wire []byte) error {
	ft := check(wire, m.plan(), 0, len(wire), maxWireDepth)
	if ft == 0 {
		return nil
	}
	w := writer{fault: ft}
	return w.error(m)
}

// AppendCanonical appends the one wire form that all equal messages share, whatever encoder made them: fields in the order of their
// numbers, map entries in that of their keys, lists packed as the descriptor says, split messages merged, what is overridden or zero
// without presence left out, and numbers in their shortest form. Unknown fields are kept, in order too. The value of a
// google.protobuf.Any is made canonical when its type is known. An error is an *Error; nothing is appended then.
func (m *Message) AppendCanonical(dst, wire []byte) ([]byte, error) {
	w := m.writer(wire, WriteOptions{}, dst)
	defer w.release()
	w.recs = append(w.recs, record{value: value{end: len(wire)}})
	out, ok := w.canonical(dst, m.plan(), 0, 1, maxWireDepth)
	if !ok {
		return dst, w.error(m)
	}
	return out, nil
}

// canonical appends the message whose pieces are recs[from:from+n].
func (w *writer) canonical(out []byte, p *plan, from, n, depth int) (_ []byte, ok bool) {
	base, ok := w.scan(p, from, n, true, depth)
	if !ok {
		return out, false
	}
	if p.known == knownAny {
		out, ok = w.canonicalAny(out, p, base, depth)
		w.recs = w.recs[:base]
		return out, ok
	}
	top := len(w.recs)
	for i := base; i < top; {
		r := w.recs[i]
		if r.field < 0 {
			if out, ok = w.unknown(out, r, depth); !ok {
				return out, false
			}
			i++
			continue
		}
		count := 1
		for i+count < top && w.recs[i+count].field == r.field {
			count++
		}
		f := p.at(r.field)
		if out, ok = w.canonicalField(out, f, i, count, depth); !ok {
			w.within(f)
			return out, false
		}
		i += count
	}
	w.recs = w.recs[:base]
	return out, true
}

func (w *writer) canonicalField(out []byte, f *field, base, n, depth int) (_ []byte, ok bool) {
	switch {
	case f.list:
		return w.canonicalList(out, f, base, n, depth)
	case f.isMap:
		return w.canonicalMap(out, f, base, n, depth)
	case f.msg != nil:
		return w.canonicalMessage(out, f, base, n, depth)
	}
	for i := range n {
		if ft := checkValue(w.in, f, f.wire, w.recs[base+i].value, depth); ft != 0 {
			return out, w.fail(ft)
		}
	}
	last := w.recs[base+n-1].value
	if f.implicit && zero(f, last) {
		return out, true
	}
	return w.canonicalScalar(append(out, f.tag...), f, last), true
}

// canonicalMessage appends the message or group field whose pieces are recs[base:base+n].
func (w *writer) canonicalMessage(out []byte, f *field, base, n, depth int) (_ []byte, ok bool) {
	out = append(out, f.tag...)
	if f.kind == protoreflect.GroupKind {
		out, ok = w.canonical(out, f.msg.plan(), base, n, depth-1)
		return append(out, f.endTag...), ok
	}
	at := len(out)
	if out, ok = w.canonical(append(out, 0), f.msg.plan(), base, n, depth-1); !ok {
		return out, false
	}
	return fixLength(out, at), true
}

// canonicalScalar appends a value without its tag.
func (w *writer) canonicalScalar(out []byte, f *field, v value) []byte {
	if f.wire == protowire.BytesType {
		out = binary.AppendUvarint(out, uint64(v.end-v.start))
		return append(out, w.in[v.start:v.end]...)
	}
	return appendBits(out, f.wire, normal(f.kind, v.bits))
}

func (w *writer) canonicalList(out []byte, f *field, base, n, depth int) (_ []byte, ok bool) {
	mark, body := len(out), 0
	if f.packed {
		out = append(append(out, f.packedTag...), 0)
		body = len(out)
	}
	for i := base; i < base+n; i++ {
		r := w.recs[i]
		if r.typ == f.wire {
			if out, ok = w.canonicalElement(out, f, i, depth); !ok {
				w.path = append(w.path, index(i-base))
				return out, false
			}
			continue
		}
		for pos := r.start; pos < r.end; {
			var v value
			if v, pos = valueAt(w.in, pos, r.end, 0, f.wire); pos < 0 {
				return out, w.fail(faultMalformed)
			}
			if !f.packed {
				out = append(out, f.tag...)
			}
			out = w.canonicalScalar(out, f, v)
		}
	}
	switch {
	case !f.packed:
		return out, true
	case len(out) == body:
		return out[:mark], true
	}
	return fixLength(out, body-1), true
}

func (w *writer) canonicalElement(out []byte, f *field, rec, depth int) ([]byte, bool) {
	if f.msg != nil {
		return w.canonicalMessage(out, f, rec, 1, depth)
	}
	v := w.recs[rec].value
	if ft := checkValue(w.in, f, f.wire, v, depth); ft != 0 {
		return out, w.fail(ft)
	}
	if !f.packed {
		out = append(out, f.tag...)
	}
	return w.canonicalScalar(out, f, v), true
}

func (w *writer) canonicalMap(out []byte, f *field, base, n, depth int) (_ []byte, ok bool) {
	entries, recs := len(w.entries), len(w.recs)
	w.entries = slices.Grow(w.entries, n)
	for i := range n {
		if !w.entry(f, w.recs[base+i].value) {
			return out, false
		}
	}
	if !w.sortEntries(f, entries) {
		return out, false
	}
	top := len(w.entries)
	for i := entries; i < top; i++ {
		e := w.entries[i]
		if f.mapKey.utf8 && !utf8.Valid(w.in[e.key.start:e.key.end]) {
			return out, w.fail(faultUTF8)
		}
		out = append(append(out, f.tag...), 0)
		at := len(out) - 1
		out = w.canonicalKey(append(out, f.mapKey.tag...), f.mapKey, e.key)
		if out, ok = w.canonicalMapValue(out, f.mapVal, e, depth); !ok {
			w.path = append(w.path, w.keyPath(f, e.key))
			return out, false
		}
		out = fixLength(out, at)
	}
	w.entries, w.recs = w.entries[:entries], w.recs[:recs]
	return out, true
}

func (w *writer) canonicalMapValue(out []byte, f *field, e entry, depth int) ([]byte, bool) {
	if f.msg != nil {
		base, n := e.base, int(e.pieces)
		if n == 0 {
			base, n = len(w.recs), 1
			w.recs = append(w.recs, record{value: e.val})
		}
		return w.canonicalMessage(out, f, base, n, depth)
	}
	if ft := checkValue(w.in, f, f.wire, e.val, depth); ft != 0 {
		return out, w.fail(ft)
	}
	return w.canonicalScalar(append(out, f.tag...), f, e.val), true
}

// canonicalKey appends a map key without its tag; keyValue has decoded integers.
func (w *writer) canonicalKey(out []byte, f *field, v value) []byte {
	switch f.kind {
	case protoreflect.StringKind:
		return w.canonicalScalar(out, f, v)
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.AppendVarint(out, protowire.EncodeZigZag(int64(v.bits)))
	}
	return appendBits(out, f.wire, v.bits)
}

// unknown appends a field that the descriptor does not have. A group is made canonical as a message without known fields.
func (w *writer) unknown(out []byte, r record, depth int) (_ []byte, ok bool) {
	out = protowire.AppendTag(out, protowire.Number(r.num), r.typ)
	switch r.typ {
	case protowire.BytesType:
		out = binary.AppendUvarint(out, uint64(r.end-r.start))
		return append(out, w.in[r.start:r.end]...), true
	case protowire.StartGroupType:
		base := len(w.recs)
		w.recs = append(w.recs, record{value: r.value})
		out, ok = w.canonical(out, &plan{}, base, 1, depth-1)
		w.recs = w.recs[:base]
		return protowire.AppendTag(out, protowire.Number(r.num), protowire.EndGroupType), ok
	}
	return appendBits(out, r.typ, r.bits), true
}

// canonicalAny appends the google.protobuf.Any whose fields are the records from base on.
func (w *writer) canonicalAny(out []byte, p *plan, base, depth int) (_ []byte, ok bool) {
	top := len(w.recs)
	var url, content value
	for i := base; i < top; i++ {
		switch r := w.recs[i]; {
		case r.field >= 0 && r.num == 1:
			if url = r.value; !utf8.Valid(w.in[url.start:url.end]) {
				return out, w.fail(faultUTF8)
			}
		case r.field >= 0 && r.num == 2:
			content = r.value
		}
	}
	if url.end > url.start {
		out = w.canonicalScalar(append(out, p.at(p.index(1)).tag...), p.at(p.index(1)), url)
	}
	mark := len(out)
	out = append(append(out, p.at(p.index(2)).tag...), 0)
	body := len(out)
	if m := w.set.byURL(w.in[url.start:url.end]); m != nil && check(w.in, m.plan(), content.start, content.end, depth-1) == 0 {
		w.recs = append(w.recs, record{value: content})
		out, ok = w.canonical(out, m.plan(), top, 1, depth-1)
		w.recs = w.recs[:top]
		if !ok {
			return out, false
		}
	} else {
		out = append(out, w.in[content.start:content.end]...)
	}
	if len(out) == body {
		out = out[:mark]
	} else {
		out = fixLength(out, body-1)
	}
	for i := base; i < top; i++ {
		if r := w.recs[i]; r.field < 0 {
			if out, ok = w.unknown(out, r, depth); !ok {
				return out, false
			}
		}
	}
	return out, true
}
