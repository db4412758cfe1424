package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

const mendRoute = "mend the google.api.http option"

// routes checks each binding: its fields are there, and what is put into a path or a body comes back.
func (v *subject) routes() {
	for _, b := range v.m.Bindings {
		v.tool.Routes++
		at := b.Verb + " " + b.Template
		for _, x := range variables(b.Template) {
			v.variable(at, x)
		}
		v.part(at, "body", b.Body, v.m.Desc.Input())
		v.part(at, "response_body", b.ResponseBody, v.m.Desc.Output())
	}
}

// variable is one {path=pattern} of a template.
type variable struct{ path, pattern string }

func variables(template string) (out []variable) {
	for {
		_, rest, ok := strings.Cut(template, "{")
		if !ok {
			return out
		}
		inner, after, ok := strings.Cut(rest, "}")
		if !ok {
			return out
		}
		path, pattern, given := strings.Cut(inner, "=")
		if !given {
			pattern = "*"
		}
		out, template = append(out, variable{path, pattern}), after
	}
}

// fieldAt returns the field at a dotted path of proto names, or why there is none.
func fieldAt(md protoreflect.MessageDescriptor, path string) (protoreflect.FieldDescriptor, string) {
	var fd protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if fd != nil {
			if fd.Message() == nil || fd.IsList() || fd.IsMap() {
				return nil, fmt.Sprintf("%q is no message that the path %q could go through", fd.Name(), path)
			}
			md = fd.Message()
		}
		if fd = md.Fields().ByName(protoreflect.Name(name)); fd == nil {
			return nil, fmt.Sprintf("%s has no field %q (path %q)", md.FullName(), name, path)
		}
	}
	return fd, ""
}

// variable puts a text that the pattern matches into the field, and looks for it in the JSON form.
func (v *subject) variable(at string, x variable) {
	fail := func(code, example, mend, format string, args ...any) {
		v.find(Finding{Code: code, Severity: catalog.SeverityError, Where: at, Message: fmt.Sprintf(format, args...), Mend: mend, Example: example})
	}
	fd, why := fieldAt(v.m.Desc.Input(), x.path)
	switch {
	case fd == nil:
		fail("route-field-missing", "", mendRoute, "the variable %q names no request field: %s", x.path, why)
		return
	case fd.IsMap():
		fail("route-field-unfit", "", mendRoute, "the variable %q is a map", x.path)
		return
	}
	text, why := textOf(fd, x.pattern)
	if why != "" {
		fail("route-field-unfit", "", mendRoute, "the variable %q %s", x.path, why)
		return
	}
	c := v.o.codec(v.m.Request())
	wire, err := c.AppendParam(nil, x.path, []string{text})
	if err != nil {
		fail("route-refused", text, ours, "the variable %q refuses %q: %v", x.path, text, err)
		return
	}
	doc, err := c.AppendJSON(nil, wire, transcode.WriteOptions{})
	if err != nil {
		fail("route-refused", text, ours, "the variable %q holds what cannot be written: %v", x.path, err)
		return
	}
	if got := stringAt(doc, v.m.Desc.Input(), x.path); got != text {
		fail("route-changed", string(doc), ours, "the variable %q holds %q, was %q", x.path, got, text)
	}
}

// textOf returns a text that the pattern matches and the field can hold in its shortest form, or why there is none.
func textOf(fd protoreflect.FieldDescriptor, pattern string) (text, why string) {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = "a-1"
		case "**":
			segments[i] = "b/c d"
		}
	}
	text = strings.Join(segments, "/")
	var want string
	switch kind := kindOf(fd); kind {
	case protoreflect.StringKind:
		return text, ""
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return "", "is the message " + string(fd.Message().FullName()) + ", which cannot stand in a path"
	case protoreflect.BoolKind:
		want = "true"
	case protoreflect.EnumKind:
		if fd.Enum().Values().Len() == 0 {
			return "", "is of an enum that has no names"
		}
		want = string(fd.Enum().Values().Get(fd.Enum().Values().Len() - 1).Name())
		if first := fd.Enum().Values().ByNumber(fd.Enum().Values().Get(fd.Enum().Values().Len() - 1).Number()); first != nil {
			want = string(first.Name()) // an alias is not written
		}
	case protoreflect.BytesKind:
		want = "YWI="
	default:
		want = "7"
	}
	if w := wellKnownText[name(fd.Message())]; w != "" {
		want = w
	}
	if pattern != "*" && pattern != "**" && pattern != want {
		return "", fmt.Sprintf("is no string, so it cannot match %q", pattern)
	}
	return want, ""
}

// wellKnownText are texts of messages that are a text in JSON.
var wellKnownText = map[protoreflect.FullName]string{
	"google.protobuf.Timestamp": "2026-01-31T08:30:00Z",
	"google.protobuf.Duration":  "1.500s",
	"google.protobuf.FieldMask": "name,size.width",
}

func name(md protoreflect.MessageDescriptor) protoreflect.FullName {
	if md == nil {
		return ""
	}
	return md.FullName()
}

// kindOf is the kind of a field, or of what its wrapper holds.
func kindOf(fd protoreflect.FieldDescriptor) protoreflect.Kind {
	md := fd.Message()
	if md == nil {
		return fd.Kind()
	}
	if wellKnownText[md.FullName()] != "" {
		return protoreflect.BytesKind
	}
	short, ok := strings.CutPrefix(string(md.FullName()), "google.protobuf.")
	if inner := md.Fields().ByName("value"); ok && inner != nil && inner.Message() == nil && strings.HasSuffix(short, "Value") {
		return inner.Kind()
	}
	return fd.Kind()
}

// stringAt returns the scalar at a path of proto names in the JSON form of md, as text.
func stringAt(doc []byte, md protoreflect.MessageDescriptor, path string) string {
	var at any
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if dec.Decode(&at) != nil {
		return string(doc)
	}
	for part := range strings.SplitSeq(path, ".") {
		m, _ := at.(map[string]any)
		fd := md.Fields().ByName(protoreflect.Name(part))
		if fd == nil {
			return ""
		}
		at, md = m[fd.JSONName()], fd.Message()
	}
	if l, ok := at.([]any); ok && len(l) == 1 {
		at = l[0]
	}
	if at == nil {
		return ""
	}
	return fmt.Sprint(at)
}

// part sends the one field that is a body there and back.
func (v *subject) part(at, what, path string, md protoreflect.MessageDescriptor) {
	if path == "" || path == "*" {
		return
	}
	fail := func(code, example, mend, format string, args ...any) {
		v.find(Finding{Code: code, Severity: catalog.SeverityError, Where: at, Message: fmt.Sprintf(format, args...), Mend: mend, Example: example})
	}
	fd, why := fieldAt(md, path)
	if fd == nil {
		fail("route-field-missing", "", mendRoute, "%s names no field: %s", what, why)
		return
	}
	owner := fd.ContainingMessage()
	c := v.o.codec(v.m.Backend.Codecs.Message(owner))
	w := newWires(owner, v.any, v.seed)
	for i := range 3 {
		wire := w.next(owner, i > 1)
		one, err := c.AppendFieldJSON(nil, string(fd.Name()), wire, transcode.WriteOptions{})
		if err != nil {
			fail("route-refused", fmt.Sprintf("%x", wire), ours, "%s %q cannot be written: %v", what, path, err)
			return
		}
		again, err := c.AppendFieldWire(nil, string(fd.Name()), one, transcode.ReadOptions{})
		if err != nil {
			fail("route-refused", string(one), ours, "%s %q refuses what is written of it: %v", what, path, err)
			return
		}
		two, err := c.AppendFieldJSON(nil, string(fd.Name()), again, transcode.WriteOptions{})
		if err != nil || !bytes.Equal(one, two) {
			fail("route-changed", string(one), ours, "%s %q comes back as %s", what, path, cut(string(two), 100))
			return
		}
	}
}
