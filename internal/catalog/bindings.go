package catalog

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// route is a binding with the form under which it clashes with others.
type route struct {
	Binding
	key string
}

// routes returns the valid bindings of md in order, and what is wrong with the others.
func routes(md protoreflect.MethodDescriptor) ([]route, []Finding) {
	opts := methodOptions(md)
	if !proto.HasExtension(opts, annotations.E_Http) {
		return nil, nil
	}
	rule, _ := proto.GetExtension(opts, annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil, nil
	}
	var out []route
	var findings []Finding
	drop := func(subject, why string) {
		findings = append(findings, Finding{
			Code: "route-dropped", Severity: SeverityError, Subject: subject,
			Message: fmt.Sprintf("HTTP rule %q of %s is not served: %s; mend the google.api.http option", subject, md.FullName(), why),
		})
	}
	seen := map[string]bool{}
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		b, ok := binding(r)
		name := strings.TrimSpace(b.Verb + " " + b.Template)
		if !ok {
			drop(name, "it names no HTTP verb")
			continue
		}
		if r != rule && len(r.GetAdditionalBindings()) > 0 {
			drop(name+" (nested)", "additional bindings inside an additional binding are not allowed")
		}
		t, err := parseTemplate(b.Template)
		if err == nil {
			err = checkFields(md, b, t)
		}
		if err != nil {
			drop(name, err.Error())
			continue
		}
		key := b.Verb + " " + t.shape()
		if seen[key] {
			drop(name, "the method binds the same path twice; the first stays")
			continue
		}
		seen[key] = true
		out = append(out, route{Binding: b, key: key})
	}
	return out, findings
}

func binding(r *annotations.HttpRule) (Binding, bool) {
	b := Binding{Body: r.GetBody(), ResponseBody: r.GetResponseBody()}
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		b.Verb, b.Template = "GET", p.Get
	case *annotations.HttpRule_Put:
		b.Verb, b.Template = "PUT", p.Put
	case *annotations.HttpRule_Post:
		b.Verb, b.Template = "POST", p.Post
	case *annotations.HttpRule_Delete:
		b.Verb, b.Template = "DELETE", p.Delete
	case *annotations.HttpRule_Patch:
		b.Verb, b.Template = "PATCH", p.Patch
	case *annotations.HttpRule_Custom:
		b.Verb, b.Template = p.Custom.GetKind(), p.Custom.GetPath()
	}
	return b, b.Verb == "*" || isToken(b.Verb)
}

// isToken accepts the letters of RFC 9110's methods.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isUpper(c) && !isDigit(c) && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

func checkFields(md protoreflect.MethodDescriptor, b Binding, t template) error {
	bound := map[string]bool{}
	for _, path := range t.fields {
		fd, err := fieldAt(md.Input(), path)
		if err != nil {
			return err
		}
		if bound[path] {
			return fmt.Errorf("variable %q occurs twice", path)
		}
		bound[path] = true
		if fd.IsMap() || fd.Message() != nil && (fd.IsList() || !textual(fd.Message())) {
			return fmt.Errorf("variable %q is %s, which cannot stand in a path", path, kindOf(fd))
		}
	}
	if b.Body != "" && b.Body != "*" {
		if _, err := fieldAt(md.Input(), b.Body); err != nil {
			return fmt.Errorf("body: %w", err)
		}
	}
	if b.ResponseBody != "" && b.ResponseBody != "*" {
		if _, err := fieldAt(md.Output(), b.ResponseBody); err != nil {
			return fmt.Errorf("response_body: %w", err)
		}
	}
	return nil
}

// fieldAt returns the field of a dotted path of proto names.
func fieldAt(md protoreflect.MessageDescriptor, path string) (protoreflect.FieldDescriptor, error) {
	var fd protoreflect.FieldDescriptor
	for part := range strings.SplitSeq(path, ".") {
		if fd != nil {
			if md = fd.Message(); md == nil || fd.IsList() || fd.IsMap() {
				return nil, fmt.Errorf("field path %q goes through %q, which is %s", path, fd.Name(), kindOf(fd))
			}
		}
		if fd = md.Fields().ByName(protoreflect.Name(part)); fd == nil {
			return nil, fmt.Errorf("%s has no field %q (path %q)", md.FullName(), part, path)
		}
	}
	return fd, nil
}

// textual says whether a message's ProtoJSON form is a string, number or boolean.
func textual(md protoreflect.MessageDescriptor) bool {
	switch md.FullName() {
	case "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask",
		"google.protobuf.DoubleValue", "google.protobuf.FloatValue", "google.protobuf.Int64Value", "google.protobuf.UInt64Value", "google.protobuf.Int32Value",
		"google.protobuf.UInt32Value", "google.protobuf.BoolValue", "google.protobuf.StringValue", "google.protobuf.BytesValue":
		return true
	}
	return false
}

func kindOf(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap():
		return "a map"
	case fd.IsList():
		return "a list"
	case fd.Message() != nil:
		return "the message " + string(fd.Message().FullName())
	}
	return "a " + fd.Kind().String()
}
