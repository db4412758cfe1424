package toolschema

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// special returns the node of a type whose JSON form is its own, or nil. At the root it has to be an object.
func (b *builder) special(md protoreflect.MessageDescriptor, root bool) *node {
	name := string(md.FullName())
	short, ok := strings.CutPrefix(name, "google.protobuf.")
	if !ok {
		return nil
	}
	n := b.wellKnown(short)
	if n != nil && root && n.omit {
		return &node{kind: "object", desc: join(n.desc, "This profile cannot describe it."), closed: true}
	}
	if n == nil || !root || n.kind == "object" && len(n.or) == 0 {
		return n
	}
	return &node{kind: "object", props: []prop{{WrapperKey, n}}, required: []string{WrapperKey}, closed: b.o.Profile != Portable}
}

// WrapperKey is the property under which the schema of a message shows its JSON form, when that is no object. See [Wrapped].
const WrapperKey = "value"

// Wrapped says whether the JSON form of md is not an object (google.protobuf.Timestamp, StringValue, Value, ListValue and the like).
// Tool arguments and results have to be objects, so such a form stands under the key "value": {"value": "2026-01-31T08:30:00Z"}.
func Wrapped(md protoreflect.MessageDescriptor) bool {
	short, ok := strings.CutPrefix(string(md.FullName()), "google.protobuf.")
	if !ok {
		return false
	}
	switch short {
	case "Empty", "Struct", "Any":
		return false
	}
	b := newBuilder(Options{})
	return b.wellKnown(short) != nil
}

func (b *builder) wellKnown(short string) *node {
	input := b.o.Direction == Input
	switch short {
	case "Timestamp":
		n := &node{kind: "string", facts: []fact{{key: "format", raw: `"date-time"`}}}
		switch {
		case input && b.o.Profile == Portable:
			n.desc = "RFC 3339 time." // models write no other than the usual form, and every byte here is in every list
		case input:
			n.desc = "RFC 3339 time with capital T and Z, years 0001 to 9999, no leap second."
		}
		return n
	case "Duration":
		n := &node{kind: "string", facts: []fact{{key: "pattern", raw: durationPattern}}}
		if input {
			n.desc = `Seconds with suffix s, such as "1.5s".`
		}
		return n
	case "FieldMask":
		n := &node{kind: "string"}
		if input {
			n.desc = `Field paths in lowerCamelCase with commas between, such as "name,size.width".`
		}
		return n
	case "Empty":
		return &node{kind: "object", closed: b.o.Profile != Portable}
	case "Struct":
		return b.free(&node{kind: "object", desc: "Any JSON object."})
	case "ListValue":
		return b.free(&node{kind: "array", desc: "Any JSON values.", items: b.listItems()})
	case "Value":
		return b.free(b.any())
	case "Any":
		n := b.free(b.anyMessage())
		if n.omit {
			n.brief = `a message of any type with "@type"`
		}
		return n
	}
	if k, ok := wrapped[short]; ok {
		return b.scalar(k)
	}
	return nil
}

// wrapped are the wrappers by name, so that they are known even where a contract lacks their file.
var wrapped = map[string]protoreflect.Kind{
	"DoubleValue": protoreflect.DoubleKind,
	"FloatValue":  protoreflect.FloatKind,
	"Int64Value":  protoreflect.Int64Kind,
	"UInt64Value": protoreflect.Uint64Kind,
	"Int32Value":  protoreflect.Int32Kind,
	"UInt32Value": protoreflect.Uint32Kind,
	"BoolValue":   protoreflect.BoolKind,
	"StringValue": protoreflect.StringKind,
	"BytesValue":  protoreflect.BytesKind,
}

// free marks what the strict profile cannot say.
func (b *builder) free(n *node) *node {
	if b.o.Profile == Strict {
		n.omit, n.brief = true, "any JSON"
		if n.kind == "object" {
			n.brief = "any JSON object"
		}
	}
	return n
}

// any returns the node of any JSON value, without a schema that says nothing, since some checkers refuse that.
func (b *builder) any() *node {
	if b.o.Profile == Full {
		return &node{kind: "string", or: []string{"number", "boolean", "object", "array", "null"}, desc: "Any JSON value."}
	}
	list := &node{kind: "array"}
	if b.o.Direction == Input {
		list.items = &node{anyOf: scalars("Any JSON value.")}
	}
	all := append(scalars("Any JSON value."), list)
	if b.o.Direction == Output {
		all = append(all, &node{kind: "null"})
	}
	return &node{anyOf: all}
}

func scalars(desc string) []*node {
	return []*node{{kind: "string", desc: desc}, {kind: "number"}, {kind: "boolean"}, {kind: "object"}}
}

// listItems returns what an item of a google.protobuf.ListValue is. Outputs leave it open.
func (b *builder) listItems() *node {
	if b.o.Profile == Full || b.o.Direction == Output {
		return nil
	}
	return b.any()
}

// anyMessage returns the node of a google.protobuf.Any.
func (b *builder) anyMessage() *node {
	n := &node{kind: "object", desc: `A message of any type: "@type" holds its type URL, its fields stand beside it.`}
	if b.o.Direction == Input {
		n.desc = `A message of any type: "@type" is required and holds its type URL (type.googleapis.com/full.name), its fields stand beside it; types with a JSON form of their own go into "value".`
		if len(b.o.AnyTypes) > 0 {
			n.desc = join(n.desc, "Known types: "+someNames(b.o.AnyTypes, 20)+".")
		}
	}
	if b.o.Profile == Full {
		n.props = []prop{{"@type", &node{kind: "string"}}}
		if b.o.Direction == Input {
			n.required = []string{"@type"}
		}
	}
	return n
}

func someNames(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}
