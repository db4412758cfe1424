package mcpadapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/transcode"
)

// callThrough runs the tool that a call of call_tool names. What is wrong with the name is a tool error: the model wrote it.
func (a *Adapter) callThrough(ctx context.Context, s *catalog.Snapshot, t *toolCall) (*result, error) {
	name, inner, err := calledThrough(t.arguments)
	if err != nil {
		return errorResult(nil, badArguments(err), nil), nil
	}
	m := a.inner(ctx, s, name)
	if m == nil {
		return errorResult(nil, a.unknownInner(ctx, s, name), nil), nil
	}
	t.name, t.arguments = name, inner
	return a.run(ctx, m, t)
}

// inner returns the method that call_tool means by a tool's name, or nil if there is none that the caller may know of.
func (a *Adapter) inner(ctx context.Context, s *catalog.Snapshot, name string) *catalog.Method {
	if m := a.within(ctx, s.Tool(name)); m != nil || searchMethods[name] == "" {
		return m
	}
	return s.Method(searchMethods[name])
}

func (a *Adapter) unknownInner(ctx context.Context, s *catalog.Snapshot, name string) *toolError {
	e := &toolError{Code: codeName(codes.NotFound), Reason: "UNKNOWN_TOOL", Message: fmt.Sprintf("unknown tool %q", cut(name, 100)), Hint: "find it with find_tools"}
	near := nearmiss.Find(name, func(yield func(string) bool) {
		for _, m := range s.Tools() {
			if a.within(ctx, m) != nil && !yield(m.Tool.Name) {
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
// that is what they mean all the same. The error is a *transcode.Error.
func calledThrough(arguments json.RawMessage) (name string, inner json.RawMessage, err error) {
	members := map[string]json.RawMessage{}
	if arguments = bytes.TrimSpace(arguments); len(arguments) > 0 && json.Unmarshal(arguments, &members) != nil {
		return "", nil, &transcode.Error{Path: "arguments", Problem: "got " + kindOf(arguments), Want: "an object"}
	}
	for _, member := range sorted(members) {
		if member != "name" && member != "arguments" {
			return "", nil, &transcode.Error{
				Path: cut(member, 100), Problem: "unknown field", Want: `"name", the tool's name, and "arguments", an object`,
				Suggestion: nearmiss.Find(member, slices.Values([]string{"arguments", "name"})),
			}
		}
	}
	const want = "the name of a tool, as find_tools gave it"
	switch raw := members["name"]; {
	case raw == nil:
		return "", nil, &transcode.Error{Path: "name", Problem: "is missing", Want: want}
	case json.Unmarshal(raw, &name) != nil:
		return "", nil, &transcode.Error{Path: "name", Problem: "got " + kindOf(raw), Want: want}
	case name == "":
		return "", nil, &transcode.Error{Path: "name", Problem: "is empty", Want: want}
	case name == callTool:
		return "", nil, &transcode.Error{Path: "name", Problem: callTool + " does not call itself", Want: "the name of another tool"}
	}
	inner = bytes.TrimSpace(members["arguments"])
	var text string
	if len(inner) > 0 && inner[0] == '"' && json.Unmarshal(inner, &text) == nil {
		if text = strings.TrimSpace(text); !strings.HasPrefix(text, "{") {
			return "", nil, &transcode.Error{Path: "arguments", Problem: "got a string", Want: "an object"}
		}
		inner = json.RawMessage(text)
	}
	return name, inner, nil
}
