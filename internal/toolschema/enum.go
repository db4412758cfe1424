package toolschema

import (
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxEnumNames bounds the values of an enum that are listed; above it, they are told by example, but in a schema without a bound.
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
	case len(n.enum) > maxEnumNames && (b.o.Profile != Full || b.o.MaxBytes < hardMaxBytes):
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
