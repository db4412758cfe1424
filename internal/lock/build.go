package lock

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// Of returns the lock of everything that a snapshot serves, quarantined tools included. Infrastructure and the mesh's own API are not in it:
// they change with the mesh alone.
func Of(s *catalog.Snapshot) *File {
	f := &File{Lock: version, Tools: map[string]*Tool{}, Types: map[string]map[string]*Type{}}
	b := new(builder)
	for _, m := range s.Methods() {
		if m.Service.Infrastructure || m.Service.Mesh {
			continue
		}
		t, types := b.tool(m)
		f.Tools[key(m)] = t
		into := f.Types[m.Backend.Name]
		if into == nil {
			into = map[string]*Type{}
			f.Types[m.Backend.Name] = into
		}
		for _, name := range reach(types.byName, message(t.Request), message(t.Response)) {
			into[name] = types.byName[name]
		}
	}
	return f
}

// key is the method's name in a lock.
func key(m *catalog.Method) string { return strings.TrimPrefix(m.FullMethod, "/") }

// builder makes definitions; it keeps the types of each contract. It is safe for concurrent use.
type builder struct {
	mu       sync.Mutex
	backends map[string]*types
}

// types are those of one contract.
type types struct {
	files  *catalog.Files
	byName map[string]*Type
	sums   map[string][32]byte
}

// tool returns the method's definition, and the types that it is made of.
func (b *builder) tool(m *catalog.Method) (*Tool, *types) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ts := b.backends[m.Backend.Name]
	if ts == nil || ts.files != m.Backend.Files {
		ts = &types{files: m.Backend.Files, byName: map[string]*Type{}, sums: map[string][32]byte{}}
		if b.backends == nil {
			b.backends = map[string]*types{}
		}
		b.backends[m.Backend.Name] = ts
	}
	ts.add(m.Desc.Input())
	ts.add(m.Desc.Output())
	h := m.Tool.Hints
	t := &Tool{
		Tool: m.Tool.Name, Backend: m.Backend.Name, Title: m.Tool.Title, Description: m.Tool.Description,
		Request: ref(m.Desc.Input(), m.Kind().Client), Response: ref(m.Desc.Output(), m.Kind().Server),
		Hints:  Hints{ReadOnly: h.ReadOnly, Destructive: h.Destructive, Idempotent: h.Idempotent, OpenWorld: h.OpenWorld},
		Policy: policyOf(m), Sensitive: slices.Concat(marks("request", m.Sensitive(toolschema.Input)), marks("response", m.Sensitive(toolschema.Output))),
	}
	for _, r := range m.Bindings {
		text := r.Verb + " " + r.Template
		if r.Body != "" {
			text += " body " + r.Body
		}
		if r.ResponseBody != "" {
			text += " response_body " + r.ResponseBody
		}
		t.Routes = append(t.Routes, text)
	}
	t.Hash = t.hash(ts.byName, ts.sums)
	return t, ts
}

func ref(md protoreflect.MessageDescriptor, stream bool) string {
	if stream {
		return "stream " + string(md.FullName())
	}
	return string(md.FullName())
}

// marks writes marked fields as lines.
func marks(side string, set *catalog.FieldSet) []string {
	var out []string
	for _, p := range set.Paths() {
		var words []string
		switch {
		case p.Mark.Redact:
			words = append(words, "redacted")
		case p.Mark.Sensitive:
			words = append(words, "sensitive")
		}
		if p.Mark.Label != "" {
			words = append(words, p.Mark.Label)
		}
		out = append(out, side+" "+p.Path+": "+strings.Join(words, ", "))
	}
	return out
}

func policyOf(m *catalog.Method) Policy {
	p := m.Policy
	out := Policy{
		Scopes: sorted(p.Scopes), Timeout: duration(m.Timeout), MaxTimeout: duration(m.MaxTimeout), CacheTTL: duration(p.CacheTTL), Retry: p.Retry,
		KeyTemplate: p.KeyTemplate, KeyField: p.KeyField, KeyRequired: p.KeyRequired,
		CursorField: p.CursorField, EventIDField: p.EventIDField, EventTypeField: p.EventTypeField,
		MaxBytes: p.MaxResultBytes, MaxItems: p.MaxResultItems, MaxDepth: p.MaxResultDepth, Labels: sorted(p.Labels),
	}
	if p.Approval != catalog.ApprovalNone {
		out.Approval, out.ApproverScope = p.Approval.String(), p.ApproverScope
	}
	if p.Cost != 1 {
		out.Cost = p.Cost
	}
	if p.Priority != catalog.PriorityNormal {
		out.Priority = p.Priority.String()
	}
	if p.Doors != nil {
		names := p.Doors.Names()
		out.Doors = &names
	}
	return out
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// add adds a message and all that it reaches. The well-known types are known by their names.
func (ts *types) add(md protoreflect.MessageDescriptor) {
	for todo := []protoreflect.MessageDescriptor{md}; len(todo) > 0; {
		md, todo = todo[len(todo)-1], todo[:len(todo)-1]
		name := string(md.FullName())
		if ts.byName[name] != nil || md.ParentFile().Package() == "google.protobuf" {
			continue
		}
		t := &Type{Rules: rules(md.Options(), nil)}
		ts.byName[name] = t
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			t.Fields = append(t.Fields, fieldOf(fd))
			value := fd
			if fd.IsMap() {
				value = fd.MapValue()
			}
			if m := value.Message(); m != nil {
				todo = append(todo, m)
			} else if e := value.Enum(); e != nil {
				ts.addEnum(e)
			}
		}
		slices.SortFunc(t.Fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	}
}

func (ts *types) addEnum(ed protoreflect.EnumDescriptor) {
	name := string(ed.FullName())
	if ts.byName[name] != nil || ed.ParentFile().Package() == "google.protobuf" {
		return
	}
	t := new(Type)
	ts.byName[name] = t
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		o, _ := v.Options().(*descriptorpb.EnumValueOptions)
		t.Values = append(t.Values, Value{Name: string(v.Name()), Deprecated: o.GetDeprecated(), Doc: toolschema.Comment(v, 0)})
	}
	slices.SortFunc(t.Values, func(a, b Value) int { return cmp.Compare(a.Name, b.Name) })
}

func fieldOf(fd protoreflect.FieldDescriptor) Field {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	f := Field{Name: fd.JSONName(), Deprecated: o.GetDeprecated(), Doc: toolschema.Comment(fd, 0)}
	value := fd
	switch {
	case fd.IsMap():
		value, f.Form = fd.MapValue(), "map by "+fd.MapKey().Kind().String()
	case fd.IsList():
		f.Form = "list"
	}
	switch {
	case value.Message() != nil:
		f.Type = string(value.Message().FullName())
	case value.Enum() != nil:
		f.Type = string(value.Enum().FullName())
	default:
		f.Type = value.Kind().String()
	}
	if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
		f.Oneof = string(one.Name())
	}
	behaviour, _ := proto.GetExtension(o, annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	checked, _ := proto.GetExtension(o, validate.E_Field).(*validate.FieldRules)
	f.Required = fd.Cardinality() == protoreflect.Required || slices.Contains(behaviour, annotations.FieldBehavior_REQUIRED) || checked.GetRequired()
	var words []string
	for _, b := range behaviour {
		if b != annotations.FieldBehavior_REQUIRED && b != annotations.FieldBehavior_OPTIONAL {
			words = append(words, strings.ToLower(b.String()))
		}
	}
	if checked != nil {
		words = append(words, text(checked))
	}
	f.Rules = rules(o, words)
	return f
}

// text is a message in one line. The library's spacing is random on purpose.
func text(m proto.Message) string {
	return strings.Join(strings.Fields(prototext.MarshalOptions{AllowPartial: true}.Format(m)), " ")
}

// rules returns words, followed by a hash of all options that are not told apart in the lock; "" where there are none.
func rules(options proto.Message, words []string) string {
	if options == nil || !options.ProtoReflect().IsValid() {
		return strings.Join(words, "; ")
	}
	rest := proto.Clone(options)
	if o, ok := rest.(*descriptorpb.FieldOptions); ok {
		o.DebugRedact, o.Deprecated = nil, nil
		proto.ClearExtension(o, toolwayv1.E_Field)
		if b, ok := proto.GetExtension(o, annotations.E_FieldBehavior).([]annotations.FieldBehavior); ok && len(b) > 0 {
			proto.ClearExtension(o, annotations.E_FieldBehavior)
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(rest)
	if err == nil && len(b) > 0 {
		sum := sha256.Sum256(b)
		words = append(words, fmt.Sprintf("#%x", sum[:4]))
	}
	return strings.Join(words, "; ")
}
