// Package rules decides about calls by rules that an operator writes in CEL, the Common Expression Language (https://cel.dev): who may call
// what, with which request, when, and who may know of what.
package rules

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// Rule is one rule. All rules that match a method are asked; their order does not matter.
type Rule struct {
	// Name identifies the rule in answers, audit and errors. Required, unique.
	Name string
	// Match says whose calls the rule is about. Nil means all methods but those of the mesh's own API.
	Match func(*catalog.Method) bool
	// When is a CEL expression over principal, method, request, time and door. Empty means always.
	When string
	// Allow makes it a rule that lets calls in, for a set whose default is to deny. Otherwise the rule denies.
	Allow bool
	// Message tells the caller why. Default: the rule's name.
	Message string
	// Hide hides the method from those whom the rule denies: it is not listed, and calling it is answered as if it were not there. Only
	// for rules that deny, and look neither at the request nor at the time.
	Hide bool
}

// Tenancy gives methods to tenants: no other principal may know of them.
type Tenancy struct {
	// Match says which methods. Nil means all.
	Match func(*catalog.Method) bool
	// Tenants are whose they are.
	Tenants []string
}

// Config is what a set is made of.
type Config struct {
	Rules []Rule
	// Deny denies what no rule allows. Health and reflection are served all the same, unless a rule denies them, and so is the mesh's own API, which its
	// scopes guard: of that only methods that a rule with Allow matches are denied to others.
	Deny bool
	// Hide, with Deny, hides methods that no rule can allow to a principal.
	Hide bool
	// Zone is where the hours and days of time are. Default UTC.
	Zone *time.Location
	// Tenancies are all kept: a method that several match belongs to the tenants that all of them name.
	Tenancies []Tenancy
}

// Set is a set of rules. It is immutable and safe for concurrent use.
type Set struct {
	config Config
	rules  []*rule
	key    *int // of catalog.Method.Memo
}

// rule is a rule as far as it can be made without knowing a method.
type rule struct {
	Rule
	uses
	program cel.Program // nil if When is empty, or uses the request: then it is made for each method
}

// New checks the rules and returns a set. What depends on the fields of a request is checked when the methods are known; see Check.
func New(c Config) (*Set, error) {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	s := &Set{config: c, key: new(int)}
	lang, err := newLanguage(nil)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range c.Rules {
		made, err := s.rule(lang, r)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("two rules are named %q: rename one", r.Name)
		}
		seen[r.Name] = true
		s.rules = append(s.rules, made)
	}
	switch {
	case c.Hide && !c.Deny:
		return nil, errors.New("hide hides what no rule allows, and by default all is allowed: say default: deny, or set hide on single rules")
	case c.Deny && !slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Allow }):
		return nil, errors.New("the default is to deny, and no rule allows anything: add a rule with effect: allow")
	}
	return s, nil
}

func (s *Set) rule(lang *language, r Rule) (*rule, error) {
	out := &rule{Rule: r}
	if r.Message == "" {
		out.Message = fmt.Sprintf("rule %q does not allow this call", r.Name)
	}
	switch {
	case r.Name == "":
		return nil, errors.New("it has no name")
	case r.Allow && !s.config.Deny:
		return nil, errors.New("it allows what is allowed already: say default: deny, or turn it into a rule that denies the rest")
	case r.Allow && r.Hide:
		return nil, errors.New("hide is for rules that deny")
	case r.When == "":
		return out, nil
	}
	ast, err := lang.compile(r.When)
	if err != nil {
		return nil, fmt.Errorf("when: %w", err)
	}
	out.uses = usesOf(ast)
	if r.Hide && (out.uses.request || out.time) {
		return nil, errors.New("hide is for rules about principal, method and door: what is listed cannot depend on a request or the time")
	}
	if !out.uses.request {
		out.program, err = lang.program(ast)
	}
	return out, err
}

// Method is what the rules say about one method's calls.
type Method struct {
	set       *Set
	method    *catalog.Method
	facts     *methodFacts
	deny      []bound // those that do not look at the request come first
	allow     []bound
	request   bool // some rule looks at the request
	byDefault bool // what no rule decides is allowed
	tenants   []string
	owned     bool // tenants count
}

// bound is a rule made for one method.
type bound struct {
	*rule
	program cel.Program
	err     error // why it cannot be asked
}

// For returns what the rules say about m's calls, or nil if they have nothing to say. It is made once per snapshot.
func (s *Set) For(m *catalog.Method) *Method {
	if s == nil {
		return nil
	}
	return m.Memo(s.key, func() any { return s.bind(m) }).(*Method)
}

func (s *Set) bind(m *catalog.Method) *Method {
	out := &Method{set: s, method: m, facts: factsOf(m), byDefault: !s.config.Deny || m.Service.Infrastructure}
	covers := func(match func(*catalog.Method) bool) bool {
		return match == nil && !m.Service.Mesh || match != nil && match(m)
	}
	for _, t := range s.config.Tenancies {
		if !covers(t.Match) {
			continue
		}
		if !out.owned {
			out.owned, out.tenants = true, slices.Clone(t.Tenants)
			continue
		}
		out.tenants = slices.DeleteFunc(out.tenants, func(have string) bool { return !slices.Contains(t.Tenants, have) })
	}
	lang := languageOf{method: m}
	for _, r := range s.rules {
		if !covers(r.Match) {
			continue
		}
		b := bound{rule: r, program: r.program}
		if r.uses.request {
			out.request = true
			if b.program, b.err = lang.program(r.When); b.err == nil && r.Allow && m.Kind().Client {
				b.err = errors.New("a rule that looks at the request cannot let in a call that streams its requests, which the backend may answer before the first: write it as a rule that denies")
			}
		}
		if r.Allow {
			out.allow = append(out.allow, b)
		} else {
			out.deny = append(out.deny, b)
		}
	}
	out.byDefault = out.byDefault || m.Service.Mesh && len(out.allow) == 0
	if len(out.deny)+len(out.allow) == 0 && out.byDefault && !out.owned {
		return nil
	}
	return out
}

// languageOf is the language of one method, made when the first expression needs it.
type languageOf struct {
	method *catalog.Method
	made   *language
}

func (l *languageOf) program(when string) (cel.Program, error) {
	if l.made == nil {
		made, err := newLanguage(l.method)
		if err != nil {
			return nil, err
		}
		l.made = made
	}
	ast, err := l.made.compile(when)
	if err != nil {
		return nil, err
	}
	return l.made.program(ast)
}

// LooksAtRequest says whether some rule does: then Message is to be asked about each request message.
func (m *Method) LooksAtRequest() bool { return m.request }

// Input is what a call is judged by.
type Input struct {
	// Principal is the caller; nil is nobody.
	Principal *identity.Principal
	// Door is the door's name.
	Door string
	// Now is the time.
	Now time.Time
	// Request is the request message; nil before it is known.
	Request proto.Message

	method *methodFacts
	zone   *time.Location
}

// Decision is what the rules say about a call.
type Decision struct {
	// Allowed is true if the call may go on.
	Allowed bool
	// Open is true if only the request decides.
	Open bool
	// Hidden is true if the caller may not know of the method.
	Hidden bool
	// Rule is the name of the rule that decided; "" if it was the default or tenancy. Message says why, to the caller.
	Rule, Message string
	// Err is why a rule could not be asked. It is for the log; the call is refused.
	Err error
}

// Before decides about a call by what is known before its request.
func (m *Method) Before(in *Input) Decision {
	m.prepare(in)
	if !m.member(in.Principal) {
		return Decision{Hidden: true, Message: "the method belongs to another tenant"}
	}
	if d, denied := m.denied(in, false); denied {
		return d
	}
	if m.byDefault {
		return Decision{Allowed: true}
	}
	if d := m.allowed(in, false); d.Allowed {
		return d
	}
	if slices.ContainsFunc(m.allow, func(b bound) bool { return b.uses.request && b.err == nil }) {
		return Decision{Open: true}
	}
	return m.otherwise(in)
}

// Message decides about a request message of a call about which Before has said before.
func (m *Method) Message(in *Input, before Decision) Decision {
	m.prepare(in)
	if d, denied := m.denied(in, true); denied {
		return d
	}
	if before.Allowed {
		return before
	}
	if d := m.allowed(in, true); d.Allowed {
		return d
	}
	return m.otherwise(in)
}

func (m *Method) prepare(in *Input) {
	if in.Principal == nil {
		in.Principal = nobody
	}
	in.method, in.zone = m.facts, m.set.config.Zone
}

// otherwise is the decision about what no rule allows.
func (m *Method) otherwise(in *Input) Decision {
	return Decision{Hidden: m.set.config.Hide && !m.allowable(in), Message: "no rule allows this call"}
}

// allowable says whether some rule may allow the principal a call, with some request at some time.
func (m *Method) allowable(in *Input) bool {
	return slices.ContainsFunc(m.allow, func(b bound) bool {
		if b.err != nil {
			return false
		}
		if b.uses.request || b.time {
			return true
		}
		holds, err := b.ask(in)
		return holds && err == nil
	})
}

// member says whether the method is the principal's tenant's. A mesh that asks for no credentials has no tenants.
func (m *Method) member(p *identity.Principal) bool {
	return !m.owned || p == identity.Anonymous || p.Tenant != "" && slices.Contains(m.tenants, p.Tenant)
}

// denied asks the rules that deny: those that look at the request, or the others. What cannot be asked denies.
func (m *Method) denied(in *Input, request bool) (Decision, bool) {
	for i := range m.deny {
		b := &m.deny[i]
		if b.uses.request != request {
			continue
		}
		holds, err := b.ask(in)
		if err != nil {
			return Decision{Hidden: b.Hide, Rule: b.Name, Message: fmt.Sprintf("rule %q cannot be decided, so the call is refused", b.Name), Err: err}, true
		}
		if holds {
			return Decision{Hidden: b.Hide, Rule: b.Name, Message: b.Message}, true
		}
	}
	return Decision{}, false
}

// allowed asks the rules that allow. What cannot be asked allows nothing.
func (m *Method) allowed(in *Input, request bool) Decision {
	var failed error
	for i := range m.allow {
		b := &m.allow[i]
		if b.uses.request != request {
			continue
		}
		holds, err := b.ask(in)
		if err == nil && holds {
			return Decision{Allowed: true, Rule: b.Name}
		}
		failed = errors.Join(failed, err)
	}
	return Decision{Err: failed}
}

func (b *bound) ask(in *Input) (bool, error) {
	if b.err != nil {
		return false, b.err
	}
	if b.program == nil {
		return true, nil
	}
	out, _, err := b.program.Eval((*activation)(in))
	if err != nil {
		return false, fmt.Errorf("rule %q: %w", b.Name, err)
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("rule %q: the result is no bool but %v", b.Name, out.Type())
	}
	return holds, nil
}

// Visible says whether p may know of m at the door.
func (s *Set) Visible(p *identity.Principal, door string, m *catalog.Method) bool {
	of := s.For(m)
	if of == nil {
		return true
	}
	in := Input{Principal: p, Door: door}
	of.prepare(&in)
	if !of.member(in.Principal) {
		return false
	}
	for i := range of.deny {
		if b := &of.deny[i]; b.Hide {
			if holds, err := b.ask(&in); holds || err != nil {
				return false
			}
		}
	}
	return !s.config.Hide || of.byDefault || of.allowable(&in)
}

// Problem is a rule that does not fit a method.
type Problem struct {
	Rule   string
	Method *catalog.Method
	Err    error
}

// Error says which rule, for which method, and why.
func (p Problem) Error() string {
	return fmt.Sprintf("rule %q does not fit %s, so its calls are refused: %v", p.Rule, p.Method.FullMethod[1:], p.Err)
}

// Check returns the rules that do not fit methods of the snapshot: because of a field that the request does not have, say.
func (s *Set) Check(snap *catalog.Snapshot) []Problem {
	if s == nil {
		return nil
	}
	var out []Problem
	for _, m := range snap.Methods() {
		of := s.For(m)
		if of == nil {
			continue
		}
		for _, b := range slices.Concat(of.deny, of.allow) {
			if b.err != nil {
				out = append(out, Problem{b.Name, m, b.err})
			}
		}
	}
	return out
}
