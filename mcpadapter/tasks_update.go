package mcpadapter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/task"
)

// metaIgnored is what of the answers of a tasks/update was for nothing that the task asks.
const metaIgnored = "io.toolway/ignored"

// inputKey returns the key of a question in inputRequests. A backend names its questions anew in each round, and the protocol wants a key to mean one
// question for as long as the task lives: in later rounds it has the round behind it.
func inputKey(name string, round int) string {
	if round <= 1 && !strings.Contains(name, "#") {
		return name
	}
	return name + "#" + strconv.Itoa(round)
}

// askingTask returns the members of a task that waits for input, with what it asks for and a client with such abilities can be asked.
func (a *Adapter) askingTask(t *task.Task, can abilities) []byte {
	put, missing, err := a.askedBy(t, can)
	message := taskMessage(t)
	switch {
	case err != nil:
		message = "the backend asks in a way that cannot be shown here; it can be answered with toolway.v1.TaskService/ProvideTaskInput"
	case len(missing) > 0:
		message = fmt.Sprintf("it asks %d more that this client has not declared it can be asked", len(missing))
	}
	dst := taskMembersWith(t, "input_required", message)
	if len(put) == 0 {
		return append(dst, `,"inputRequests":{}`...)
	}
	keyed := make(map[string]inputRequest, len(put))
	for name, r := range put {
		keyed[inputKey(name, t.Round)] = r
	}
	asked := bytes.TrimSuffix(appendInput(nil, keyed, ""), []byte(`,"resultType":"input_required"`))
	return append(append(dst, ','), asked...)
}

// askedBy returns what a task asks, by the names that its backend has given.
func (a *Adapter) askedBy(t *task.Task, can abilities) (put map[string]inputRequest, missing []inputRequest, err error) {
	m := a.conf.Catalog.Snapshot().Method(t.Method)
	if m == nil || t.Err == nil {
		return nil, nil, errors.New("the tool has gone from the catalog")
	}
	return questions(m, inputRequired(t.Err.Err()), can)
}

// answerUpdate answers tasks/update. What is acknowledged is kept. Answers to what the task does not ask, not any more, or was never asked, are ignored, as
// the protocol wants it, and named in _meta.
func (a *Adapter) answerUpdate(ctx context.Context, from asker, can abilities, id string, responses map[string]json.RawMessage) (*rawResult, error) {
	if err := checkTask(updateTask, can, id); err != nil {
		return nil, err
	}
	var u *update
	var err error
	for range updateTries {
		u = &update{adapter: a, id: id, responses: responses}
		if err = u.send(ctx, from); reasonOf(err) != task.ReasonNotAsked || u.nothing {
			break
		} // somebody else has answered meanwhile: what is still asked is taken
	}
	switch reasonOf(err) {
	case task.ReasonNoInput, task.ReasonOtherRound, task.ReasonNotAsked:
		u.ignored, err = sorted(responses), nil
	}
	if err != nil {
		return nil, taskError(id, err)
	}
	res := &rawResult{body: []byte(taskAck)}
	if len(u.ignored) > 0 {
		for i := range u.ignored {
			u.ignored[i] = cut(u.ignored[i], 100)
		}
		res.Meta = mcp.Meta{metaIgnored: u.ignored}
	}
	return res, nil
}

// updateTries bounds how often answers are sorted anew since others have answered in between.
const updateTries = 4

// update is one tasks/update.
type update struct {
	adapter   *Adapter
	id        string
	responses map[string]json.RawMessage

	// ignored are the keys that stand for nothing that the task asks; nothing says that there are no others.
	ignored []string
	nothing bool
}

// send passes the answers through the chain as a call of the mesh's own API: what it is, a change of the task by its owner. Only the chain knows who
// that is, so what the task asks is read when the chain wants the request. The error is a *fetchError, a status, or a JSON-RPC error.
func (u *update) send(ctx context.Context, from asker) error {
	a := u.adapter
	m, err := a.taskMethod(apiProvide)
	if err != nil {
		return err
	}
	if m == nil { // nobody else is asked
		p := cmp.Or(call.PrincipalFrom(ctx), identity.Anonymous)
		request, err := u.request(ctx, p)
		if err == nil {
			_, err = a.conf.Tasks.Provide(ctx, p, u.id, int(request.GetInputRound()), request.GetResponses())
		}
		return err
	}
	c := a.newCall(ctx, from, m)
	var wrong *jsonrpc.Error
	_, _, err = a.fetchWith(ctx, c, onceFrame(m, func() ([]byte, error) {
		request, err := u.request(ctx, c.Principal)
		if errors.As(err, &wrong) {
			return nil, call.Error(codes.InvalidArgument, "INPUT_INVALID", wrong.Message)
		}
		if err != nil {
			return nil, err
		}
		return proto.Marshal(request)
	}), 0)
	var f *fetchError
	switch {
	case wrong != nil && errors.As(err, &f) && reasonOf(f.status.Err()) == "INPUT_INVALID":
		return wrong
	case errors.As(err, &f) && task.ProvideReason(reasonOf(f.status.Err())):
		return f.status.Err()
	}
	return err
}

// onceFrame is the requests function of one request that is made when it is wanted.
func onceFrame(m *catalog.Method, wire func() ([]byte, error)) func() (*call.Frame, error) {
	var rest func() (*call.Frame, error)
	return func() (*call.Frame, error) {
		if rest == nil {
			b, err := wire()
			if err != nil {
				return nil, err
			}
			rest = call.One(call.NewFrame(m.Desc.Input(), b))
		}
		return rest()
	}
}

// request reads the answers as what the task asks. The error is a status, or a JSON-RPC error.
func (u *update) request(ctx context.Context, p *identity.Principal) (*toolwayv1.ProvideTaskInputRequest, error) {
	t, err := u.adapter.conf.Tasks.Get(ctx, p, u.id)
	if err != nil {
		return nil, err
	}
	asks := t.State == task.InputRequired && t.Err != nil
	var ask *toolwayv1.InputRequired
	if asks {
		ask = inputRequired(t.Err.Err())
	}
	answers := &toolwayv1.InputResponses{Responses: map[string]*toolwayv1.InputResponse{}}
	known := map[string]string{} // names by key
	for name := range ask.GetRequests() {
		known[inputKey(name, t.Round)] = name
	}
	u.ignored = nil
	for _, key := range sorted(u.responses) {
		name, asked := known[key]
		if !asks { // they may be the very answers that the task goes on with: then it does no harm that they come again
			name = strings.TrimSuffix(key, "#"+strconv.Itoa(t.Round))
			asked = inputKey(name, t.Round) == key
		}
		answer, err := responseTo(ask.GetRequests()[name], key, u.responses[key])
		switch {
		case !asked || err != nil && !asks:
			u.ignored = append(u.ignored, key)
		case err != nil:
			return nil, err
		default:
			answers.Responses[name] = answer
		}
	}
	if u.nothing = len(u.responses) > 0 && len(answers.GetResponses()) == 0; u.nothing {
		return nil, call.Error(codes.InvalidArgument, task.ReasonNotAsked, "no answer is to what the task asks")
	}
	return &toolwayv1.ProvideTaskInputRequest{Id: u.id, Responses: answers, InputRound: uint32(t.Round)}, nil //nolint:gosec // small
}

// responseTo reads an answer to a question, which is nil if it is not known. The error is a JSON-RPC error.
func responseTo(question *toolwayv1.InputRequest, key string, raw json.RawMessage) (*toolwayv1.InputResponse, error) {
	wrong := func(why string) error {
		return rpcError(jsonrpc.CodeInvalidParams, "params.inputResponses.%s: %s", cut(key, 100), why)
	}
	if kind := kindOf(raw); kind != "an object" {
		return nil, wrong("got " + kind + ", want an object")
	}
	answer, err := inputResponseOf(raw)
	if err != nil {
		return nil, wrong(err.Error())
	}
	if question.GetElicitation() != nil && answer.GetAction() == toolwayv1.InputResponse_ACTION_UNSPECIFIED {
		return nil, wrong(`it is asked of a person, want "action": accept, decline or cancel`)
	}
	return answer, nil
}
