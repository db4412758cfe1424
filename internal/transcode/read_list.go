package transcode

import (
	"bytes"
	"cmp"
	"slices"
)

// list appends the elements of the JSON array at r.pos.
func (r *reader) list(out []byte, f *field, depth int) ([]byte, bool) {
	if r.at() != '[' {
		return out, r.want("a list, each item " + f.wantOne())
	}
	r.pos++
	r.space()
	mark, body := len(out), 0
	if f.packed {
		out = append(append(out, f.packedTag...), 0)
		body = len(out)
	}
	more := true
	if r.at() == ']' {
		r.pos++
		more = false
	}
	for i := 0; more; i++ {
		start := len(out)
		if !f.packed {
			out = append(out, f.tag...)
		}
		var kept, ok bool
		if out, kept, ok = r.value(out, f, depth); !ok {
			r.within(index(i))
			return out, false
		}
		if !kept {
			out = out[:start]
		}
		if more, ok = r.more(']'); !ok {
			r.within(index(i))
			return out, false
		}
	}
	if !f.packed {
		return out, true
	}
	if len(out) == body {
		return out[:mark], true
	}
	return fixLength(out, body-1), true
}

// object appends the entries of the JSON object at r.pos as a map.
func (r *reader) object(out []byte, f *field, depth int) (_ []byte, ok bool) {
	if r.at() != '{' {
		return out, r.want("an object, each value " + f.mapVal.wantOne())
	}
	r.pos++
	r.space()
	if r.at() == '}' {
		r.pos++
		return out, true
	}
	base := len(r.keys)
	for more := true; more; {
		if r.at() != '"' {
			return out, r.syntax("where a key in quotes should be")
		}
		mark, name := len(out), r.pos
		out = append(append(append(out, f.tag...), 0), f.mapKey.tag...)
		body := mark + len(f.tag) + 1
		if out, ok = r.mapKey(out, f.mapKey); !ok {
			return out, false
		}
		key := r.in[name:r.pos]
		size := len(out) - body
		ref := keyRef{prefix: prefix(out, body, len(out))}
		if r.has(out, base, ref.prefix, out[body:]) {
			r.within(keyName(key))
			return out, r.fail(&Error{Problem: "given twice"})
		}
		if !r.colon() {
			return out, false
		}
		out = append(out, f.mapVal.tag...)
		var kept bool
		if out, kept, ok = r.value(out, f.mapVal, depth); !ok {
			r.within(keyName(key))
			return out, false
		}
		if kept {
			out = fixLength(out, body-1)
			ref.start = mark + entryHead(out[mark:], len(f.tag))
			ref.end = ref.start + size
			r.keys = append(r.keys, ref)
		} else {
			out = out[:mark]
		}
		if more, ok = r.more('}'); !ok {
			return out, false
		}
	}
	ok = r.distinct(out, f, base)
	r.keys = r.keys[:base]
	return out, ok
}

// entryHead returns how many bytes of tag and length stand before the fields of an entry.
func entryHead(entry []byte, tag int) int {
	for entry[tag] >= 0x80 {
		tag++
	}
	return tag + 1
}

const fewKeys = 16

// has reports, while the map is small, whether it has the key.
func (r *reader) has(out []byte, base int, prefix uint64, key []byte) bool {
	keys := r.keys[base:]
	if len(keys) > fewKeys {
		return false
	}
	for _, old := range keys {
		if old.prefix == prefix && bytes.Equal(out[old.start:old.end], key) {
			return true
		}
	}
	return false
}

// distinct reports whether the keys noted since base differ from each other; a small map has been seen to.
func (r *reader) distinct(out []byte, f *field, base int) bool {
	keys := r.keys[base:]
	if len(keys) <= fewKeys+1 {
		return true
	}
	compare := func(a, b keyRef) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return bytes.Compare(out[a.start:a.end], out[b.start:b.end])
	}
	slices.SortFunc(keys, compare)
	for i := 1; i < len(keys); i++ {
		if compare(keys[i-1], keys[i]) == 0 {
			r.within(wireKeyName(f.mapKey, out[keys[i].start:keys[i].end]))
			return r.fail(&Error{Problem: "given twice"})
		}
	}
	return true
}
