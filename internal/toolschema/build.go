package toolschema

import (
	"encoding/json"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// plan says how much is told. Plans are tried from rich to poor until everything fits.
type plan struct {
	fieldRunes int  // of a field's comment
	oneLine    bool // only its first sentence
	enumRunes  int  // of the comments of an enum's values
	repeats    int  // how often a message may stand inside itself
	once       bool // a message is told where it stands first, and named where it stands again
	share      int  // the plan is taken if the schema fits into the budget divided by this
}

// The first plans are for small schemas only: every tool of a list costs the agent its bytes.
var plans = []plan{
	{fieldRunes: 512, enumRunes: 400, repeats: 2, share: 4},
	{fieldRunes: 512, enumRunes: 400, repeats: 1, share: 2},
	{fieldRunes: 512, enumRunes: 400, repeats: 1, once: true, share: 2},
	{fieldRunes: 160, oneLine: true, enumRunes: 120, repeats: 1, once: true, share: 1},
	{fieldRunes: 80, oneLine: true, repeats: 1, once: true, share: 1},
	{repeats: 1, once: true, share: 1},
}

// builder makes one schema by one plan.
type builder struct {
	o        Options
	plan     plan
	limit    int // of bytes, by this plan
	pending  []*node
	enc      encoder
	defs     []*definition
	byType   map[protoreflect.FullName]*definition
	grown    map[protoreflect.FullName]*growth // where a message stands first
	comments map[protoreflect.Descriptor]string
}

func newBuilder(o Options) *builder {
	return &builder{o: o, comments: map[protoreflect.Descriptor]string{}, enc: encoder{strict: o.Profile == Strict, lone: o.Profile == Portable && o.Direction == Input, output: o.Direction == Output}}
}

func (b *builder) reset(p plan) {
	b.plan, b.pending, b.defs = p, b.pending[:0], nil
	b.limit = b.o.MaxBytes / p.share
	b.byType = map[protoreflect.FullName]*definition{}
	b.grown = map[protoreflect.FullName]*growth{}
}

// inlined makes a schema without references: every message stands where it is used, and recursion ends in a stated rest.
func inlined(md protoreflect.MessageDescriptor, o Options) json.RawMessage {
	b := newBuilder(o)
	var top *node
	for i, p := range plans {
		b.reset(p)
		last := i == len(plans)-1
		top = b.top(md)
		size := b.size(top)
		if size > b.limit {
			if !last {
				continue
			}
			b.trim(top, &size)
		}
		if b.growAll(&size, last) {
			break
		}
	}
	return b.encode(top)
}

// top returns the root node, with its own properties and nothing below.
func (b *builder) top(md protoreflect.MessageDescriptor) *node {
	g := &growth{md: md, top: b.o.List == ""}
	root := b.message(md, g)
	if b.o.List == "" {
		root.rootless = true
		if root.desc == "" { // else it says what JSON form of its own the message has
			root.desc = b.text(md, b.plan.fieldRunes)
		}
		return root
	}
	g.depth, g.name = 1, b.o.List+"[]"
	list := &node{kind: "array", items: root}
	top := &node{kind: "object", props: []prop{{b.o.List, list}}, closed: b.o.Profile == Strict}
	if b.o.Profile == Strict && b.o.Direction == Input {
		top.required = []string{b.o.List}
	}
	return top
}

// body returns the node of the message itself below top.
func (b *builder) body(top *node) *node {
	if b.o.List == "" {
		return top
	}
	return top.props[0].node.items
}

// growAll grows the pending messages, level by level and required ones first, as far as the budget goes.
// Unless last, it stops and returns false at the first that does not fit.
func (b *builder) growAll(size *int, last bool) bool {
	whole := true
	for len(b.pending) > 0 {
		level := b.pending
		b.pending = nil
		slices.SortStableFunc(level, func(x, y *node) int { return x.grow.rank - y.grow.rank })
		for _, n := range level {
			if b.growOne(n, size) {
				continue
			}
			whole = false
			if !last {
				return false
			}
		}
	}
	return whole
}

// growOne puts the properties of a message into its node, if they fit.
func (b *builder) growOne(n *node, size *int) bool {
	g, waiting := n.grow, len(b.pending)
	before := b.size(n)
	grown := b.message(g.md, g)
	grown.desc, grown.nullable, grown.facts, grown.words = n.desc, n.nullable, append(n.facts, grown.facts...), append(n.words, grown.words...)
	more := b.size(grown) - before
	const little = 160 // bytes that may as well be said again
	if first := b.grown[g.md.FullName()]; b.plan.once && first != nil && more > little {
		b.pending = b.pending[:waiting]
		rest := g.rest
		g.rest = "The same keys as at " + first.path() + "."
		if more = b.size(n) - before; *size+more > b.limit {
			g.rest = rest
			return true
		}
		*size += more
		return true
	}
	if *size+more > b.limit {
		b.pending = b.pending[:waiting]
		return false
	}
	*size += more
	*n = *grown
	if b.grown[g.md.FullName()] == nil {
		b.grown[g.md.FullName()] = g
	}
	return true
}

// path says where a message stands, as "a.b[].c".
func (g *growth) path() string {
	if g.above == nil {
		return g.name
	}
	if above := g.above.path(); above != "" {
		return above + "." + g.name
	}
	return g.name
}

// trim leaves out properties of a root that is too large by itself: optional ones, from the end.
func (b *builder) trim(top *node, size *int) {
	root := b.body(top)
	sizes := make([]int, len(root.props))
	own, seen := 0, map[*definition]bool{}
	for i, p := range root.props {
		sizes[i] = len(p.name) + len(`"":,`) + b.size(p.node)
		own += sizes[i]
		for _, d := range p.node.definitions() {
			sizes[i] += b.defSize(d)
			if !seen[d] {
				own += b.defSize(d)
			}
			seen[d] = true
		}
	}
	const words = 660 // for the sentence that names what is left out
	keep := make([]bool, len(root.props))
	budget := b.limit - words - (*size - own)
	for _, must := range []bool{true, false} {
		for i, p := range root.props {
			if slices.Contains(root.required, p.name) == must && sizes[i] <= budget {
				keep[i] = true
				budget -= sizes[i]
			}
		}
	}
	b.keep(root, keep)
	*size = b.total(top)
	if *size <= b.limit {
		return
	}
	root.desc, root.words, root.left = strconv.Itoa(len(keep))+" keys are accepted but left out here for size.", nil, nil
	b.keep(root, make([]bool, len(root.props)))
	root.left = nil
	*size = b.total(top)
}

// keep drops all other properties of the root, and what only they needed.
func (b *builder) keep(root *node, keep []bool) {
	var props []prop
	used := map[*definition]bool{}
	for i, p := range root.props {
		if keep[i] {
			props = append(props, p)
			for _, d := range p.node.definitions() {
				used[d] = true
			}
			continue
		}
		root.left = append(root.left, p.name)
		root.required = slices.DeleteFunc(root.required, func(s string) bool { return s == p.name })
		b.forget(p.node)
	}
	root.closed = root.closed && (len(props) == len(root.props) || b.o.Profile == Strict)
	root.props, root.choices = props, nil
	b.defs = slices.DeleteFunc(b.defs, func(d *definition) bool {
		if !used[d] {
			delete(b.byType, protoreflect.FullName(d.name))
		}
		return !used[d]
	})
}

// forget takes a node that was dropped off the pending list.
func (b *builder) forget(n *node) {
	b.pending = slices.DeleteFunc(b.pending, func(p *node) bool { return p == n || p == n.items || p == n.values })
}

func (b *builder) size(n *node) int {
	b.enc.buf = b.enc.buf[:0]
	b.enc.node(n)
	return len(b.enc.buf)
}

// total is the size of the schema with its definitions as they are now.
func (b *builder) total(top *node) int {
	size := b.size(top)
	if len(b.defs) > 0 {
		size += len(`,"$defs":{}`)
	}
	for _, d := range b.defs {
		size += b.defSize(d)
	}
	return size
}

func (b *builder) encode(top *node) json.RawMessage {
	b.enc.buf = make([]byte, 0, b.size(top)+64)
	b.enc.node(top)
	if len(b.defs) == 0 {
		return b.enc.buf
	}
	open := false
	for _, d := range b.defs {
		if d.cut && b.enc.strict {
			continue
		}
		if !open {
			b.enc.buf = append(b.enc.buf[:len(b.enc.buf)-1], `,"$defs":{`...)
			open = true
		} else {
			b.enc.buf = append(b.enc.buf, ',')
		}
		b.enc.buf = appendString(b.enc.buf, d.name)
		b.enc.buf = append(b.enc.buf, ':')
		b.enc.node(d.node)
	}
	if open {
		b.enc.buf = append(b.enc.buf, '}', '}')
	}
	return b.enc.buf
}

// referenced makes a schema with a definition for each message.
func referenced(md protoreflect.MessageDescriptor, o Options) json.RawMessage {
	limit := o.MaxBytes
	b := newBuilder(o)
	for i := 0; ; {
		b.reset(plans[i])
		last := i == len(plans)-1
		top := b.top(md)
		size := b.total(top)
		if size > b.limit && last {
			b.trim(top, &size)
		}
		if size <= b.limit && b.defineAll(size, last) || last {
			out := b.encode(top)
			over := len(out) - limit
			if over <= 0 || b.o.MaxBytes <= over {
				return out
			}
			// Naming what was left out took more room than was planned for.
			b.o.MaxBytes -= over + over/4
		}
		if !last {
			i++
		}
	}
}

// defineAll grows the definitions in the order in which they were first needed, as far as the budget goes.
func (b *builder) defineAll(size int, last bool) bool {
	whole := true
	for i := 0; i < len(b.defs); i++ {
		d := b.defs[i]
		known := len(b.defs)
		grown := b.message(d.node.grow.md, d.node.grow)
		after := b.size(grown) - b.size(d.node)
		for _, more := range b.defs[known:] {
			after += b.defSize(more)
		}
		if size+after <= b.limit {
			size += after
			d.node = grown
			continue
		}
		if !last {
			return false
		}
		whole = false
		d.cut = true
		for _, more := range b.defs[known:] {
			delete(b.byType, protoreflect.FullName(more.name))
		}
		b.defs = b.defs[:known]
	}
	return whole
}

func (b *builder) defSize(d *definition) int { return len(d.name) + len(`"":,`) + b.size(d.node) }

// text returns a comment as the plan wants it, of at most limit runes.
func (b *builder) text(d protoreflect.Descriptor, limit int) string {
	return b.fieldText(d, limit, behaviour{})
}

// fieldText is text without what the schema says anyway.
func (b *builder) fieldText(d protoreflect.Descriptor, limit int, said behaviour) string {
	if limit == 0 {
		return ""
	}
	s, ok := b.comments[d]
	if !ok {
		s = clean(rawComment(d))
		b.comments[d] = s
	}
	s = said.trim(s)
	if b.plan.oneLine {
		s = firstSentence(s)
	}
	return shorten(s, limit)
}
