package gateway

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
)

// schemas holds each message once per direction, under "#/components/schemas": toolschema makes schemas that carry all they refer to in
// their own "$defs", which in a document of many methods would repeat the same messages over and over.
type schemas struct {
	components map[string]json.RawMessage
	properties map[string]map[string]json.RawMessage // of components
}

func newSchemas() *schemas {
	return &schemas{components: map[string]json.RawMessage{}, properties: map[string]map[string]json.RawMessage{}}
}

// suffix keeps the two directions of a message apart: what may be sent is more than what is answered.
func suffix(d toolschema.Direction) string {
	if d == toolschema.Input {
		return "-input"
	}
	return ""
}

// message returns a reference to the schema of md.
func (s *schemas) message(md protoreflect.MessageDescriptor, d toolschema.Direction) object {
	return object{"$ref": "#/components/schemas/" + s.name(md, d)}
}

func (s *schemas) name(md protoreflect.MessageDescriptor, d toolschema.Direction) string {
	name := string(md.FullName()) + suffix(d)
	if _, ok := s.components[name]; ok {
		return name
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(s.rewrite(toolschema.For(md, toolschema.Options{Direction: d, Profile: toolschema.Full, MaxBytes: -1}), d), &root) != nil {
		s.components[name] = json.RawMessage(`{"type":"object"}`)
		return name
	}
	var defs map[string]json.RawMessage
	if json.Unmarshal(root["$defs"], &defs) == nil {
		for n, def := range defs {
			if _, ok := s.components[n+suffix(d)]; !ok {
				s.components[n+suffix(d)] = def
			}
		}
	}
	delete(root, "$defs")
	if toolschema.Wrapped(md) { // tools need an object around it, bodies hold the form itself
		var props map[string]json.RawMessage
		_ = json.Unmarshal(root["properties"], &props)
		s.properties[name] = props // a query names the field all the same
		if _, ok := s.components[name]; !ok {
			s.components[name] = props[toolschema.WrapperKey]
		}
		return name
	}
	if whole, err := json.Marshal(root); err == nil {
		s.components[name] = whole
	}
	return name
}

// rewrite points references into the document. The pattern cannot stand inside a JSON string, where quotes are escaped.
func (s *schemas) rewrite(schema []byte, d toolschema.Direction) []byte {
	const from, to = `"$ref":"#/$defs/`, `"$ref":"#/components/schemas/`
	var out []byte
	for {
		i := bytes.Index(schema, []byte(from))
		if i < 0 {
			return append(out, schema...)
		}
		out = append(append(out, schema[:i]...), to...)
		schema = schema[i+len(from):]
		end := bytes.IndexByte(schema, '"')
		if end < 0 {
			return append(out, schema...)
		}
		out = append(append(out, schema[:end]...), suffix(d)...)
		schema = schema[end:]
	}
}

// field returns the schema of one field, as its message's schema has it.
func (s *schemas) field(fd protoreflect.FieldDescriptor, d toolschema.Direction) any {
	name := s.name(fd.ContainingMessage(), d)
	props, ok := s.properties[name]
	if !ok {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		// A schema without properties has none to give.
		_ = json.Unmarshal(s.components[name], &schema)
		props = schema.Properties
		s.properties[name] = props
	}
	if p, ok := props[fd.JSONName()]; ok {
		return p
	}
	return object{}
}
