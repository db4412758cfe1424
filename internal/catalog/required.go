package catalog

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
)

// Required returns the fields of the request message that the input schema, as it is listed, calls required; of a method that streams
// requests, those of each message. It is found out once. The slice must not be changed.
func (m *Method) Required() []protoreflect.FieldDescriptor {
	if m.info == nil {
		return required(m)
	}
	m.info.requiredOnce.Do(func() { m.info.required = required(m) })
	return m.info.required
}

// schemaNode is as much of a schema as leads to what is required.
type schemaNode struct {
	Ref        string                     `json:"$ref"`
	Defs       map[string]schemaNode      `json:"$defs"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      json.RawMessage            `json:"items"`
	Required   []string                   `json:"required"`
}

func required(m *Method) []protoreflect.FieldDescriptor {
	if toolschema.Wrapped(m.Desc.Input()) {
		return nil
	}
	var root, node schemaNode
	if json.Unmarshal(m.InputSchema(toolschema.Portable), &root) != nil {
		return nil
	}
	node = root
	if m.Desc.IsStreamingClient() {
		var list schemaNode
		if json.Unmarshal(root.Properties["messages"], &list) != nil || json.Unmarshal(list.Items, &node) != nil {
			return nil
		}
	}
	if name, ok := strings.CutPrefix(node.Ref, "#/$defs/"); ok {
		node = root.Defs[name]
	}
	var fields []protoreflect.FieldDescriptor
	fds := m.Desc.Input().Fields()
	for _, name := range node.Required {
		fd := fds.ByJSONName(name)
		if fd == nil {
			fd = fds.ByTextName(name) // listed so if the other name is taken or not safe
		}
		if fd != nil {
			fields = append(fields, fd)
		}
	}
	return fields
}
