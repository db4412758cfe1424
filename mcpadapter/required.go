package mcpadapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

// mistakes are what is wrong with the arguments of a call: at most one that does not fit, and the required ones that are missing.
type mistakes []*transcode.Error

// Error names all of them.
func (m mistakes) Error() string {
	texts := make([]string, len(m))
	for i, e := range m {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them as the one error that Requests promises.
func (m mistakes) Unwrap() error { return &transcode.Error{Problem: m.Error()} }

// checkRequired says which of the required fields the message at the path where does not have. A field is there if its key is, under
// either name: a zero that is written counts, null does not.
func checkRequired(required []protoreflect.FieldDescriptor, message json.RawMessage, where string) (missing mistakes) {
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
	return missing
}

// withMissing returns what is wrong with a message, err, and beside it the required fields that it lacks: all can be mended at once. One that
// was written under a wrong name is not missing too.
func withMissing(err error, required []protoreflect.FieldDescriptor, message json.RawMessage, where string) error {
	var first *transcode.Error
	if len(required) == 0 || !errors.As(err, &first) || !json.Valid(message) || kindOf(message) != "an object" {
		return err
	}
	all := mistakes{first}
	for _, m := range checkRequired(required, message, where) {
		if first.Member == "" || first.Suggestion == "" || !strings.HasSuffix("."+m.Path, "."+first.Suggestion) {
			all = append(all, m)
		}
	}
	if len(all) == 1 {
		return err
	}
	return all
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
