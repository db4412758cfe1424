package catalog

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
)

// Resource is a unary method whose reply is read by a URI: a standard Get method of a google.api.resource, one for each pattern of its
// type, or a method whose option gives the URI.
type Resource struct {
	// URI is the URI, or a template of it (RFC 6570, level 1) if there are Vars.
	URI string
	// Name is for programs, Title and Description for people and agents; they are bounded and cleaned, and never empty.
	Name, Title, Description string
	// MIMEType is what a read gives; "" if that depends on the reply, a google.api.HttpBody.
	MIMEType string
	// Type is the type of the google.api.resource, such as "library.googleapis.com/Book"; "" if only the option declares the resource.
	Type string
	// Backend owns it; its methods are in one service.
	Backend *Backend
	// Get reads it.
	Get *Method
	// List lists those that there are; nil if that is not possible.
	List *Listing
	// Watch tells of changes; nil if nothing does.
	Watch *Watch
	// Parent is the resource in whose collections these are; nil if there is none, or it is not known here.
	Parent *Resource

	uri  *pattern
	name *pattern // of the resource name; nil if only the option declares the resource
	// fields are the request fields that the variables are for, or the one that the name is for.
	fields []string
	info   *resourceInfo
}

// Listing is a standard List method.
type Listing struct {
	Method *Method
	// Parent is the request field for the parent's name; "" if there is none.
	Parent string
	// PageSize and PageToken are request fields; "" where they are missing.
	PageSize, PageToken string
	// Items is the response's list of resources, NextToken the token of the next page, or nil. Name is the item's field with its name.
	Items, NextToken, Name protoreflect.FieldDescriptor
}

// Watch is a method whose stream has a message for each change.
type Watch struct {
	Method *Method
	// Name or Parent is the request field for the name of the resource or of its parent; both are "" for a method that the option names.
	Name, Parent string
	// Item says where in a message of a watch by Parent the resource is: a field of the message, or nil for the message itself.
	Item protoreflect.FieldDescriptor
	// ItemName is the field of the resource that has its name; nil if the messages do not carry it.
	ItemName protoreflect.FieldDescriptor
}

// Vars returns the names of the URI's variables, in order. The slice must not be changed.
func (r *Resource) Vars() []string { return r.uri.vars }

// Match returns the values of the variables in uri, in order, and whether it is the URI of such a resource.
func (r *Resource) Match(uri string) ([]string, bool) { return r.uri.matchURI(uri) }

// MatchName is Match for a resource name, such as "shelves/1/books/2".
func (r *Resource) MatchName(name string) ([]string, bool) {
	if r.name == nil {
		return nil, false
	}
	return r.name.match(name)
}

// Expand returns the URI with the values of all variables.
func (r *Resource) Expand(values []string) string { return r.uri.expand(values, escape) }

// NameOf returns the resource name with the values of all variables; "" if the resource has none.
func (r *Resource) NameOf(values []string) string {
	if r.name == nil {
		return ""
	}
	return r.name.expand(values, func(s string) string { return s })
}

// ParentName returns the name of the collection's parent; "" for a collection without one.
func (r *Resource) ParentName(values []string) string {
	name := r.NameOf(values)
	for range 2 { // the id, and the collection before it
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return ""
		}
		name = name[:i]
	}
	return name
}

// HasParent says whether the collection of these resources is in another resource.
func (r *Resource) HasParent() bool { return r.name != nil && len(r.name.segments) > 2 }

// VarField returns the request field of Get that the variable is for, or nil: those of a google.api.resource are parts of its name.
func (r *Resource) VarField(name string) protoreflect.FieldDescriptor {
	if r.name != nil {
		return nil
	}
	fd, err := fieldAt(r.Get.Desc.Input(), name)
	if err != nil {
		return nil
	}
	return fd
}

// Request returns the wire form of Get's request for the values of all variables. An error is an *transcode.Error.
func (r *Resource) Request(values []string) ([]byte, error) {
	if r.name != nil {
		return r.Get.Request().AppendParam(nil, r.fields[0], []string{r.NameOf(values)})
	}
	return appendVars(nil, r.Get, r.fields, values)
}

// WatchRequest returns the wire form of Watch's request for the values of all variables.
func (r *Resource) WatchRequest(values []string) ([]byte, error) {
	w := r.Watch
	switch {
	case w.Name != "":
		return w.Method.Request().AppendParam(nil, w.Name, []string{r.NameOf(values)})
	case w.Parent != "":
		return w.Method.Request().AppendParam(nil, w.Parent, []string{r.ParentName(values)})
	}
	var fields, has []string
	for i, path := range r.fields {
		if _, err := fieldAt(w.Method.Desc.Input(), path); err == nil {
			fields, has = append(fields, path), append(has, values[i])
		}
	}
	return appendVars(nil, w.Method, fields, has)
}

func appendVars(wire []byte, m *Method, fields, values []string) ([]byte, error) {
	var err error
	for i, path := range fields {
		if wire, err = m.Request().AppendParam(wire, path, values[i:i+1]); err != nil {
			return nil, err
		}
	}
	return wire, nil
}

// Resources returns what agents may read now, sorted by URI: nothing withdrawn.
func (s *Snapshot) Resources() []*Resource { return s.resources }

// maxURI bounds the URIs that are looked up.
const maxURI = 4096

// Resource returns the resource whose URI it is, with the values of the URI's variables, or nil. Withdrawn ones are found (see
// Backend.State). Where several templates fit, the first backend in the order of the configuration has it.
func (s *Snapshot) Resource(uri string) (*Resource, []string) {
	if len(uri) > maxURI {
		return nil, nil
	}
	if r := s.byShape[uri]; r != nil && len(r.uri.vars) == 0 {
		return r, nil
	}
	for _, r := range s.owned {
		if len(r.uri.vars) == 0 {
			continue
		}
		if values, ok := r.Match(uri); ok {
			return r, values
		}
	}
	return nil, nil
}

// ResourceNamed returns the resource of the backend that has such a name, as ResourceOf does for a URI.
func (s *Snapshot) ResourceNamed(b *Backend, name string) (*Resource, []string) {
	for _, r := range s.owned {
		if r.Backend != b || len(name) > maxURI {
			continue
		}
		if values, ok := r.MatchName(name); ok {
			return r, values
		}
	}
	return nil, nil
}

// ResourcesOf returns the backend's resources of a google.api.resource type, in the order of its patterns.
func (s *Snapshot) ResourcesOf(b *Backend, typ string) []*Resource {
	var out []*Resource
	for _, r := range s.owned {
		if r.Backend == b && r.Type == typ {
			out = append(out, r)
		}
	}
	return out
}

// ownResources gives the backend the resources of its service that nobody before it owns.
func (b *builder) ownResources(s *Service, infos []*resourceInfo) {
	method := func(name protoreflect.Name) *Method {
		return b.byMethod["/"+string(s.Desc.FullName())+"/"+string(name)]
	}
	for _, info := range infos {
		shape := info.uri.shape()
		if owner := b.byShape[shape]; owner != nil {
			if owner.Backend == s.Backend && owner.Type == info.Type && info.Type != "" {
				continue // two services, or two versions of one, give the same resource
			}
			b.find(s.Backend, "resource-clash", SeverityError, info.URI, "resource %q of %s (backend %q) is not served: %s (backend %q) comes first and has this URI; change one of the two google.api.resource types or toolway.v1 options",
				info.URI, info.get.FullName(), s.Backend.Name, owner.Get.Desc.FullName(), owner.Backend.Name)
			continue
		}
		get := method(info.get.Name())
		if !get.Exposed(DoorMCP) {
			continue
		}
		r := info.Resource
		r.Backend, r.info, r.Get = s.Backend, info, get
		if info.List != nil && method(info.list).Exposed(DoorMCP) {
			l := *info.List
			l.Method = method(info.list)
			r.List = &l
		} else {
			r.List = nil
		}
		if info.Watch != nil && method(info.watch).Exposed(DoorMCP) {
			w := *info.Watch
			w.Method = method(info.watch)
			r.Watch = &w
		} else {
			r.Watch = nil
		}
		b.byShape[shape] = &r
		b.owned = append(b.owned, &r)
		if s.Backend.State != Down {
			b.resources = append(b.resources, &r)
		}
	}
}

// linkParents finds for each resource the one whose collection it is in.
func (b *builder) linkParents() {
	type place struct {
		backend *Backend
		shape   string
	}
	by := map[place]*Resource{}
	for _, r := range b.owned {
		if r.name != nil {
			by[place{r.Backend, r.name.shape()}] = r
		}
	}
	for _, r := range b.owned {
		if r.HasParent() {
			shape := r.name.shape()
			for range 2 {
				shape = shape[:strings.LastIndexByte(shape, '/')]
			}
			r.Parent = by[place{r.Backend, shape}]
		}
	}
}

// describeResource returns what agents read of a resource, always ending in the full name of its method.
func describeResource(option string, md protoreflect.MethodDescriptor, of protoreflect.Descriptor) string {
	text := clean(option, true)
	if text == "" {
		text = clean(toolschema.Comment(of, MaxDescription), true)
	}
	if text == "" {
		text = "What " + cut(string(md.Name()), 96) + " returns."
	}
	tail := "\n\nRead with " + cut(string(md.FullName()), MaxDescription/2) + "."
	return cut(text, MaxDescription-len(tail)) + tail
}
