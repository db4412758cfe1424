package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// resourceInfo is a resource before ownership is settled. The methods of its Listing and Watch are set when it is served.
type resourceInfo struct {
	Resource
	get         protoreflect.MethodDescriptor
	list, watch protoreflect.Name
}

// resourceDeriver finds the resources of one service.
type resourceDeriver struct {
	service *serviceInfo
	prefix  string
	// defined are the types that files define without a message.
	defined map[string]*annotations.ResourceDescriptor
	methods []protoreflect.MethodDescriptor
}

// definedTypes returns the google.api.resource_definition options of all files, by type.
func definedTypes(files *Files) map[string]*annotations.ResourceDescriptor {
	out := map[string]*annotations.ResourceDescriptor{}
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		o, _ := fd.Options().(*descriptorpb.FileOptions)
		defs, _ := proto.GetExtension(o, annotations.E_ResourceDefinition).([]*annotations.ResourceDescriptor)
		for _, rd := range defs {
			out[rd.GetType()] = rd
		}
		return true
	})
	return out
}

// deriveResources finds the resources of a service. What is wrong with one is a finding of its Get method.
func deriveResources(s *serviceInfo, prefix string, defined map[string]*annotations.ResourceDescriptor) []*resourceInfo {
	d := resourceDeriver{service: s, prefix: prefix, defined: defined}
	for _, m := range s.methods {
		d.methods = append(d.methods, m.Desc)
	}
	var out []*resourceInfo
	for _, m := range s.methods {
		opt, _ := proto.GetExtension(methodOptions(m.Desc), toolwayv1.E_Method).(*toolwayv1.MethodOptions)
		switch res := opt.GetResource(); {
		case res.GetUriTemplate() != "":
			if r := d.declared(m, res); r != nil {
				out = append(out, r)
			}
		case opt == nil || opt.ReadOnly == nil || opt.GetReadOnly():
			out = append(out, d.standard(m, res)...)
		}
	}
	return out
}

// declared is a resource whose option has the URI.
func (d *resourceDeriver) declared(m *methodInfo, opt *toolwayv1.Resource) *resourceInfo {
	md, uri := m.Desc, opt.GetUriTemplate()
	r := &resourceInfo{get: md, Resource: Resource{URI: uri, MIMEType: clean(opt.GetMimeType(), false)}}
	err := d.declare(r, opt)
	if err != nil {
		m.find("resource-invalid", SeverityWarning, string(md.FullName()), "resource %q of %s is not served: %v; mend the resource option", uri, md.FullName(), err)
		return nil
	}
	d.words(m, r, opt, m.Tool.Name, title(md, nil), md)
	return r
}

func (d *resourceDeriver) declare(r *resourceInfo, opt *toolwayv1.Resource) (err error) {
	md := r.get
	if md.IsStreamingClient() || md.IsStreamingServer() {
		return fmt.Errorf("only a unary method can be one")
	}
	if r.uri, err = parsePattern(r.URI); err != nil {
		return err
	}
	scheme, rest, ok := strings.Cut(r.uri.segments[0].literals[0], ":")
	switch {
	case !ok || !validScheme(scheme) || rest == "" && len(r.uri.segments) == 1 && len(r.uri.vars) == 0:
		return fmt.Errorf("it does not begin with a scheme, such as \"orders:\"")
	case strings.EqualFold(scheme, "grpc") || strings.EqualFold(scheme, "toolway"):
		return fmt.Errorf("the scheme %q is the mesh's own", scheme)
	}
	for _, path := range r.uri.vars {
		fd, err := fieldAt(md.Input(), path)
		if err != nil {
			return err
		}
		if fd.IsMap() || fd.IsList() || fd.Message() != nil && !textual(fd.Message()) {
			return fmt.Errorf("variable %q is %s, which cannot stand in a URI", path, kindOf(fd))
		}
	}
	r.fields = r.uri.vars
	name := opt.GetWatchMethod()
	if name == "" {
		return nil
	}
	w := d.method(name)
	if w == nil || !w.IsStreamingServer() || w.IsStreamingClient() {
		return fmt.Errorf("watch_method %q is no server-streaming method of %s", name, md.Parent().FullName())
	}
	r.Watch, r.watch = &Watch{}, w.Name()
	return nil
}

func validScheme(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLower(c) && (i == 0 || !isDigit(c) && strings.IndexByte("+-.", c) < 0) {
			return false
		}
	}
	return s != ""
}

func (d *resourceDeriver) method(name string) protoreflect.MethodDescriptor {
	i := slices.IndexFunc(d.methods, func(md protoreflect.MethodDescriptor) bool { return string(md.Name()) == name })
	if i < 0 {
		return nil
	}
	return d.methods[i]
}

// words sets what programs, people and agents read of r.
func (d *resourceDeriver) words(m *methodInfo, r *resourceInfo, opt *toolwayv1.Resource, name, words string, of protoreflect.Descriptor) {
	r.Name = name
	if want := opt.GetName(); want != "" {
		if full := d.prefix + want; validToolName(full) {
			r.Name = full
		} else {
			m.find("resource-name-invalid", SeverityWarning, full, "resource name %q of %s is not used, %q stands for it: a name is [a-zA-Z][a-zA-Z0-9_-]*, at most %d characters; mend the resource option or the prefix",
				full, m.Desc.FullName(), r.Name, MaxToolName)
		}
	}
	r.Title = cmp.Or(cut(clean(opt.GetTitle(), false), maxTitle), words)
	r.Description = describeResource(opt.GetDescription(), m.Desc, of)
	if r.MIMEType = cut(clean(opt.GetMimeType(), false), maxTitle); r.MIMEType == "" && m.Desc.Output().FullName() != "google.api.HttpBody" {
		r.MIMEType = "application/json"
	}
}

// standard returns the resources of a standard Get method (AIP-131), one for each pattern, or none.
func (d *resourceDeriver) standard(m *methodInfo, opt *toolwayv1.Resource) []*resourceInfo {
	md := m.Desc
	if md.IsStreamingClient() || md.IsStreamingServer() || !afterVerb(md, "Get") {
		return nil
	}
	rd, of := d.resourceOf(md), protoreflect.Descriptor(md.Output())
	domain, kind, ok := strings.Cut(rd.GetType(), "/")
	if !ok || domain == "" || kind == "" {
		return nil
	}
	name := referring(md.Input(), rd.GetType(), "name")
	if name == nil || demandsMore(md.Input(), name) {
		return nil
	}
	var out []*resourceInfo
	for _, text := range rd.GetPattern() {
		if text == "*" {
			continue // no pattern, says google/api/resource.proto
		}
		r := &resourceInfo{get: md, Resource: Resource{URI: "grpc://" + domain + "/" + text, Type: rd.GetType(), fields: []string{string(name.Name())}}}
		var err error
		if r.name, err = parsePattern(text); err == nil {
			r.uri, err = parsePattern(r.URI)
		}
		if err == nil && (strings.ContainsAny(domain, "{}?#@") || text == "") {
			err = fmt.Errorf("the type %q has no domain, or the pattern is empty", rd.GetType())
		}
		if err != nil {
			m.find("resource-invalid", SeverityWarning, string(md.FullName()), "pattern %q of resource %q is not served: %v; mend the google.api.resource option", text, rd.GetType(), err)
			continue
		}
		d.words(m, r, opt, resourceName(d.prefix, md, kind, len(out)), strings.Join(words(kind), " "), of)
		d.list(r, rd)
		d.watcher(r, rd, kind)
		out = append(out, r)
	}
	return out
}

func afterVerb(md protoreflect.MethodDescriptor, verb string) bool {
	rest, ok := strings.CutPrefix(string(md.Name()), verb)
	return ok && rest != "" && isUpper(rest[0])
}

// resourceOf returns the resource that a Get method gives: its response, or the type that its request names and a file defines.
func (d *resourceDeriver) resourceOf(md protoreflect.MethodDescriptor) *annotations.ResourceDescriptor {
	if rd := resourceOption(md.Output()); rd != nil {
		return rd
	}
	name := md.Input().Fields().ByName("name")
	if name == nil {
		return nil
	}
	rd := d.defined[reference(name).GetType()]
	_, kind, _ := strings.Cut(rd.GetType(), "/")
	if string(md.Name()) != "Get"+kind {
		return nil
	}
	return rd
}

func resourceOption(md protoreflect.MessageDescriptor) *annotations.ResourceDescriptor {
	o, _ := md.Options().(*descriptorpb.MessageOptions)
	rd, _ := proto.GetExtension(o, annotations.E_Resource).(*annotations.ResourceDescriptor)
	return rd
}

func reference(fd protoreflect.FieldDescriptor) *annotations.ResourceReference {
	o, _ := fd.Options().(*descriptorpb.FieldOptions)
	ref, _ := proto.GetExtension(o, annotations.E_ResourceReference).(*annotations.ResourceReference)
	return ref
}

// referring returns the request field that refers to the type: one that says so, or else one of the usual name that does not say otherwise.
func referring(md protoreflect.MessageDescriptor, typ string, usual protoreflect.Name) protoreflect.FieldDescriptor {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); isString(fd) && reference(fd).GetType() == typ {
			return fd
		}
	}
	fd := md.Fields().ByName(usual)
	if fd == nil || !isString(fd) {
		return nil
	}
	if ref := reference(fd); ref.GetType() != "" && ref.GetType() != "*" || ref.GetChildType() != "" {
		return nil
	}
	return fd
}

// inParent returns the request field for the parent of resources of the type.
func inParent(md protoreflect.MessageDescriptor, typ string) protoreflect.FieldDescriptor {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); isString(fd) && reference(fd).GetChildType() == typ {
			return fd
		}
	}
	if fd := md.Fields().ByName("parent"); fd != nil && isString(fd) {
		return fd
	}
	return nil
}

func isString(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind && !fd.IsList()
}

// demandsMore says whether the request has a required field besides the one.
func demandsMore(md protoreflect.MessageDescriptor, but protoreflect.FieldDescriptor) bool {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		o, _ := fd.Options().(*descriptorpb.FieldOptions)
		behaviour, _ := proto.GetExtension(o, annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		if fd != but && (fd.Cardinality() == protoreflect.Required || slices.Contains(behaviour, annotations.FieldBehavior_REQUIRED)) {
			return true
		}
	}
	return false
}

// list finds the standard List method (AIP-132): the first whose response has a list of what Get returns.
func (d *resourceDeriver) list(r *resourceInfo, rd *annotations.ResourceDescriptor) {
	name := nameField(r.get.Output(), rd)
	if name == nil {
		return
	}
	for _, md := range d.methods {
		if md.IsStreamingClient() || md.IsStreamingServer() || !afterVerb(md, "List") {
			continue
		}
		items := holding(md.Output(), r.get.Output(), true)
		parent := inParent(md.Input(), r.Type)
		if items == nil || demandsMore(md.Input(), parent) || parent == nil && r.HasParent() {
			continue
		}
		l := &Listing{Items: items, Name: name}
		if parent != nil {
			l.Parent = string(parent.Name())
		}
		size, token, next := md.Input().Fields().ByName("page_size"), md.Input().Fields().ByName("page_token"), md.Output().Fields().ByName("next_page_token")
		if size != nil && size.Kind() == protoreflect.Int32Kind && !size.IsList() {
			l.PageSize = string(size.Name())
		}
		if token != nil && isString(token) && next != nil && isString(next) {
			l.PageToken, l.NextToken = string(token.Name()), next
		}
		r.List, r.list = l, md.Name()
		return
	}
}

// nameField returns the field of a resource that has its name, or nil.
func nameField(md protoreflect.MessageDescriptor, rd *annotations.ResourceDescriptor) protoreflect.FieldDescriptor {
	fd := md.Fields().ByName(protoreflect.Name(cmp.Or(rd.GetNameField(), "name")))
	if fd == nil || !isString(fd) {
		return nil
	}
	return fd
}

// holding returns the first field of md that has messages of the type, one or a list of them.
func holding(md, typ protoreflect.MessageDescriptor, list bool) protoreflect.FieldDescriptor {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Message() != nil && fd.Message().FullName() == typ.FullName() && fd.IsList() == list && !fd.IsMap() {
			return fd
		}
	}
	return nil
}

// watcher finds the method that tells of changes: a server stream called Watch… that takes the resource's name, or else its parent's.
func (d *resourceDeriver) watcher(r *resourceInfo, rd *annotations.ResourceDescriptor, kind string) {
	for _, byParent := range []bool{false, true} {
		for _, md := range d.methods {
			if md.IsStreamingClient() || !md.IsStreamingServer() || !afterVerb(md, "Watch") {
				continue
			}
			w := &Watch{}
			item := holding(md.Output(), r.get.Output(), false)
			same := md.Output().FullName() == r.get.Output().FullName()
			if item == nil && !same && !strings.HasPrefix(string(md.Name()), "Watch"+kind) {
				continue
			}
			field := referring(md.Input(), r.Type, "name")
			if byParent {
				field = inParent(md.Input(), r.Type)
			}
			if field == nil || demandsMore(md.Input(), field) {
				continue
			}
			if w.Name = string(field.Name()); byParent {
				w.Name, w.Parent = "", w.Name
			}
			if item != nil || same {
				w.Item, w.ItemName = item, nameField(r.get.Output(), rd)
			}
			r.Watch, r.watch = w, md.Name()
			return
		}
	}
}

// resourceName derives a resource's name from its method and type alone. Patterns after the first are numbered.
func resourceName(prefix string, md protoreflect.MethodDescriptor, kind string, i int) string {
	service := snake(string(md.Parent().Name()))
	if short := strings.TrimSuffix(service, "_service"); short != "" {
		service = short
	}
	name := prefix + strings.Trim(service+"_"+snake(kind), "_")
	if v := packageVersion(md.ParentFile().Package()); v != "" && v != "v1" {
		name += "_" + v
	}
	if i > 0 {
		name += fmt.Sprintf("_%d", i+1)
	}
	if len(name) > MaxToolName {
		return cutToolName(name, md.FullName())
	}
	return name
}
