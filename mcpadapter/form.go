package mcpadapter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// formOf returns the schema of a form whose entries are the fields of a message of the backend's contract. MCP allows only texts, numbers,
// booleans and choices in a form.
func formOf(m *catalog.Method, name string) (json.RawMessage, error) {
	if m.Backend == nil || m.Backend.Files == nil {
		return nil, fmt.Errorf("message type %q is not part of the contract", name)
	}
	found, err := m.Backend.Files.FindDescriptorByName(protoreflect.FullName(name))
	md, ok := found.(protoreflect.MessageDescriptor)
	if err != nil || !ok {
		return nil, fmt.Errorf("message type %q is not part of the contract", name)
	}
	properties := map[string]json.RawMessage{}
	var required []string
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		entry := formEntry(fd)
		if entry == nil {
			return nil, fmt.Errorf("field %s cannot be asked in a form: want texts, numbers, booleans and enums", fd.FullName())
		}
		if text := comment(fd); text != "" {
			entry["description"] = text
		}
		if properties[fd.JSONName()], err = marshal(entry); err != nil {
			return nil, err
		}
		if isRequired(fd) {
			required = append(required, fd.JSONName())
		}
	}
	return marshal(struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required,omitempty"`
	}{"object", properties, required})
}

// formEntry returns the schema of one entry, or nil if a form has none like it.
func formEntry(fd protoreflect.FieldDescriptor) map[string]any {
	switch {
	case fd.IsMap() || fd.Message() != nil || fd.IsList() && fd.Enum() == nil:
		return nil
	case fd.IsList():
		return map[string]any{"type": "array", "items": choices(fd.Enum())}
	case fd.Enum() != nil:
		return choices(fd.Enum())
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return map[string]any{"type": "number"}
	case protoreflect.StringKind:
		return map[string]any{"type": "string"}
	case protoreflect.BytesKind:
		return nil
	}
	return map[string]any{"type": "integer"}
}

// choices are the values of an enum, less the one that stands for none.
func choices(ed protoreflect.EnumDescriptor) map[string]any {
	names := []string{}
	values := ed.Values()
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 || !strings.HasSuffix(string(v.Name()), "_UNSPECIFIED") {
			names = append(names, string(v.Name()))
		}
	}
	return map[string]any{"type": "string", "enum": names}
}

func comment(d protoreflect.Descriptor) string {
	return strings.Join(strings.Fields(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments), " ")
}

// isRequired says whether google.api.field_behavior or proto2 makes the field required.
func isRequired(fd protoreflect.FieldDescriptor) bool {
	if fd.Cardinality() == protoreflect.Required {
		return true
	}
	behaviors, _ := proto.GetExtension(fd.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(behaviors, annotations.FieldBehavior_REQUIRED)
}
