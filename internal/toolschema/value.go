package toolschema

import (
	"encoding/base64"
	"strconv"
	"strings"

	openapi "github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2/options"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The patterns allow what the codec takes in quotes, as near as a few bytes can say it.
const (
	intPattern      = `"^-?(0|[1-9][0-9]{0,18})$"`
	uintPattern     = `"^(0|[1-9][0-9]{0,19})$"`
	durationPattern = `"^-?(0|[1-9][0-9]{0,11})(\\.[0-9]{1,9})?s$"`
)

// value returns the node of a field, with its comment but without rules.
func (b *builder) value(f *field, g *growth) *node {
	fd := f.fd
	var n *node
	switch {
	case fd.IsMap():
		n = b.mapOf(fd, g)
	case fd.IsList():
		n = &node{kind: "array", items: b.single(fd, g)}
		n.omit = n.items.omit
	default:
		n = b.single(fd, g)
	}
	own := n.desc
	n.desc = b.about(f)
	n.say(own)
	return n
}

// about returns what the contract says of a field besides its type.
func (b *builder) about(f *field) string {
	text := b.fieldText(f.fd, b.plan.fieldRunes, f.behaves)
	schema := option[*openapi.JSONSchema](f.options, openapi.E_Openapiv2Field)
	if words := httpBody[f.fd.FullName()]; words != "" {
		text = words
	}
	if text == "" && b.plan.fieldRunes > 0 {
		text = shorten(clean(schema.GetDescription()), b.plan.fieldRunes)
	}
	if md := f.fd.Message(); text == "" && md != nil && b.o.Profile == Portable && !f.fd.IsMap() && !strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		text = firstSentence(b.text(md, b.plan.fieldRunes/2))
	}
	if deprecated(f.fd) {
		text = join("Deprecated.", text)
	}
	if b.o.Direction == Output {
		return text
	}
	if f.behaves.immutable {
		text = join(text, "Cannot be changed once set.")
	}
	if ref := option[*annotations.ResourceReference](f.options, annotations.E_ResourceReference); ref != nil {
		switch {
		case ref.GetType() != "" && ref.GetType() != "*":
			text = join(text, "Resource name of a "+clean(ref.GetType())+".")
		case ref.GetChildType() != "":
			text = join(text, "Resource name of the parent of "+clean(ref.GetChildType())+".")
		}
	}
	if info := option[*annotations.FieldInfo](f.options, annotations.E_FieldInfo); info.GetFormat() != annotations.FieldInfo_FORMAT_UNSPECIFIED {
		text = join(text, "Format: "+strings.ToLower(info.GetFormat().String())+".")
	}
	if ex := schema.GetExample(); ex != "" && len(ex) <= 200 {
		text = join(text, "Example: "+visible(ex))
	}
	if f.fd.HasDefault() {
		text = join(text, "Default: "+defaultText(f.fd)+".")
	}
	return text
}

// httpBody says what the fields of the message are that stands for a body of any media type.
var httpBody = map[protoreflect.FullName]string{
	"google.api.HttpBody.content_type": `Media type of data, such as "image/png".`,
	"google.api.HttpBody.data":         "The body itself.",
	"google.api.HttpBody.extensions":   "Metadata of the application; usually none.",
}

// defaultText returns the default of a field as the call takes it.
func defaultText(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if v := fd.DefaultEnumValue(); v != nil {
			return string(v.Name())
		}
		return strconv.Itoa(int(fd.Default().Enum()))
	case protoreflect.StringKind:
		return quoted(shorten(visible(fd.Default().String()), 100))
	case protoreflect.BytesKind:
		return quoted(shorten(base64.StdEncoding.EncodeToString(fd.Default().Bytes()), 100))
	default:
		return numberText(fd.Default())
	}
}

// single returns the node of one value of a field: an item of a list, a value of a map.
func (b *builder) single(fd protoreflect.FieldDescriptor, g *growth) *node {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return b.nested(fd.Message(), g)
	case protoreflect.EnumKind:
		return b.enum(fd.Enum())
	default:
		return b.scalar(fd.Kind())
	}
}

func (b *builder) scalar(k protoreflect.Kind) *node {
	n := &node{kind: "string"}
	input, full := b.o.Direction == Input, b.o.Profile == Full
	switch k {
	case protoreflect.BoolKind:
		n.kind = "boolean"
	case protoreflect.StringKind:
	case protoreflect.BytesKind:
		n.desc = "Base64."
		if !input {
			n.set("pattern", `"^[A-Za-z0-9+/]*={0,2}$"`)
		}
		if full {
			n.set("contentEncoding", `"base64"`)
		}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n.kind = "integer"
		switch b.o.Profile {
		case Portable:
			n.set("format", `"int32"`)
		case Full:
			n.set("minimum", "-2147483648")
			n.set("maximum", "2147483647")
		case Strict:
			n.desc = "32 bits."
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n.kind = "integer"
		if b.o.Profile == Strict {
			n.desc = "Not negative, 32 bits."
			break
		}
		n.set("minimum", "0")
		n.set("maximum", "4294967295")
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n.set("pattern", intPattern)
		b.wide(n, "int64 in decimal")
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n.set("pattern", uintPattern)
		if input && full {
			n.set("minimum", "0") // of the numbers that may stand for it
		}
		b.wide(n, "uint64 in decimal")
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		b.float(n, k == protoreflect.FloatKind)
	}
	return n
}

// wide says how 64-bit integers are passed so that no reader rounds them.
func (b *builder) wide(n *node, text string) {
	if b.o.Direction == Output {
		return
	}
	if b.o.Profile == Full {
		n.or = []string{"integer"}
		n.desc = text + "; a string keeps its value everywhere."
		return
	}
	n.desc = text + "; a number works too."
}

func (b *builder) float(n *node, single bool) {
	if b.o.Direction == Input && b.o.Profile != Full {
		n.kind = "number"
		switch {
		case single && b.o.Profile == Portable:
			n.set("format", `"float"`)
		case single:
			n.desc = "32-bit float."
		}
		return
	}
	n.kind = ""
	plain := &node{kind: "number"}
	if single && b.o.Direction == Input {
		const most = "3.4028235e38" // which rounds to the greatest
		plain.set("minimum", "-"+most)
		plain.set("maximum", most)
	}
	special := &node{kind: "string", enum: []string{"NaN", "Infinity", "-Infinity"}}
	n.anyOf = []*node{plain, special}
}

// nested returns the node of a message inside another.
func (b *builder) nested(md protoreflect.MessageDescriptor, above *growth) *node {
	if s := b.special(md, false); s != nil {
		return s
	}
	name := string(md.FullName())
	if b.o.Profile != Portable {
		d := b.byType[md.FullName()]
		if d == nil {
			d = &definition{name: name, node: &node{kind: "object", grow: &growth{md: md, rest: "Its keys are left out here for size; the call accepts them."}}}
			b.byType[md.FullName()] = d
			b.defs = append(b.defs, d)
		}
		return &node{target: d}
	}
	n := &node{kind: "object"}
	g := &growth{md: md, above: above, depth: above.depth + 1, rank: 1}
	seen := 0
	for up := above; up != nil; up = up.above {
		if up.md.FullName() == md.FullName() {
			seen++
		}
	}
	n.grow = g
	switch {
	case seen > 0 && seen >= b.plan.repeats:
		g.rest = "Nests on: the same keys as the " + string(md.Name()) + " around it."
	case g.depth > b.o.MaxDepth:
		g.rest = "A " + name + "; its keys are left out here for depth, the call accepts them."
	default:
		g.rest = "A " + name + "; its keys are left out here for size, the call accepts them."
		b.pending = append(b.pending, n)
	}
	return n
}
