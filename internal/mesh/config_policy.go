package mesh

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
)

// PolicyRule says what calls of some methods meet. Rules stand in a list, later ones win, and what a rule leaves out stays as the contract
// or an earlier rule has it.
type PolicyRule struct {
	// Match says which methods. Required.
	Match Match `yaml:"match"`
	// ToolName, Title, Description and Examples are what agents see.
	ToolName    *string  `yaml:"tool_name"`
	Title       *string  `yaml:"title"`
	Description *string  `yaml:"description"`
	Examples    []string `yaml:"examples"`
	// ReadOnly, Destructive, Idempotent and OpenWorld are the tool's annotations; the first and third also allow retries, the first a cache.
	ReadOnly    *bool `yaml:"read_only"`
	Destructive *bool `yaml:"destructive"`
	Idempotent  *bool `yaml:"idempotent"`
	OpenWorld   *bool `yaml:"open_world"`
	// Timeout is the deadline of a call that brings none; MaxTimeout caps every call's.
	Timeout    *Duration `yaml:"timeout"`
	MaxTimeout *Duration `yaml:"max_timeout"`
	// Scopes are what a caller needs, all of them; [] means none.
	Scopes Strings `yaml:"scopes"`
	// Approval is "none", "confirm" or "approver"; ApproverScope is what whoever approves needs.
	Approval      *string `yaml:"approval"`
	ApproverScope *string `yaml:"approver_scope"`
	// Cost is the number of tokens of the rate limit that a call takes, at least 1.
	Cost *int `yaml:"cost"`
	// Priority is "low", "normal" or "high".
	Priority *string `yaml:"priority"`
	// Task is "optional", "forbidden", "required" or "preferred": whether calls run as tasks.
	Task *string `yaml:"task"`
	// CacheTTL is how long a result may be reused; 0s means never.
	CacheTTL *Duration `yaml:"cache_ttl"`
	// Retry says whether an attempt whose outcome is not known may be repeated without a key.
	Retry        *bool               `yaml:"retry"`
	Idempotency  *PolicyIdempotency  `yaml:"idempotency"`
	Stream       *PolicyStream       `yaml:"stream"`
	ResultLimits *PolicyResultLimits `yaml:"result_limits"`
	// Sensitive are paths of fields that are kept out of logs and audit; Fields says more about single ones.
	Sensitive Strings       `yaml:"sensitive"`
	Fields    []PolicyField `yaml:"fields"`
	// Labels are names by which views choose; they stand for the service's.
	Labels Strings `yaml:"labels"`
	// Doors are those that expose the methods, whatever expose says: grpc, mcp, http; [] means none.
	Doors Strings `yaml:"doors"`

	line int
}

// UnmarshalYAML notes the line, so that findings and toolway tools show can name it.
func (r *PolicyRule) UnmarshalYAML(n *yaml.Node) error {
	type plain PolicyRule
	if err := n.Decode((*plain)(r)); err != nil {
		return err
	}
	r.line = n.Line
	return nil
}

// Match chooses methods. In YAML, one pattern or a list of patterns stands for Methods alone.
type Match struct {
	// Methods are patterns: pkg.Service/Method, pkg.Service, or either with *.
	Methods Strings `yaml:"methods"`
	// Backend narrows the rule to one backend.
	Backend string `yaml:"backend"`
	// Labels narrow it to methods that have one of them.
	Labels Strings `yaml:"labels"`
}

// UnmarshalYAML reads a match, or patterns alone.
func (m *Match) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return n.Decode(&m.Methods)
	}
	type plain Match
	return n.Decode((*plain)(m))
}

// Strings is a list of texts; in YAML a single one needs no list.
type Strings []string

// UnmarshalYAML reads a text or a list of texts.
func (s *Strings) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*s = Strings{n.Value}
		return nil
	}
	*s = Strings{}
	return n.Decode((*[]string)(s))
}

// PolicyIdempotency says what makes two calls the same call.
type PolicyIdempotency struct {
	// KeyTemplate makes a key of request fields: "{incident}:{action}:{target.name}".
	KeyTemplate *string `yaml:"key_template"`
	// KeyField is the request field whose value is the key, as an alternative.
	KeyField *string `yaml:"key_field"`
	// Required refuses calls without a key.
	Required *bool `yaml:"required"`
}

// PolicyStream names the fields by which a broken stream is resumed.
type PolicyStream struct {
	CursorField    *string `yaml:"cursor_field"`
	EventIDField   *string `yaml:"event_id_field"`
	EventTypeField *string `yaml:"event_type_field"`
}

// PolicyResultLimits bound one result as JSON; 0 leaves a bound to the mesh.
type PolicyResultLimits struct {
	MaxBytes *int `yaml:"max_bytes"`
	MaxItems *int `yaml:"max_items"`
	MaxDepth *int `yaml:"max_depth"`
}

// PolicyField says how the values of a field are handled, in requests and responses that have it.
type PolicyField struct {
	// Path is the field's name, with dots between nested ones. Required.
	Path string `yaml:"path"`
	// Sensitive keeps the value out of logs and audit, RedactResult out of results too. DataLabel is the kind of data.
	Sensitive    *bool   `yaml:"sensitive"`
	RedactResult *bool   `yaml:"redact_result"`
	DataLabel    *string `yaml:"data_label"`
}

// Expose says which methods each door shows and serves.
type Expose struct {
	// GRPC, MCP and HTTP are "all", "listed" or "annotated". Default: all where the door listens on a loopback address, else listed.
	GRPC string `yaml:"grpc"`
	MCP  string `yaml:"mcp"`
	HTTP string `yaml:"http"`
	// Methods are patterns of methods that count as listed at every door. A policy rule's doors list methods too, door by door.
	Methods Strings `yaml:"methods"`
}

// normalise sets each door's default by where it listens.
func (e *Expose) normalise(grpcAddr, httpAddr string) error {
	for _, d := range []struct {
		name  string
		value *string
		addr  string
	}{{"grpc", &e.GRPC, grpcAddr}, {"mcp", &e.MCP, httpAddr}, {"http", &e.HTTP, httpAddr}} {
		if *d.value == "" {
			*d.value = catalog.ExposeListed.String()
			if d.addr == Off || loopback(d.addr) {
				*d.value = catalog.ExposeAll.String()
			}
		}
		if _, err := catalog.ParseExpose(*d.value); err != nil {
			return fmt.Errorf("expose.%s: %w", d.name, err)
		}
	}
	for _, p := range e.Methods {
		if _, err := catalog.ParsePattern(p); err != nil {
			return fmt.Errorf("expose.methods: %w", err)
		}
	}
	return nil
}

// catalog returns the exposure as the catalog takes it; it has been normalised.
func (e *Expose) catalog() catalog.Exposure {
	out := catalog.Exposure{Listed: e.Methods}
	out.GRPC, _ = catalog.ParseExpose(e.GRPC)
	out.MCP, _ = catalog.ParseExpose(e.MCP)
	out.HTTP, _ = catalog.ParseExpose(e.HTTP)
	return out
}

// where names the rule in messages.
func (r *PolicyRule) where(i int) string {
	if r.line == 0 {
		return fmt.Sprintf("policy[%d]", i)
	}
	return fmt.Sprintf("policy[%d] (line %d)", i, r.line)
}

var (
	approvals    = []string{"none", "confirm", "approver"}
	priorities   = []string{"low", "normal", "high"}
	taskSupports = []string{"optional", "forbidden", "required", "preferred"} // as catalog.TaskSupport counts
)

// normalise refuses what contradicts itself.
func (r *PolicyRule) normalise(where string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
	}
	if len(r.Match.Methods) == 0 && r.Match.Backend == "" && len(r.Match.Labels) == 0 {
		return fail(`match is missing: say which methods, as in match: "pkg.Service/*"`)
	}
	for _, p := range r.Match.Methods {
		if _, err := catalog.ParsePattern(p); err != nil {
			return fail("match: %v", err)
		}
	}
	scopes := slices.Clone(r.Scopes)
	if r.ApproverScope != nil {
		scopes = append(scopes, *r.ApproverScope)
	}
	for _, s := range scopes {
		if !catalog.ValidScope(s) {
			return fail("scope %q: want visible ASCII without spaces, quotes and backslashes; several scopes are a list", s)
		}
	}
	if yes(r.ReadOnly) && yes(r.Destructive) {
		return fail("read_only and destructive contradict each other: take one out")
	}
	if r.Timeout != nil && r.MaxTimeout != nil && *r.MaxTimeout > 0 && *r.Timeout > *r.MaxTimeout {
		return fail("timeout %v is above max_timeout %v: lower the one or raise the other", time.Duration(*r.Timeout), time.Duration(*r.MaxTimeout))
	}
	if r.CacheTTL != nil && *r.CacheTTL > 0 && r.ReadOnly != nil && !*r.ReadOnly {
		return fail("cache_ttl contradicts read_only: false: only results of methods that change nothing are cached")
	}
	if i := r.Idempotency; i != nil && i.KeyTemplate != nil && i.KeyField != nil {
		return fail("idempotency has key_template and key_field: take one out")
	}
	for _, w := range []struct {
		name  string
		value *string
		words []string
	}{{"approval", r.Approval, approvals}, {"priority", r.Priority, priorities}, {"task", r.Task, taskSupports}} {
		if w.value != nil && !slices.Contains(w.words, *w.value) {
			return fail("%s %q: want %s%s", w.name, *w.value, strings.Join(w.words, ", "), meant(*w.value, w.words))
		}
	}
	if r.Cost != nil && (*r.Cost < 1 || *r.Cost > 1_000_000) {
		return fail("cost %d: want 1 to 1000000", *r.Cost)
	}
	if l := r.ResultLimits; l != nil {
		for name, v := range map[string]*int{"max_bytes": l.MaxBytes, "max_items": l.MaxItems, "max_depth": l.MaxDepth} {
			if v != nil && (*v < 0 || *v > 1<<31-1) {
				return fail("result_limits.%s %d: want 0 to 2147483647", name, *v)
			}
		}
	}
	for i, f := range r.Fields {
		switch {
		case f.Path == "":
			return fail("fields[%d] has no path", i)
		case slices.Contains(r.Sensitive, f.Path):
			return fail("field %q stands under sensitive and under fields: take one out", f.Path)
		case yes(f.RedactResult) && f.Sensitive != nil && !*f.Sensitive:
			return fail("fields[%d] (%s): redact_result implies sensitive: take sensitive: false out", i, f.Path)
		}
	}
	if _, err := catalog.ParseDoors(r.Doors); err != nil {
		return fail("doors: %v", err)
	}
	return nil
}

func yes(b *bool) bool { return b != nil && *b }

func meant(word string, words []string) string {
	if near := nearmiss.Find(word, slices.Values(words)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// catalog returns the rule as the catalog takes it; it has been normalised.
func (r *PolicyRule) catalog(where string) catalog.Rule {
	out := catalog.Rule{
		Where: where, Methods: r.Match.Methods, Backend: r.Match.Backend, Labels: r.Match.Labels,
		ToolName: r.ToolName, Title: r.Title, Description: r.Description, Examples: r.Examples,
		ReadOnly: r.ReadOnly, Destructive: r.Destructive, Idempotent: r.Idempotent, OpenWorld: r.OpenWorld,
		Timeout: (*time.Duration)(r.Timeout), MaxTimeout: (*time.Duration)(r.MaxTimeout), CacheTTL: (*time.Duration)(r.CacheTTL),
		Scopes: r.Scopes, ApproverScope: r.ApproverScope, Cost: r.Cost, Retry: r.Retry, SetLabels: r.Labels,
	}
	if r.Approval != nil {
		a := catalog.Approval(slices.Index(approvals, *r.Approval))
		out.Approval = &a
	}
	if r.Priority != nil {
		p := catalog.PriorityLow + catalog.Priority(slices.Index(priorities, *r.Priority))
		out.Priority = &p
	}
	if r.Task != nil {
		t := catalog.TaskSupport(slices.Index(taskSupports, *r.Task))
		out.Task = &t
	}
	if i := r.Idempotency; i != nil {
		out.KeyTemplate, out.KeyField, out.KeyRequired = i.KeyTemplate, i.KeyField, i.Required
	}
	if s := r.Stream; s != nil {
		out.CursorField, out.EventIDField, out.EventTypeField = s.CursorField, s.EventIDField, s.EventTypeField
	}
	if l := r.ResultLimits; l != nil {
		out.MaxResultBytes, out.MaxResultItems, out.MaxResultDepth = l.MaxBytes, l.MaxItems, l.MaxDepth
	}
	sensitive := true
	for _, path := range r.Sensitive {
		out.Fields = append(out.Fields, catalog.FieldRule{Path: path, Sensitive: &sensitive})
	}
	for _, f := range r.Fields {
		out.Fields = append(out.Fields, catalog.FieldRule{Path: f.Path, Sensitive: f.Sensitive, Redact: f.RedactResult, Label: f.DataLabel})
	}
	if r.Doors != nil {
		doors, _ := catalog.ParseDoors(r.Doors)
		out.Doors = &doors
	}
	return out
}

// normalisePolicy checks the rules and what the doors expose.
func (c *Config) normalisePolicy() error {
	for i := range c.Policy {
		if err := c.Policy[i].normalise(c.Policy[i].where(i)); err != nil {
			return err
		}
	}
	return c.Expose.normalise(c.GRPC.Addr, c.HTTP.Addr)
}

// rules returns the rules as the catalog takes them.
func (c *Config) rules() []catalog.Rule {
	var out []catalog.Rule
	for i := range c.Policy {
		out = append(out, c.Policy[i].catalog(c.Policy[i].where(i)))
	}
	return out
}

// warnUnexposed says so when a door that is open to other machines shows nothing, since that looks like a fault.
func (m *Mesh) warnUnexposed(s *catalog.Snapshot) {
	shows := func(d catalog.Doors) bool {
		return slices.ContainsFunc(s.Methods(), func(m *catalog.Method) bool {
			return !m.Service.Infrastructure && !m.Service.Mesh && m.Exposed(d)
		})
	}
	for _, d := range []struct {
		door             catalog.Doors
		addr, mode, name string
	}{
		{catalog.DoorGRPC, m.config.GRPC.Addr, m.config.Expose.GRPC, "grpc"},
		{catalog.DoorMCP, m.config.HTTP.Addr, m.config.Expose.MCP, "mcp"},
		{catalog.DoorHTTP, m.config.HTTP.Addr, m.config.Expose.HTTP, "http"},
	} {
		if d.addr != Off && !loopback(d.addr) && !shows(d.door) {
			m.log.Warn("this door exposes nothing: on an address that other machines reach, methods have to be listed; name them under expose.methods or in a policy rule's doors, or say expose."+d.name+": all",
				"door", d.name, "addr", d.addr, "expose", d.mode)
		}
	}
}
