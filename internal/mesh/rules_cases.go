package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/rules"
	"github.com/toolway/toolway/internal/transcode"
)

// Case is one call that is judged, and what is expected of it.
type Case struct {
	// Name says what the case shows. Default: the method.
	Name string `yaml:"name"`
	// Principal is the caller. Default: nobody.
	Principal CasePrincipal `yaml:"principal"`
	// Method is a tool's name, or a method as package.Service/Method. Required.
	Method string `yaml:"method"`
	// Door is grpc, mcp, http or cli. Default grpc.
	Door string `yaml:"door"`
	// Request is the request, as JSON of its message; of a request stream, one message. Default: the empty message.
	Request yaml.Node `yaml:"request"`
	// Time is when the call is made, as in 2026-01-07T12:00:00Z. Default: that, a Wednesday.
	Time string `yaml:"time"`
	// Expect is allow, deny or hide. Required.
	Expect string `yaml:"expect"`
	// Rule is the name of the rule that is expected to decide; "scopes" for a scope that is missing. Default: any.
	Rule string `yaml:"rule"`

	where   string
	request json.RawMessage
	at      time.Time
}

// CasePrincipal is the caller of a case.
type CasePrincipal struct {
	ID     string         `yaml:"id"`
	Tenant string         `yaml:"tenant"`
	Scopes Strings        `yaml:"scopes"`
	Claims map[string]any `yaml:"claims"`
	How    string         `yaml:"how"`
}

type caseFile struct {
	Cases []Case `yaml:"cases"`
}

// Where is the file and line of a case.
func (c *Case) Where() string { return c.where }

var (
	verdicts = []string{"allow", "deny", "hide"}
	doors    = []string{string(call.GRPC), string(call.MCP), string(call.HTTP), string(call.CLI)}
)

// LoadCases reads a file of cases. Unknown keys and values that make no sense are errors that name the line.
func LoadCases(path string) ([]Case, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fail := func(err error) ([]Case, error) { return nil, fmt.Errorf("%s: %w", path, err) }
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fail(plain(err))
	}
	if len(doc.Content) == 0 {
		return fail(errors.New("there are no cases"))
	}
	if err := fits(doc.Content[0], reflect.TypeFor[caseFile](), ""); err != nil {
		return fail(err)
	}
	var file caseFile
	if err := doc.Decode(&file); err != nil {
		return fail(plain(err))
	}
	if len(file.Cases) == 0 {
		return fail(errors.New("there are no cases"))
	}
	lines := caseLines(doc.Content[0])
	for i := range file.Cases {
		c := &file.Cases[i]
		c.where = fmt.Sprintf("%s:%d", filepath.Base(path), lines[i])
		if err := c.normalise(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.where, err)
		}
	}
	return file.Cases, nil
}

// caseLines are the lines where the cases begin.
func caseLines(root *yaml.Node) []int {
	var out []int
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "cases" {
			for _, c := range root.Content[i+1].Content {
				out = append(out, c.Line)
			}
		}
	}
	return out
}

func (c *Case) normalise() error {
	if c.Method == "" {
		return errors.New("method is missing: name a tool, or a method as package.Service/Method")
	}
	if c.Name == "" {
		c.Name = c.Method
	}
	if c.Door == "" {
		c.Door = string(call.GRPC)
	}
	if !slices.Contains(doors, c.Door) {
		return fmt.Errorf("door %q: want %s%s", c.Door, strings.Join(doors, ", "), meant(c.Door, doors))
	}
	if !slices.Contains(verdicts, c.Expect) {
		return fmt.Errorf("expect %q: want %s%s", c.Expect, strings.Join(verdicts, ", "), meant(c.Expect, verdicts))
	}
	c.at = time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)
	if c.Time != "" {
		var err error
		if c.at, err = time.Parse(time.RFC3339, c.Time); err != nil {
			return fmt.Errorf("time %q: write it as in 2026-01-07T12:00:00Z, with the zone", c.Time)
		}
	}
	c.request = json.RawMessage("{}")
	if c.Request.Kind != 0 {
		var value any
		if err := c.Request.Decode(&value); err != nil {
			return fmt.Errorf("request: %w", plain(err))
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		c.request = raw
	}
	return nil
}

// Verdict is what became of a case.
type Verdict struct {
	// Effect is allow, deny or hide.
	Effect string
	// Rule is the name of the rule that decided, "scopes", or "" for the default and for tenancy.
	Rule string
	// Why is what the caller is told, or what went wrong.
	Why string
}

// Met says whether the verdict is what the case expects.
func (c *Case) Met(v Verdict) bool {
	return c.Expect == v.Effect && (c.Rule == "" || c.Rule == v.Rule)
}

// Judge says what scopes, tenancy and rules make of a case. The error says that the case does not fit the contract.
func (m *Mesh) Judge(c *Case) (Verdict, error) {
	method, err := m.methodOf(c.Method)
	if err != nil {
		return Verdict{}, err
	}
	wire, err := method.Request().AppendWire(nil, c.request, transcode.ReadOptions{})
	if err != nil {
		return Verdict{}, fmt.Errorf("request of %s: %w", c.Method, err)
	}
	msg, err := call.NewFrame(method.Desc.Input(), wire).Message()
	if err != nil {
		return Verdict{}, fmt.Errorf("request of %s: %w", c.Method, err)
	}
	p := &identity.Principal{ID: c.Principal.ID, Tenant: c.Principal.Tenant, Scopes: c.Principal.Scopes, Claims: c.Principal.Claims, How: c.Principal.How}
	if missing := p.Missing(method.Policy.Scopes); len(missing) > 0 {
		return Verdict{Effect: "deny", Rule: "scopes", Why: "the caller lacks " + strings.Join(missing, ", ")}, nil
	}
	of := m.rules.For(method)
	if of == nil {
		return Verdict{Effect: "allow"}, nil
	}
	in := rules.Input{Principal: p, Door: c.Door, Now: c.at}
	d := of.Before(&in)
	if (d.Allowed || d.Open) && of.LooksAtRequest() {
		in.Request = msg
		d = of.Message(&in, d)
	}
	return verdictOf(d), nil
}

func verdictOf(d rules.Decision) Verdict {
	v := Verdict{Effect: "deny", Rule: d.Rule, Why: d.Message}
	switch {
	case d.Allowed:
		v.Effect, v.Why = "allow", ""
	case d.Hidden:
		v.Effect = "hide"
	}
	if d.Err != nil {
		v.Why += ": " + d.Err.Error()
	}
	return v
}

// methodOf finds a method by its tool's name or its own.
func (m *Mesh) methodOf(name string) (*catalog.Method, error) {
	s := m.catalog.Snapshot()
	if found := s.Tool(name); found != nil {
		return found, nil
	}
	if found := s.Method("/" + strings.TrimPrefix(name, "/")); found != nil {
		return found, nil
	}
	var names []string
	for _, of := range s.Methods() {
		names = append(names, of.FullMethod[1:])
		if of.Tool.Name != "" {
			names = append(names, of.Tool.Name)
		}
	}
	if near := nearmiss.Find(strings.TrimPrefix(name, "/"), slices.Values(names)); near != "" {
		return nil, fmt.Errorf("there is no method %q; did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("there is no method %q; toolway tools list shows what there is", name)
}
