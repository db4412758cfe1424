package toolschema

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

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
	fs, _ := b.fields(md)
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
		w.WriteString(f.name() + ": ")
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
