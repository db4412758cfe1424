package mcpadapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
)

// callThrough runs the tool that a call of call_tool names. What is wrong with the name is a tool error: the model wrote it.
func (a *Adapter) callThrough(ctx context.Context, s *catalog.Snapshot, t toolCall) (*result, error) {
	name, inner, bad := calledThrough(t.arguments)
	if bad != nil {
		return errorResult(nil, bad, nil), nil
	}
	if name == "" || name == callTool {
		return errorResult(nil, &toolError{
			Code: codeName(codes.InvalidArgument), Message: "the arguments do not fit the tool: name is missing", Hint: "name the tool that is to be called, as find_tools gave it",
			FieldViolations: []fieldViolation{{Field: "name", Description: "want the name of a tool other than " + callTool}},
		}, nil), nil
	}
	m := a.visible(ctx, s.Tool(name))
	if m == nil && searchMethods[name] != "" {
		m = s.Method(searchMethods[name])
	}
	if m == nil {
		return errorResult(nil, a.unknownInner(ctx, s, name), nil), nil
	}
	t.name, t.arguments = name, inner
	return a.run(ctx, m, t)
}

func (a *Adapter) unknownInner(ctx context.Context, s *catalog.Snapshot, name string) *toolError {
	e := &toolError{Code: codeName(codes.NotFound), Reason: "UNKNOWN_TOOL", Message: fmt.Sprintf("unknown tool %q", cut(name, 100)), Hint: "find it with find_tools"}
	near := nearmiss.Find(name, func(yield func(string) bool) {
		for _, m := range s.Tools() {
			if a.visible(ctx, m) != nil && !yield(m.Tool.Name) {
				return
			}
		}
	})
	if near != "" {
		e.Message += fmt.Sprintf("; did you mean %q?", near)
		e.Hint = "call the tool that was meant, or find it with find_tools"
	}
	return e
}

// calledThrough returns the tool and the arguments that a call of call_tool names. Models often write the arguments as a string of JSON;
// that is what they mean all the same.
func calledThrough(arguments json.RawMessage) (name string, inner json.RawMessage, bad *toolError) {
	var in struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if arguments = bytes.TrimSpace(arguments); len(arguments) > 0 {
		dec := json.NewDecoder(bytes.NewReader(arguments))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return "", nil, &toolError{
				Code: codeName(codes.InvalidArgument), Message: "the arguments do not fit the tool: " + err.Error(),
				Hint: `give the tool's name as "name" and its arguments as the object "arguments"`,
			}
		}
	}
	inner = bytes.TrimSpace(in.Arguments)
	var text string
	if len(inner) > 0 && inner[0] == '"' && json.Unmarshal(inner, &text) == nil {
		inner = json.RawMessage(text)
	}
	return in.Name, inner, nil
}
