package toolschema

import (
	"slices"
	"strconv"
	"strings"

	openapi "github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2/options"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	intPattern  = `"^-?[0-9]+$"`
	uintPattern = `"^[0-9]+$"`
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

func defaultText(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if v := fd.DefaultEnumValue(); v != nil {
			return string(v.Name())
		}
		return strconv.Itoa(int(fd.Default().Enum()))
	case protoreflect.StringKind:
		return strconv.Quote(shorten(visible(fd.Default().String()), 100))
	case protoreflect.BytesKind:
		return shorten(strconv.Quote(string(fd.Default().Bytes())), 100)
	default:
		return fd.Default().String()
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
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n.kind = "integer"
		if b.o.Profile == Strict {
			n.desc = "Not negative."
			break
		}
		n.set("minimum", "0")
		n.set("maximum", "4294967295")
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n.set("pattern", intPattern)
		b.wide(n, "int64 in decimal")
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n.set("pattern", uintPattern)
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

const notFinite = `["NaN","Infinity","-Infinity"]`

func (b *builder) float(n *node, single bool) {
	if b.o.Direction == Input && b.o.Profile != Full {
		n.kind = "number"
		if single && b.o.Profile == Portable {
			n.set("format", `"float"`)
		}
		return
	}
	n.kind = ""
	special := &node{kind: "string", enum: []string{"NaN", "Infinity", "-Infinity"}}
	n.anyOf = []*node{{kind: "number"}, special}
}

// mapOf returns the node of a map.
func (b *builder) mapOf(fd protoreflect.FieldDescriptor, g *growth) *node {
	n := &node{kind: "object"}
	n.desc = "Map: keys are " + keyWords(fd.MapKey().Kind()) + "."
	if b.o.Profile == Full {
		n.values = b.single(fd.MapValue(), g)
		switch k := fd.MapKey().Kind(); {
		case k == protoreflect.BoolKind:
			n.keys = &node{enum: []string{"true", "false"}}
		case unsigned(k):
			n.keys = &node{facts: []fact{{key: "pattern", raw: uintPattern}}}
		case k != protoreflect.StringKind:
			n.keys = &node{facts: []fact{{key: "pattern", raw: intPattern}}}
		}
		return n
	}
	n.desc = "Map: keys are " + keyWords(fd.MapKey().Kind()) + ", each value is " + b.valueWords(fd.MapValue(), 2) + "."
	if b.o.Profile == Strict {
		n.omit, n.brief = true, "m"+strings.TrimSuffix(n.desc[1:], ".")
	}
	return n
}

func unsigned(k protoreflect.Kind) bool {
	switch k {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return true
	}
	return false
}

func keyWords(k protoreflect.Kind) string {
	switch {
	case k == protoreflect.StringKind:
		return "strings"
	case k == protoreflect.BoolKind:
		return `"true" or "false"`
	case unsigned(k):
		return "decimal digits"
	default:
		return "decimal integers"
	}
}

// valueWords describes a value in words, since this profile has no keyword for the values of a map.
func (b *builder) valueWords(fd protoreflect.FieldDescriptor, depth int) string {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		n := b.enum(fd.Enum())
		if len(n.anyOf) > 0 {
			n = n.anyOf[0]
		}
		if n.kind == "null" {
			return "null"
		}
		names := n.enum
		if len(names) == 0 || len(names) > 20 {
			return "an enum name (" + string(fd.Enum().FullName()) + ")"
		}
		return "one of " + strings.Join(names, ", ")
	case protoreflect.MessageKind, protoreflect.GroupKind:
	default:
		return kindWords(fd.Kind())
	}
	md := fd.Message()
	if s := b.special(md, false); s != nil {
		switch {
		case md.FullName() == "google.protobuf.Value":
			return "any JSON value"
		case s.desc != "":
			return article(s.kind) + " (" + strings.TrimSuffix(s.desc, ".") + ")"
		default:
			return article(s.kind)
		}
	}
	if depth == 0 {
		return "an object"
	}
	fs, _, _ := b.fields(md)
	if len(fs) == 0 {
		return "an object"
	}
	var w strings.Builder
	w.WriteString("an object {")
	for i, f := range fs {
		if i > 0 {
			w.WriteString("; ")
		}
		if i == 16 || w.Len() > 600 {
			w.WriteString("… " + strconv.Itoa(len(fs)-i) + " more")
			break
		}
		w.WriteString(f.key + ": ")
		switch {
		case f.fd.IsMap():
			w.WriteString("a map")
		case f.fd.IsList():
			w.WriteString("an array, each " + b.valueWords(f.fd, depth-1))
		default:
			w.WriteString(b.valueWords(f.fd, depth-1))
		}
	}
	w.WriteByte('}')
	return w.String()
}

func article(kind string) string {
	switch kind {
	case "":
		return "a number"
	case "integer", "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

func kindWords(k protoreflect.Kind) string {
	switch k {
	case protoreflect.BoolKind:
		return "a boolean"
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BytesKind:
		return "a base64 string"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return "a 64-bit integer as a string"
	default:
		return "an integer"
	}
}

// maxEnumNames bounds the values of an enum that are listed; above it, they are told by example.
const maxEnumNames = 250

// enum returns the node of an enum: by name, and in outputs also by the number that has no name.
func (b *builder) enum(ed protoreflect.EnumDescriptor) *node {
	if ed.FullName() == "google.protobuf.NullValue" {
		return &node{kind: "null"}
	}
	n := &node{kind: "string"}
	var numbers []protoreflect.EnumNumber
	vs := ed.Values()
	for i := range vs.Len() {
		v := vs.Get(i)
		if b.o.Direction == Output && slices.Contains(numbers, v.Number()) {
			continue // an alias is never written
		}
		numbers = append(numbers, v.Number())
		n.enum = append(n.enum, string(v.Name()))
	}
	switch {
	case len(n.enum) == 0:
		n.desc = "A name of the enum " + string(ed.FullName()) + ", which the contract does not hold."
	case len(n.enum) > maxEnumNames:
		n.desc = "One of " + strconv.Itoa(len(n.enum)) + " names of the enum " + string(ed.FullName()) + ", such as " + strings.Join(n.enum[:8], ", ") + "."
		n.enum = nil
	default:
		n.desc = b.enumNotes(ed)
	}
	if b.o.Direction == Output || b.o.Profile == Full {
		name := *n
		name.desc = ""
		return &node{desc: n.desc, anyOf: []*node{&name, {kind: "integer"}}}
	}
	return n
}

// enumNotes sums up the comments of an enum's values.
func (b *builder) enumNotes(ed protoreflect.EnumDescriptor) string {
	if b.plan.enumRunes == 0 {
		return ""
	}
	var w strings.Builder
	vs := ed.Values()
	for i := range vs.Len() {
		v := vs.Get(i)
		text := strings.TrimSuffix(shorten(firstSentence(b.text(v, 100)), 100), ".")
		if deprecated(v) {
			text = strings.TrimSuffix(join("deprecated", text), ".")
		}
		if text == "" {
			continue
		}
		if w.Len()+len(text)+len(v.Name()) > b.plan.enumRunes {
			break
		}
		if w.Len() > 0 {
			w.WriteString("; ")
		}
		w.WriteString(string(v.Name()) + ": " + text)
	}
	if w.Len() == 0 {
		return ""
	}
	w.WriteByte('.')
	return w.String()
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
