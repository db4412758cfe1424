package transcode

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// record is one field of wire bytes, as the careful path notes it before it writes any.
type record struct {
	num   int32
	field int32 // index in the plan, or -1
	seq   int32
	typ   protowire.Type
	value
}

// roomFor returns s with room for one more. It doubles where append would grow by a quarter, which costs more in all.
func roomFor[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return slices.Grow(s, len(s)+16)
}

// pick is which member of a oneof is set, and since which record.
type pick struct{ field, seq int32 }

// scan notes the fields of the message whose pieces are recs[from:from+n], in the order of their numbers, those of one number in the
// order in which they came. Oneof members that were overridden are dropped. The records stand from base on.
func (w *writer) scan(p *plan, from, n int, unknown bool, depth int) (base int, ok bool) {
	base = len(w.recs)
	if depth < 0 {
		return base, w.fail(faultDeep)
	}
	picks := len(w.picks)
	for range p.oneofs {
		w.picks = append(w.picks, pick{field: -1})
	}
	overridden, sorted, last := false, true, int32(0)
	for k := from; k < from+n; k++ {
		pos, end := w.recs[k].start, w.recs[k].end
		for pos < end {
			num, typ, next := tagAt(w.in, pos, end)
			if next < 0 {
				return base, w.fail(faultMalformed)
			}
			v, after := valueAt(w.in, next, end, num, typ)
			if after < 0 {
				return base, w.fail(faultMalformed)
			}
			pos = after
			r := record{num: int32(num), field: p.lookup(num), seq: int32(len(w.recs) - base), typ: typ, value: v}
			if r.field >= 0 {
				if f := p.at(r.field); !f.accepts(typ) {
					r.field = -1
				} else if f.oneof >= 0 {
					if pk := &w.picks[picks+int(f.oneof)]; pk.field != r.field {
						overridden = overridden || pk.field >= 0
						*pk = pick{r.field, r.seq}
					}
				}
			}
			if r.field < 0 && !unknown {
				continue
			}
			sorted = sorted && r.num > last
			last = r.num
			w.recs = append(roomFor(w.recs), r)
		}
	}
	if overridden && !w.dropOverridden(p, base, picks) {
		return base, false
	}
	w.picks = w.picks[:picks]
	if !sorted {
		slices.SortFunc(w.recs[base:], func(a, b record) int {
			if c := cmp.Compare(a.num, b.num); c != 0 {
				return c
			}
			if (a.field < 0) != (b.field < 0) {
				return cmp.Compare(b.field, a.field)
			}
			return cmp.Compare(a.seq, b.seq)
		})
	}
	return base, true
}

func (w *writer) dropOverridden(p *plan, base, picks int) bool {
	kept := base
	for i := base; i < len(w.recs); i++ {
		r := w.recs[i]
		if r.field >= 0 {
			f := p.at(r.field)
			if f.oneof >= 0 {
				if pk := w.picks[picks+int(f.oneof)]; pk.field != r.field || r.seq < pk.seq {
					if ft := checkValue(w.in, f, r.typ, r.value, maxWireDepth); ft != 0 {
						return w.fail(ft)
					}
					continue
				}
			}
		}
		w.recs[kept] = r
		kept++
	}
	w.recs = w.recs[:kept]
	return true
}

// merged appends the message whose pieces are recs[from:from+n].
func (w *writer) merged(out []byte, p *plan, from, n, depth int) (_ []byte, ok bool) {
	if depth < 0 {
		return out, w.fail(faultDeep)
	}
	if p.known != plain && p.known != knownEmpty {
		return w.known(out, p, from, n, depth)
	}
	if p.messageSet {
		return out, w.noMessageSet(p)
	}
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	top := len(w.recs)
	if w.limited && w.tooDeep() {
		w.recs = w.recs[:base]
		return w.elide(out, "{}", top > base), true
	}
	out = append(out, '{')
	w.open++
	first, last := 1, int32(-1)
	for i := base; i < top; {
		r := w.recs[i]
		count := 1
		for i+count < top && w.recs[i+count].field == r.field {
			count++
		}
		f := p.at(r.field)
		if w.o.EmitDefaults && int(r.field) < len(p.fields) {
			out, first = w.defaults(out, p, last+1, r.field, first)
			last = r.field
		}
		mark, places := len(out), len(w.places)
		out = append(out, w.name(f)[first:]...)
		var kept bool
		if out, kept, ok = w.field(out, f, i, count, depth, false); !ok {
			w.within(f)
			return out, false
		}
		i += count
		if !kept {
			out = out[:mark]
			w.nest(places, f.json)
			continue
		}
		if w.limited {
			if out, kept = w.settle(out, f, mark, places); !kept {
				continue
			}
		}
		if len(out) >= w.at {
			if out, ok = w.pass(out); !ok {
				return out, false
			}
		}
		first = 0
	}
	w.recs = w.recs[:base]
	if w.o.EmitDefaults {
		out, _ = w.defaults(out, p, last+1, int32(len(p.fields)), first)
	}
	w.open--
	return append(out, '}'), true
}

// field appends the value of one field, whose records are recs[base:base+n]; kept is false when that is unset, unless always is asked.
func (w *writer) field(out []byte, f *field, base, n, depth int, always bool) (_ []byte, kept, ok bool) {
	always = always || w.o.EmitDefaults && !f.desc.IsExtension()
	last := w.recs[base+n-1]
	switch {
	case f.list:
		return w.listRecords(out, f, base, n, depth, always)
	case f.isMap:
		entries, recs := len(w.entries), len(w.recs)
		w.entries = slices.Grow(w.entries, n)
		for i := range n {
			if !w.entry(f, w.recs[base+i].value) {
				return out, false, false
			}
		}
		out, kept, ok = w.entriesFrom(out, f, entries, depth)
		w.entries, w.recs = w.entries[:entries], w.recs[:recs]
		return out, kept || always, ok
	case f.msg != nil:
		if n == 1 {
			out, ok = w.message(out, f.msg.plan(), last.start, last.end, depth-1)
		} else {
			out, ok = w.merged(out, f.msg.plan(), base, n, depth-1)
		}
		return out, true, ok
	}
	for i := range n - 1 {
		if ft := checkValue(w.in, f, f.wire, w.recs[base+i].value, depth); ft != 0 {
			return out, false, w.fail(ft)
		}
	}
	if f.implicit && !always && zero(f, last.value) {
		return out, false, true
	}
	out, ok = w.value(out, f, last.value, depth)
	return out, true, ok
}

func (w *writer) listRecords(out []byte, f *field, base, n, depth int, always bool) (_ []byte, kept, ok bool) {
	if w.limited && w.tooDeep() {
		return w.elide(out, "[]", true), true, true
	}
	var t tally
	out = append(out, '[')
	w.open++
	for i := range n {
		r := w.recs[base+i]
		if r.typ == f.wire {
			out, ok = w.item(out, f, r.value, &t, depth)
		} else {
			out, ok = w.packed(out, f, r.value, &t, depth)
		}
		if !ok {
			w.path = append(w.path, index(t.n-1))
			return out, false, false
		}
	}
	w.open--
	w.finish(&t)
	return append(out, ']'), t.n > 0 || always, true
}
