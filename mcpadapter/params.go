package mcpadapter

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// paramsOf are the params of requests that the SDK answers, as it reads them.
var paramsOf = map[string]func() any{
	"initialize":               func() any { return new(mcp.InitializeParams) },
	"ping":                     func() any { return new(mcp.PingParams) },
	"completion/complete":      func() any { return new(mcp.CompleteParams) },
	"prompts/list":             func() any { return new(mcp.ListPromptsParams) },
	"prompts/get":              func() any { return new(mcp.GetPromptParams) },
	"resources/list":           func() any { return new(mcp.ListResourcesParams) },
	"resources/templates/list": func() any { return new(mcp.ListResourceTemplatesParams) },
	"resources/read":           func() any { return new(mcp.ReadResourceParams) },
	"resources/subscribe":      func() any { return new(mcp.SubscribeParams) },
	"resources/unsubscribe":    func() any { return new(mcp.UnsubscribeParams) },
	"subscriptions/listen":     func() any { return new(mcp.SubscriptionsListenParams) },
}

// wantsParams are the methods that mean nothing without params.
var wantsParams = map[string]string{
	"initialize": "an object with protocolVersion, capabilities and clientInfo", "tools/call": "an object with the name of a tool",
	"completion/complete": "an object with ref and argument", "prompts/get": "an object with the name of a prompt",
	"resources/read": "an object with a uri", "resources/subscribe": "an object with a uri", "resources/unsubscribe": "an object with a uri",
	"subscriptions/listen": "an object with the notifications to listen for",
}

// checkParams refuses params of which the SDK would say only that its own Go type does not fit.
func checkParams(e envelope) *jsonrpc.Error {
	if e.params == nil {
		if want, ok := wantsParams[e.method]; ok && e.isRequest() {
			return rpcError(jsonrpc.CodeInvalidParams, "params is missing: want %s", want)
		}
		return nil
	}
	kinds := map[string]string{"_meta": "an object"}
	switch e.method {
	case "tools/call":
		kinds["name"] = "a string"
		kinds["inputResponses"], kinds["requestState"] = "an object", "a string"
	case "tools/list":
		kinds["cursor"] = "a string"
	}
	var params map[string]json.RawMessage
	if err := json.Unmarshal(e.params, &params); err != nil {
		return rpcError(jsonrpc.CodeInvalidParams, "params is no JSON object")
	}
	for _, name := range sorted(kinds) {
		value, ok := params[name]
		switch {
		case !ok && name == "name":
			return rpcError(jsonrpc.CodeInvalidParams, "params.name is missing: want the name of a tool")
		case ok && kindOf(value) != kinds[name]:
			return rpcError(jsonrpc.CodeInvalidParams, "params.%s is %s: want %s", name, kindOf(value), kinds[name])
		}
	}
	if responses, ok := params["inputResponses"]; ok && (e.method == "tools/call" || e.method == "prompts/get") {
		if err := checkResponses(responses); err != nil {
			return err
		}
	}
	if raw, ok := params["arguments"]; ok && e.method == "prompts/get" {
		if err := checkPromptArguments(raw); err != nil {
			return err
		}
	}
	if into, ok := paramsOf[e.method]; ok && e.isRequest() {
		return misfit(e.method, json.Unmarshal(e.params, into()))
	}
	return nil
}

// checkResponses refuses answers that are none.
func checkResponses(raw json.RawMessage) *jsonrpc.Error {
	var responses map[string]json.RawMessage
	if err := json.Unmarshal(raw, &responses); err != nil {
		return rpcError(jsonrpc.CodeInvalidParams, "params.inputResponses is no JSON object")
	}
	for _, name := range sorted(responses) {
		if kindOf(responses[name]) != "an object" {
			return rpcError(jsonrpc.CodeInvalidParams, "params.inputResponses.%s is %s: want an object", cut(name, 100), kindOf(responses[name]))
		}
	}
	return nil
}

// checkPromptArguments refuses arguments of a prompt that are no texts.
func checkPromptArguments(raw json.RawMessage) *jsonrpc.Error {
	var arguments map[string]json.RawMessage
	_ = json.Unmarshal(raw, &arguments) // of no object misfit says so
	for _, name := range sorted(arguments) {
		if kind := kindOf(arguments[name]); kind != "a string" {
			return rpcError(jsonrpc.CodeInvalidParams, "params.arguments.%s is %s: want a string", cut(name, 100), kind)
		}
	}
	return nil
}

// misfit says in words of the protocol why params do not have the form of their method; it is nil for nil.
func misfit(method string, err error) *jsonrpc.Error {
	if err == nil {
		return nil
	}
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) || t.Field == "" {
		return rpcError(jsonrpc.CodeInvalidParams, "params does not have the form that the protocol gives %s", method)
	}
	got := map[string]string{"string": "a string", "number": "a number", "bool": "a boolean", "array": "an array", "object": "an object"}[t.Value]
	return rpcError(jsonrpc.CodeInvalidParams, "params.%s is %s: want %s", cut(t.Field, 100), or(got, "a number"), kindOfType(t.Type))
}

// kindOfType names the kind of JSON value that a Go type holds.
func kindOfType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a number"
}
