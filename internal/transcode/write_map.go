package transcode

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// entry is one map entry of the wire. A value that came in several pieces has them in writer.recs.
type entry struct {
	order  uint64 // as the keys stand to each other; strings that are alike in their first eight bytes have the same
	seq    int32  // among many, once they are to be sorted
	pieces int32  // in recs from base on; 0 when val is all
	base   int
	key    value // integers and bools as int64 bits or, for unsigned keys, uint64
	val    value
}

// mapRun appends the map whose run of entries begins at in[pos], behind a tag; kept is false when nothing of it could be written.
func (w *writer) mapRun(out []byte, f *field, pos, end, depth int) (_ []byte, next int, kept, ok bool) {
	base, recs := len(w.entries), len(w.recs)
	for {
		v, after := valueAt(w.in, pos, end, 0, protowire.BytesType)
		if after < 0 {
			return out, 0, false, w.fail(faultMalformed)
		}
		if !w.entry(f, v) {
			return out, 0, false, false
		}
		if !hasTag(w.in, after, end, f.tag) {
			pos = after
			break
		}
		pos = after + len(f.tag)
	}
	out, kept, ok = w.entriesFrom(out, f, base, depth)
	w.entries, w.recs = w.entries[:base], w.recs[:recs]
	return out, pos, kept, ok
}

// entry reads one map entry. Whether the key is UTF-8 is seen when it is written; here only of one that another overrides.
func (w *writer) entry(f *field, v value) bool {
	w.entries = append(roomFor(w.entries), entry{})
	e := &w.entries[len(w.entries)-1]
	if f.mapVal.kind == protoreflect.EnumKind {
		e.val.bits = uint64(f.mapVal.enum.first)
	}
	if f.mapKey.kind != protoreflect.StringKind {
		e.setKey(f.mapKey.kind, 0)
	}
	hasVal := false
	for pos := v.start; pos < v.end; {
		num, typ, next := uint64(w.in[pos]>>3), protowire.Type(w.in[pos]&7), pos+1
		if w.in[pos] >= 0x80 || num == 0 {
			if num, typ, next = tagAt(w.in, pos, v.end); next < 0 {
				return w.fail(faultMalformed)
			}
		}
		one, after := valueAt(w.in, next, v.end, num, typ)
		if after < 0 {
			return w.fail(faultMalformed)
		}
		pos = after
		switch {
		case num == 1 && typ == f.mapKey.wire:
			if f.mapKey.kind != protoreflect.StringKind {
				e.setKey(f.mapKey.kind, one.bits)
				continue
			}
			if f.mapKey.utf8 && !utf8.Valid(w.in[e.key.start:e.key.end]) {
				return w.fail(faultUTF8)
			}
			e.key.start, e.key.end, e.order = one.start, one.end, prefix(w.in, one.start, one.end)
		case num == 2 && typ == f.mapVal.wire:
			if hasVal {
				if ft := w.second(f.mapVal, e, one); ft != 0 {
					return w.fail(ft)
				}
			}
			e.val.bits, e.val.start, e.val.end, hasVal = one.bits, one.start, one.end, true
		}
	}
	return true
}

// second handles a second value in one entry: messages merge, anything else is overridden.
func (w *writer) second(f *field, e *entry, v value) fault {
	if f.msg == nil {
		return checkValue(w.in, f, f.wire, e.val, maxWireDepth)
	}
	if e.pieces == 0 {
		e.base, e.pieces = len(w.recs), 1
		w.recs = append(w.recs, record{value: e.val})
	}
	e.pieces++
	w.recs = append(w.recs, record{value: v})
	return 0
}

// setKey sets the key to an integer or bool of the wire.
func (e *entry) setKey(kind protoreflect.Kind, v uint64) {
	e.key.bits = keyBits(kind, v)
	e.order = e.key.bits
	if signed(kind) {
		e.order ^= 1 << 63
	}
}

// keyBits returns an integer of the wire as int64 bits or, for unsigned keys, uint64.
func keyBits(kind protoreflect.Kind, v uint64) uint64 {
	switch kind {
	case protoreflect.Sint32Kind:
		return uint64(int64(int32(protowire.DecodeZigZag(v & 0xffffffff))))
	case protoreflect.Sint64Kind:
		return uint64(protowire.DecodeZigZag(v))
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return uint64(int64(int32(v)))
	}
	return normal(kind, v)
}

func signed(kind protoreflect.Kind) bool {
	switch kind {
	case protoreflect.BoolKind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return false
	}
	return true
}

// prefix returns the first eight bytes of in[start:end] as a number that compares as they do.
func prefix(in []byte, start, end int) uint64 {
	if start+8 <= len(in) {
		x := binary.BigEndian.Uint64(in[start:])
		if end-start < 8 {
			x &= ^(math.MaxUint64 >> (8 * uint(end-start)))
		}
		return x
	}
	var b [8]byte
	copy(b[:], in[start:end])
	return binary.BigEndian.Uint64(b[:])
}

func (w *writer) compareKeys(f *field, a, b *entry) int {
	if a.order != b.order || f.mapKey.kind != protoreflect.StringKind {
		return cmp.Compare(a.order, b.order)
	}
	return bytes.Compare(w.in[a.key.start:a.key.end], w.in[b.key.start:b.key.end])
}

// sortEntries sorts the entries from base on by their keys and drops all but the last of each key.
func (w *writer) sortEntries(f *field, base int) bool {
	es := w.entries[base:]
	var twice bool
	if len(es) > fewKeys {
		twice = w.sortMany(f, es)
	} else {
		twice = w.sortFew(f, es)
	}
	return !twice || w.dropTwice(f, base)
}

// sortFew sorts by insertion, which copies little; twice is whether a key may be there twice.
func (w *writer) sortFew(f *field, es []entry) (twice bool) {
	for i := 1; i < len(es); i++ {
		c := w.compareKeys(f, &es[i-1], &es[i])
		if c < 0 {
			continue
		}
		e, at := es[i], i
		for c > 0 {
			es[at] = es[at-1]
			if at--; at == 0 {
				break
			}
			c = w.compareKeys(f, &es[at-1], &e)
		}
		es[at] = e
		twice = twice || c == 0
	}
	return twice
}

// sortMany is sortFew for many.
func (w *writer) sortMany(f *field, es []entry) (twice bool) {
	sorted := true
	for i := 1; i < len(es) && sorted; i++ {
		sorted = w.compareKeys(f, &es[i-1], &es[i]) < 0
	}
	if sorted {
		return false
	}
	for i := range es {
		es[i].seq = int32(i)
	}
	slices.SortFunc(es, func(a, b entry) int {
		if c := w.compareKeys(f, &a, &b); c != 0 {
			return c
		}
		return cmp.Compare(a.seq, b.seq)
	})
	return true
}

// dropTwice drops all but the last of each key from the sorted entries from base on.
func (w *writer) dropTwice(f *field, base int) bool {
	es := w.entries[base:]
	kept := 0
	for i := range es {
		if i+1 < len(es) && w.compareKeys(f, &es[i], &es[i+1]) == 0 {
			if ft := w.checkEntry(f, &es[i]); ft != 0 {
				return w.fail(ft)
			}
			continue
		}
		es[kept] = es[i]
		kept++
	}
	w.entries = w.entries[:base+kept]
	return true
}

func (w *writer) checkEntry(f *field, e *entry) fault {
	if e.pieces == 0 {
		return checkValue(w.in, f.mapVal, f.mapVal.wire, e.val, maxWireDepth)
	}
	for _, r := range w.recs[e.base : e.base+int(e.pieces)] {
		if ft := checkValue(w.in, f.mapVal, f.mapVal.wire, r.value, maxWireDepth); ft != 0 {
			return ft
		}
	}
	return 0
}

// entriesFrom appends the object of the entries from base on.
func (w *writer) entriesFrom(out []byte, f *field, base, depth int) (_ []byte, kept, ok bool) {
	if w.limited && w.tooDeep() {
		return w.elide(out, "{}", len(w.entries) > base), true, true
	}
	if !w.sortEntries(f, base) {
		return out, false, false
	}
	var t tally
	out = append(out, '{')
	w.open++
	top := len(w.entries)
	for i := base; i < top; i++ {
		if w.limited && !w.admit(&t) {
			continue
		}
		mark, places := len(out), len(w.places)
		if t.n > 0 {
			out = append(out, ',')
		}
		e := &w.entries[i]
		if f.mapKey.kind == protoreflect.StringKind {
			out, ok = w.text(out, e.key)
		} else {
			out, ok = w.key(out, f.mapKey.kind, e.key)
		}
		if !ok {
			return out, false, false
		}
		switch out = append(out, ':'); {
		case f.mapVal.kind == protoreflect.StringKind:
			out, ok = w.text(out, e.val)
		case e.pieces > 0:
			out, ok = w.merged(out, f.mapVal.msg.plan(), e.base, int(e.pieces), depth-1)
		default:
			out, ok = w.value(out, f.mapVal, e.val, depth)
		}
		if !ok {
			w.path = append(w.path, w.keyPath(f, e.key))
			return out, false, false
		}
		if !w.limited {
			t.n++
		} else {
			if len(w.places) > places {
				w.nest(places, w.keyPath(f, e.key))
			}
			out = w.weigh(out, &t, mark, places)
		}
		if len(out) >= w.at {
			if out, ok = w.pass(out); !ok {
				return out, false, false
			}
		}
	}
	w.open--
	w.finish(&t)
	return append(out, '}'), t.n > 0 || t.left == 0, true
}

// key appends a map key.
func (w *writer) key(out []byte, kind protoreflect.Kind, v value) ([]byte, bool) {
	switch kind {
	case protoreflect.StringKind:
		out, ok := appendString(out, w.in[v.start:v.end])
		if !ok {
			return out, w.fail(faultUTF8)
		}
		return out, true
	case protoreflect.BoolKind:
		return append(strconv.AppendBool(append(out, '"'), v.bits != 0), '"'), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return append(strconv.AppendUint(append(out, '"'), v.bits, 10), '"'), true
	}
	return append(strconv.AppendInt(append(out, '"'), int64(v.bits), 10), '"'), true
}

func (w *writer) keyPath(f *field, v value) string {
	b, ok := w.key([]byte{'['}, f.mapKey.kind, v)
	if !ok {
		return "[]"
	}
	return string(append(b, ']'))
}
