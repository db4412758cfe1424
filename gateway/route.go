package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// anyMethod is the custom kind of a rule that takes any HTTP method.
const anyMethod = "*"

// wholeBody is the body of a rule whose HTTP body is the request message.
const wholeBody = "*"

// route is a compiled binding. It is immutable.
type route struct {
	method   *catalog.Method
	verb     string // HTTP method, or anyMethod
	template *template
	source   string      // the template as written
	params   []pathParam // of template.vars

	body          string
	bodyOuter     []protowire.Number           // the message fields around bodyField, outermost first
	bodyField     protoreflect.FieldDescriptor // nil unless body names a field
	rawBody       bool                         // the body is a google.api.HttpBody
	responseBody  string
	responseField protoreflect.FieldDescriptor // nil unless the reply is a field
	responsePath  []protowire.Number           // of responseField, outermost first
	rawResponse   bool                         // the reply is a google.api.HttpBody
	updateMask    protoreflect.FieldDescriptor // filled from a PATCH body; nil if there is nothing to fill
	cursors       cursors                      // of a stream
	etags         etags
}

// pathParam is what a template's variable sets.
type pathParam struct {
	field protoreflect.FieldDescriptor // the last of the path
	zero  []byte                       // wire form that sets the field to its zero value explicitly, so that it overrides the body; nil for a list
}

// compile makes the route of a binding, or says why it cannot be served.
func compile(m *catalog.Method, b catalog.Binding) (*route, error) {
	t, err := parseTemplate(b.Template)
	if err != nil {
		return nil, err
	}
	r := &route{method: m, verb: b.Verb, template: t, source: b.Template, body: b.Body, responseBody: b.ResponseBody, cursors: newCursors(m)}
	if r.verb == "" {
		return nil, fmt.Errorf("path template %q: no HTTP method", b.Template)
	}
	for _, v := range t.vars {
		p, err := compileParam(m.Desc.Input(), v.path)
		if err != nil {
			return nil, fmt.Errorf("path template %q: %w", b.Template, err)
		}
		r.params = append(r.params, p)
	}
	if err := r.compileBodies(); err != nil {
		return nil, fmt.Errorf("path template %q: %w", b.Template, err)
	}
	r.etags = newEtags(m, r.responseBody)
	return r, nil
}

func (r *route) compileBodies() error {
	in, out := r.method.Desc.Input(), r.method.Desc.Output()
	switch r.body {
	case "":
	case wholeBody:
		r.rawBody = isHTTPBody(in)
	default:
		path, field, err := fieldAt(in, r.body)
		if err != nil {
			return fmt.Errorf("body %q: %w", r.body, err)
		}
		r.bodyOuter, r.bodyField = path[:len(path)-1], field
		r.rawBody = !r.bodyField.IsList() && !r.bodyField.IsMap() && isHTTPBody(r.bodyField.Message())
		r.updateMask = updateMask(r.verb, in, r.bodyField)
	}
	r.rawResponse = isHTTPBody(out)
	if r.responseBody == wholeBody {
		r.responseBody = ""
	}
	if r.responseBody != "" {
		path, fd, err := fieldAt(out, r.responseBody)
		if err != nil {
			return fmt.Errorf("response_body %q: %w", r.responseBody, err)
		}
		r.responsePath, r.responseField = path, fd
		r.rawResponse = !fd.IsList() && !fd.IsMap() && isHTTPBody(fd.Message())
	}
	return nil
}

// fieldAt finds the field that a body is. A dotted path is not in google/api/http.proto, but grpc-gateway takes it.
func fieldAt(md protoreflect.MessageDescriptor, path string) (numbers []protowire.Number, fd protoreflect.FieldDescriptor, _ error) {
	for name := range strings.SplitSeq(path, ".") {
		if fd != nil {
			if md = fd.Message(); md == nil || fd.IsList() || fd.IsMap() || fd.Kind() == protoreflect.GroupKind {
				return nil, nil, fmt.Errorf("field %q is not a message", fd.Name())
			}
		}
		if fd = fieldNamed(md, name); fd == nil {
			return nil, nil, fmt.Errorf("%s has no field %q", md.FullName(), name)
		}
		numbers = append(numbers, fd.Number())
	}
	return numbers, fd, nil
}

// rpc is the route that every method has: POST /package.Service/Method.
func rpc(m *catalog.Method) *route {
	service, name, _ := strings.Cut(strings.TrimPrefix(m.FullMethod, "/"), "/")
	r := &route{
		method: m, verb: http.MethodPost, source: m.FullMethod, body: wholeBody, cursors: newCursors(m), etags: newEtags(m, ""),
		template: &template{segments: []segment{{text: service}, {text: name}}},
	}
	r.rawBody, r.rawResponse = isHTTPBody(m.Desc.Input()), isHTTPBody(m.Desc.Output())
	return r
}

// compileParam resolves a variable's field path, which must end in a scalar, a message that has a text form, or a list of scalars, whose
// values stand in the path with commas between, as in grpc-gateway.
func compileParam(md protoreflect.MessageDescriptor, path string) (pathParam, error) {
	var p pathParam
	var outer []protowire.Number
	names := strings.Split(path, ".")
	for i, name := range names {
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			return p, fmt.Errorf("variable %q: %s has no field %q", path, md.FullName(), name)
		}
		p.field = fd
		if last := i == len(names)-1; fd.IsMap() || fd.IsList() && (!last || fd.Message() != nil) {
			return p, fmt.Errorf("variable %q: field %q is repeated", path, name)
		} else if last {
			break
		}
		if fd.Message() == nil || fd.Kind() == protoreflect.GroupKind {
			return p, fmt.Errorf("variable %q: field %q is not a message", path, name)
		}
		outer = append(outer, fd.Number())
		md = fd.Message()
	}
	if p.field.IsList() {
		return p, nil
	}
	p.zero = zeroOf(p.field)
	p.zero = within(outer, p.zero)
	return p, nil
}

// within wraps the wire form of a message into the fields around it, outermost first.
func within(outer []protowire.Number, wire []byte) []byte {
	for i := len(outer) - 1; i >= 0; i-- {
		wire = protowire.AppendBytes(protowire.AppendTag(nil, outer[i], protowire.BytesType), wire)
	}
	return wire
}

func zeroOf(fd protoreflect.FieldDescriptor) []byte {
	switch fd.Kind() {
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind:
		return protowire.AppendVarint(protowire.AppendTag(nil, fd.Number(), protowire.VarintType), 0)
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.AppendFixed32(protowire.AppendTag(nil, fd.Number(), protowire.Fixed32Type), 0)
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.AppendFixed64(protowire.AppendTag(nil, fd.Number(), protowire.Fixed64Type), 0)
	default:
		return protowire.AppendBytes(protowire.AppendTag(nil, fd.Number(), protowire.BytesType), nil)
	}
}

// fieldNamed finds a field by its proto or JSON name.
func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByName(protoreflect.Name(name)); fd != nil {
		return fd
	}
	return md.Fields().ByJSONName(name)
}

func isHTTPBody(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.FullName() == "google.api.HttpBody"
}
