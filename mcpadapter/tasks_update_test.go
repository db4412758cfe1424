package mcpadapter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/task"
	"github.com/toolway/toolway/mcpadapter"
)

// given returns the answers that a call brings, or nil.
func given(ss grpc.ServerStream) (*toolwayv1.InputResponses, error) {
	raw := call.FromContext(ss.Context()).Forward.Get(call.InputResponsesKey)
	if len(raw) == 0 {
		return nil, nil
	}
	out := &toolwayv1.InputResponses{}
	return out, proto.Unmarshal([]byte(raw[0]), out)
}

func person(question string) *toolwayv1.InputRequest {
	return &toolwayv1.InputRequest{Kind: &toolwayv1.InputRequest_Elicitation{Elicitation: &toolwayv1.Elicitation{Message: question}}}
}

// asksFor returns the error with which a call asks for what it does not know yet, or nil.
func asksFor(act string, given *toolwayv1.InputResponses) error {
	model := &toolwayv1.InputRequest{Kind: &toolwayv1.InputRequest_Sampling{}}
	switch {
	case act == "two" && given == nil:
		return asking("the state", map[string]*toolwayv1.InputRequest{"name": person("Who?"), "reason": person("Why?")})
	case act == "twice" && string(given.GetState()) != "second":
		state := "first"
		if given != nil {
			state = "second"
		}
		return asking(state, map[string]*toolwayv1.InputRequest{"reason": person("Why?")})
	case act == "model" && given == nil:
		return asking("", map[string]*toolwayv1.InputRequest{"name": person("Who?"), "summary": model})
	case act == "maybe" && given == nil:
		model.Optional = true
		return asking("", map[string]*toolwayv1.InputRequest{"name": person("Who?"), "summary": model})
	}
	return nil
}

// said are the answers, and the state.
func said(given *toolwayv1.InputResponses) string {
	text := string(given.GetState())
	for _, name := range []string{"name", "reason", "summary"} {
		if r := given.GetResponses()[name]; r != nil {
			text += fmt.Sprintf(" %s:%v=%s", name, r.GetAction(), r.GetContent().GetFields()["is"].GetStringValue())
		}
	}
	return text
}

var errEnough = errors.New("enough")

// asks waits until a task of p asks in a round.
func (j *jobs) asks(p *identity.Principal, id string, round int) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	err := j.tasks.Watch(ctx, p, id, 0, func(task.Event) error {
		t, err := j.tasks.Get(ctx, p, id)
		if err == nil && t.State == task.InputRequired && t.Round == round {
			return errEnough
		}
		return err
	})
	if !errors.Is(err, errEnough) {
		j.t.Fatalf("task %s does not ask in round %d: %v", id, round, err)
	}
}

// keys are those of the questions of a task.
func keys(got map[string]any) string {
	requests, _ := got["inputRequests"].(map[string]any)
	var out []string
	for _, name := range []string{"name", "reason", "summary", "name#2", "reason#2"} {
		if requests[name] != nil {
			out = append(out, name)
		}
	}
	if len(out) != len(requests) {
		return fmt.Sprint(requests)
	}
	return strings.Join(out, " ")
}

// TestTaskUpdate pins tasks/update: what is acknowledged, kept and ignored, and what is refused, on both paths.
func TestTaskUpdate(t *testing.T) {
	j := newJobs(t, nil).start()
	for i, a := range []*mcpadapter.Adapter{j.fast, j.sdk} {
		t.Run([]string{"fast", "sdk"}[i], func(t *testing.T) {
			id := j.create("jobs_run", "two")
			j.asks(identity.Anonymous, id, 1)
			get := func(want, wantKeys string) map[string]any {
				t.Helper()
				code, got, failure := ask(t, a, "tasks/get", `"taskId":"`+id+`"`, withTasks)
				if code != http.StatusOK || got["status"] != want || keys(got) != wantKeys || got["requestState"] != nil {
					t.Fatalf("tasks/get = %d %v %v, want %s with the questions %q", code, got, failure, want, wantKeys)
				}
				return got
			}
			update := func(responses, ignored string) {
				t.Helper()
				code, got, failure := ask(t, a, "tasks/update", `"taskId":"`+id+`","inputResponses":`+responses, withTasks)
				meta, _ := got["_meta"].(map[string]any)
				if has := fmt.Sprint(meta["io.toolway/ignored"]); code != http.StatusOK || got["resultType"] != "complete" || len(got) != 2 || has != ignored {
					t.Fatalf("tasks/update of %s = %d %v %v, want it acknowledged, with %s ignored", responses, code, got, failure, ignored)
				}
			}
			refused := func(responses, want string) {
				t.Helper()
				code, got, failure := ask(t, a, "tasks/update", `"taskId":"`+id+`","inputResponses":`+responses, withTasks)
				if code != http.StatusBadRequest || failure["code"] != float64(-32602) || !strings.Contains(fmt.Sprint(failure["message"]), want) {
					t.Errorf("tasks/update of %s = %d %v %v, want -32602 with %q", responses, code, got, failure, want)
				}
			}
			get("input_required", "name reason")
			refused(`{"name":7}`, "params.inputResponses.name: got a number, want an object")
			refused(`{"name":null}`, "params.inputResponses.name: got null, want an object")
			refused(`{"name":{"content":{"is":"Ann"}}}`, `params.inputResponses.name: it is asked of a person, want "action": accept, decline or cancel`)
			refused(`{"name":{"action":"perhaps"}}`, `action is "perhaps": want accept, decline or cancel`)
			refused(`{"name":{"action":"accept","content":[]}}`, "params.inputResponses.name:")
			refused(`{"reason":{"action":"accept"},"name":"Ann"}`, "params.inputResponses.name:") // neither is kept
			refused(`[]`, "inputResponses")
			refused(`"x"`, "inputResponses")
			get("input_required", "name reason")
			update(`{}`, "<nil>")
			update(`{"shape":{"action":"accept"},"name#2":{"action":"accept"},"reason#1":7}`, "[name#2 reason#1 shape]")
			get("input_required", "name reason")
			update(`{"name":{"action":"accept","content":{"is":"Ann"}},"shape":{"ignored":true}}`, "[shape]")
			get("input_required", "reason")
			update(`{"name":{"action":"decline"}}`, "[name]") // it has been answered
			update(`{"reason":{"action":"decline"}}`, "<nil>")
			got := j.ended(id)
			if text := fmt.Sprint(got["result"]); got["status"] != "completed" || !strings.Contains(text, "the state name:ACTION_ACCEPT=Ann reason:ACTION_DECLINE=") {
				t.Errorf("task = %v, want it completed with both answers", got)
			}
			update(`{"reason":{"action":"accept"}}`, "[reason]") // there is nothing to be answered any more
		})
	}
}

// TestTaskUpdateRounds pins that a key means one question for as long as a task lives.
func TestTaskUpdateRounds(t *testing.T) {
	j := newJobs(t, nil).start()
	id := j.create("jobs_run", "twice")
	j.asks(identity.Anonymous, id, 1)
	if got := j.get(id); keys(got) != "reason" {
		t.Fatalf("first round = %v", got)
	}
	j.answer(id, `{"reason":{"action":"accept","content":{"is":"one"}}}`)
	j.asks(identity.Anonymous, id, 2)
	if got := j.get(id); keys(got) != "reason#2" {
		t.Fatalf("second round = %v", got)
	}
	j.answer(id, `{"reason":{"action":"accept","content":{"is":"late"}}}`)
	if got := j.get(id); keys(got) != "reason#2" {
		t.Fatalf("an answer of the first round was taken for one of the second: %v", got)
	}
	j.answer(id, `{"reason#2":{"action":"accept","content":{"is":"two"}}}`)
	if got := j.ended(id); !strings.Contains(fmt.Sprint(got["result"]), "second reason:ACTION_ACCEPT=two") {
		t.Errorf("task = %v, want it completed with the second answer", got)
	}
}

// TestTaskCannotAsk pins that a client is asked only what it has declared it can be asked, and that a task which has to know more fails as its call would.
func TestTaskCannotAsk(t *testing.T) {
	j := newJobs(t, nil).start()
	const withModel = `{"elicitation":{},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	create := func(act, capabilities string) string {
		t.Helper()
		_, res, failure := ask(t, j.fast, "tools/call", `"name":"jobs_run","arguments":{"act":"`+act+`"}`, capabilities)
		id, _ := res["taskId"].(string)
		if id == "" {
			t.Fatalf("no task: %v %v", res, failure)
		}
		return id
	}
	got := j.ended(create("model", withTasks))
	_, _, plain := ask(t, j.fast, "tools/call", `"name":"jobs_run","arguments":{"act":"model"}`, withoutTasks)
	if got["status"] != "failed" || got["result"] != nil || got["inputRequests"] != nil || plain["code"] != float64(-32021) || fmt.Sprint(got["error"]) != fmt.Sprint(plain) {
		t.Errorf("task = %v, want it failed with the error of the call: %v", got, plain)
	}
	id := create("maybe", withTasks)
	j.asks(identity.Anonymous, id, 1)
	if got := j.get(id); keys(got) != "name" {
		t.Errorf("client without a model is asked %v", got)
	}
	j.answer(id, `{"name":{"action":"accept","content":{"is":"Ann"}}}`)
	if got := j.ended(id); got["status"] != "completed" {
		t.Errorf("task = %v, want it completed", got)
	}
	id = create("maybe", withModel)
	j.asks(identity.Anonymous, id, 1)
	if got := j.get(id); keys(got) != "name" || !strings.Contains(fmt.Sprint(got["statusMessage"]), "asks 1 more that this client") {
		t.Errorf("another client without a model is asked %v", got)
	}
	if _, got, _ := ask(t, j.fast, "tasks/get", `"taskId":"`+id+`"`, withModel); keys(got) != "name summary" {
		t.Errorf("client with a model is asked %v", got)
	}
	j.answer(id, `{"name":{"action":"accept","content":{"is":"Ann"}}}`)
	j.asks(identity.Anonymous, id, 1) // what it has declared it can be asked is waited for, one by one
	j.answer(id, `{"summary":{"role":"assistant","is":"short"}}`)
	if got := j.ended(id); !strings.Contains(fmt.Sprint(got["result"]), "name:ACTION_ACCEPT=Ann summary:ACTION_UNSPECIFIED=short") {
		t.Errorf("task = %v, want it completed with both", got)
	}
}
