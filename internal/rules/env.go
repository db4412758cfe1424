package rules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/nearmiss"
)

// costLimit bounds one evaluation, in CEL's units of about one operation or ten bytes of text: far more than a rule needs, a few
// milliseconds at most.
const costLimit = 100_000

// nobody is the principal of a caller who has not been authenticated.
var nobody = &identity.Principal{}

// methodFacts is a method as rules see it.
type methodFacts struct {
	name, service, backend, tool      string
	labels                            []string
	readOnly, destructive, idempotent bool
}

func factsOf(m *catalog.Method) *methodFacts {
	return &methodFacts{name: m.FullMethod[1:], service: string(m.Service.Desc.FullName()), backend: m.Backend.Name, tool: m.Tool.Name, labels: m.Policy.Labels,
		readOnly: m.Tool.Hints.ReadOnly, destructive: m.Tool.Hints.Destructive, idempotent: m.Tool.Hints.Idempotent}
}

// activation shows an input to CEL. Nothing is copied: fields are read when an expression asks for them.
type activation Input

// ResolveName returns a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "principal":
		return a.Principal, true
	case "method":
		return a.method, true
	case "request":
		return a.Request, a.Request != nil
	case "door":
		return a.Door, true
	case "time":
		return a, true
	}
	return nil, false
}

// Parent returns nil: there are no other variables.
func (a *activation) Parent() interpreter.Activation { return nil }

var _ interpreter.Activation = (*activation)(nil)

// object is a variable's type: its fields, by name.
type object map[string]*types.FieldType

// field makes a field of T.
func field[T any](t *types.Type, get func(T) any) *types.FieldType {
	return &types.FieldType{Type: t,
		IsSet: func(target any) bool { _, ok := target.(T); return ok },
		GetFrom: func(target any) (any, error) {
			of, ok := target.(T)
			if !ok {
				return nil, fmt.Errorf("%T is no %T", target, of)
			}
			return get(of), nil
		}}
}

func local(a *activation) time.Time { return a.Now.In(a.zone) }

var stringList = types.NewListType(types.StringType)

// objects are the types of the variables that are no messages.
var objects = map[string]object{
	"toolway.Principal": {
		"id":     field(types.StringType, func(p *identity.Principal) any { return p.ID }),
		"tenant": field(types.StringType, func(p *identity.Principal) any { return p.Tenant }),
		"scopes": field(stringList, func(p *identity.Principal) any { return p.Scopes }),
		"claims": field(types.NewMapType(types.StringType, types.DynType), func(p *identity.Principal) any { return claims(p) }),
		"how":    field(types.StringType, func(p *identity.Principal) any { return p.How }),
	},
	"toolway.Method": {
		"name":        field(types.StringType, func(m *methodFacts) any { return m.name }),
		"service":     field(types.StringType, func(m *methodFacts) any { return m.service }),
		"backend":     field(types.StringType, func(m *methodFacts) any { return m.backend }),
		"tool":        field(types.StringType, func(m *methodFacts) any { return m.tool }),
		"labels":      field(stringList, func(m *methodFacts) any { return m.labels }),
		"read_only":   field(types.BoolType, func(m *methodFacts) any { return m.readOnly }),
		"destructive": field(types.BoolType, func(m *methodFacts) any { return m.destructive }),
		"idempotent":  field(types.BoolType, func(m *methodFacts) any { return m.idempotent }),
	},
	"toolway.Time": {
		"now":     field(types.TimestampType, func(a *activation) any { return a.Now }),
		"hour":    field(types.IntType, func(a *activation) any { return local(a).Hour() }),
		"minute":  field(types.IntType, func(a *activation) any { return local(a).Minute() }),
		"weekday": field(types.StringType, func(a *activation) any { return strings.ToLower(local(a).Weekday().String()) }),
		"date":    field(types.StringType, func(a *activation) any { return local(a).Format(time.DateOnly) }),
	},
}

func claims(p *identity.Principal) map[string]any {
	if p.Claims == nil {
		return map[string]any{}
	}
	return p.Claims
}

// variables in the order in which documents name them.
var variables = []string{"principal", "method", "request", "time", "door"}

// provider knows the types of the variables, beside those of a backend's messages, and notes which field was not found.
type provider struct {
	*types.Registry
	missing *missingField
}

type missingField struct{ of, name string }

// FindStructType finds a type.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

// FindStructFieldNames lists a type's fields.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := objects[name]; ok {
		names := make([]string, 0, len(o))
		for n := range o {
			names = append(names, n)
		}
		slices.Sort(names)
		return names, true
	}
	return p.Registry.FindStructFieldNames(name)
}

// FindStructFieldType finds a field of a type.
func (p *provider) FindStructFieldType(of, name string) (*types.FieldType, bool) {
	if o, ok := objects[of]; ok {
		if f, ok := o[name]; ok {
			return f, true
		}
	} else if f, ok := p.Registry.FindStructFieldType(of, name); ok {
		return f, true
	}
	if p.missing == nil {
		p.missing = &missingField{of, name}
	}
	return nil, false
}

// language is what expressions about one method's calls are written in. It is used by one goroutine; its programs by any.
type language struct {
	env      *cel.Env
	provider *provider
}

// newLanguage returns the language of m's calls. Without a method the request may be anything.
func newLanguage(m *catalog.Method) (*language, error) {
	registry, err := types.NewProtoRegistry(types.JSONFieldNames(true))
	if err != nil {
		return nil, err
	}
	request := types.DynType
	if m != nil {
		if err := registry.RegisterDescriptor(m.Desc.Input().ParentFile()); err != nil {
			return nil, err
		}
		request = requestType(string(m.Desc.Input().FullName()))
	}
	p := &provider{Registry: registry}
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(registry), cel.CustomTypeProvider(p), cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(16<<10), cel.ParserRecursionLimit(100),
		cel.Variable("principal", types.NewObjectType("toolway.Principal")), cel.Variable("method", types.NewObjectType("toolway.Method")),
		cel.Variable("time", types.NewObjectType("toolway.Time")), cel.Variable("door", types.StringType), cel.Variable("request", request))
	return &language{env, p}, err
}

// requestType is CEL's type of a message: the well-known ones are values of its own.
func requestType(name string) *types.Type {
	if t, ok := wellKnown[name]; ok {
		return t
	}
	return types.NewObjectType(name)
}

var wellKnown = map[string]*types.Type{
	"google.protobuf.Any": types.AnyType, "google.protobuf.Duration": types.DurationType, "google.protobuf.Timestamp": types.TimestampType,
	"google.protobuf.Struct": types.NewMapType(types.StringType, types.DynType), "google.protobuf.Value": types.DynType, "google.protobuf.ListValue": types.NewListType(types.DynType),
	"google.protobuf.BoolValue": types.NewNullableType(types.BoolType), "google.protobuf.BytesValue": types.NewNullableType(types.BytesType),
	"google.protobuf.DoubleValue": types.NewNullableType(types.DoubleType), "google.protobuf.FloatValue": types.NewNullableType(types.DoubleType),
	"google.protobuf.Int32Value": types.NewNullableType(types.IntType), "google.protobuf.Int64Value": types.NewNullableType(types.IntType),
	"google.protobuf.UInt32Value": types.NewNullableType(types.UintType), "google.protobuf.UInt64Value": types.NewNullableType(types.UintType),
	"google.protobuf.StringValue": types.NewNullableType(types.StringType),
}

// compile parses and checks an expression.
func (l *language) compile(when string) (*cel.Ast, error) {
	l.provider.missing = nil
	checked, issues := l.env.Compile(when)
	if issues.Err() != nil {
		return nil, l.provider.explain(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(types.BoolType) && !t.IsExactType(types.DynType) {
		return nil, fmt.Errorf("want an expression that is true or false, got one of type %s", cel.FormatCELType(t))
	}
	return checked, nil
}

// program makes a checked expression ready to run. Without a loop, work is bounded by the sizes of the expression and of what it looks at; to
// count costs would take three times as long.
func (l *language) program(checked *cel.Ast) (cel.Program, error) {
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if usesOf(checked).loop {
		options = append(options, cel.CostLimit(costLimit))
	}
	return l.env.Program(checked, options...)
}

// uses says what an expression looks at, and whether it has a loop.
type uses struct{ request, time, loop bool }

func usesOf(checked *cel.Ast) uses {
	var u uses
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			u.request, u.time = u.request || e.AsIdent() == "request", u.time || e.AsIdent() == "time"
		case ast.ComprehensionKind:
			u.loop = true
		}
	}))
	return u
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)

// explain tells in one line what is wrong with an expression, and what was probably meant.
func (p *provider) explain(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return issues.Err()
	}
	first := all[0]
	text := fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, strings.TrimSuffix(first.Message, " (in container '')"))
	switch {
	case p.missing != nil && strings.Contains(first.Message, "undefined field"):
		text = fmt.Sprintf("line %d, column %d: %s has no field %q", first.Location.Line(), first.Location.Column()+1, p.missing.of, p.missing.name)
		names, _ := p.FindStructFieldNames(p.missing.of)
		text += meant(p.missing.name, names)
	case undeclared.MatchString(first.Message):
		name := undeclared.FindStringSubmatch(first.Message)[1]
		text = fmt.Sprintf("line %d, column %d: there is no %q", first.Location.Line(), first.Location.Column()+1, name) + meant(name, variables)
	}
	return errors.New(text)
}

func meant(name string, names []string) string {
	if near := nearmiss.Find(name, slices.Values(names)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(names) > 0 && len(names) <= 12 {
		return "; there are " + strings.Join(names, ", ")
	}
	return ""
}
