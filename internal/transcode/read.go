package transcode

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const defaultMaxDepth = 100

// reader turns JSON into wire bytes in one go.
type reader struct {
	in       []byte
	pos      int
	set      *Set
	root     *Message
	discard  bool
	maxDepth int
	err      *Error
	path     []string // from the inside out
	seen     []uint64 // sets of fields and oneofs of messages with many
	extSeen  []int32
	keys     []keyRef
	text     []byte // of strings with escapes
}

// keyRef is where the wire form of a map key stands in the output.
type keyRef struct {
	prefix     uint64 // its first eight bytes
	start, end int
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func (m *Message) reader(src []byte, o ReadOptions) *reader {
	r := readers.Get().(*reader)
	r.in, r.pos, r.set, r.root, r.discard, r.maxDepth, r.err = src, 0, m.set, m, o.DiscardUnknown, o.MaxDepth, nil
	if r.maxDepth <= 0 {
		r.maxDepth = defaultMaxDepth
	}
	return r
}

func (r *reader) release() {
	clear(r.path)
	r.in, r.set, r.root, r.err = nil, nil, nil, nil
	r.path, r.seen, r.extSeen, r.keys, r.text = r.path[:0], r.seen[:0], r.extSeen[:0], r.keys[:0], r.text[:0]
	const keep = 1 << 16
	if cap(r.keys) > keep || cap(r.text) > keep {
		return
	}
	readers.Put(r)
}

// AppendWire appends the wire form of the message whose JSON form is src. An error is an *Error; nothing is appended then.
func (m *Message) AppendWire(dst, src []byte, o ReadOptions) ([]byte, error) {
	r := m.reader(src, o)
	defer r.release()
	r.space()
	out, ok := r.message(dst, m.plan(), r.maxDepth, false)
	if !ok || !r.end() {
		return dst, r.error()
	}
	return out, nil
}

// AppendFieldWire appends the wire form of the message in which only the field at the dotted path is set, to the JSON value src
// (google.api.http body: "field"; grpc-gateway takes "outer.inner" too). Names may be proto or JSON names. The messages around the field
// are set even by null. An error is an *Error; nothing is appended then.
func (m *Message) AppendFieldWire(dst []byte, path string, src []byte, o ReadOptions) ([]byte, error) {
	r := m.reader(src, o)
	defer r.release()
	r.space()
	out, ok := r.fieldAt(dst, m.plan(), path)
	if !ok {
		return dst, r.error()
	}
	return out, nil
}

func (r *reader) fieldAt(out []byte, p *plan, path string) (_ []byte, ok bool) {
	f, rest, deeper, err := p.step(path, "field path")
	switch {
	case err != nil:
		return out, r.fail(err)
	case deeper:
		var at int
		out, at = openField(out, f)
		if out, ok = r.fieldAt(out, f.msg.plan(), rest); ok {
			return closeField(out, f, at), true
		}
	case r.at() == 'n' && !f.isValue:
		ok = r.literal("null") && r.end()
	default:
		if out, ok = r.field(out, f, r.maxDepth-1); ok {
			ok = r.end()
		}
	}
	if !ok {
		r.within(f.json)
	}
	return out, ok
}

// end reports whether nothing but space is left.
func (r *reader) end() bool {
	r.space()
	if r.pos < len(r.in) {
		return r.syntax("after the value")
	}
	return true
}

func (r *reader) error() *Error {
	for _, name := range slices.Backward(r.path) {
		r.err.Path = join(r.err.Path, name)
	}
	r.err.Path = boundedPath(r.err.Path)
	return r.err
}

// within notes, on the way out of a failure, in which field or element it lies.
func (r *reader) within(name string) { r.path = append(r.path, name) }

// message appends the fields of the JSON value at r.pos as a message; inAny says that its "@type" has been dealt with.
func (r *reader) message(out []byte, p *plan, depth int, inAny bool) (_ []byte, ok bool) {
	if depth--; depth < 0 {
		return out, r.tooDeep()
	}
	if p.known != plain && !inAny {
		return r.known(out, p, depth)
	}
	if r.at() != '{' {
		return out, r.want(p.msg.wantObject())
	}
	if p.messageSet {
		return out, r.fail(&Error{Problem: string(p.msg.desc.FullName()) + " uses the message set format, which has no JSON form"})
	}
	r.pos++
	r.space()
	if r.at() == '}' {
		r.pos++
		return out, true
	}
	var few [2]uint64
	seen, base, exts := few[:], len(r.seen), len(r.extSeen)
	if p.bits > 128 {
		r.seen = append(r.seen, make([]uint64, (p.bits+63)/64)...)
		seen = nil
	}
	next, typed := int32(0), false
	for {
		i, ok := r.name(p, next)
		if !ok {
			return out, false
		}
		if i == noField {
			if out, ok = r.stranger(out, p, depth, inAny, &typed, exts); !ok {
				return out, false
			}
		} else {
			f := &p.fields[i]
			next = i + 1
			set := seen
			if set == nil {
				set = r.seen[base:]
			}
			if set[i>>6]&(1<<(i&63)) != 0 {
				r.within(f.json)
				return out, r.fail(&Error{Problem: "given twice"})
			}
			set[i>>6] |= 1 << (i & 63)
			switch {
			case r.at() == 'n' && !f.isValue:
				if !r.literal("null") {
					return out, false
				}
			default:
				if f.oneof >= 0 {
					k := int32(len(p.fields)) + f.oneof
					if set[k>>6]&(1<<(k&63)) != 0 {
						r.within(f.json)
						return out, r.fail(p.oneofTwice(f))
					}
					set[k>>6] |= 1 << (k & 63)
				}
				if out, ok = r.field(out, f, depth); !ok {
					r.within(f.json)
					return out, false
				}
			}
		}
		more, ok := r.more('}')
		if !ok {
			return out, false
		}
		if !more {
			r.seen, r.extSeen = r.seen[:base], r.extSeen[:exts]
			return out, true
		}
	}
}

// noField is what name returns for a name that no declared field has; the name is in r.text then.
const noField = -1

// name reads a member name and its colon. next is the field whose name is likely.
func (r *reader) name(p *plan, next int32) (int32, bool) {
	if r.at() != '"' {
		return 0, r.syntax("where a name in quotes should be")
	}
	for i := next; i < int32(len(p.fields)) && i < next+3; i++ {
		if key := p.fields[i].key; key != "" && len(r.in)-r.pos > len(key) && string(r.in[r.pos+1:r.pos+1+len(key)]) == key {
			if r.pos += 1 + len(key); r.at() <= ' ' {
				r.space()
			}
			return i, true
		}
	}
	s, ok := r.string()
	if !ok {
		return 0, false
	}
	i, found := p.names[string(s)]
	if !found {
		i = noField
		r.text = append(r.text[:0], s...)
	}
	return i, r.colon()
}

// stranger reads a member that no declared field has: "@type", an extension, or an unknown field. Its name is in r.text.
func (r *reader) stranger(out []byte, p *plan, depth int, inAny bool, typed *bool, exts int) (_ []byte, ok bool) {
	name := string(r.text)
	if inAny && name == "@type" {
		if *typed {
			r.within(name)
			return out, r.fail(&Error{Problem: "given twice"})
		}
		*typed = true
		return out, r.skip(depth)
	}
	if f := p.extensionByName(name); f != nil {
		if slices.Contains(r.extSeen[exts:], f.num) {
			r.within(name)
			return out, r.fail(&Error{Problem: "given twice"})
		}
		r.extSeen = append(r.extSeen, f.num)
		if r.at() == 'n' && !f.isValue {
			return out, r.literal("null")
		}
		if out, ok = r.field(out, f, depth); !ok {
			r.within(name)
		}
		return out, ok
	}
	if r.discard {
		return out, r.skip(depth)
	}
	return out, r.fail(p.unknownField(name))
}

// extensionByName returns the extension of p that a name in brackets means, or nil.
func (p *plan) extensionByName(name string) *field {
	if !p.extendable || p.msg.set.types == nil || !strings.HasPrefix(name, "[") || !strings.HasSuffix(name, "]") {
		return nil
	}
	xt, err := p.msg.set.types.FindExtensionByName(protoreflect.FullName(name[1 : len(name)-1]))
	if err != nil || xt == nil {
		return nil
	}
	fd := xt.TypeDescriptor()
	if fd.ContainingMessage().FullName() != p.msg.desc.FullName() || !p.msg.desc.ExtensionRanges().Has(fd.Number()) {
		return nil
	}
	i := p.extension(fd.Number())
	if i < 0 {
		i = p.addExtension(fd)
	}
	return p.at(i)
}

// field appends the field, tag included, with the JSON value at r.pos. Null is handled by the caller, but for types to which it is a
// value.
func (r *reader) field(out []byte, f *field, depth int) ([]byte, bool) {
	switch {
	case f.list:
		return r.list(out, f, depth)
	case f.isMap:
		return r.object(out, f, depth)
	}
	mark := len(out)
	out = append(out, f.tag...)
	out, kept, ok := r.value(out, f, depth)
	if !ok {
		return out, false
	}
	if !kept || f.implicit && isZero(out[mark+len(f.tag):], f.wire) {
		return out[:mark], true
	}
	return out, true
}

// isZero reports whether the wire form of a value is that of the zero value.
func isZero(b []byte, typ protowire.Type) bool {
	switch typ {
	case protowire.Fixed32Type, protowire.Fixed64Type:
		for _, c := range b {
			if c != 0 {
				return false
			}
		}
		return true
	}
	return len(b) == 1 && b[0] == 0
}
