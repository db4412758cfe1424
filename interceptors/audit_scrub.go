package interceptors

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// scrub takes the secrets out of the wire bytes of one message type. A nil scrub has nothing to do: the message holds no secret, at no depth.
// It may lead back to itself, as messages do.
type scrub struct {
	fields map[protowire.Number]scrubField
	// declared, if not nil, says which fields stay: extensions may hold anything.
	declared protoreflect.FieldDescriptors
	todo     bool // something is to be done, here or below
}

type scrubField struct {
	// drop leaves the field out; a string's value becomes "REDACTED".
	drop, text bool
	// keys drops a map's entries whose keys say that they hold a secret.
	keys bool
	// within scrubs a message, or the values of a map.
	within *scrub
	isMap  bool
}

const redacted = "REDACTED"

type scrubKey struct {
	desc protoreflect.MessageDescriptor
	set  *catalog.FieldSet
}

// newScrub compiles what is to be done for a message: the marked fields, those whose names say that they hold a secret, such map keys, and
// the contents of every google.protobuf.Any.
func newScrub(md protoreflect.MessageDescriptor, set *catalog.FieldSet) *scrub {
	all := map[scrubKey]*scrub{}
	root := collectScrub(md, set, all)
	for changed := true; changed; { // todo spreads from below, round cycles too
		changed = false
		for _, s := range all {
			for _, f := range s.fields {
				if !s.todo && f.within != nil && f.within.todo {
					s.todo, changed = true, true
				}
			}
		}
	}
	for _, s := range all {
		for n, f := range s.fields {
			if f.within != nil && !f.within.todo {
				f.within = nil
				s.fields[n] = f
			}
			if !f.drop && !f.keys && f.within == nil {
				delete(s.fields, n)
			}
		}
	}
	if !root.todo {
		return nil
	}
	return root
}

func collectScrub(md protoreflect.MessageDescriptor, set *catalog.FieldSet, all map[scrubKey]*scrub) *scrub {
	key := scrubKey{md, set}
	if s := all[key]; s != nil {
		return s
	}
	s := &scrub{fields: map[protowire.Number]scrubField{}}
	all[key] = s
	if md.ExtensionRanges().Len() > 0 {
		s.declared, s.todo = md.Fields(), true
	}
	isAny := md.FullName() == "google.protobuf.Any"
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		mark := set.Mark(fd.Number())
		f := scrubField{isMap: fd.IsMap()}
		var below *catalog.FieldSet
		if mark != nil {
			below = mark.Within
		}
		switch {
		case isAny, mark != nil && mark.Sensitive, secretName(string(fd.Name())):
			f.drop, f.text = true, fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated && !isAny
		case fd.IsMap():
			f.keys = fd.MapKey().Kind() == protoreflect.StringKind
			if in := fd.MapValue().Message(); in != nil {
				f.within = collectScrub(in, below, all)
			}
		case fd.Message() != nil:
			f.within = collectScrub(fd.Message(), below, all)
		default:
			continue
		}
		s.todo = s.todo || f.drop || f.keys
		s.fields[fd.Number()] = f
	}
	return s
}

// maxScrubDepth is protobuf's own limit of nesting.
const maxScrubDepth = 100

// append appends wire without its secrets. It says no if the bytes are malformed.
func (s *scrub) append(dst, wire []byte, depth int) (_ []byte, ok bool) {
	if depth > maxScrubDepth {
		return dst, false
	}
	for len(wire) > 0 {
		number, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return dst, false
		}
		m := protowire.ConsumeFieldValue(number, typ, wire[n:])
		if m < 0 {
			return dst, false
		}
		field, value := wire[:n+m], wire[n:n+m]
		wire = wire[n+m:]
		f, known := s.fields[number]
		if !known {
			if s.declared == nil || s.declared.ByNumber(number) != nil {
				dst = append(dst, field...)
			}
			continue
		}
		if dst, ok = f.append(dst, number, typ, value, depth); !ok {
			return dst, false
		}
	}
	return dst, true
}

func (f scrubField) append(dst []byte, number protowire.Number, typ protowire.Type, value []byte, depth int) (_ []byte, ok bool) {
	if f.drop {
		if f.text {
			dst = protowire.AppendTag(dst, number, protowire.BytesType)
			dst = protowire.AppendString(dst, redacted)
		}
		return dst, true
	}
	if typ != protowire.BytesType { // a group: what is in it is left out as a whole
		return dst, true
	}
	inner, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return dst, false
	}
	var clean []byte
	if f.isMap {
		if clean, ok = f.entry(inner, depth); !ok || clean == nil {
			return dst, ok
		}
	} else if clean, ok = f.within.append(nil, inner, depth+1); !ok {
		return dst, false
	}
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendBytes(dst, clean), true
}

// entry returns a map entry without secrets, or nil if its key says that it holds one.
func (f scrubField) entry(wire []byte, depth int) (_ []byte, ok bool) {
	clean := make([]byte, 0, len(wire))
	for len(wire) > 0 {
		number, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return nil, false
		}
		m := protowire.ConsumeFieldValue(number, typ, wire[n:])
		if m < 0 {
			return nil, false
		}
		value := wire[n : n+m]
		switch {
		case number == 1 && f.keys && typ == protowire.BytesType:
			if key, _ := protowire.ConsumeBytes(value); secretName(string(key)) {
				return nil, true
			}
			clean = append(clean, wire[:n+m]...)
		case number == 2 && f.within != nil && typ == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(value)
			scrubbed, ok := f.within.append(nil, inner, depth+1)
			if !ok {
				return nil, false
			}
			clean = protowire.AppendTag(clean, 2, protowire.BytesType)
			clean = protowire.AppendBytes(clean, scrubbed)
		case number == 2 && f.within != nil: // a group
		default:
			clean = append(clean, wire[:n+m]...)
		}
		wire = wire[n+m:]
	}
	return clean, true
}
