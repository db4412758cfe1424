package catalog

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// analysis is what is made of one contract alone, once, whatever else the catalog holds.
type analysis struct {
	contract *contract
	prefix   string
	services []*serviceInfo
	prints   fingerprints
}

type serviceInfo struct {
	desc      protoreflect.ServiceDescriptor
	methods   []*methodInfo
	resources []*resourceInfo
	prompts   []*promptInfo
	findings  []Finding // of the prompts
}

// methodInfo is a method before ownership is settled. It outlives snapshots, so that schemas and hashes are made once per contract.
type methodInfo struct {
	Method                                 // as the contract has it, without Service and Backend
	contract      *toolwayv1.MethodOptions // nil where the contract has none
	codecs        *transcode.Set
	sets          [2]*FieldSet // of the contract
	prefix, long  string
	routes        []route
	routeFindings []Finding
	findings      []Finding // of routes and of the contract's options
	in, out       schemas
	hash          string
	hashOnce      sync.Once

	required     []protoreflect.FieldDescriptor
	requiredOnce sync.Once
}

func analyse(c *contract, prefix string) *analysis {
	a := &analysis{contract: c, prefix: prefix}
	sets := fieldSets(c.files)
	defined := definedTypes(c.files)
	for _, sd := range c.services {
		s := &serviceInfo{desc: sd}
		for i := range sd.Methods().Len() {
			md := sd.Methods().Get(i)
			m := &methodInfo{prefix: prefix, codecs: c.codecs, sets: [2]*FieldSet{sets[md.Input().FullName()], sets[md.Output().FullName()]}}
			m.analyse(md)
			s.methods = append(s.methods, m)
		}
		if !isInfrastructure(string(sd.FullName())) {
			s.resources = deriveResources(s, prefix, defined)
			s.prompts, s.findings = derivePrompts(sd, prefix, c.files)
		}
		a.services = append(a.services, s)
	}
	return a
}

func (m *methodInfo) analyse(md protoreflect.MethodDescriptor) {
	m.FullMethod, m.Desc = "/"+string(md.Parent().FullName())+"/"+string(md.Name()), md
	m.Deprecated = methodOptions(md).GetDeprecated() || deprecatedParent(md)
	m.contract, _ = proto.GetExtension(methodOptions(md), toolwayv1.E_Method).(*toolwayv1.MethodOptions)
	m.routes, m.routeFindings = routes(md)
	for _, r := range m.routes {
		m.Bindings = append(m.Bindings, r.Binding)
	}
	m.long = longToolName(m.prefix, md)
	m.findings = slices.Concat(m.routeFindings, m.shape(&m.Method, terms{MethodOptions: m.contract, labels: labelsOf(md)}))
}

func (m *methodInfo) find(code, severity, subject, format string, args ...any) {
	m.findings = append(m.findings, Finding{Code: code, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...)})
}

// shape makes of the options what they say about the method, and returns what is wrong with them.
func (m *methodInfo) shape(to *Method, o terms) []Finding {
	f, md, opt := &faults{method: m.Desc, from: o.from}, m.Desc, o.MethodOptions
	to.Tool.Name, to.cut = defaultToolName(m.prefix, md), len(m.prefix+wholeToolName(md)) > MaxToolName
	if name := opt.GetToolName(); name != "" {
		if full := m.prefix + name; validToolName(full) {
			to.Tool.Name, to.cut = full, false
		} else {
			f.find("tool-name-invalid", SeverityWarning, full, "tool name %q of %s is not served, %q stands for it: a name is [a-zA-Z][a-zA-Z0-9_-]*, at most %d characters; mend the tool_name option or the prefix",
				full, md.FullName(), to.Tool.Name, MaxToolName)
		}
	}
	to.Tool.Title = title(md, opt)
	to.Tool.Description, to.commented = describe(md, opt, m.Deprecated, m.examples(o, f))
	var ev hintEvidence
	to.Tool.Hints, ev = hints(md, opt, m.Bindings)
	to.annotated = ev.annotated()
	if opt.GetReadOnly() && opt.GetDestructive() {
		f.contradiction("%s says that it is read-only and destructive; read-only is taken; take out one of the two options", md.FullName())
	}
	to.Policy = policyOf(md, o, to.Tool.Hints, ev)
	to.Timeout, to.MaxTimeout = duration(opt.GetTimeout()), duration(opt.GetMaxTimeout())
	if to.MaxTimeout > 0 && to.Timeout > to.MaxTimeout {
		f.contradiction("%s has a timeout of %v above its max_timeout of %v; the cap is taken; lower the timeout", md.FullName(), to.Timeout, to.MaxTimeout)
		to.Timeout = to.MaxTimeout
	}
	to.marked = m.sets
	for _, r := range o.fields {
		to.mark(r)
	}
	to.checkPolicy(f, ev)
	return f.found
}

// duration reads an option; negative and absurd values count as unset.
func duration(d interface {
	IsValid() bool
	AsDuration() time.Duration
}) time.Duration {
	if !d.IsValid() || d.AsDuration() < 0 {
		return 0
	}
	return d.AsDuration()
}

func deprecatedParent(md protoreflect.MethodDescriptor) bool {
	so, _ := md.Parent().Options().(*descriptorpb.ServiceOptions)
	fo, _ := md.ParentFile().Options().(*descriptorpb.FileOptions)
	return so.GetDeprecated() || fo.GetDeprecated()
}

// serve returns the method, as rules have left it, as one snapshot serves it.
func (m *methodInfo) serve(out Method, a *analysis, s *Service, b *Backend) *Method {
	out.Service, out.Backend, out.info, out.analysis, out.memo = s, b, m, a, new(sync.Map)
	out.Bindings = slices.Clip(out.Bindings)
	return &out
}

// schemas makes a method's schema of one direction once per profile.
type schemas struct {
	once [3]sync.Once
	json [3][]byte
}

func (s *schemas) get(m *Method, d toolschema.Direction, p toolschema.Profile) []byte {
	s.once[p].Do(func() { s.json[p] = m.makeSchema(d, p, 0) })
	return s.json[p]
}

// WholeSchema makes a schema as InputSchema and OutputSchema do, but cuts nothing of up to 4 MiB. It is made anew each time.
func (m *Method) WholeSchema(d toolschema.Direction, p toolschema.Profile) []byte {
	return m.makeSchema(d, p, -1)
}

func (m *Method) makeSchema(d toolschema.Direction, p toolschema.Profile, maxBytes int) []byte {
	md, o := m.Desc.Input(), toolschema.Options{Direction: d, Profile: p, MaxBytes: maxBytes}
	if d == toolschema.Output {
		md = m.Desc.Output()
	}
	switch {
	case d == toolschema.Input && m.Desc.IsStreamingClient():
		o.List = "messages"
	case d == toolschema.Output && m.Desc.IsStreamingServer():
		o.List = "items"
	}
	return toolschema.For(md, o)
}
