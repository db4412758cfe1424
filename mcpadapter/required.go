package mcpadapter

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

// missingArguments are the required arguments that a call does not bring.
type missingArguments []*transcode.Error

// Error names all of them.
func (m missingArguments) Error() string {
	texts := make([]string, len(m))
	for i, e := range m {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them as the one error that Requests promises.
func (m missingArguments) Unwrap() error { return &transcode.Error{Problem: m.Error()} }

// checkRequired says which of the required fields the message at the path where does not have. A field is there if its key is, under
// either name: a zero that is written counts, null does not.
func checkRequired(required []protoreflect.FieldDescriptor, message json.RawMessage, where string) error {
	var missing missingArguments
	has := given(required, message)
	for i, fd := range required {
		if has[i] {
			continue
		}
		e := &transcode.Error{Path: fd.JSONName(), Problem: "missing required argument, want " + wanted(fd)}
		if where != "" {
			e.Path = where + "." + e.Path
		}
		missing = append(missing, e)
	}
	if missing == nil {
		return nil
	}
	return missing
}

// given says of each field whether the message has it. The message is known to fit its type.
func given(fields []protoreflect.FieldDescriptor, message json.RawMessage) []bool {
	has := make([]bool, len(fields))
	note := func(name, value []byte) {
		for i, fd := range fields {
			if (string(name) == fd.JSONName() || string(name) == fd.TextName()) && (string(value) != "null" || holdsNull(fd)) {
				has[i] = true
			}
		}
	}
	s := scanner{data: message}
	s.object(func(name []byte) bool {
		v, ok := s.value()
		note(name, v)
		return ok
	})
	if !s.odd {
		return has
	}
	var members map[string]json.RawMessage // names may be written with escapes
	if json.Unmarshal(message, &members) == nil {
		for name, value := range members {
			note([]byte(name), value)
		}
	}
	return has
}

// holdsNull says whether null is a value of the field.
func holdsNull(fd protoreflect.FieldDescriptor) bool {
	switch {
	case fd.IsList() || fd.IsMap():
		return false
	case fd.Message() != nil:
		return fd.Message().FullName() == "google.protobuf.Value"
	case fd.Enum() != nil:
		return fd.Enum().FullName() == "google.protobuf.NullValue"
	}
	return false
}

// wanted says what the value of a field is.
func wanted(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap():
		return "an object with a " + scalar(fd.MapValue()) + " for each key"
	case fd.IsList():
		return "an array of " + scalar(fd)
	case fd.Enum() != nil:
		return "one of " + enumNames(fd.Enum())
	case fd.Message() != nil || fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind || fd.Kind() == protoreflect.BoolKind:
		return "a " + scalar(fd)
	}
	return "a number (" + scalar(fd) + ")"
}

// scalar names the type of one value.
func scalar(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.Message() != nil:
		return string(fd.Message().Name())
	case fd.Enum() != nil:
		return string(fd.Enum().Name())
	case fd.Kind() == protoreflect.BytesKind:
		return "string of base64"
	}
	return fd.Kind().String()
}

// maxNames is how many values of an enum an error lists.
const maxNames = 20

func enumNames(ed protoreflect.EnumDescriptor) string {
	values := ed.Values()
	names := make([]string, 0, min(values.Len(), maxNames))
	for i := range cap(names) {
		names = append(names, string(values.Get(i).Name()))
	}
	text := strings.Join(names, ", ")
	if more := values.Len() - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
