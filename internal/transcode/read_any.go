package transcode

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// any appends the fields of the google.protobuf.Any whose object stands at r.pos.
func (r *reader) any(out []byte, p *plan, depth int) (_ []byte, ok bool) {
	if r.at() != '{' {
		return out, r.want(wantAny)
	}
	start := r.pos
	url, members, ok := r.findType(depth)
	if !ok {
		return out, false
	}
	if url == nil {
		switch {
		case members == 0 || r.discard:
			return out, true // findType has stepped over the object
		default:
			r.pos = start
			return out, r.fail(r.missingType())
		}
	}
	m := r.set.byURL(url)
	if m == nil {
		e := r.unknownType(string(url))
		r.within("@type")
		return out, r.fail(e)
	}
	r.pos = start
	inner := m.plan()
	f := p.at(p.index(1))
	out = protowire.AppendVarint(append(out, f.tag...), uint64(len(url)))
	out = append(out, url...)
	mark := len(out)
	out = append(append(out, p.at(p.index(2)).tag...), 0)
	at := len(out) - 1
	if inner.known != plain {
		out, ok = r.anyValue(out, inner, depth)
	} else {
		out, ok = r.message(out, inner, depth, true)
	}
	if !ok {
		return out, false
	}
	if len(out) == at+1 {
		return out[:mark], true
	}
	return fixLength(out, at), true
}

// findType returns the "@type" of the object at r.pos, or nil when it has none; then r.pos stands behind the object, and members says
// how many others it has.
func (r *reader) findType(depth int) (url []byte, members int, ok bool) {
	r.pos++
	r.space()
	if r.at() == '}' {
		r.pos++
		return nil, 0, true
	}
	for {
		if r.at() != '"' {
			return nil, 0, r.syntax("where a name in quotes should be")
		}
		name, ok := r.string()
		if !ok {
			return nil, 0, false
		}
		typed := string(name) == "@type"
		if !r.colon() {
			return nil, 0, false
		}
		if typed {
			return r.typeURL()
		}
		if !r.skip(depth) {
			return nil, 0, false
		}
		members++
		if more, ok := r.more('}'); !ok || !more {
			return nil, members, ok
		}
	}
}

func (r *reader) typeURL() (url []byte, members int, ok bool) {
	if r.at() != '"' {
		r.within("@type")
		return nil, 0, r.want("a string")
	}
	if url, ok = r.string(); !ok {
		return nil, 0, false
	}
	if len(url) == 0 || !utf8.Valid(url) {
		return nil, 0, r.fail(r.missingType())
	}
	return url, 0, true
}

// anyValue reads the object at r.pos for the well-known type of an Any: its own form stands under "value".
func (r *reader) anyValue(out []byte, p *plan, depth int) (_ []byte, ok bool) {
	r.pos++
	r.space()
	typed, found := false, false
	for {
		if r.at() != '"' {
			return out, r.syntax("where a name in quotes should be")
		}
		s, ok := r.string()
		if !ok {
			return out, false
		}
		name := string(s)
		if !r.colon() {
			return out, false
		}
		switch {
		case name == "@type" && typed || name == "value" && found:
			r.within(name)
			return out, r.fail(&Error{Problem: "given twice"})
		case name == "@type":
			typed = true
			ok = r.skip(depth)
		case name == "value":
			found = true
			if out, ok = r.known(out, p, depth); !ok {
				r.within(name)
			}
		case r.discard:
			ok = r.skip(depth)
		default:
			ok = r.fail(&Error{Problem: "unknown field " + quote(name), Want: "the " + string(p.msg.desc.FullName()) + ` under "value"`})
		}
		if !ok {
			return out, false
		}
		more, ok := r.more('}')
		if !ok {
			return out, false
		}
		if more {
			continue
		}
		if !found && p.known != knownEmpty {
			return out, r.fail(&Error{Problem: `missing "value"`, Want: "the " + string(p.msg.desc.FullName()) + ` under "value"`})
		}
		return out, true
	}
}
