package transcode

import (
	"encoding/base64"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// value appends the wire form, without tag, of the JSON value at r.pos. kept is false for an enum name that is dropped as unknown.
func (r *reader) value(out []byte, f *field, depth int) (_ []byte, kept, ok bool) {
	switch f.kind {
	case protoreflect.MessageKind:
		at := len(out)
		if out, ok = r.message(append(out, 0), f.msg.plan(), depth, false); !ok {
			return out, false, false
		}
		return fixLength(out, at), true, true
	case protoreflect.GroupKind:
		out, ok = r.message(out, f.msg.plan(), depth, false)
		return append(out, f.endTag...), true, ok
	case protoreflect.StringKind:
		if r.at() != '"' {
			return out, false, r.wantScalar(f)
		}
		out, ok = r.appendText(out)
		return out, true, ok
	case protoreflect.BytesKind:
		out, ok = r.bytes(out, f)
		return out, true, ok
	case protoreflect.BoolKind:
		switch {
		case r.at() == 't' && r.literal("true"):
			return append(out, 1), true, true
		case r.at() == 'f' && r.literal("false"):
			return append(out, 0), true, true
		}
		return out, false, r.wantScalar(f)
	case protoreflect.EnumKind:
		return r.enum(out, f)
	}
	v, ok := r.numeric(f)
	return appendBits(out, f.wire, v), true, ok
}

// numeric reads a number of the field's kind, plain or in quotes, as the bits of the wire.
func (r *reader) numeric(f *field) (uint64, bool) {
	start := r.pos
	if f.kind != protoreflect.FloatKind && f.kind != protoreflect.DoubleKind {
		if mag, ok := r.digits(); ok {
			if v, ok := inRange(f.kind, false, mag); ok {
				return v, true
			}
			r.pos = start
		}
	}
	var s []byte
	var ok bool
	switch c := r.at(); {
	case c == '"':
		if s, ok = r.string(); !ok {
			return 0, false
		}
		if f.kind == protoreflect.FloatKind || f.kind == protoreflect.DoubleKind {
			if v, ok := notNumber(s); ok {
				return floatBits(f.kind, v), true
			}
		}
		if n := numberEnd(s); n == 0 || n != len(s) {
			r.pos = start
			return 0, r.wantScalar(f)
		}
	case c == '-' || c >= '0' && c <= '9':
		if s, ok = r.number(); !ok {
			return 0, false
		}
	default:
		return 0, r.wantScalar(f)
	}
	v, ok := parseNumber(f.kind, s)
	if !ok {
		r.pos = start
		return 0, r.wantScalar(f)
	}
	return v, true
}

// digits steps over the number at r.pos if it is the usual form of a small integer: digits alone, or in quotes.
func (r *reader) digits() (mag uint64, ok bool) {
	in, pos := r.in, r.pos
	quoted := r.at() == '"'
	if quoted {
		pos++
	}
	start := pos
	for pos < len(in) && in[pos]-'0' <= 9 {
		mag = mag*10 + uint64(in[pos]-'0')
		pos++
	}
	n := pos - start
	if n == 0 || n > 18 || pos == len(in) || in[start] == '0' && n > 1 {
		return 0, false
	}
	switch c := in[pos]; {
	case quoted && c == '"':
		pos++
	case !quoted && (c == ',' || c == ']' || c == '}'):
	default:
		return 0, false
	}
	r.pos = pos
	return mag, true
}

func notNumber(s []byte) (float64, bool) {
	switch string(s) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

func floatBits(kind protoreflect.Kind, v float64) uint64 {
	if kind == protoreflect.FloatKind {
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}

// parseNumber turns a JSON number into the bits that the wire has for a field of the kind; false when it is out of range or, for an
// integer, has a fraction.
func parseNumber(kind protoreflect.Kind, s []byte) (uint64, bool) {
	switch kind {
	case protoreflect.DoubleKind:
		v, err := strconv.ParseFloat(view(s), 64)
		return math.Float64bits(v), err == nil
	case protoreflect.FloatKind:
		v, err := strconv.ParseFloat(view(s), 32)
		return uint64(math.Float32bits(float32(v))), err == nil
	}
	neg, mag, ok := integer(s)
	if !ok {
		return 0, false
	}
	return inRange(kind, neg, mag)
}

// inRange returns the bits that the wire has for an integer in a field of the kind; false when it is out of its range.
func inRange(kind protoreflect.Kind, neg bool, mag uint64) (uint64, bool) {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return mag, mag <= math.MaxUint32 && (!neg || mag == 0)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return mag, !neg || mag == 0
	}
	limit := uint64(math.MaxInt64)
	if kind == protoreflect.Int32Kind || kind == protoreflect.Sint32Kind || kind == protoreflect.Sfixed32Kind || kind == protoreflect.EnumKind {
		limit = math.MaxInt32
	}
	if neg {
		limit++
	}
	if mag > limit {
		return 0, false
	}
	v := int64(mag)
	if neg {
		v = -v
	}
	switch kind {
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.EncodeZigZag(v), true
	}
	return uint64(v), true
}

// integer returns the value of a JSON number that is integral, whatever its notation: 1e3 and 3.0 are. mag is exact.
func integer(s []byte) (neg bool, mag uint64, ok bool) {
	i := 0
	if s[0] == '-' {
		neg = true
		i++
	}
	if len(s)-i <= 19 {
		for ; i < len(s); i++ {
			c := s[i] - '0'
			if c > 9 {
				return scaled(s)
			}
			mag = mag*10 + uint64(c)
		}
		return neg, mag, true
	}
	return scaled(s)
}

// scaled is integer for numbers with a fraction, an exponent or many digits.
func scaled(s []byte) (neg bool, mag uint64, ok bool) {
	if s[0] == '-' {
		neg, s = true, s[1:]
	}
	mantissa, exponent := s, 0
	for i, c := range s {
		if c == 'e' || c == 'E' {
			mantissa = s[:i]
			exponent = smallInt(s[i+1:])
			break
		}
	}
	// The digit at place n counts 10^n; those below the point must be zero.
	point := len(mantissa)
	for i, c := range mantissa {
		if c == '.' {
			point = i
			break
		}
	}
	last := 0 // the lowest place so far
	for i, c := range mantissa {
		if c == '.' {
			continue
		}
		place := point - 1 - i + exponent
		if i > point {
			place++
		}
		last = place
		if c == '0' && (place < 0 || mag == 0) {
			continue
		}
		if place < 0 || place > 19 || mag > (math.MaxUint64-uint64(c-'0'))/10 {
			return neg, 0, false
		}
		mag = mag*10 + uint64(c-'0')
	}
	for ; last > 0 && mag > 0; last-- {
		if mag > math.MaxUint64/10 {
			return neg, 0, false
		}
		mag *= 10
	}
	return neg, mag, true
}

// smallInt returns the value of an exponent; one that is beyond any integer type is held at a bound that is beyond them too.
func smallInt(s []byte) int {
	neg, n := false, 0
	for _, c := range s {
		switch c {
		case '-':
			neg = true
		case '+':
		default:
			n = min(n*10+int(c-'0'), 1<<30)
		}
	}
	if neg {
		return -n
	}
	return n
}

// bytes appends the bytes that the base64 string at r.pos stands for: the standard or the URL alphabet, with padding or without.
func (r *reader) bytes(out []byte, f *field) ([]byte, bool) {
	if r.at() != '"' {
		return out, r.wantScalar(f)
	}
	start := r.pos
	s, ok := r.string()
	if !ok {
		return out, false
	}
	at := len(out)
	out, ok = appendBase64(append(out, 0), s)
	if !ok {
		r.pos = start
		return out, r.wantScalar(f)
	}
	return fixLength(out, at), true
}

func appendBase64(out, s []byte) ([]byte, bool) {
	enc := base64.StdEncoding
	raw := base64.RawStdEncoding
	for _, c := range s {
		if c == '-' || c == '_' {
			enc, raw = base64.URLEncoding, base64.RawURLEncoding
			break
		}
	}
	if len(s)%4 != 0 {
		enc = raw
	}
	out, err := enc.AppendDecode(out, s)
	return out, err == nil
}

// enum appends the number of the enum value at r.pos, which is given by name or number.
func (r *reader) enum(out []byte, f *field) (_ []byte, kept, ok bool) {
	start := r.pos
	switch c := r.at(); {
	case c == '"':
		s, ok := r.string()
		if !ok {
			return out, false, false
		}
		num, found := f.enum.names[string(s)]
		if found {
			return appendBits(out, protowire.VarintType, uint64(int64(num))), true, true
		}
		if r.discard {
			return out, false, true
		}
		return out, false, r.fail(f.enum.unknown(string(s)))
	case c == '-' || c >= '0' && c <= '9':
		s, ok := r.number()
		if !ok {
			return out, false, false
		}
		if v, ok := parseNumber(protoreflect.EnumKind, s); ok {
			return appendBits(out, protowire.VarintType, v), true, true
		}
	case c == 'n' && f.enum.null:
		return append(out, 0), true, r.literal("null")
	}
	r.pos = start
	return out, false, r.wantScalar(f)
}

// mapKey appends the wire form of the map key that the member name at r.pos stands for.
func (r *reader) mapKey(out []byte, f *field) ([]byte, bool) {
	if f.kind == protoreflect.StringKind {
		return r.appendText(out)
	}
	start := r.pos
	s, ok := r.string()
	if !ok {
		return out, false
	}
	v, ok := parseKey(f.kind, view(s))
	if !ok {
		return out, r.fail(&Error{Problem: "invalid map key " + quote(string(r.in[start:r.pos])), Want: f.wantOne() + " in quotes"})
	}
	return appendBits(out, f.wire, v), true
}

// parseKey turns the text of a map key into the bits of the wire.
func parseKey(kind protoreflect.Kind, s string) (uint64, bool) {
	switch kind {
	case protoreflect.BoolKind:
		return protowire.EncodeBool(s == "true"), s == "true" || s == "false"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		v, err := strconv.ParseUint(s, 10, 32)
		return v, err == nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		v, err := strconv.ParseUint(s, 10, 64)
		return v, err == nil
	}
	size := 64
	if kind == protoreflect.Int32Kind || kind == protoreflect.Sint32Kind || kind == protoreflect.Sfixed32Kind {
		size = 32
	}
	v, err := strconv.ParseInt(s, 10, size)
	if kind == protoreflect.Sint32Kind || kind == protoreflect.Sint64Kind {
		return protowire.EncodeZigZag(v), err == nil
	}
	return uint64(v), err == nil
}
