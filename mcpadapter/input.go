package mcpadapter

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/catalog"
)

// inputRequiredURL is the type of the detail with which a backend asks for input.
const inputRequiredURL = "toolway.v1.InputRequired"

// inputRequired returns what a failed call asks for, or nil.
func inputRequired(err error) *toolwayv1.InputRequired {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.FailedPrecondition {
		return nil
	}
	for _, d := range st.Proto().GetDetails() {
		if d.MessageName() != inputRequiredURL {
			continue
		}
		ask := &toolwayv1.InputRequired{}
		if proto.Unmarshal(d.GetValue(), ask) == nil {
			return ask
		}
	}
	return nil
}

// withoutInput returns the status without what it asks for: the state in it is for the backend alone.
func withoutInput(err error) *status.Status {
	st, _ := status.FromError(err)
	p := st.Proto()
	p.Details = slices.DeleteFunc(p.GetDetails(), func(d *anypb.Any) bool { return d.MessageName() == inputRequiredURL })
	return status.FromProto(p)
}

// inputRequest is one question in the form of MCP.
type inputRequest struct {
	method string
	params any
	// needs is what the client must be able to do, and capability how that is written in -32021.
	needs      abilities
	capability string
}

// inputRequestOf translates a question. The error is for the operator of the backend: its contract is at fault.
func inputRequestOf(m *catalog.Method, r *toolwayv1.InputRequest) (inputRequest, error) {
	switch kind := r.GetKind().(type) {
	case *toolwayv1.InputRequest_Elicitation:
		return elicitationOf(m, kind.Elicitation)
	case *toolwayv1.InputRequest_Sampling:
		params := &mcp.CreateMessageWithToolsParams{}
		raw, err := structJSON(kind.Sampling.GetParams())
		if err == nil {
			err = json.Unmarshal(raw, params)
		}
		return inputRequest{method: "sampling/createMessage", params: params, needs: canSample, capability: `"sampling":{}`}, err
	case *toolwayv1.InputRequest_Roots:
		return inputRequest{method: "roots/list", params: &mcp.ListRootsParams{}, needs: canRoots, capability: `"roots":{}`}, nil
	}
	return inputRequest{}, fmt.Errorf("it has no kind that this mesh knows")
}

func elicitationOf(m *catalog.Method, e *toolwayv1.Elicitation) (inputRequest, error) {
	r := inputRequest{method: "elicitation/create", needs: canForm, capability: `"elicitation":{"form":{}}`}
	params := &mcp.ElicitParams{Mode: "form", Message: e.GetMessage()}
	r.params = params
	switch answer := e.GetAnswer().(type) {
	case *toolwayv1.Elicitation_Schema:
		schema, err := structJSON(answer.Schema)
		if err != nil {
			return r, err
		}
		params.RequestedSchema = json.RawMessage(schema)
	case *toolwayv1.Elicitation_MessageType:
		schema, err := formOf(m, answer.MessageType)
		if err != nil {
			return r, err
		}
		params.RequestedSchema = schema
	case *toolwayv1.Elicitation_Url:
		params.Mode, params.URL, params.ElicitationID = "url", answer.Url, e.GetId()
		r.needs, r.capability = canURL, `"elicitation":{"url":{}}`
	default: // yes or no
		params.RequestedSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return r, nil
}

// missingCapability is the JSON-RPC error for a client that cannot be asked what has to be known.
func missingCapability(m *catalog.Method, missing []inputRequest) error {
	parts := map[string]bool{}
	for _, r := range missing {
		parts[r.capability] = true
	}
	e := rpcError(mcp.CodeMissingRequiredClientCapabilities, "tool %q has to ask something that this client has not declared it can be asked", m.Tool.Name)
	data := []byte(`{"requiredCapabilities":{`)
	for i, part := range sorted(parts) {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, part...)
	}
	data = append(data, "}}"...)
	e.Data = data
	return e
}

// inputResponseOf translates what a client answered to a question.
func inputResponseOf(raw json.RawMessage) (*toolwayv1.InputResponse, error) {
	var form struct {
		Action  *string         `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return nil, err
	}
	out := &toolwayv1.InputResponse{}
	if form.Action != nil && !isSampling(raw) {
		switch *form.Action {
		case "accept":
			out.Action = toolwayv1.InputResponse_ACTION_ACCEPT
		case "decline":
			out.Action = toolwayv1.InputResponse_ACTION_DECLINE
		case "cancel":
			out.Action = toolwayv1.InputResponse_ACTION_CANCEL
		default:
			return nil, fmt.Errorf("action is %q: want accept, decline or cancel", cut(*form.Action, 100))
		}
		if raw = form.Content; len(raw) == 0 || string(raw) == "null" {
			return out, nil
		}
	}
	out.Content = &structpb.Struct{}
	return out, protojson.Unmarshal(raw, out.GetContent())
}

// isSampling tells the result of sampling/createMessage, or of roots/list, from that of an elicitation.
func isSampling(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return false
	}
	return members["role"] != nil || members["roots"] != nil
}

// answersOf reads params.inputResponses.
func answersOf(responses map[string]json.RawMessage) (*toolwayv1.InputResponses, error) {
	out := &toolwayv1.InputResponses{Responses: map[string]*toolwayv1.InputResponse{}}
	for _, name := range sorted(responses) {
		response, err := inputResponseOf(responses[name])
		if err != nil {
			return nil, rpcError(jsonrpc.CodeInvalidParams, "params.inputResponses.%s: %v", cut(name, 100), err)
		}
		out.Responses[name] = response
	}
	return out, nil
}
