package conform

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
)

type question = toolwayv1.InputRequest

// object reads JSON that stands in this file.
func object(text string) *structpb.Struct {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		panic(err)
	}
	return s
}

func schema(properties string, required ...string) *structpb.Struct {
	names, err := json.Marshal(required)
	if err != nil || required == nil {
		names = []byte("[]")
	}
	return object(`{"type":"object","properties":` + properties + `,"required":` + string(names) + `}`)
}

// form is a question for the person.
func form(message, properties string, required ...string) *question {
	return &question{Kind: &toolwayv1.InputRequest_Elicitation{Elicitation: &toolwayv1.Elicitation{
		Message: message, Answer: &toolwayv1.Elicitation_Schema{Schema: schema(properties, required...)},
	}}}
}

// sampling is a question for the client's model.
func sampling(prompt string) *question {
	raw, err := json.Marshal(prompt)
	if err != nil {
		panic(err)
	}
	params := object(`{"messages":[{"role":"user","content":{"type":"text","text":` + string(raw) + `}}],"maxTokens":100}`)
	return &question{Kind: &toolwayv1.InputRequest_Sampling{Sampling: &toolwayv1.Sampling{Params: params}}}
}

func roots() *question {
	return &question{Kind: &toolwayv1.InputRequest_Roots{Roots: &toolwayv1.Roots{}}}
}

func optional(q *question) *question {
	q.Optional = true
	return q
}

// ask is the error that asks one question.
func ask(state, name string, q *question) error { return askAll(state, map[string]*question{name: q}) }

func askAll(state string, questions map[string]*question) error {
	st, err := status.New(codes.FailedPrecondition, "something has to be asked first").WithDetails(&toolwayv1.InputRequired{Requests: questions, State: []byte(state)})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

// asked answers a method that has one question.
func asked(ctx context.Context, name string, q *question) (*result, error) {
	a := answer(ctx, name)
	if a == nil {
		return nil, ask("", name, q)
	}
	said, err := protojson.Marshal(a)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return text("The answer is %s", said), nil
}

// MissingCapability needs a model.
func (*Server) MissingCapability(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "model", sampling("What is needed?"))
}

// Sampling asks the client's model.
func (*Server) Sampling(ctx context.Context, r *conformancev1.SamplingRequest) (*result, error) {
	return asked(ctx, "prompt", sampling(r.GetPrompt()))
}

// Elicitation asks the person.
func (*Server) Elicitation(ctx context.Context, r *conformancev1.ElicitationRequest) (*result, error) {
	return asked(ctx, "user", form(r.GetMessage(), `{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}}`, "username", "email"))
}

// ElicitationDefaults asks the person with defaults for all kinds of answers.
func (*Server) ElicitationDefaults(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "defaults", form("Please review and update the form fields with defaults", `{
		"name":{"type":"string","description":"User name","default":"John Doe"},
		"age":{"type":"integer","description":"User age","default":30},
		"score":{"type":"number","description":"User score","default":95.5},
		"status":{"type":"string","description":"User status","enum":["active","inactive","pending"],"default":"active"},
		"verified":{"type":"boolean","description":"Verification status","default":true}}`))
}

// ElicitationEnums asks the person with all kinds of choices.
func (*Server) ElicitationEnums(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "enums", form("Please select options from the enum fields", `{
		"untitledSingle":{"type":"string","description":"Select one option","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","description":"Select one option with titles","oneOf":[
			{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
		"legacyEnum":{"type":"string","description":"Select one option (legacy)","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","description":"Select multiple options","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","description":"Select multiple options with titles","minItems":1,"maxItems":3,"items":{"anyOf":[
			{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}`))
}

// InputElicitation asks for a name.
func (*Server) InputElicitation(ctx context.Context, _ *request) (*result, error) {
	a := answer(ctx, "user_name")
	if a == nil {
		return nil, ask("", "user_name", form("What is your name?", `{"name":{"type":"string"}}`, "name"))
	}
	return text("Hello, %s!", a.GetContent().GetFields()["name"].GetStringValue()), nil
}

// InputSampling asks the client's model.
func (*Server) InputSampling(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "capital_question", sampling("What is the capital of France?"))
}

// InputListRoots asks for the client's folders.
func (*Server) InputListRoots(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "client_roots", roots())
}

// confirmed asks for a confirmation, and wants its state back with it.
func confirmed(ctx context.Context) (*result, error) {
	a := answers(ctx)
	if a.GetResponses()["confirm"] == nil || string(a.GetState()) != "my state" {
		return nil, ask("my state", "confirm", form("Please confirm", `{"ok":{"type":"boolean"}}`, "ok"))
	}
	return text("state-ok"), nil
}

// InputRequestState asks, and wants its state back.
func (*Server) InputRequestState(ctx context.Context, _ *request) (*result, error) {
	return confirmed(ctx)
}

// InputTamperedState asks, and trusts its state.
func (*Server) InputTamperedState(ctx context.Context, _ *request) (*result, error) {
	return confirmed(ctx)
}

// InputMultipleInputs asks three things at once.
func (*Server) InputMultipleInputs(ctx context.Context, _ *request) (*result, error) {
	if len(answers(ctx).GetResponses()) < 3 {
		return nil, askAll("my state", map[string]*question{
			"user_name": form("What is your name?", `{"name":{"type":"string"}}`, "name"), "greeting": sampling("Generate a greeting"), "client_roots": roots(),
		})
	}
	return text("all is known"), nil
}

// InputMultiRound asks twice.
func (*Server) InputMultiRound(ctx context.Context, _ *request) (*result, error) {
	a := answers(ctx)
	switch {
	case a.GetResponses()["step2"] != nil && string(a.GetState()) == "after step 1":
		return text("Done."), nil
	case a.GetResponses()["step1"] != nil:
		return nil, ask("after step 1", "step2", form("Step 2: What is your favorite color?", `{"color":{"type":"string"}}`, "color"))
	}
	return nil, ask("at the beginning", "step1", form("Step 1: What is your name?", `{"name":{"type":"string"}}`, "name"))
}

// InputCapabilities asks whatever the client can be asked.
func (*Server) InputCapabilities(ctx context.Context, _ *request) (*result, error) {
	if len(answers(ctx).GetResponses()) == 0 {
		return nil, askAll("", map[string]*question{
			"user_name": optional(form("What is your name?", `{"name":{"type":"string"}}`, "name")), "greeting": optional(sampling("Generate a greeting")),
		})
	}
	return text("something is known"), nil
}
