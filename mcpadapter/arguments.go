package mcpadapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// Requests returns the requests function of a call of m with a tool's arguments, as call.NewStream takes it: the request message itself, or
// {"messages":[…]} where the client streams. What the listed schema requires has to be there. An error is an *transcode.Error, meant for
// whoever wrote the arguments.
func Requests(m *catalog.Method, arguments json.RawMessage) (func() (*call.Frame, error), error) {
	arguments = bytes.TrimSpace(arguments)
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	if arguments[0] != '{' {
		return nil, &transcode.Error{Path: "arguments", Problem: fmt.Sprintf("got %s", kindOf(arguments)), Want: "an object"}
	}
	if m.Kind().Client {
		return messageFrames(m, arguments)
	}
	if toolschema.Wrapped(m.Desc.Input()) {
		value, err := member(arguments, toolschema.WrapperKey)
		if err != nil {
			return nil, err
		}
		if arguments = value; value == nil {
			return nil, &transcode.Error{Path: toolschema.WrapperKey, Problem: "is missing", Want: "a " + string(m.Desc.Input().Name())}
		}
	}
	f, err := frame(m, arguments, "")
	if err != nil {
		return nil, err
	}
	return call.One(f), nil
}

// frame reads one message, which stands at the path where.
func frame(m *catalog.Method, message json.RawMessage, where string) (*call.Frame, error) {
	wire, err := m.Request().AppendWire(make([]byte, 0, len(message)), message, transcode.ReadOptions{})
	if err != nil {
		return nil, withMissing(at(where, err), m.Required(), message, where)
	}
	if required := m.Required(); len(required) > 0 {
		if missing := checkRequired(required, message, where); missing != nil {
			return nil, missing
		}
	}
	return call.NewFrame(m.Desc.Input(), wire), nil
}

// messageFrames reads {"messages":[…]}, the arguments of a client-streaming method. All messages are read before the first one is
// sent, so that a mistake in the last does not leave half a call behind.
func messageFrames(m *catalog.Method, arguments json.RawMessage) (func() (*call.Frame, error), error) {
	raw, err := member(arguments, "messages")
	if err != nil {
		return nil, err
	}
	var messages []json.RawMessage
	if raw != nil {
		if err := json.Unmarshal(raw, &messages); err != nil {
			return nil, &transcode.Error{Path: "messages", Problem: fmt.Sprintf("got %s", kindOf(raw)), Want: "an array of messages"}
		}
	}
	frames := make([]*call.Frame, len(messages))
	for i, message := range messages {
		f, err := frame(m, message, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	return func() (*call.Frame, error) {
		if len(frames) == 0 {
			return nil, io.EOF
		}
		f := frames[0]
		frames = frames[1:]
		return f, nil
	}, nil
}

// member returns the value of the only member that the object may have, or nil if it is not there.
func member(object json.RawMessage, name string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, &transcode.Error{Problem: err.Error(), Want: "an object"}
	}
	for _, other := range sorted(members) {
		if other != name {
			return nil, &transcode.Error{
				Path: cut(other, 100), Problem: "unknown field", Want: fmt.Sprintf(`only %q here`, name),
				Suggestion: nearmiss.Find(other, func(yield func(string) bool) { yield(name) }),
			}
		}
	}
	return members[name], nil
}

// at puts where before the path of a transcoding error.
func at(where string, err error) error {
	var e *transcode.Error
	if where == "" || !errors.As(err, &e) {
		return err
	}
	moved := *e
	if moved.Path == "" {
		moved.Path = where
	} else {
		moved.Path = where + "." + moved.Path
	}
	return &moved
}

// kindOf names the kind of a JSON value.
func kindOf(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
