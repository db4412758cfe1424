package verify

import (
	"math/rand/v2"
	"slices"
)

const (
	maxNesting = 12  // of objects and lists in an instance, where nothing more is required
	maxDeep    = 80  // in the one that nests as deep as it may
	maxForced  = 90  // even where it is required
	maxValues  = 400 // in one instance, where nothing more is required
)

// maker makes instances of a tree: first those that have every value of every leaf, every option and every shape once, then one that
// nests as deep as it may, then random ones.
type maker struct {
	t      *tree
	rng    *rand.Rand
	random bool
	deep   bool
	budget int
}

func newMaker(t *tree, seed uint64) *maker { return &maker{t: t, rng: rand.New(rand.NewPCG(seed, 5))} }

// systematic yields instances until everything was made once, at most most of them.
func (m *maker) systematic(most int, yield func(value) bool) {
	m.random = false
	for range most {
		if !m.t.look() {
			return
		}
		before := m.t.made()
		v, ok := m.one()
		if !ok || !yield(v) || m.t.made() == before {
			return
		}
	}
}

func (t *tree) made() (sum int) {
	for _, n := range t.nodes {
		sum += n.made
	}
	return sum
}

// deepest returns an instance that follows what leads back to itself, and nothing else; false if nothing does.
func (m *maker) deepest() (value, bool) {
	cyclic := false
	for _, n := range m.t.nodes {
		n.cyclic = n.leadsBack()
		cyclic = cyclic || n.cyclic
	}
	if !cyclic {
		return value{}, false
	}
	m.random, m.deep = false, true
	defer func() { m.deep = false }()
	return m.one()
}

// leadsBack says whether n is on, or leads to, a cycle.
func (n *node) leadsBack() bool {
	const (
		open = iota + 1
		closed
	)
	state := map[*node]int{}
	var visit func(n *node) bool
	visit = func(n *node) bool {
		state[n] = open
		for _, c := range n.children() {
			if state[c] == open || state[c] == 0 && visit(c) {
				return true
			}
		}
		state[n] = closed
		return false
	}
	return visit(n)
}

// any returns a random instance.
func (m *maker) any() (value, bool) {
	m.random = true
	return m.one()
}

func (m *maker) one() (value, bool) {
	m.budget = maxValues
	return m.value(m.t.root, 0)
}

func (m *maker) value(n *node, depth int) (value, bool) {
	m.budget--
	if depth > maxForced || m.budget < -maxValues {
		return value{}, false
	}
	switch n.kind {
	case object:
		if n.extra != nil {
			return m.dictionary(n, depth)
		}
		return m.object(n, depth)
	case array:
		return m.array(n, depth)
	case union:
		return m.option(n, depth)
	}
	if len(n.leaves) == 0 {
		return value{}, false
	}
	i := min(n.made, len(n.leaves)-1)
	if n.made >= len(n.leaves) {
		i = min(1, len(n.leaves)-1) // the first ones are short
	}
	if m.random {
		i = m.rng.IntN(len(n.leaves))
	}
	n.made++
	return n.leaves[i], true
}

// follow is value, but goes deep only where nothing beside it did.
func (m *maker) follow(n *node, depth int, followed bool) (value, bool) {
	if !m.deep || !followed {
		return m.value(n, depth)
	}
	m.deep = false
	defer func() { m.deep = true }()
	return m.value(n, max(depth, maxNesting))
}

// must says that nothing optional may be added any more.
func (m *maker) must(depth int) bool {
	if m.deep {
		return depth >= maxDeep
	}
	return depth >= maxNesting || m.budget <= 0
}

func (m *maker) option(n *node, depth int) (value, bool) {
	if n.null && m.must(depth) {
		return raw("null"), true
	}
	first := 0
	switch {
	case m.random:
		first = m.rng.IntN(len(n.options))
	case m.deep:
		first = max(0, slices.IndexFunc(n.options, func(o *node) bool { return o.cyclic }))
	case n.left() > 0:
		first = n.made
	default:
		for i, o := range n.options {
			if o.wants && (o.kind != leaf || o.left() > 0) {
				first = i
				break
			}
		}
	}
	n.made++
	for i := range n.options {
		if v, ok := m.value(n.options[(first+i)%len(n.options)], depth); ok {
			return v, true
		}
	}
	return value{}, false
}

func (m *maker) object(n *node, depth int) (value, bool) {
	bare := m.must(depth)
	if !m.random && !m.deep && n.made == 0 || m.random && m.rng.IntN(10) == 0 {
		bare = true
	}
	n.made++
	skip := m.choose(n, bare)
	out := value{shape: object}
	followed := false
	for _, p := range n.props {
		required := n.required[p.name]
		if skip[p.name] {
			if !required {
				continue
			}
			if p.node.null {
				out.names, out.list = append(out.names, p.name), append(out.list, raw("null"))
				continue
			}
		}
		if !required && (bare || followed || !m.adds(p.node)) && !m.picked(n, p.name, skip) {
			continue
		}
		if m.deep && required && p.node.null && (followed || !p.node.cyclic) {
			out.names, out.list = append(out.names, p.name), append(out.list, raw("null"))
			continue
		}
		v, ok := m.follow(p.node, depth+1, followed)
		followed = m.deep && (followed || p.node.cyclic)
		if !ok {
			if required {
				return value{}, false
			}
			continue
		}
		out.names, out.list = append(out.names, p.name), append(out.list, v)
	}
	return out, true
}

// adds says whether an optional property is worth having.
func (m *maker) adds(n *node) bool {
	switch {
	case m.deep:
		return n.cyclic
	case m.must(0):
		return false
	case m.random:
		return m.rng.IntN(2) == 0
	}
	return n.wants && (n.kind != leaf || n.left() > 0)
}

// picked says whether name was chosen in a group of which one has to be set.
func (m *maker) picked(n *node, name string, skip map[string]bool) bool {
	for _, g := range n.groups {
		for _, member := range g.members {
			if member == name && g.required && !skip[name] {
				return true
			}
		}
	}
	return false
}

// choose decides which member of each group is set, and returns the others.
func (m *maker) choose(n *node, bare bool) map[string]bool {
	skip := map[string]bool{}
	for _, g := range n.groups {
		chosen := ""
		if m.random {
			chosen = g.members[m.rng.IntN(len(g.members))]
		}
		for _, name := range g.members {
			p := n.prop(name)
			if n.required[name] && !p.null {
				chosen = name // the schema leaves no choice
				break
			}
			if chosen == "" && m.deep && p.cyclic {
				chosen = name
			}
			if chosen == "" && !bare && !m.deep && p.wants && (p.kind != leaf || p.left() > 0) && !skip[name] {
				chosen = name
			}
		}
		if chosen == "" && g.required {
			chosen = g.members[0]
		}
		for _, name := range g.members {
			if name != chosen {
				skip[name] = true
			}
		}
	}
	return skip
}

func (n *node) prop(name string) *node {
	for _, p := range n.props {
		if p.name == name {
			return p.node
		}
	}
	return &node{}
}

// length decides how many items or entries there are.
func (m *maker) length(n *node, depth int) int {
	count := n.low
	switch {
	case m.must(depth):
	case m.deep:
		count = max(count, 1)
	case m.random:
		count = max(count, m.rng.IntN(4))
	default:
		// None, one, several, then as many as there is something new for.
		switch i := n.made; {
		case i < shapes:
			count = max(count, []int{0, 1, 3}[i])
		case n.items != nil && n.items.kind == leaf:
			count = max(count, min(n.items.left(), 16))
		default:
			count = max(count, 2)
		}
	}
	n.made++
	if n.high >= 0 {
		count = min(count, n.high)
	}
	const longest = 2000
	return min(count, longest)
}

func (m *maker) array(n *node, depth int) (value, bool) {
	out := value{shape: array}
	seen := map[string]bool{}
	count := m.length(n, depth)
	for tries := 0; len(out.list) < count && tries < 3*count; tries++ {
		v, ok := m.follow(n.items, depth+1, len(out.list) > 0)
		if !ok {
			break
		}
		if n.unique {
			if s := v.String(); seen[s] {
				continue
			} else {
				seen[s] = true
			}
		}
		out.list = append(out.list, v)
	}
	return out, len(out.list) >= n.low
}

func (m *maker) dictionary(n *node, depth int) (value, bool) {
	out := value{shape: object}
	from := n.made
	count := min(m.length(n, depth), len(n.keys))
	for i := range count {
		v, ok := m.value(n.extra, depth+1)
		if !ok {
			break
		}
		out.names, out.list = append(out.names, n.keys[(from+i)%len(n.keys)]), append(out.list, v)
	}
	return out, len(out.list) >= n.low
}
