package gateway

import (
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/toolway/toolway/internal/catalog"
)

// index finds the routes of a path without scanning them: one tree of segments for each verb (":read"). In a tree every node is
// visited at most once per lookup. Literals come before "*", and "*" before "**".
type index struct {
	trees map[string]*node
}

type node struct {
	literals map[string]*node
	single   *node
	deep     []tail // in the order of preference
	routes   []*route
}

// tail is what follows a "**": n segments, in a tree of their own. One with a literal is preferred to none, and none to one of wildcards
// alone, which would take every path of the bare "**" (google/api/http.proto does not allow those, yet some public APIs have them).
type tail struct {
	n       int
	literal bool
	tree    *node
}

func (t tail) before(o tail) bool {
	switch {
	case t.literal != o.literal:
		return t.literal
	case !t.literal && (t.n == 0) != (o.n == 0):
		return t.n == 0
	}
	return t.n > o.n
}

// add puts r into the index, or returns the route that has its place already.
func (x *index) add(r *route) *route {
	if x.trees == nil {
		x.trees = map[string]*node{}
	}
	n := x.trees[r.template.verb]
	if n == nil {
		n = &node{}
		x.trees[r.template.verb] = n
	}
	for i, s := range r.template.segments {
		n = n.child(s, r.template.segments[i+1:])
	}
	for _, other := range n.routes {
		if other.verb == r.verb {
			return other
		}
	}
	n.routes = append(n.routes, r)
	return nil
}

func (n *node) child(s segment, after []segment) *node {
	switch s.kind {
	case single:
		if n.single == nil {
			n.single = &node{}
		}
		return n.single
	case deep:
		want := tail{n: len(after), literal: slices.ContainsFunc(after, func(s segment) bool { return s.kind == literal }), tree: &node{}}
		for _, t := range n.deep {
			if t.n == want.n && t.literal == want.literal {
				return t.tree
			}
		}
		n.deep = append(n.deep, want)
		sort.Slice(n.deep, func(i, j int) bool { return n.deep[i].before(n.deep[j]) })
		return want.tree
	default:
		c := n.literals[s.text]
		if c == nil {
			if n.literals == nil {
				n.literals = map[string]*node{}
			}
			c = &node{}
			n.literals[s.text] = c
		}
		return c
	}
}

// match is a route with the values of its variables, decoded, in the order of route.template.vars.
type match struct {
	*route
	values []string
}

// lookup finds the route of an HTTP method and an escaped path. For HEAD without one of its own it is that of GET, if its answer has an end.
// room may have room for the values.
func (x *index) lookup(method, path string, room []string) (match, bool) {
	s := search{method: method, room: room}
	x.walk(path, &s)
	if s.found.route == nil && method == http.MethodHead {
		s.method = http.MethodGet
		if x.walk(path, &s); s.found.route != nil && s.found.method.Kind().Server {
			return match{}, false
		}
	}
	return s.found, s.found.route != nil
}

// allMethods are those of a route for any method, sorted.
var allMethods = []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut}

// allowed returns the HTTP methods that have a route at the path, sorted. Only routes of methods that are shown count, all if shown is nil.
func (x *index) allowed(path string, shown func(*catalog.Method) bool) []string {
	s := search{all: map[string]bool{}, shown: shown}
	x.walk(path, &s)
	if m, ok := x.lookup(http.MethodHead, path, nil); ok && (shown == nil || shown(m.method)) {
		s.all[http.MethodHead] = true
	}
	out := make([]string, 0, len(s.all))
	for v := range s.all {
		out = append(out, v)
	}
	sort.Strings(out)
	return out
}

func (x *index) walk(path string, s *search) {
	path, ok := strings.CutPrefix(path, "/")
	if !ok {
		return
	}
	s.path = normalise(path)
	var room [16]string // for most paths, so that they cost no allocation; a field of s would
	comps := room[:0]
	for comp := range strings.SplitSeq(s.path, "/") {
		comps = append(comps, comp)
	}
	last := comps[len(comps)-1]
	for i := 1; i < len(last); i++ {
		if last[i] != ':' {
			continue
		}
		if tree := x.trees[last[i+1:]]; tree != nil && last[i+1:] != "" {
			comps[len(comps)-1] = last[:i]
			if s.walk(tree, comps, 0) {
				return
			}
		}
	}
	comps[len(comps)-1] = last
	if tree := x.trees[""]; tree != nil {
		s.walk(tree, comps, 0)
	}
}

type search struct {
	method string
	path   string // without the slash at its start, normalised
	found  match
	room   []string        // for the values of found
	all    map[string]bool // if not nil, methods are gathered and nothing is found
	shown  func(*catalog.Method) bool
}

// walk reports whether it found a route below n for the rest of the path, which begins at that of its components. The last is without the verb that
// is tried.
func (s *search) walk(n *node, comps []string, at int) bool {
	if at == len(comps) {
		if s.take(n, comps) {
			return true
		}
	} else {
		if c := n.literals[comps[at]]; c != nil && s.walk(c, comps, at+1) {
			return true
		}
		if n.single != nil && comps[at] != "" && s.walk(n.single, comps, at+1) {
			return true
		}
	}
	for _, t := range n.deep {
		if tail := len(comps) - t.n; tail >= at && s.walk(t.tree, comps, tail) {
			return true
		}
	}
	return false
}

func (s *search) take(n *node, comps []string) bool {
	if s.all != nil {
		for _, r := range n.routes {
			s.gather(r)
		}
		return false
	}
	r := n.route(s.method)
	if r == nil {
		return false
	}
	values := s.room[:0]
	for i := range r.template.vars {
		v := &r.template.vars[i]
		values = append(values, v.decodeValue(s.value(r.template, v, comps)))
	}
	s.found = match{route: r, values: values}
	return true
}

// value is what a variable stands for in the path, which the template takes, as it is there.
func (s *search) value(t *template, v *variable, comps []string) string {
	from, to := v.from, v.to
	if more := len(comps) - len(t.segments); more != 0 { // "**" takes so many more than one, or none
		at := slices.IndexFunc(t.segments, func(s segment) bool { return s.kind == deep })
		if more < 0 && from <= at && at < to { // nothing, between slashes
			return strings.Join(slices.Insert(slices.Clone(comps), at, "")[from:to], "/")
		}
		if at < from {
			from += more
		}
		if at < to {
			to += more
		}
	}
	begin := from // the slashes
	for _, comp := range comps[:from] {
		begin += len(comp)
	}
	end := begin + to - from - 1
	for _, comp := range comps[from:to] {
		end += len(comp)
	}
	return s.path[begin:end]
}

func (s *search) gather(r *route) {
	if s.shown != nil && !s.shown(r.method) {
		return
	}
	if r.verb == anyMethod {
		for _, v := range allMethods {
			s.all[v] = true
		}
		return
	}
	s.all[r.verb] = true
}

// route returns the node's route for an HTTP method: its own, else one of any method ("*").
func (n *node) route(method string) *route {
	var wild *route
	for _, r := range n.routes {
		switch r.verb {
		case method:
			return r
		case anyMethod:
			wild = r
		}
	}
	return wild
}
