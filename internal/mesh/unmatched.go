package mesh

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/toolschema"
)

// selector is a part of the configuration that names methods.
type selector struct {
	where string
	match Match
	// mesh says that patterns without the mesh's package are for its own API too, as those of limits are and those of rules are not.
	mesh bool
}

// selectors are those that the catalog does not check itself.
func (c *Config) selectors() []selector {
	var out []selector
	add := func(where string, m Match) {
		if len(m.Methods) > 0 || m.Backend != "" || len(m.Labels) > 0 {
			out = append(out, selector{where: where, match: m})
		}
	}
	addPatterns := func(where string, patterns []string) {
		if len(patterns) > 0 {
			out = append(out, selector{where: where, match: Match{Methods: patterns}, mesh: true})
		}
	}
	for i, r := range c.Rules.List {
		add(fmt.Sprintf("rules.list[%d] (%s).match", i, r.Name), r.Match)
	}
	for i, t := range c.Rules.Tenants {
		add(fmt.Sprintf("rules.tenants[%d].match", i), t.Match)
	}
	for i, l := range c.Limits.Methods {
		addPatterns(fmt.Sprintf("limits.methods[%d]", i), l.Methods)
	}
	for i, h := range c.Attempts.Hedge {
		addPatterns(fmt.Sprintf("attempts.hedge[%d]", i), h.Methods)
	}
	addPatterns("idempotency.methods", c.Idempotency.Methods)
	return out
}

// Unmatched says what in the configuration names methods, backends or labels of which there are none now, with what was probably meant. What a
// backend whose contract is not known would have is not known.
func (m *Mesh) Unmatched() []string {
	s := m.catalog.Snapshot()
	var out []string
	for _, sel := range m.config.selectors() {
		for _, problem := range sel.unmatched(s) {
			out = append(out, fmt.Sprintf("%s: %s; what it says is not kept", sel.where, problem))
		}
	}
	for i, r := range m.config.DataFlow.Rules {
		if problem := unmatchedLabel(s, r.From); problem != "" {
			out = append(out, fmt.Sprintf("data_flow.rules[%d].from.label: %s; what it says is not kept", i, problem))
		}
	}
	return out
}

// unmatched says what is wrong with a selector: each pattern is to name a method.
func (sel *selector) unmatched(s *catalog.Snapshot) []string {
	backend, labels := sel.match.Backend, sel.match.Labels
	if names := backendNames(s); backend != "" && !slices.Contains(names, backend) {
		return []string{fmt.Sprintf("there is no backend %q%s", backend, near(backend, slices.Values(names)))}
	}
	if !contractKnown(s, backend) {
		return nil
	}
	of := ""
	if backend != "" {
		of += fmt.Sprintf(" of backend %q", backend)
	}
	if len(labels) > 0 {
		of += " with label " + strings.Join(labels, " or ")
	}
	hit := func(patterns ...string) bool {
		if sel.mesh {
			return slices.ContainsFunc(s.Methods(), func(m *catalog.Method) bool { return matchesMethod(patterns, m.FullMethod) })
		}
		match, err := (&Match{Methods: patterns, Backend: backend, Labels: labels}).matcher("")
		return err != nil || match == nil || slices.ContainsFunc(s.Methods(), match)
	}
	if len(sel.match.Methods) == 0 {
		if hit() {
			return nil
		}
		return []string{"it names no method" + of}
	}
	var out []string
	for _, p := range sel.match.Methods {
		if !hit(p) {
			out = append(out, fmt.Sprintf("%q names no method%s%s", p, of, near(strings.TrimPrefix(p, "/"), methodNames(s))))
		}
	}
	return out
}

// unmatchedLabel says that no field of what the backends give has the label of a rule about the flow of data.
func unmatchedLabel(s *catalog.Snapshot, from DataFlowFrom) string {
	if from.Label == "*" || from.Label == "" {
		return ""
	}
	labels := map[string]bool{}
	for _, m := range s.Methods() {
		if len(from.Backends) == 0 || slices.Contains(from.Backends, m.Backend.Name) {
			gather(m.Sensitive(toolschema.Output), labels, map[*catalog.FieldSet]bool{})
		}
	}
	all := slices.Collect(func(yield func(string) bool) {
		for l := range labels {
			if !yield(l) {
				return
			}
		}
	})
	slices.Sort(all)
	switch {
	case labels[from.Label], len(from.Backends) == 0 && !contractKnown(s, ""), slices.ContainsFunc(from.Backends, func(b string) bool { return !contractKnown(s, b) }):
		return ""
	}
	return fmt.Sprintf("no field of a reply has the label %q%s", from.Label, near(from.Label, slices.Values(all)))
}

// gather collects the labels of fields, "sensitive" for those without one.
func gather(s *catalog.FieldSet, labels map[string]bool, seen map[*catalog.FieldSet]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, m := range s.Marks() {
		switch {
		case m.Label != "":
			labels[m.Label] = true
		case m.Sensitive:
			labels["sensitive"] = true
		}
		gather(m.Within, labels, seen)
	}
}

func backendNames(s *catalog.Snapshot) []string {
	var out []string
	for _, b := range s.Backends() {
		out = append(out, b.Name)
	}
	return out
}

// contractKnown says whether the contract of the backend, "" being all, has been read.
func contractKnown(s *catalog.Snapshot, backend string) bool {
	return !slices.ContainsFunc(s.Backends(), func(b *catalog.Backend) bool {
		return (backend == "" || b.Name == backend) && b.State == catalog.Down && !slices.ContainsFunc(s.Services(), func(svc *catalog.Service) bool { return svc.Backend == b })
	})
}

func methodNames(s *catalog.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, svc := range s.Services() {
			if !svc.Infrastructure && !yield(string(svc.Desc.FullName())) {
				return
			}
		}
		for _, m := range s.Methods() {
			if !m.Service.Infrastructure && !yield(m.FullMethod[1:]) {
				return
			}
		}
	}
}

// near is a hint at what was probably meant, or "".
func near(name string, names iter.Seq[string]) string {
	if n := nearmiss.Find(name, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}
