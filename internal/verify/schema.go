package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

type kind int

const (
	leaf   kind = iota // one of the values in leaves
	object             // props, or a map of extra
	array
	union // one of options
)

// node is one subschema as instances are made from it. Nodes of one definition are shared, so they may lead back to themselves.
type node struct {
	kind     kind
	leaves   []value
	options  []*node
	null     bool // null is one of the options
	props    []prop
	required map[string]bool
	groups   []group
	extra    *node // the values of a map
	keys     []string
	items    *node
	low      int // of entries or items
	high     int
	unique   bool

	made    int  // leaves, options or shapes that were made so far
	wants   bool // it, or something below it, has something that was not made yet
	cyclic  bool // it leads to something that leads back to itself
	parents []*node
}

type prop struct {
	name string
	node *node
}

// group is a set of properties of which one is set, or at most one.
type group struct {
	members  []string
	required bool
}

// shapes are the forms of a list: none, one, several.
const shapes = 3

// left says how many of its own values or shapes the node has yet to make.
func (n *node) left() int {
	switch n.kind {
	case leaf:
		return len(n.leaves) - n.made
	case union:
		return len(n.options) - n.made
	case array:
		return shapes - n.made
	}
	if n.extra != nil {
		return shapes + len(n.keys) - n.made
	}
	return 1 - n.made // the object with nothing optional in it
}

// tree is a schema, parsed to make instances from.
type tree struct {
	root  *node
	nodes []*node
	defs  map[string]any
	byRef map[string]*node
	types []string // type URLs that an Any may name
}

// parse reads a schema that toolschema derives. anyTypes are the messages that an Any may hold empty.
func parse(schema []byte, anyTypes []string) (*tree, error) {
	dec := json.NewDecoder(bytes.NewReader(schema))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil {
		return nil, err
	}
	t := &tree{byRef: map[string]*node{}, types: anyTypes}
	t.defs, _ = root["$defs"].(map[string]any)
	n, err := t.parse(root)
	if err != nil {
		return nil, err
	}
	t.root = n
	for _, n := range t.nodes {
		for _, c := range n.children() {
			c.parents = append(c.parents, n)
		}
	}
	return t, nil
}

func (n *node) children() []*node {
	out := slices.Clone(n.options)
	for _, p := range n.props {
		out = append(out, p.node)
	}
	for _, c := range []*node{n.extra, n.items} {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// look marks what still wants to be made, and says whether the root does.
func (t *tree) look() bool {
	var todo []*node
	for _, n := range t.nodes {
		if n.wants = n.left() > 0; n.wants {
			todo = append(todo, n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range n.parents {
			if !p.wants {
				p.wants = true
				todo = append(todo, p)
			}
		}
	}
	return t.root.wants
}

func (t *tree) add(n *node) *node {
	t.nodes = append(t.nodes, n)
	return n
}

func (t *tree) parse(s map[string]any) (*node, error) {
	if ref, ok := s["$ref"].(string); ok {
		return t.ref(ref)
	}
	desc, _ := s["description"].(string)
	if l, ok := s["anyOf"].([]any); ok {
		return t.union(l, desc)
	}
	if kinds, ok := s["type"].([]any); ok {
		each := make([]any, len(kinds))
		for i, k := range kinds {
			one := maps.Clone(s)
			one["type"] = k
			each[i] = one
		}
		return t.union(each, "")
	}
	n := t.add(&node{high: -1})
	switch s["type"] {
	case "object":
		return n, t.object(n, s, desc)
	case "array":
		return n, t.array(n, s)
	}
	n.leaves = leavesOf(s, desc)
	return n, nil
}

func (t *tree) ref(ref string) (*node, error) {
	if n := t.byRef[ref]; n != nil {
		return n, nil
	}
	name, _ := strings.CutPrefix(ref, "#/$defs/")
	def, ok := t.defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)].(map[string]any)
	if !ok {
		return nil, fmt.Errorf(`"$ref" to %q, which is not there`, ref)
	}
	holder := t.add(&node{kind: union})
	t.byRef[ref] = holder
	n, err := t.parse(def)
	if err != nil {
		return nil, err
	}
	holder.options = []*node{n}
	return holder, nil
}

// union parses the options of a union; desc stands beside them, and holds for those that say nothing themselves.
func (t *tree) union(l []any, desc string) (*node, error) {
	n := t.add(&node{kind: union})
	for _, o := range l {
		s, ok := o.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("an option of a union is %v, not a schema", o)
		}
		if s["type"] == "null" {
			n.null = true
		}
		if s["description"] == nil && desc != "" {
			s = maps.Clone(s)
			s["description"] = desc
		}
		c, err := t.parse(s)
		if err != nil {
			return nil, err
		}
		if c.kind != leaf || len(c.leaves) > 0 {
			n.options = append(n.options, c)
		}
	}
	if len(n.options) == 0 {
		n.kind = leaf
	}
	return n, nil
}

func (t *tree) object(n *node, s map[string]any, desc string) error {
	props, _ := s["properties"].(map[string]any)
	closed := s["additionalProperties"] == false // then nothing stands beside what is listed, whatever the words speak of
	if _, isAny := props["@type"]; len(props) == 0 && !closed || len(props) == 1 && isAny {
		if free := freeObject(desc, t.types); free != nil {
			n.leaves = free
			return nil
		}
	}
	n.kind = object
	n.low, n.high = intOf(s, "minProperties", 0), intOf(s, "maxProperties", -1)
	n.required = map[string]bool{}
	for _, name := range stringsOf(s["required"]) {
		n.required[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		p, ok := props[name].(map[string]any)
		if !ok {
			return fmt.Errorf("property %q is %v, not a schema", name, props[name])
		}
		c, err := t.parse(p)
		if err != nil {
			return err
		}
		n.props = append(n.props, prop{name, c})
	}
	n.groups = append(groupsInWords(desc, props), groupsInKeywords(s)...)
	if len(n.props) > 0 {
		return nil
	}
	if extra, ok := s["additionalProperties"].(map[string]any); ok {
		c, err := t.parse(extra)
		if err != nil {
			return err
		}
		names, _ := s["propertyNames"].(map[string]any)
		n.extra, n.keys = c, keysOf(names, desc)
		return nil
	}
	if keys, leaves := mapInWords(desc); len(leaves) > 0 {
		n.keys, n.extra = keys, t.add(&node{leaves: leaves})
	}
	return nil
}

// groupsInKeywords reads the oneOf of a group: every member by itself, and nothing if none has to be set.
func groupsInKeywords(s map[string]any) (out []group) {
	all, _ := s["allOf"].([]any)
	for _, one := range append([]any{s}, all...) {
		m, _ := one.(map[string]any)
		choices, _ := m["oneOf"].([]any)
		g := group{required: true}
		for _, c := range choices {
			c, _ := c.(map[string]any)
			if _, ok := c["not"]; ok {
				g.required = false
			}
			g.members = append(g.members, stringsOf(c["required"])...)
		}
		if len(g.members) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func (t *tree) array(n *node, s map[string]any) error {
	items, ok := s["items"].(map[string]any)
	if !ok { // any JSON values
		n.leaves = []value{raw(`[]`), raw(`[1,"a",true,{},[]]`)}
		return nil
	}
	n.kind = array
	n.low, n.high = intOf(s, "minItems", 0), intOf(s, "maxItems", -1)
	n.unique, _ = s["uniqueItems"].(bool)
	var err error
	n.items, err = t.parse(items)
	return err
}

func stringsOf(v any) (out []string) {
	l, _ := v.([]any)
	for _, e := range l {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func intOf(s map[string]any, key string, otherwise int) int {
	n, ok := s[key].(json.Number)
	if !ok {
		return otherwise
	}
	i, err := n.Int64()
	if err != nil {
		return otherwise
	}
	return int(i)
}

// compile compiles a schema as draft 2020-12, with formats asserted as many hosts do.
func compile(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	const url = "mem:///schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	return c.Compile(url)
}
