package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones of rules, where the system has none

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/rules"
)

// Rules are what the operator lets callers do, beyond scopes.
type Rules struct {
	// Default is what holds where no rule decides: "allow" or "deny". Default allow.
	Default string `yaml:"default"`
	// Hide hides what, with default: deny, no rule can allow a caller.
	Hide bool `yaml:"hide"`
	// Zone is where hours and weekdays are: a name such as Europe/Berlin. Default UTC.
	Zone string `yaml:"zone"`
	// List are the rules. Their order does not matter: what one denies is denied.
	List []Rule `yaml:"list"`
	// Tenants give methods to tenants.
	Tenants []TenantRule `yaml:"tenants"`
}

// Rule is one rule.
type Rule struct {
	// Name identifies the rule. Required.
	Name string `yaml:"name"`
	// Match says which methods. Default: all.
	Match Match `yaml:"match"`
	// When is a CEL expression. Default: always.
	When string `yaml:"when"`
	// Effect is "deny" or "allow". Default deny.
	Effect string `yaml:"effect"`
	// Message tells the caller why it was refused.
	Message string `yaml:"message"`
	// Hide hides the method from those whom the rule denies.
	Hide bool `yaml:"hide"`
}

// TenantRule says whose methods are. No other tenant knows of them.
type TenantRule struct {
	// Match says which methods. Required.
	Match Match `yaml:"match"`
	// Tenants are whose they are. Required.
	Tenants Strings `yaml:"tenants"`
}

var effects = []string{"allow", "deny"}

// set checks the rules and makes them ready; nil if there are none. backends may belong to tenants too.
func (r *Rules) set(backends []Backend) (*rules.Set, error) {
	c := rules.Config{Hide: r.Hide, Zone: time.UTC}
	if r.Default != "" && !slices.Contains(effects, r.Default) {
		return nil, fmt.Errorf("rules.default %q: want %s%s", r.Default, strings.Join(effects, " or "), meant(r.Default, effects))
	}
	c.Deny = r.Default == "deny"
	if r.Zone != "" {
		zone, err := time.LoadLocation(r.Zone)
		if err != nil || r.Zone == "Local" {
			return nil, fmt.Errorf("rules.zone %q: there is no such zone; write it as in Europe/Berlin", r.Zone)
		}
		c.Zone = zone
	}
	for i, rule := range r.List {
		where := fmt.Sprintf("rules.list[%d]", i)
		if rule.Name != "" {
			where += fmt.Sprintf(" (%s)", rule.Name)
		}
		match, err := rule.Match.matcher(where)
		if err != nil {
			return nil, err
		}
		if rule.Effect != "" && !slices.Contains(effects, rule.Effect) {
			return nil, fmt.Errorf("%s: effect %q: want %s%s", where, rule.Effect, strings.Join(effects, " or "), meant(rule.Effect, effects))
		}
		c.Rules = append(c.Rules, rules.Rule{Name: rule.Name, Match: match, When: rule.When, Allow: rule.Effect == "allow", Message: rule.Message, Hide: rule.Hide})
	}
	for i, t := range r.Tenants {
		where := fmt.Sprintf("rules.tenants[%d]", i)
		match, err := t.Match.matcher(where)
		switch {
		case err != nil:
			return nil, err
		case match == nil:
			return nil, fmt.Errorf(`%s: match is missing: say which methods, as in match: "pkg.Service/*"`, where)
		case len(t.Tenants) == 0 || slices.Contains(t.Tenants, ""):
			return nil, fmt.Errorf("%s: tenants is missing, or holds an empty name: say whose methods they are", where)
		}
		c.Tenancies = append(c.Tenancies, rules.Tenancy{Match: match, Tenants: t.Tenants})
	}
	for _, b := range backends {
		if len(b.Tenants) > 0 {
			c.Tenancies = append(c.Tenancies, rules.Tenancy{Match: func(m *catalog.Method) bool { return m.Backend.Name == b.Name }, Tenants: b.Tenants})
		}
	}
	if len(c.Rules)+len(c.Tenancies) == 0 && !c.Deny && !c.Hide {
		return nil, nil
	}
	set, err := rules.New(c)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return set, nil
}

// matcher returns what says which methods are meant; nil, all of them, for an empty match. The mesh's own API is meant only where it is named, by a
// pattern that begins with its package or as the backend.
func (m *Match) matcher(where string) (func(*catalog.Method) bool, error) {
	var patterns []catalog.Pattern
	for _, text := range m.Methods {
		p, err := catalog.ParsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("%s: match: %w", where, err)
		}
		patterns = append(patterns, p)
	}
	if len(patterns) == 0 && m.Backend == "" && len(m.Labels) == 0 {
		return nil, nil
	}
	backend, labels := m.Backend, slices.Clone(m.Labels)
	return func(of *catalog.Method) bool {
		// A rule for all must not shut out those who would have to mend it, or who approve.
		if of.Service.Mesh && backend != own && !slices.ContainsFunc(patterns, func(p catalog.Pattern) bool { return p.NamesMesh() && p.Match(of.FullMethod) }) {
			return false
		}
		if backend != "" && of.Backend.Name != backend {
			return false
		}
		if len(labels) > 0 && !slices.ContainsFunc(of.Policy.Labels, func(l string) bool { return slices.Contains(labels, l) }) {
			return false
		}
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p catalog.Pattern) bool { return p.Match(of.FullMethod) })
	}, nil
}

// watchRules tells in the log which rules do not fit the methods that there are, so that their calls are refused, and what in the configuration
// names nothing.
func (m *Mesh) watchRules(ctx context.Context) {
	told := map[string]bool{}
	if m.catalog.Ready(ctx) != nil {
		return // ctx has ended
	}
	for s := range m.catalog.Watch(ctx) {
		for _, p := range m.rules.Check(s) {
			if text := p.Error(); !told[text] {
				told[text] = true
				m.log.Error("a rule does not fit", "rule", p.Rule, "method", p.Method.FullMethod, "error", p.Err)
			}
		}
		for _, text := range m.Unmatched() {
			if !told[text] {
				told[text] = true
				m.log.Error("the configuration names nothing", "code", "policy-unmatched", "error", text)
			}
		}
	}
}

// CheckRules returns what is wrong with rules for the methods that there are now.
func (m *Mesh) CheckRules() []rules.Problem {
	return m.rules.Check(m.catalog.Snapshot())
}
