package transcode

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Scalar reads one singular scalar field of a message from wire bytes, without decoding the rest. It is immutable.
type Scalar struct {
	outer []protowire.Number // of the messages around the field, outermost first
	field protoreflect.FieldDescriptor
	wire  protowire.Type
}

// NewScalar returns the reader of the field at a dotted path of proto names through singular messages.
func NewScalar(md protoreflect.MessageDescriptor, path string) (*Scalar, error) {
	s := &Scalar{}
	for name := range strings.SplitSeq(path, ".") {
		if s.field != nil {
			if md = s.field.Message(); md == nil || s.field.IsList() || s.field.IsMap() {
				return nil, fmt.Errorf("field %q: %q is no single message", path, s.field.Name())
			}
			s.outer = append(s.outer, s.field.Number())
		}
		if s.field = md.Fields().ByName(protoreflect.Name(name)); s.field == nil {
			return nil, fmt.Errorf("field %q: %s has no field %q", path, md.FullName(), name)
		}
	}
	if s.field.IsList() || s.field.IsMap() || s.field.Message() != nil {
		return nil, fmt.Errorf("field %q of %s is no single scalar value", path, md.FullName())
	}
	s.wire = wireOf(s.field.Kind())
	return s, nil
}

// AppendText appends the field's value as text, in the form that AppendParam takes: numbers in decimal, enum values by name, bytes in
// base64. It reports whether the message holds the field; one that it does not hold, and malformed bytes, append nothing.
func (s *Scalar) AppendText(dst, wire []byte) ([]byte, bool) {
	bits, content, ok := find(wire, s.outer, s.field.Number(), s.wire)
	if !ok {
		return dst, false
	}
	switch kind := s.field.Kind(); kind {
	case protoreflect.StringKind:
		return append(dst, content...), true
	case protoreflect.BytesKind:
		return base64.StdEncoding.AppendEncode(dst, content), true
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, bits != 0), true
	case protoreflect.EnumKind:
		if v := s.field.Enum().Values().ByNumber(protoreflect.EnumNumber(int32(bits))); v != nil {
			return append(dst, v.Name()...), true
		}
		return strconv.AppendInt(dst, int64(int32(bits)), 10), true
	case protoreflect.FloatKind:
		return append(dst, bytes.Trim(appendFloat(nil, float64(math.Float32frombits(uint32(bits))), 32), `"`)...), true
	case protoreflect.DoubleKind:
		return append(dst, bytes.Trim(appendFloat(nil, math.Float64frombits(bits), 64), `"`)...), true
	case protoreflect.Sint32Kind:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(bits&math.MaxUint32), 10), true
	case protoreflect.Sint64Kind:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(bits), 10), true
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return strconv.AppendInt(dst, int64(int32(bits)), 10), true
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return strconv.AppendInt(dst, int64(bits), 10), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(dst, uint64(uint32(bits)), 10), true
	default:
		return strconv.AppendUint(dst, bits, 10), true
	}
}

// find returns the last value of a field, for fragments of messages merge and the last of a scalar's values counts. Numbers come as bits.
func find(wire []byte, outer []protowire.Number, field protowire.Number, want protowire.Type) (bits uint64, content []byte, found bool) {
	for len(wire) > 0 {
		num, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return 0, nil, false
		}
		wire = wire[n:]
		n = protowire.ConsumeFieldValue(num, typ, wire)
		if n < 0 {
			return 0, nil, false
		}
		value := wire[:n]
		wire = wire[n:]
		switch {
		case len(outer) > 0:
			if num != outer[0] {
				continue
			}
			inner, ok := messageIn(num, typ, value)
			if !ok {
				continue
			}
			if b, c, ok := find(inner, outer[1:], field, want); ok {
				bits, content, found = b, c, true
			}
		case num == field && typ == want:
			found = true
			switch typ {
			case protowire.VarintType:
				bits, _ = protowire.ConsumeVarint(value)
			case protowire.Fixed32Type:
				v, _ := protowire.ConsumeFixed32(value)
				bits = uint64(v)
			case protowire.Fixed64Type:
				bits, _ = protowire.ConsumeFixed64(value)
			default:
				content, _ = protowire.ConsumeBytes(value)
			}
		}
	}
	return bits, content, found
}

func messageIn(num protowire.Number, typ protowire.Type, value []byte) ([]byte, bool) {
	switch typ {
	case protowire.BytesType:
		inner, n := protowire.ConsumeBytes(value)
		return inner, n >= 0
	case protowire.StartGroupType:
		inner, n := protowire.ConsumeGroup(num, value)
		return inner, n >= 0
	}
	return nil, false
}
