package mcpadapter

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/catalog"
)

// argumentsKey is the name of the question for the arguments of a prompt.
const argumentsKey = "arguments"

// askArguments returns the arguments of a prompts/get, with those that are needed and missing as the person at the client's side gives them,
// if the client offers to ask. For a client of 2026-07-28 that has not asked yet, it returns the result that makes it do so.
func (a *Adapter) askArguments(ctx context.Context, r *mcp.GetPromptRequest, p *catalog.Prompt) (map[string]string, mcp.Result, error) {
	given := r.Params.Arguments
	missing := missingOf(p, given)
	if len(missing) == 0 {
		return given, nil, nil
	}
	c, modern := client{}, isModern(r.Params.Meta)
	if modern {
		c.can = abilitiesOf(r.Params.Meta[mcp.MetaKeyClientCapabilities])
	} else if _, stateless := ctx.Value(requestKey{}).(context.Context); !stateless && a.streams(ctx, r.Extra) {
		c = sessionClient(r.Session)
	}
	if c.can&canForm == 0 {
		return given, nil, nil
	}
	question := &mcp.ElicitParams{Mode: "form", Message: fmt.Sprintf("The prompt %q needs to know:", p.Title), RequestedSchema: argumentsForm(missing)}
	answer, asked := r.Params.InputResponses[argumentsKey]
	switch {
	case modern && !asked:
		body := append([]byte(`"inputRequests":{"`+argumentsKey+`":{"method":"elicitation/create","params":`), encoded(question)...)
		return nil, &rawResult{body: append(body, `}},"resultType":"input_required"`...)}, nil
	case modern:
		values, err := answered(answer)
		return with(given, missing, values), nil, err
	}
	res, err := c.session.Elicit(ctx, question)
	if err != nil {
		return nil, nil, rpcError(jsonrpc.CodeInvalidParams, "prompt %q needs more arguments, and the person could not be asked for them: %v", p.Name, err)
	}
	values, err := answered(res)
	return with(given, missing, values), nil, err
}

// missingOf returns the arguments that the prompt needs and that are not given.
func missingOf(p *catalog.Prompt, given map[string]string) (missing []catalog.PromptArgument) {
	for _, arg := range p.Arguments {
		if arg.Required && given[arg.Name] == "" {
			missing = append(missing, arg)
		}
	}
	return missing
}

// argumentsForm is the schema of a form for arguments.
func argumentsForm(arguments []catalog.PromptArgument) json.RawMessage {
	properties, required := map[string]any{}, make([]string, 0, len(arguments))
	for _, arg := range arguments {
		entry := map[string]any{"type": "string", "title": arg.Title, "minLength": 1}
		if arg.Description != "" {
			entry["description"] = arg.Description
		}
		if arg.Enum != nil {
			var all completed
			all.enum(arg.Enum)
			delete(entry, "minLength")
			entry["enum"] = all.values
		}
		properties[arg.Name] = entry
		required = append(required, arg.Name)
	}
	return encoded(map[string]any{"type": "object", "properties": properties, "required": required})
}

// answered returns what the person entered; nothing if the person declined.
func answered(response any) (map[string]*structpb.Value, error) {
	raw, err := marshal(response)
	if err != nil {
		return nil, err
	}
	answer, err := inputResponseOf(raw)
	if err != nil {
		return nil, invalidParams(fmt.Sprintf("params.inputResponses.%s: %v", argumentsKey, err))
	}
	if answer.GetAction() != toolwayv1.InputResponse_ACTION_ACCEPT {
		return nil, nil
	}
	return answer.GetContent().GetFields(), nil
}

// with returns the arguments with those entered that were asked for.
func with(given map[string]string, asked []catalog.PromptArgument, entered map[string]*structpb.Value) map[string]string {
	out := maps.Clone(given)
	if out == nil {
		out = map[string]string{}
	}
	for _, arg := range asked {
		if v := entered[arg.Name].GetStringValue(); v != "" {
			out[arg.Name] = v
		}
	}
	return out
}
