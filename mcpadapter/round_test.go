package mcpadapter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/mcpadapter"
)

var sealedState = regexp.MustCompile(`"requestState":"[^"]+"`)

// askReason is how Cancel asks for a reason.
func askReason(state string) error {
	schema, err := structpb.NewStruct(map[string]any{"type": "object", "properties": map[string]any{"reason": map[string]any{"type": "string"}}, "required": []any{"reason"}})
	if err != nil {
		return err
	}
	return asking(state, map[string]*toolwayv1.InputRequest{
		"reason": {Kind: &toolwayv1.InputRequest_Elicitation{Elicitation: &toolwayv1.Elicitation{Message: "Why?", Answer: &toolwayv1.Elicitation_Schema{Schema: schema}}}},
	})
}

func asking(state string, requests map[string]*toolwayv1.InputRequest) error {
	st, err := status.New(codes.FailedPrecondition, "a reason is needed").WithDetails(&toolwayv1.InputRequired{Requests: requests, State: []byte(state)})
	if err != nil {
		return err
	}
	return st.Err()
}

// cancelled is what Cancel does: it asks for a reason, then, if the request says "twice", for the fields of WatchRequest.
func cancelled(ctx context.Context, id int64, act string) (string, error) {
	raw := metadata.ValueFromIncomingContext(ctx, call.InputResponsesKey)
	if len(raw) == 0 && act == "maybe" {
		return "", asking("round 1", map[string]*toolwayv1.InputRequest{"llm": {Kind: &toolwayv1.InputRequest_Sampling{}, Optional: true}})
	}
	if len(raw) == 0 {
		return "", askReason(fmt.Sprintf("order %d", id))
	}
	answers := &toolwayv1.InputResponses{}
	if err := proto.Unmarshal([]byte(raw[0]), answers); err != nil {
		return "", err
	}
	if act == "maybe" {
		return fmt.Sprintf("%d answers in %s", len(answers.GetResponses()), answers.GetState()), nil
	}
	if form := answers.GetResponses()["form"]; form != nil {
		return fmt.Sprintf("%s %v %s", form.GetAction(), form.GetContent().AsMap()["count"], answers.GetState()), nil
	}
	reason := answers.GetResponses()["reason"]
	if reason == nil {
		return "", askReason(fmt.Sprintf("order %d", id))
	}
	if act == "twice" {
		return "", asking("round 2", map[string]*toolwayv1.InputRequest{
			"form": {Kind: &toolwayv1.InputRequest_Elicitation{Elicitation: &toolwayv1.Elicitation{Message: "Which?", Answer: &toolwayv1.Elicitation_MessageType{MessageType: "shop.v1.WatchRequest"}}}},
			"llm":  {Kind: &toolwayv1.InputRequest_Sampling{}, Optional: true},
		})
	}
	return fmt.Sprintf("%s %v %s", reason.GetAction(), reason.GetContent().AsMap()["reason"], answers.GetState()), nil
}

// asked is a client whose person answers each question.
func asked(action string, questions *[]*mcp.ElicitParams) func() *mcp.ClientOptions {
	return func() *mcp.ClientOptions {
		return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			*questions = append(*questions, r.Params)
			res := &mcp.ElicitResult{Action: action}
			if action == "accept" {
				res.Content = map[string]any{"reason": "late", "count": 3.0}
			}
			return res, nil
		}}
	}
}

// TestInput lets a backend ask the person, through every door: those that cannot ask say so.
func TestInput(t *testing.T) {
	for _, tt := range []struct{ action, act, want string }{
		{"accept", "", "ACTION_ACCEPT late order 7"},
		{"decline", "", "ACTION_DECLINE <nil> order 7"},
		{"cancel", "", "ACTION_CANCEL <nil> order 7"},
		{"accept", "twice", "ACTION_ACCEPT 3 round 2"},
	} {
		t.Run(tt.action+tt.act, func(t *testing.T) {
			var questions []*mcp.ElicitParams
			forDoors(t, nil, asked(tt.action, &questions), func(t *testing.T, _ *world, c *mcp.ClientSession, d door) {
				questions = nil
				res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_cancel", Arguments: map[string]any{"id": 7, "act": tt.act}})
				if err != nil {
					t.Fatal(err)
				}
				text := res.Content[0].(*mcp.TextContent).Text
				if !d.stdio && !d.session && d.version != "2026-07-28" {
					if !res.IsError || !strings.Contains(text, "INPUT_REQUIRED") || strings.Contains(text, "order 7") || len(questions) > 0 {
						t.Errorf("without a session: isError %t, %q after %d questions; want INPUT_REQUIRED without the backend's state", res.IsError, text, len(questions))
					}
					return
				}
				if res.IsError || !strings.Contains(text, tt.want) {
					t.Errorf("isError %t, %q, want %q", res.IsError, text, tt.want)
				}
				if tt.act == "twice" && (len(questions) != 2 || !strings.Contains(schemaOf(t, questions[1]), `"description":"How long the note of an order is."`)) {
					t.Errorf("questions are %v, want a form of the fields of WatchRequest as the second", questions)
				}
			})
		})
	}
}

func schemaOf(t *testing.T, p *mcp.ElicitParams) string {
	t.Helper()
	raw, err := json.Marshal(p.RequestedSchema)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestInputWithoutElicitation asks a client that has declared nothing.
func TestInputWithoutElicitation(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, d door) {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_cancel", Arguments: map[string]any{"id": 7}})
		if d.version == "2026-07-28" {
			if err == nil || !strings.Contains(err.Error(), "has not declared") {
				t.Errorf("CallTool() = %v, want MissingRequiredClientCapability", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; !res.IsError || !strings.Contains(text, "this client cannot do here") {
			t.Errorf("isError %t, %q", res.IsError, text)
		}
	})
}

// TestOptionalQuestion pins that a client which cannot be asked the only question, an optional one, has its call go on without the answer.
func TestOptionalQuestion(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_cancel", Arguments: map[string]any{"id": 7, "act": "maybe"}})
		if err != nil {
			t.Fatal(err)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; res.IsError || !strings.Contains(text, "0 answers in round 1") {
			t.Errorf("isError %t, %q, want the result", res.IsError, text)
		}
	})
}

// callModern plays one tools/call of 2026-07-28 and returns all that comes back.
func callModern(t *testing.T, a *mcpadapter.Adapter, params string) string {
	t.Helper()
	h := headerOf("2026-07-28", "tools/call", params, "application/json")
	return exchanged(t.Context(), a, h, message("1", "tools/call", params, "-", modernMembers+`{"elicitation":{}}`))
}

// TestRequestState refuses a state that was changed, has another call, another caller or another key, and takes it under the same key elsewhere.
func TestRequestState(t *testing.T) {
	cat := &mutableCatalog{}
	cat.current.Store(snapshotOf(t, shopProto))
	var caller *identity.Principal
	var sent metadata.MD
	passed := 0 // calls that have been in the chain, so that the audit has them
	door := func(key string) *mcpadapter.Adapter {
		return mcpadapter.New(mcpadapter.Config{Catalog: cat, StateKey: []byte(key), Handler: func(ss grpc.ServerStream) error {
			c := call.FromContext(ss.Context())
			c.Principal = caller
			passed++
			if err := ss.RecvMsg(&call.Frame{}); err != nil {
				return err
			}
			if sent = c.Forward; len(sent.Get(call.InputResponsesKey)) > 0 {
				return ss.SendMsg(call.NewFrame(nil, nil))
			}
			return askReason("secret state")
		}})
	}
	one := door("a key of thirty-two bytes, or more")
	first := callModern(t, one, `"name":"orders_cancel","arguments":{"id":1,"act":"x"}`)
	state := strings.TrimSuffix(strings.TrimPrefix(sealedState.FindString(first), `"requestState":"`), `"`)
	if state == "" || strings.Contains(state, "secret") {
		t.Fatalf("requestState is %q, want one that hides the backend's: %s", state, first)
	}
	const answer = `"inputResponses":{"reason":{"action":"accept","content":{"reason":"late"}}}`
	for _, tt := range []struct {
		what, params string
		adapter      *mcpadapter.Adapter
		caller       *identity.Principal
		want         string
	}{
		{"the same call", `"name":"orders_cancel","arguments":{"act":"x","id":"1"},` + answer + `,"requestState":"` + state + `"`, one, nil, `"isError":false`},
		{"another instance", `"name":"orders_cancel","arguments":{"id":1,"act":"x"},` + answer + `,"requestState":"` + state + `"`, door("a key of thirty-two bytes, or more"), nil, `"isError":false`},
		{"another key", `"name":"orders_cancel","arguments":{"id":1,"act":"x"},` + answer + `,"requestState":"` + state + `"`, door("another key"), nil, `-32602`},
		{"changed", `"name":"orders_cancel","arguments":{"id":1,"act":"x"},` + answer + `,"requestState":"` + state + `A"`, one, nil, `-32602`},
		{"other arguments", `"name":"orders_cancel","arguments":{"id":2,"act":"x"},` + answer + `,"requestState":"` + state + `"`, one, nil, `-32602`},
		{"another tool", `"name":"orders_get","arguments":{"id":1,"act":"x"},` + answer + `,"requestState":"` + state + `"`, one, nil, `-32602`},
		{"another caller", `"name":"orders_cancel","arguments":{"id":1,"act":"x"},` + answer + `,"requestState":"` + state + `"`, one, &identity.Principal{ID: "mallory"}, `-32602`},
		{"no answer in it", `"name":"orders_cancel","arguments":{"id":1,"act":"x"},"requestState":"` + state + `"`, one, nil, `"isError":false`},
	} {
		t.Run(tt.what, func(t *testing.T) {
			caller, sent, passed = tt.caller, nil, 0
			got := callModern(t, tt.adapter, tt.params)
			if ok := strings.Contains(got, tt.want) || tt.want == `"isError":false` && strings.Contains(got, `"structuredContent"`) && !strings.Contains(got, `"isError":true`); !ok {
				t.Errorf("answer is %s, want %s", got, tt.want)
			}
			if passed != 1 {
				t.Errorf("the call has passed the chain %d times, want once", passed)
			}
			if tt.want == "-32602" && sent != nil {
				t.Error("the call reached the backend")
			}
			if tt.what == "the same call" {
				answers := &toolwayv1.InputResponses{}
				if err := proto.Unmarshal([]byte(sent.Get(call.InputResponsesKey)[0]), answers); err != nil || string(answers.GetState()) != "secret state" {
					t.Errorf("the backend got %v, %v, want its state back", answers, err)
				}
			}
		})
	}
}

// TestConfirm lets the chain ask the person before a call, through every door whose client can be asked; the backend asks afterwards too, and
// the person is not asked the first question again.
func TestConfirm(t *testing.T) {
	for _, tt := range []struct{ action, want string }{
		{"accept", "ACTION_ACCEPT late order 7"},
		{"decline", "the person said 1"},
		{"cancel", "the person said 0"},
	} {
		t.Run(tt.action, func(t *testing.T) {
			var questions []*mcp.ElicitParams
			confirmed := func(c *mcpadapter.Config) {
				next := c.Handler
				c.Handler = func(ss grpc.ServerStream) error {
					asker := call.FromContext(ss.Context()).Asker
					if asker == nil {
						return status.Error(codes.FailedPrecondition, "nobody can be asked")
					}
					answer, err := asker.Ask(ss.Context(), call.Question{ID: "the id", Text: "Cancel order 7?"})
					if err != nil {
						return err
					}
					if answer != call.Yes {
						return status.Errorf(codes.PermissionDenied, "the person said %d", answer)
					}
					return next(ss)
				}
			}
			forDoors(t, confirmed, asked(tt.action, &questions), func(t *testing.T, _ *world, c *mcp.ClientSession, d door) {
				questions = nil
				res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_cancel", Arguments: map[string]any{"id": 7}})
				if err != nil {
					t.Fatal(err)
				}
				text := res.Content[0].(*mcp.TextContent).Text
				if !d.stdio && !d.session && d.version != "2026-07-28" {
					if !strings.Contains(text, "nobody can be asked") {
						t.Errorf("without a session: %q", text)
					}
					return
				}
				if !strings.Contains(text, tt.want) || questions[0].Message != "Cancel order 7?" {
					t.Errorf("result %q after %q, want %q", text, questions[0].Message, tt.want)
				}
				if tt.action == "accept" && len(questions) != 2 {
					t.Errorf("the person was asked %d times", len(questions))
				}
			})
		})
	}
}

// TestInputWithoutStream calls in a session for an answer in JSON, which has no room for a question: the call must not wait for one.
func TestInputWithoutStream(t *testing.T) {
	w := newWorld(t, func(c *mcpadapter.Config) { c.Sessions = true })
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	hello := message("0", "initialize", `"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}`, "-", "")
	session := sessionID.FindString(exchanged(t.Context(), w.adapter, h, hello))
	h.Set("Mcp-Session-Id", session)
	h.Set("Accept", "application/json")
	exchanged(t.Context(), w.adapter, h, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	got := exchanged(t.Context(), w.adapter, h, message("1", "tools/call", `"name":"orders_cancel","arguments":{"id":7}`, "-", ""))
	if !strings.Contains(got, "INPUT_REQUIRED") || !strings.Contains(got, `"isError":true`) {
		t.Errorf("answer is %s, want a tool error", got)
	}
}
