package toolschema

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// node is one schema before it is encoded.
type node struct {
	kind     string   // "type"; "" for none
	nullable bool     // also null (strict only)
	or       []string // further types (full only)
	desc     string   // words from the contract
	words    []string // words from the message that was grown into this node
	props    []prop
	required []string
	left     []string // property names that are accepted but not described
	closed   bool     // additionalProperties: false
	items    *node
	keys     *node // propertyNames
	values   *node // additionalProperties
	extras   *node // patternProperties for extensions
	enum     []string
	anyOf    []*node
	choices  []choice
	facts    []fact // further keywords, encoded
	exact    []string
	target   *definition
	grow     *growth // not grown yet: a message that may be
	omit     bool    // cannot be said in the strict profile
	brief    string  // what it is in words, if it has to be left out
	rootless bool    // write "properties" even when there are none
}

type prop struct {
	name string
	node *node
}

type fact struct{ key, raw, words string }

// definition is one entry of "$defs".
type definition struct {
	name string
	node *node
	cut  bool
}

// growth says how a message node can be grown.
type growth struct {
	md    protoreflect.MessageDescriptor
	above *growth
	name  string // of the property, with "[]" for items
	depth int
	rank  int
	rest  string
	top   bool // the root of the schema, where clients take no unions
}

// choice is a group of properties of which at most one is set, or exactly one.
type choice struct {
	members  []string
	required bool
}

func (n *node) set(key, raw string) {
	for i := range n.facts {
		if n.facts[i].key == key {
			n.facts[i].raw = raw
			return
		}
	}
	n.facts = append(n.facts, fact{key: key, raw: raw})
}

func (n *node) has(key string) bool {
	for i := range n.facts {
		if n.facts[i].key == key {
			return true
		}
	}
	return false
}

func (n *node) say(s string) {
	if s == "" {
		return
	}
	n.desc = join(n.desc, s)
}

// join puts b behind a as a further sentence.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	case strings.ContainsAny(a[len(a)-1:], ".!?:;…"):
		return a + " " + b
	default:
		return a + ". " + b
	}
}

// omitted says whether the strict profile has to leave the property out.
func (n *node) omitted() bool {
	return n.omit || n.target != nil && n.target.cut || n.items != nil && n.items.omitted()
}

// briefly returns what a property is that is left out, in brackets.
func (n *node) briefly() string {
	switch {
	case n.brief != "":
		return " (" + n.brief + ")"
	case n.items != nil && n.items.brief != "":
		return " (array of: " + n.items.brief + ")"
	case n.target != nil:
		return " (" + n.target.name + ")"
	}
	return ""
}

// definitions returns what the node refers to.
func (n *node) definitions() []*definition {
	var ds []*definition
	for _, m := range []*node{n, n.items, n.values} {
		if m != nil && m.target != nil {
			ds = append(ds, m.target)
		}
	}
	return ds
}
