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
	Method    // without Service and Backend
	long      string
	routes    []route
	commented bool
	annotated evidence
	findings  []Finding
	in, out   schemas
	hash      string
	hashOnce  sync.Once
	cut       bool

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
			m := analyseMethod(sd.Methods().Get(i), prefix)
			m.marked = [2]*FieldSet{sets[m.Desc.Input().FullName()], sets[m.Desc.Output().FullName()]}
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

func analyseMethod(md protoreflect.MethodDescriptor, prefix string) *methodInfo {
	sd := md.Parent()
	m := &methodInfo{Method: Method{FullMethod: "/" + string(sd.FullName()) + "/" + string(md.Name()), Desc: md}}
	opt, _ := proto.GetExtension(methodOptions(md), toolwayv1.E_Method).(*toolwayv1.MethodOptions)
	m.Deprecated = methodOptions(md).GetDeprecated() || deprecatedParent(md)
	m.routes, m.findings = routes(md)
	for _, r := range m.routes {
		m.Bindings = append(m.Bindings, r.Binding)
	}
	m.Tool.Name, m.long = defaultToolName(prefix, md), longToolName(prefix, md)
	m.cut = len(prefix+wholeToolName(md)) > MaxToolName
	if name := opt.GetToolName(); name != "" {
		if full := prefix + name; validToolName(full) {
			m.Tool.Name, m.cut = full, false
		} else {
			m.find("tool-name-invalid", SeverityWarning, full, "tool name %q of %s is not served, %q stands for it: a name is [a-zA-Z][a-zA-Z0-9_-]*, at most %d characters; mend the tool_name option or the prefix",
				full, md.FullName(), m.Tool.Name, MaxToolName)
		}
	}
	m.Tool.Title = title(md, opt)
	m.Tool.Description, m.commented = describe(md, opt, m.Deprecated)
	m.Tool.Hints, m.annotated = hints(md, opt, m.Bindings)
	if opt.GetReadOnly() && opt.GetDestructive() {
		m.find("option-contradiction", SeverityWarning, string(md.FullName()), "%s says that it is read-only and destructive; read-only is taken; take out one of the two options", md.FullName())
	}
	m.Policy = policyOf(md, opt)
	m.checkOnce()
	m.Timeout, m.MaxTimeout = duration(opt.GetTimeout()), duration(opt.GetMaxTimeout())
	if m.MaxTimeout > 0 && m.Timeout > m.MaxTimeout {
		m.find("option-contradiction", SeverityWarning, string(md.FullName()), "%s has a timeout of %v above its max_timeout of %v; the cap is taken; lower the timeout", md.FullName(), m.Timeout, m.MaxTimeout)
		m.Timeout = m.MaxTimeout
	}
	return m
}

func (m *methodInfo) find(code, severity, subject, format string, args ...any) {
	m.findings = append(m.findings, Finding{Code: code, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...)})
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

// serve returns the method as one snapshot serves it.
func (m *methodInfo) serve(a *analysis, s *Service, b *Backend) *Method {
	out := m.Method
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
