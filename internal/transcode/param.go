package transcode

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// AppendParam appends the wire form of the message in which only the field at the dotted path is set from text: a path or query
// parameter of a google.api.http rule. Both proto and JSON names are accepted; map fields take "labels[key]". A list takes several
// values, anything else one. Besides scalars, the well-known types that are strings or numbers in JSON are accepted, and Struct and
// Value as JSON text. Because wire fragments merge, fragments can simply be appended one after the other. An error is an *Error;
// nothing is appended then.
func (m *Message) AppendParam(dst []byte, path string, values []string) ([]byte, error) {
	a := param{values: values, reader: m.reader(nil, ReadOptions{})}
	defer a.reader.release()
	name, key, isMap := path, "", false
	if i := strings.IndexByte(path, '['); i >= 0 && strings.HasSuffix(path, "]") {
		name, key, isMap = path[:i], path[i+1:len(path)-1], true
	}
	a.key, a.keyed = key, isMap
	out, err := a.nested(dst, m.plan(), name)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// param is one parameter on its way into wire bytes.
type param struct {
	values []string
	key    string
	keyed  bool
	reader *reader
}

// nested appends the field at the path within p.
func (a *param) nested(out []byte, p *plan, path string) ([]byte, *Error) {
	f, rest, deeper, err := p.step(path, "parameter")
	if err != nil {
		return out, err
	}
	if !deeper {
		out, err = a.leaf(out, f)
		return out, inField(err, f.json)
	}
	out, at := openField(out, f)
	if out, err = a.nested(out, f.msg.plan(), rest); err != nil {
		return out, inField(err, f.json)
	}
	return closeField(out, f, at), nil
}

// step returns the first field of a dotted path of proto or JSON names, and what follows it; what is whose path it is, for an error.
func (p *plan) step(path, what string) (f *field, rest string, deeper bool, _ *Error) {
	name, rest, deeper := strings.Cut(path, ".")
	if f = p.byName(name); f == nil && deeper {
		if f = p.byName(path); f != nil { // a json_name may hold dots
			return f, "", false, nil
		}
	}
	if f == nil {
		return nil, "", false, p.unknownField(name)
	}
	if deeper && (f.msg == nil || f.list || f.isMap) {
		return nil, "", false, &Error{Path: f.json, Problem: "the " + what + " goes on with " + strconv.Quote(bounded(rest)) + ", but this field has no fields to set one by one"}
	}
	return f, rest, deeper, nil
}

// openField appends what stands before the fields of a message or group; closeField, given at, what stands after them.
func openField(out []byte, f *field) (_ []byte, at int) {
	out = append(out, f.tag...)
	if f.kind == protoreflect.GroupKind {
		return out, -1
	}
	return append(out, 0), len(out)
}

func closeField(out []byte, f *field, at int) []byte {
	if f.kind == protoreflect.GroupKind {
		return append(out, f.endTag...)
	}
	return fixLength(out, at)
}

func inField(e *Error, name string) *Error {
	if e != nil {
		e.Path = join(name, e.Path)
	}
	return e
}

// byName returns the field with a proto name or, failing that, a JSON name.
func (p *plan) byName(name string) *field {
	fds := p.msg.desc.Fields()
	fd := fds.ByName(protoreflect.Name(name))
	if fd == nil {
		fd = fds.ByTextName(name)
	}
	if fd != nil {
		return p.at(p.index(uint64(fd.Number())))
	}
	if i, ok := p.names[name]; ok {
		return p.at(i)
	}
	return nil
}

func (a *param) leaf(out []byte, f *field) ([]byte, *Error) {
	switch {
	case a.keyed && !f.isMap:
		return out, &Error{Problem: "only a map takes a key in brackets"}
	case f.isMap && !a.keyed:
		return out, &Error{Problem: "a map needs its key in brackets", Want: f.json + "[key]=value"}
	case len(a.values) == 0:
		return out, &Error{Problem: "no value given", Want: f.wantOne()}
	case len(a.values) > 1 && !f.list:
		return out, &Error{Problem: "given " + strconv.Itoa(len(a.values)) + " times", Want: "one value"}
	case f.isMap:
		return a.entry(out, f)
	}
	for i, text := range a.values {
		mark := len(out)
		out = append(out, f.tag...)
		var err *Error
		if out, err = a.value(out, f, text); err != nil {
			if f.list {
				err.Path = join(index(i), err.Path)
			}
			return out, err
		}
		if f.implicit && isZero(out[mark+len(f.tag):], f.wire) {
			out = out[:mark]
		}
	}
	return out, nil
}

func (a *param) entry(out []byte, f *field) ([]byte, *Error) {
	out = append(append(out, f.tag...), 0)
	at := len(out) - 1
	out = append(out, f.mapKey.tag...)
	if f.mapKey.kind == protoreflect.StringKind {
		out = protowire.AppendString(out, a.key)
	} else {
		v, ok := parseKey(f.mapKey.kind, a.key)
		if b, err := strconv.ParseBool(a.key); err == nil && f.mapKey.kind == protoreflect.BoolKind {
			v, ok = protowire.EncodeBool(b), true
		}
		if !ok {
			return out, &Error{Problem: "invalid map key " + strconv.Quote(bounded(a.key)), Want: f.mapKey.wantOne() + " in quotes"}
		}
		out = appendBits(out, f.mapKey.wire, v)
	}
	out, err := a.value(append(out, f.mapVal.tag...), f.mapVal, a.values[0])
	if err != nil {
		return out, inField(err, keyName(strconv.AppendQuote(nil, a.key)))
	}
	return fixLength(out, at), nil
}

// value appends one value, without tag, from the text of a parameter.
func (a *param) value(out []byte, f *field, text string) ([]byte, *Error) {
	refused := func() *Error { return &Error{Problem: "invalid value " + quoteParam(text), Want: f.wantOne()} }
	switch f.kind {
	case protoreflect.StringKind:
		if !utf8.ValidString(text) {
			return out, &Error{Problem: "the text is not valid UTF-8"}
		}
		return protowire.AppendString(out, text), nil
	case protoreflect.BytesKind:
		at := len(out)
		out, ok := appendBase64(append(out, 0), []byte(text))
		if !ok {
			return out, refused()
		}
		return fixLength(out, at), nil
	case protoreflect.BoolKind:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return out, refused()
		}
		return appendBits(out, f.wire, protowire.EncodeBool(v)), nil
	case protoreflect.EnumKind:
		return a.enum(out, f, text)
	case protoreflect.MessageKind:
		return a.message(out, f, text)
	case protoreflect.GroupKind:
		return out, notParam(f)
	}
	v, ok := paramNumber(f.kind, text)
	if !ok {
		return out, refused()
	}
	return appendBits(out, f.wire, v), nil
}

// paramNumber reads a number as JSON has it, and a whole one with a plus sign or leading zeros too.
func paramNumber(kind protoreflect.Kind, text string) (uint64, bool) {
	b := []byte(text)
	isFloat := kind == protoreflect.FloatKind || kind == protoreflect.DoubleKind
	if isFloat {
		if v, ok := notNumber(b); ok {
			return floatBits(kind, v), true
		}
	}
	if n := numberEnd(b); n > 0 && n == len(b) {
		return parseNumber(kind, b)
	}
	if isFloat {
		if strings.Trim(text, "0123456789+-.eE") != "" {
			return 0, false // hexadecimal, "inf" and underscores are no decimal numbers
		}
		return parseNumber(kind, b)
	}
	digits := strings.TrimPrefix(text, "+")
	neg := digits == text && strings.HasPrefix(digits, "-")
	digits = strings.TrimPrefix(digits, "-")
	if digits == "" || len(text)-len(digits) > 1 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		digits = "0"
	}
	if neg {
		digits = "-" + digits
	}
	return parseNumber(kind, []byte(digits))
}

// quoteParam shows a value as the same error about JSON would.
func quoteParam(text string) string {
	if text == "" {
		return `""`
	}
	return quote(text)
}

func (a *param) enum(out []byte, f *field, text string) ([]byte, *Error) {
	if num, ok := f.enum.names[text]; ok {
		return appendBits(out, f.wire, uint64(int64(num))), nil
	}
	if v, ok := paramNumber(protoreflect.EnumKind, text); ok {
		return appendBits(out, f.wire, v), nil
	}
	if f.enum.null && text == "null" {
		return append(out, 0), nil
	}
	return out, f.enum.unknown(text)
}

func notParam(f *field) *Error {
	return &Error{Problem: "a parameter cannot hold " + f.msg.wantObject(), Want: "its fields one by one, as " + f.json + ".name=value"}
}

// message appends a well-known type from the text of a parameter.
func (a *param) message(out []byte, f *field, text string) (_ []byte, err *Error) {
	p := f.msg.plan()
	at := len(out)
	out = append(out, 0)
	b := []byte(text)
	var ok bool
	switch p.known {
	case knownTimestamp:
		var seconds int64
		var nanos int32
		if seconds, nanos, ok = parseTimestamp(b); ok {
			out = appendInstant(out, seconds, nanos)
		}
	case knownDuration:
		seconds, nanos, parsed := parseDuration(b)
		if ok = parsed; !ok {
			if d, err := time.ParseDuration(text); err == nil {
				seconds, nanos, ok = int64(d/time.Second), int32(d%time.Second), true
			}
		}
		out = appendInstant(out, seconds, nanos)
	case knownMask:
		out, ok = a.mask(out, p, text)
	case knownWrapper:
		inner := p.at(p.index(1))
		mark := len(out)
		if out, err = a.value(append(out, inner.tag...), inner, text); err != nil {
			return out, err
		}
		if ok = true; inner.implicit && isZero(out[mark+len(inner.tag):], inner.wire) {
			out = out[:mark]
		}
	case knownStruct, knownValue:
		return a.json(out, at, p, b)
	case knownEmpty:
		ok = text == "" || text == "{}"
	default:
		return out, notParam(f)
	}
	if !ok {
		return out, &Error{Problem: "invalid value " + quoteParam(text), Want: f.msg.wantOne()}
	}
	return fixLength(out, at), nil
}

// mask reads the paths of a field mask, in lowerCamelCase as in JSON or as in the .proto file.
func (a *param) mask(out []byte, p *plan, text string) ([]byte, bool) {
	tag := p.at(p.index(1)).tag
	mark := len(out)
	if out, ok := appendMask(out, tag, []byte(text)); ok {
		return out, true
	}
	out = out[:mark]
	for path := range strings.SplitSeq(text, ",") {
		if !isPath([]byte(path)) {
			return out, false
		}
		out = protowire.AppendString(append(out, tag...), path)
	}
	return out, true
}

// json reads JSON text.
func (a *param) json(out []byte, at int, p *plan, text []byte) ([]byte, *Error) {
	r := a.reader
	r.in, r.pos = text, 0
	r.space()
	out, ok := r.message(out, p, r.maxDepth, false)
	if !ok || !r.end() {
		return out, r.error()
	}
	return fixLength(out, at), nil
}
