package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoregistry"
)

// Files are one backend's file descriptors.
type Files = protoregistry.Files

// input is one backend as the builder takes it: what its sources brought last.
type input struct {
	name     string
	state    State
	failover string    // the name of the backend that takes over, or ""
	analysis *analysis // nil while no contract is known
	services []string  // the only services that it may bring; empty means all
	trusted  bool      // compiled in: may bring reserved services
	rules    *laid     // laid over the analysis; nil without rules
	findings []Finding // of its sources
}

// infrastructure are the packages of gRPC's own services, which every server brings and only the mesh itself may answer.
var infrastructure = []string{"grpc.health.", "grpc.reflection.", "grpc.channelz.", "grpc.admin.", "grpc.binarylog."}

// reserved is the package of the mesh's own services.
const reserved = "toolway."

func isInfrastructure(service string) bool {
	return slices.ContainsFunc(infrastructure, func(p string) bool { return strings.HasPrefix(service, p) })
}

// builder makes one snapshot of all inputs. Whatever two backends both claim goes to the first in the order of the configuration.
type builder struct {
	*Snapshot
	rules  *ruleSet
	routes map[string]*Method
	hash   *strings.Builder
	covers *failovers
}

// build makes a snapshot; rs may be nil.
func build(rs *ruleSet, inputs []input) *Snapshot {
	b := builder{
		Snapshot: &Snapshot{
			byMethod: map[string]*Method{}, byTool: map[string]*Method{}, byService: map[string]*Service{},
			byShape: map[string]*Resource{}, byPrompt: map[string]*Prompt{}, superseded: make(chan struct{}),
		},
		rules: rs, routes: map[string]*Method{}, hash: &strings.Builder{},
	}
	if rs == nil {
		b.rules = new(ruleSet)
	}
	b.hash.WriteString(b.rules.print)
	b.covers = newFailovers(inputs)
	var order []*Method
	for _, in := range inputs {
		order = append(order, b.backend(in)...)
	}
	b.nameTools(order)
	b.judge(inputs, order)
	b.checkRules(inputs)
	b.linkParents()
	slices.SortFunc(b.resources, func(x, y *Resource) int { return cmp.Compare(x.URI, y.URI) })
	slices.SortFunc(b.methods, func(x, y *Method) int { return cmp.Compare(x.FullMethod, y.FullMethod) })
	slices.SortFunc(b.services, func(x, y *Service) int { return cmp.Compare(x.Desc.FullName(), y.Desc.FullName()) })
	slices.SortFunc(b.tools, func(x, y *Method) int { return cmp.Compare(x.Tool.Name, y.Tool.Name) })
	for _, f := range b.findings {
		fmt.Fprintf(b.hash, "finding %q\n", f)
	}
	sum := sha256.Sum256([]byte(b.hash.String()))
	b.version = hex.EncodeToString(sum[:16])
	return b.Snapshot
}

// backend adds one backend and returns its methods in the order of their full names.
func (b *builder) backend(in input) []*Method {
	be := &Backend{Name: in.name, State: in.state}
	b.backends = append(b.backends, be)
	fmt.Fprintf(b.hash, "backend %q %d\n", in.name, in.state)
	b.report(be, in.findings)
	if in.analysis == nil {
		be.Codecs = noCodecs
		return nil
	}
	c := in.analysis.contract
	be.Files, be.Codecs, be.contract = c.files, c.codecs, c
	fmt.Fprintf(b.hash, "contract %s %q %q\n", c.hash, in.analysis.prefix, in.services)
	var out []*Method
	for _, si := range in.analysis.services {
		if b.mayBring(be, in, string(si.desc.FullName())) {
			out = append(out, b.service(be, in, si)...)
		}
	}
	b.cover(be, out, b.covers)
	fmt.Fprintf(b.hash, "covered %v\n", be.Covered)
	for _, want := range in.services {
		if !slices.ContainsFunc(c.services, func(sd serviceDescriptor) bool { return Listed([]string{want}, string(sd.FullName())) }) {
			b.find(be, "service-missing", SeverityWarning, want, "backend %q does not bring service %q, which its configuration lists; mend the list or the backend", be.Name, want)
		}
	}
	return out
}

// mayBring says whether the backend may own the service, and reports if that needs saying.
func (b *builder) mayBring(be *Backend, in input, service string) bool {
	if len(in.services) > 0 && !Listed(in.services, service) {
		return false
	}
	if !in.trusted {
		if isInfrastructure(service) {
			return false
		}
		if strings.HasPrefix(service, reserved) {
			if own := b.byService[service]; own != nil && own.Mesh {
				return false // another mesh's: each has them
			}
			b.find(be, "service-reserved", SeverityError, service, "service %q of backend %q is not served: package toolway is reserved for the mesh itself; rename the package", service, be.Name)
			return false
		}
	}
	if owner := b.byService[service]; owner != nil {
		if !isInfrastructure(service) && owner.Backend.Failover != be.Name {
			b.find(be, "service-owned", SeverityError, service, "service %q of backend %q is not served: backend %q comes first and owns it; list in the configuration which services each of the two may bring", service, be.Name, owner.Backend.Name)
		}
		return false
	}
	return true
}

// Listed says whether a list of full names and "pkg.*" patterns holds the service.
func Listed(list []string, service string) bool {
	return slices.ContainsFunc(list, func(want string) bool {
		pkg, all := strings.CutSuffix(want, "*")
		return want == service || all && (pkg == "" || strings.HasSuffix(pkg, ".") && strings.HasPrefix(service, pkg))
	})
}

func (b *builder) service(be *Backend, in input, si *serviceInfo) []*Method {
	s := &Service{Desc: si.desc, Backend: be, Infrastructure: isInfrastructure(string(si.desc.FullName())), Mesh: strings.HasPrefix(string(si.desc.FullName()), reserved)}
	b.services = append(b.services, s)
	b.byService[string(si.desc.FullName())] = s
	for _, info := range si.methods {
		shaped, findings := in.rules.of(info)
		m := info.serve(shaped, in.analysis, s, be)
		s.Methods = append(s.Methods, m)
		b.methods = append(b.methods, m)
		b.byMethod[m.FullMethod] = m
		if s.Infrastructure {
			m.Tool, m.Bindings = Tool{}, nil
			continue
		}
		b.report(be, findings)
		m.hidden = b.rules.hide(m)
		b.bind(m)
		if s.Mesh { // an agent is offered it by a view that names it, never by what else there is
			m.Tool.Name = ""
		}
	}
	slices.SortFunc(s.Methods, func(x, y *Method) int { return cmp.Compare(x.FullMethod, y.FullMethod) })
	b.report(be, si.findings)
	b.ownResources(s, si.resources)
	b.ownPrompts(s, si.prompts)
	return s.Methods
}

// bind gives the method the routes that nobody before it owns.
func (b *builder) bind(m *Method) {
	m.Bindings = nil
	for _, r := range m.info.routes {
		if owner := b.routes[r.key]; owner != nil {
			b.find(m.Backend, "route-clash", SeverityError, r.Verb+" "+r.Template, "route %q of %s (backend %q) is not served: %s (backend %q) comes first and owns it; change one of the two google.api.http rules",
				r.Verb+" "+r.Template, m.Desc.FullName(), m.Backend.Name, owner.Desc.FullName(), owner.Backend.Name)
			continue
		}
		b.routes[r.key] = m
		m.Bindings = append(m.Bindings, r.Binding)
	}
}

// nameTools hands out tool names: methods come in order of backend, then full name, and the first keeps a name; a later one is listed under its
// long name. The long names go in last, so that they never take a name away.
func (b *builder) nameTools(order []*Method) {
	var late []*Method
	for _, m := range order {
		if m.Tool.Name == "" {
			continue
		}
		if owner := b.byTool[m.Tool.Name]; owner != nil {
			b.find(m.Backend, "tool-clash", SeverityError, m.Tool.Name, "tool name %q of %s (backend %q) is taken: %s (backend %q) comes first and has it; the tool is listed as %q instead; %s the tool_name option on one method%s",
				m.Tool.Name, m.Desc.FullName(), m.Backend.Name, owner.Desc.FullName(), owner.Backend.Name, m.info.long, mendClash(m.Backend, owner.Backend), mendPackages(m, owner))
			m.Tool.Name = m.info.long
			late = append(late, m)
			continue
		}
		b.list(m)
	}
	for _, m := range late {
		if b.byTool[m.Tool.Name] == nil {
			b.list(m)
		}
	}
	for _, m := range order {
		if m.Tool.Name != "" && b.byTool[m.info.long] == nil {
			b.byTool[m.info.long] = m
		}
	}
}

// mendClash begins the mend of two equal names; a prefix tells only backends apart.
func mendClash(a, b *Backend) string {
	if a == b {
		return "set"
	}
	return "set a tool prefix on one backend, or"
}

// mendPackages goes on with what mends many clashes at once: packages of one backend can be told apart as two.
func mendPackages(a, b *Method) string {
	pkg := a.Desc.ParentFile().Package()
	if a.Backend != b.Backend || pkg == "" || pkg == b.Desc.ParentFile().Package() {
		return ""
	}
	return fmt.Sprintf(`, or list the backend twice, once with services: ["%s.*"] and a tool_prefix`, pkg)
}

// list gives m's tool its name and, unless it is withdrawn, a place in the list.
func (b *builder) list(m *Method) {
	b.byTool[m.Tool.Name] = m
	if m.Backend.State != Down && m.Exposed(DoorMCP) {
		b.tools = append(b.tools, m)
	}
}

func (b *builder) report(be *Backend, findings []Finding) {
	for _, f := range findings {
		f.Backend = be.Name
		b.findings = append(b.findings, f)
	}
}

func (b *builder) find(be *Backend, code, severity, subject, format string, args ...any) {
	b.findings = append(b.findings, Finding{Code: code, Severity: severity, Backend: be.Name, Subject: subject, Message: fmt.Sprintf(format, args...)})
}
