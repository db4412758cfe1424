package transcode

import (
	"encoding/base64"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// value appends one value of the field: a singular value, a list element or a map value.
func (w *writer) value(out []byte, f *field, v value, depth int) ([]byte, bool) {
	switch f.kind {
	case protoreflect.StringKind:
		return w.text(out, v)
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return w.message(out, f.msg.plan(), v.start, v.end, depth-1)
	case protoreflect.EnumKind:
		return w.enum(out, f.enum, int32(v.bits)), true
	case protoreflect.BytesKind:
		out = append(out, '"')
		out = base64.StdEncoding.AppendEncode(out, w.in[v.start:v.end])
		return append(out, '"'), true
	}
	return appendScalar(out, f.kind, v.bits), true
}

// text appends a string.
func (w *writer) text(out []byte, v value) (_ []byte, ok bool) {
	if out, ok = appendString(out, w.in[v.start:v.end]); !ok {
		w.fault = faultUTF8
	}
	return out, ok
}

// appendScalar appends a number or bool.
func appendScalar(out []byte, kind protoreflect.Kind, v uint64) []byte {
	switch kind {
	case protoreflect.BoolKind:
		return strconv.AppendBool(out, v != 0)
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return strconv.AppendInt(out, int64(int32(v)), 10)
	case protoreflect.Sint32Kind:
		return strconv.AppendInt(out, int64(int32(protowire.DecodeZigZag(v&math.MaxUint32))), 10)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(out, uint64(uint32(v)), 10)
	case protoreflect.FloatKind:
		return appendFloat(out, float64(math.Float32frombits(uint32(v))), 32)
	case protoreflect.DoubleKind:
		return appendFloat(out, math.Float64frombits(v), 64)
	}
	out = append(out, '"')
	switch kind {
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		out = strconv.AppendInt(out, int64(v), 10)
	case protoreflect.Sint64Kind:
		out = strconv.AppendInt(out, protowire.DecodeZigZag(v), 10)
	default:
		out = strconv.AppendUint(out, v, 10)
	}
	return append(out, '"')
}

func (w *writer) enum(out []byte, e *enum, num int32) []byte {
	if e.null {
		return append(out, "null"...)
	}
	if !w.o.EnumNumbers {
		if s := e.literal(num); s != "" {
			return append(out, s...)
		}
	}
	return strconv.AppendInt(out, int64(num), 10)
}

// zero reports whether a value that was read is the zero value.
func zero(f *field, v value) bool {
	return v.start == v.end && (v.bits == 0 || normal(f.kind, v.bits) == 0)
}

// list appends the run of elements that begins at in[pos], behind a tag; kept is false when there are none.
func (w *writer) list(out []byte, f *field, pos, end int, typ protowire.Type, depth int) (_ []byte, next int, kept, ok bool) {
	if w.limited && w.tooDeep() {
		out = w.elide(out, "[]", true)
		for typ <= protowire.Fixed32Type && pos >= 0 {
			if pos = skip(w.in, pos, end, uint64(f.num), typ, maxWireDepth); pos >= 0 {
				typ, pos = w.again(f, pos, end)
			}
		}
		return out, max(pos, 0), true, pos >= 0 || w.fail(faultMalformed)
	}
	var t tally
	out = append(out, '[')
	w.open++
	for typ != noType {
		v, after := valueAt(w.in, pos, end, uint64(f.num), typ)
		if after < 0 {
			return out, 0, false, w.fail(faultMalformed)
		}
		if typ == f.wire {
			out, ok = w.item(out, f, v, &t, depth)
		} else {
			out, ok = w.packed(out, f, v, &t, depth)
		}
		if !ok {
			w.path = append(w.path, index(t.n-1))
			return out, 0, false, false
		}
		typ, pos = w.again(f, after, end)
	}
	w.open--
	w.finish(&t)
	return append(out, ']'), pos, t.n > 0 || w.o.EmitDefaults, true
}

const noType protowire.Type = 127

// again steps over the tag at in[pos] if it is the field's, and returns noType otherwise.
func (w *writer) again(f *field, pos, end int) (protowire.Type, int) {
	if hasTag(w.in, pos, end, f.tag) {
		return f.wire, pos + len(f.tag)
	}
	if f.packable && hasTag(w.in, pos, end, f.packedTag) {
		return protowire.BytesType, pos + len(f.packedTag)
	}
	return noType, pos
}

// hasTag reports whether the tag stands at in[pos]. Most have one byte, for which comparing strings is long.
func hasTag(in []byte, pos, end int, tag string) bool {
	n := pos + len(tag)
	return n <= end && in[pos] == tag[0] && (len(tag) == 1 || string(in[pos:n]) == tag)
}

// packed appends the elements of a packed list.
func (w *writer) packed(out []byte, f *field, v value, t *tally, depth int) (_ []byte, ok bool) {
	for pos := v.start; pos < v.end; {
		var one value
		if one, pos = valueAt(w.in, pos, v.end, 0, f.wire); pos < 0 {
			return out, w.fail(faultMalformed)
		}
		if w.limited || f.kind == protoreflect.EnumKind {
			if out, ok = w.item(out, f, one, t, depth); !ok {
				return out, false
			}
			continue
		}
		// What item does without limits, for numbers, which are short.
		if t.n > 0 {
			out = append(out, ',')
		}
		t.n++
		if out = appendScalar(out, f.kind, one.bits); len(out) >= w.at {
			if out, ok = w.pass(out); !ok {
				return out, false
			}
		}
	}
	return out, true
}

// defaults appends the fields from up to to that are unset but have a default to show.
func (w *writer) defaults(out []byte, p *plan, from, to int32, first int) ([]byte, int) {
	for i := from; i < to; i++ {
		f := &p.fields[i]
		if f.oneof >= 0 || !f.implicit && !f.list && !f.isMap {
			continue
		}
		mark := len(out)
		out = append(out, w.name(f)[first:]...)
		out = w.unset(out, f)
		if len(out)+w.open > w.hard {
			out = out[:mark]
			continue
		}
		first = 0
	}
	return out, first
}

func (w *writer) name(f *field) string {
	if w.o.ProtoNames {
		return f.nameProto
	}
	return f.nameJSON
}

// unset appends the JSON form of a field that is not set.
func (w *writer) unset(out []byte, f *field) []byte {
	switch {
	case f.list:
		return append(out, "[]"...)
	case f.isMap:
		return append(out, "{}"...)
	case f.msg != nil:
		switch f.msg.plan().known {
		case knownTimestamp, knownDuration, knownWrapper, knownValue:
			return append(out, "null"...)
		case knownList:
			return append(out, "[]"...)
		case knownMask:
			return append(out, `""`...)
		}
		return append(out, "{}"...)
	}
	def := f.desc.Default()
	switch f.kind {
	case protoreflect.EnumKind:
		return w.enum(out, f.enum, int32(def.Enum()))
	case protoreflect.StringKind:
		out, _ = appendString(out, []byte(def.String()))
		return out
	case protoreflect.BytesKind:
		out = base64.StdEncoding.AppendEncode(append(out, '"'), def.Bytes())
		return append(out, '"')
	}
	return appendScalar(out, f.kind, scalarBits(f.kind, def))
}

// scalarBits returns a value as the bits of the wire.
func scalarBits(kind protoreflect.Kind, v protoreflect.Value) uint64 {
	switch kind {
	case protoreflect.BoolKind:
		return protowire.EncodeBool(v.Bool())
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.EncodeZigZag(v.Int())
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return uint64(v.Int())
	case protoreflect.Sfixed32Kind:
		return uint64(uint32(v.Int()))
	case protoreflect.FloatKind:
		return uint64(math.Float32bits(float32(v.Float())))
	case protoreflect.DoubleKind:
		return math.Float64bits(v.Float())
	}
	return v.Uint()
}
