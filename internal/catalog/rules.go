package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolway/toolway/internal/nearmiss"
)

// Rule is what the operator says about some methods. What a rule leaves nil stays as the contract, or an earlier rule, has it.
type Rule struct {
	// Where says where the rule stands, for findings and Policy.From: "policy[2]".
	Where string
	// Methods are patterns (see Pattern); none means all methods. Backend and Labels, if not empty, narrow them to the methods of one backend,
	// and to those that have one of the labels.
	Methods []string
	Backend string
	Labels  []string

	ToolName, Title, Description                 *string
	Examples                                     []string
	ReadOnly, Destructive, Idempotent, OpenWorld *bool
	Timeout, MaxTimeout, CacheTTL                *time.Duration
	Scopes                                       []string // empty but not nil: none
	Approval                                     *Approval
	ApproverScope                                *string
	Cost                                         *int
	Priority                                     *Priority
	Task                                         *TaskSupport
	Retry                                        *bool
	// KeyTemplate and KeyField are one or the other: setting one takes off the contract's other.
	KeyTemplate, KeyField                          *string
	KeyRequired                                    *bool
	CursorField, EventIDField, EventTypeField      *string
	MaxResultBytes, MaxResultItems, MaxResultDepth *int
	Fields                                         []FieldRule
	// SetLabels stand for the service's labels.
	SetLabels []string
	// Doors are those that expose the methods, whatever Config.Expose says.
	Doors *Doors
}

// FieldRule says how the values of a field are handled, in requests and responses that have the path. What is nil stays.
type FieldRule struct {
	// Path is the field's name, with dots between nested fields; lists and maps are looked through.
	Path              string
	Sensitive, Redact *bool
	Label             *string
}

// Pattern names methods: "pkg.Service/Method", "pkg.Service" for all of a service, or either with "*" for any run of characters: "pkg.*",
// "*/Get*".
type Pattern struct {
	text  string
	parts []string // between the stars; a single one has no star
}

// ParsePattern reads a pattern; the error says what is wrong with it.
func ParsePattern(text string) (Pattern, error) {
	s := strings.TrimPrefix(text, "/")
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return r != '*' && r != '.' && r != '/' && r != '_' && (r > 127 || !isLower(byte(r)) && !isUpper(byte(r)) && !isDigit(byte(r)))
	}) || strings.Count(s, "/") > 1 {
		return Pattern{}, fmt.Errorf("pattern %q names no methods: write pkg.Service/Method, pkg.Service, or either with *", text)
	}
	return Pattern{text: s, parts: strings.Split(s, "*")}, nil
}

// NamesMesh says whether the pattern begins with the package of the mesh's own API, which rules for all leave alone.
func (p Pattern) NamesMesh() bool { return strings.HasPrefix(p.text, reserved) }

// Match says whether the pattern names the method of a full method such as "/pkg.Service/Method".
func (p Pattern) Match(fullMethod string) bool {
	name := strings.TrimPrefix(fullMethod, "/")
	if !strings.Contains(p.text, "/") && p.text != "*" {
		name, _, _ = strings.Cut(name, "/")
	}
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(p.parts) == 1 {
		return name == first
	}
	if !strings.HasPrefix(name, first) || len(name) < len(first)+len(last) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}

// ruleSet is the operator's rules, ready to be laid over contracts. It never changes.
type ruleSet struct {
	rules  []Rule
	exact  map[string][]ruleRef // by name of method or service
	globs  []ruleRef
	expose Exposure
	listed []Pattern
	judge  func(*Method) string
	print  string // identifies the rules in a snapshot's version
}

// ruleRef is one pattern of one rule; pattern is -1 for a rule that names none.
type ruleRef struct {
	rule, pattern int
	Pattern
}

func newRuleSet(cfg Config) (*ruleSet, error) {
	rs := &ruleSet{rules: cfg.Rules, exact: map[string][]ruleRef{}, expose: cfg.Expose, judge: cfg.Judge}
	for i, r := range cfg.Rules {
		if len(r.Methods) == 0 {
			rs.globs = append(rs.globs, ruleRef{i, -1, Pattern{text: "*", parts: []string{"", ""}}})
		}
		for j, text := range r.Methods {
			p, err := ParsePattern(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Where, err)
			}
			if ref := (ruleRef{i, j, p}); len(p.parts) == 1 {
				rs.exact[p.text] = append(rs.exact[p.text], ref)
			} else {
				rs.globs = append(rs.globs, ref)
			}
		}
	}
	for _, text := range cfg.Expose.Listed {
		p, err := ParsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("expose: %w", err)
		}
		rs.listed = append(rs.listed, p)
	}
	rs.print = printRules(cfg)
	return rs, nil
}

// refs returns the patterns that name the method, in the order of the rules.
func (rs *ruleSet) refs(fullMethod string) []ruleRef {
	name := fullMethod[1:]
	service, _, _ := strings.Cut(name, "/")
	out := slices.Concat(rs.exact[name], rs.exact[service])
	for _, g := range rs.globs {
		if g.Match(fullMethod) {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b ruleRef) int { return a.rule - b.rule })
	return out
}

// laid is a backend's contract with the rules laid over it, made once per contract.
type laid struct {
	methods map[*methodInfo]*shaped // those that a rule names
	hits    map[[2]int]bool         // rule, pattern
	fields  map[[2]int]string       // rule, field: "" if some method has it, else what is wrong
	judged  map[*methodInfo]judged
}

// shaped is a method as the rules leave it.
type shaped struct {
	Method
	findings []Finding
}

// lay lays the rules over a contract. Infrastructure is left alone, and so is the mesh's own API unless a pattern begins with its package: a
// rule for "*" must not shut out those who approve, or ask for health.
func (rs *ruleSet) lay(a *analysis, backend string) *laid {
	out := &laid{methods: map[*methodInfo]*shaped{}, hits: map[[2]int]bool{}, fields: map[[2]int]string{}, judged: map[*methodInfo]judged{}}
	if rs == nil || len(rs.rules) == 0 {
		return out
	}
	for _, s := range a.services {
		name := string(s.desc.FullName())
		if isInfrastructure(name) {
			continue
		}
		for _, m := range s.methods {
			o := terms{MethodOptions: m.contract, labels: labelsOf(m.Desc)}
			for _, ref := range rs.refs(m.FullMethod) {
				r := &rs.rules[ref.rule]
				if strings.HasPrefix(name, reserved) && !ref.NamesMesh() {
					continue
				}
				if r.Backend != "" && r.Backend != backend || len(r.Labels) > 0 && !slices.ContainsFunc(r.Labels, func(l string) bool { return slices.Contains(o.labels, l) }) {
					continue
				}
				out.hits[[2]int{ref.rule, ref.pattern}] = true
				if o.last != r {
					o.lay(r)
					out.noteFields(ref.rule, r, m)
				}
			}
			if o.last == nil {
				continue
			}
			sh := &shaped{Method: m.Method}
			sh.findings = slices.Concat(m.routeFindings, m.shape(&sh.Method, o))
			out.methods[m] = sh
		}
	}
	return out
}

// noteFields notes which of the rule's fields the method has.
func (l *laid) noteFields(rule int, r *Rule, m *methodInfo) {
	for i, f := range r.Fields {
		key := [2]int{rule, i}
		if problem, noted := l.fields[key]; noted && problem == "" {
			continue
		}
		_, in := findField(m.Desc.Input(), f.Path, true)
		_, out := findField(m.Desc.Output(), f.Path, true)
		switch {
		case in == nil || out == nil:
			l.fields[key] = ""
		case l.fields[key] == "" || strings.Contains(in.Error(), "did you mean"):
			l.fields[key] = in.Error()
			if strings.Contains(out.Error(), "did you mean") && !strings.Contains(in.Error(), "did you mean") {
				l.fields[key] = out.Error()
			}
		}
	}
}

// of returns a method as it is to be served, and the findings of its options. l may be nil.
func (l *laid) of(m *methodInfo) (Method, []Finding) {
	if l != nil && l.methods[m] != nil {
		return l.methods[m].Method, l.methods[m].findings
	}
	return m.Method, m.findings
}

// judged is what the judge said of a method whose name and routes were these.
type judged struct{ shown, verdict string }

// judge quarantines what has not been reviewed: such tools are not listed. It asks once per definition.
func (b *builder) judge(inputs []input, order []*Method) {
	if b.rules.judge == nil {
		return
	}
	laidOf := map[string]*laid{}
	for _, in := range inputs {
		laidOf[in.name] = in.rules
	}
	for _, m := range order {
		if m.Service.Infrastructure || m.Service.Mesh {
			continue
		}
		l, shown := laidOf[m.Backend.Name], fmt.Sprintf("%q %q", m.Tool.Name, m.Bindings)
		j, known := l.judged[m.info]
		if !known || j.shown != shown {
			j = judged{shown, b.rules.judge(m)}
			l.judged[m.info] = j
		}
		if m.Quarantine = j.verdict; m.Quarantine != "" {
			b.find(m.Backend, "tool-quarantined", SeverityError, m.Tool.Name, "tool %q (%s) is not listed and its calls are refused: %s; review it with toolway diff, then run toolway lock", m.Tool.Name, m.Desc.FullName(), m.Quarantine)
		}
	}
	b.tools = slices.DeleteFunc(b.tools, func(m *Method) bool { return m.Quarantine != "" })
	b.resources = slices.DeleteFunc(b.resources, func(r *Resource) bool { return r.Get.Quarantine != "" })
}

// checkRules reports rules that name nothing. While a backend has not been read, what it would have is not known.
func (b *builder) checkRules(inputs []input) {
	for i, r := range b.rules.rules {
		at := []int{-1}
		for j := range r.Methods {
			at = append(at, j)
		}
		if len(r.Methods) > 0 {
			at = at[1:]
		}
		for _, j := range at {
			if hit, known := ruleHit(inputs, r.Backend, [2]int{i, j}); known && !hit {
				b.ruleUnmatched(r, j)
			}
		}
		for j, f := range r.Fields {
			if problem := fieldProblem(inputs, [2]int{i, j}); problem != "" {
				b.findings = append(b.findings, Finding{Code: "policy-field-unknown", Severity: SeverityError, Backend: r.Backend, Subject: r.Where,
					Message: fmt.Sprintf("%s: field %q is in no request or response of its methods: %s; what it says is not kept", r.Where, f.Path, problem)})
			}
		}
	}
	for _, p := range b.rules.listed {
		if complete(inputs, "") && !slices.ContainsFunc(b.methods, func(m *Method) bool { return p.Match(m.FullMethod) }) {
			b.findings = append(b.findings, Finding{Code: "policy-unmatched", Severity: SeverityWarning, Subject: "expose.methods",
				Message: fmt.Sprintf("expose.methods: %q names no method%s", p.text, b.near(p.text))})
		}
	}
}

// complete says whether the contracts of the backend, "" being all, are known.
func complete(inputs []input, backend string) bool {
	return !slices.ContainsFunc(inputs, func(in input) bool { return (backend == "" || in.name == backend) && in.analysis == nil })
}

func ruleHit(inputs []input, backend string, key [2]int) (hit, known bool) {
	for _, in := range inputs {
		if in.rules != nil && in.rules.hits[key] {
			return true, true
		}
	}
	return false, complete(inputs, backend)
}

// fieldProblem says why no method has a field, or nothing where one has it or no method is known.
func fieldProblem(inputs []input, key [2]int) string {
	problem := ""
	for _, in := range inputs {
		if in.rules == nil {
			continue
		}
		p, noted := in.rules.fields[key]
		if noted && p == "" {
			return ""
		}
		problem = cmp.Or(problem, p)
	}
	return problem
}

func (b *builder) ruleUnmatched(r Rule, pattern int) {
	what := "it names no method"
	switch {
	case r.Backend != "" && !slices.ContainsFunc(b.backends, func(be *Backend) bool { return be.Name == r.Backend }):
		what = fmt.Sprintf("there is no backend %q", r.Backend)
		if near := nearmiss.Find(r.Backend, func(yield func(string) bool) {
			for _, be := range b.backends {
				if !yield(be.Name) {
					return
				}
			}
		}); near != "" {
			what += fmt.Sprintf("; did you mean %q?", near)
		}
	case pattern >= 0:
		what = fmt.Sprintf("%q names no method", r.Methods[pattern])
		switch {
		case r.Backend != "" && len(r.Labels) > 0:
			what += fmt.Sprintf(" of backend %q with label %s", r.Backend, strings.Join(r.Labels, " or "))
		case r.Backend != "":
			what += fmt.Sprintf(" of backend %q", r.Backend)
		case len(r.Labels) > 0:
			what += " with label " + strings.Join(r.Labels, " or ")
		}
		what += b.near(r.Methods[pattern])
	case len(r.Labels) > 0:
		what += " with label " + strings.Join(r.Labels, " or ")
	}
	b.findings = append(b.findings, Finding{Code: "policy-unmatched", Severity: SeverityError, Backend: r.Backend, Subject: r.Where, Message: fmt.Sprintf("%s: %s; what it says is not kept", r.Where, what)})
}

// near returns a hint at the method or service that was probably meant.
func (b *builder) near(pattern string) string {
	near := nearmiss.Find(strings.TrimPrefix(pattern, "/"), func(yield func(string) bool) {
		for _, s := range b.services {
			if !s.Infrastructure && !yield(string(s.Desc.FullName())) {
				return
			}
		}
		for _, m := range b.methods {
			if !m.Service.Infrastructure && !yield(m.FullMethod[1:]) {
				return
			}
		}
	})
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// printRules identifies the rules by everything in them.
func printRules(cfg Config) string {
	b, err := json.Marshal(struct {
		Rules  []Rule
		Expose Exposure
		Judged bool
	}{cfg.Rules, cfg.Expose, cfg.Judge != nil})
	if err != nil {
		return ""
	}
	return fmt.Sprintf("rules %s\n", b)
}
