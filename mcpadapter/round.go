package mcpadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// A call whose method, or the chain before it, asks the person at the client's side takes rounds: what is asked, then the same call again
// with the answers. A client of 2026-07-28 makes each round itself; for an older one with a session this door does.

// maxRounds bounds the rounds that this door makes by itself.
const maxRounds = 10

// round is what one round has of the one before. The first has nothing, and is nil.
type round struct {
	// answers are for the backend; nil if only the chain asked.
	answers *toolwayv1.InputResponses
	// question is the id of the chain's question that was answered.
	question string
	answer   call.Answer
	// sealed is what the client brought; it is nil for an older client, whose rounds are all here.
	sealed *roundState
	// foreign is set if the caller turns out to be another one than the state was given to.
	foreign bool
}

// confirmKey is the name under which a client is asked the chain's question.
const confirmKey = "toolway_confirm"

// resume returns the round that a client of 2026-07-28 asks for, or nil for a first call. The error is a JSON-RPC error.
func (a *Adapter) resume(m *catalog.Method, t *toolCall) (*round, error) {
	if !t.client.modern || t.client.responses == nil && t.client.state == "" {
		return nil, nil
	}
	r := &round{}
	var err error
	if t.client.state != "" {
		if r.sealed, err = a.sealer.open(t.client.state, time.Now()); err != nil {
			return nil, invalidParams(err.Error())
		}
		if same, err := requestHash(m, t.arguments); err != nil || same != r.sealed.Request {
			return nil, invalidParams(errOtherRequest.Error())
		}
		r.question, r.answer = r.sealed.Question, r.sealed.Answer
	}
	confirmed, asked := t.client.responses[confirmKey]
	if asked {
		delete(t.client.responses, confirmKey)
		if r.answer, err = answerOf(confirmed); err != nil {
			return nil, err
		}
	}
	if r.answers, err = answersOf(t.client.responses); err != nil {
		return nil, err
	}
	if r.sealed != nil {
		r.answers.State = r.sealed.Backend
	}
	if len(r.answers.GetResponses()) == 0 && len(r.answers.GetState()) == 0 {
		r.answers = nil
	}
	return r, nil
}

// answerOf reads the person's answer to the chain's question.
func answerOf(raw json.RawMessage) (call.Answer, error) {
	response, err := inputResponseOf(raw)
	if err != nil {
		return call.NoAnswer, rpcError(jsonrpc.CodeInvalidParams, "params.inputResponses.%s: %v", confirmKey, err)
	}
	return answerTo(response.GetAction()), nil
}

func answerTo(action toolwayv1.InputResponse_Action) call.Answer {
	switch action {
	case toolwayv1.InputResponse_ACTION_ACCEPT:
		return call.Yes
	case toolwayv1.InputResponse_ACTION_DECLINE:
		return call.No
	}
	return call.NoAnswer
}

// bring hands the answers to the backend with the call, and refuses to if the caller is not the one who was asked. Who calls is known only
// once the chain asks for the request.
func (r *round) bring(c *call.Call, requests func() (*call.Frame, error)) func() (*call.Frame, error) {
	if r == nil {
		return requests
	}
	if r.answers != nil {
		if raw, err := proto.Marshal(r.answers); err == nil { // it was read from valid JSON
			c.Forward.Set(call.InputResponsesKey, string(raw))
		}
	}
	if r.sealed == nil {
		return requests
	}
	return func() (*call.Frame, error) {
		if r.sealed.Principal != principalHash(c.Principal) {
			r.foreign = true
			return nil, status.Error(codes.PermissionDenied, errForeignState.Error())
		}
		return requests()
	}
}

// questioner asks for the chain; it is a call.Asker.
type questioner struct {
	client *client
	round  *round
	// asked waits for an answer in the next round.
	asked *call.Question
}

// Ask returns what the person said in the round before, or at once to an older client.
func (q *questioner) Ask(ctx context.Context, question call.Question) (call.Answer, error) {
	if q.round != nil && q.round.question == question.ID {
		return q.round.answer, nil
	}
	if q.client.modern {
		q.asked = &question
		return call.NoAnswer, call.ErrInputRequired
	}
	res, err := q.client.session.Elicit(ctx, confirmParams(question))
	if err != nil {
		return call.NoAnswer, status.Errorf(codes.FailedPrecondition, "ask the person: %v", err)
	}
	answer := map[string]call.Answer{"accept": call.Yes, "decline": call.No}[res.Action]
	q.round = &round{question: question.ID, answer: answer}
	return answer, nil
}

func confirmParams(q call.Question) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: q.Text, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
}

// asks returns what the call asks for, or nil.
func (at *attempt) asks() *toolwayv1.InputRequired {
	switch {
	case at.err == nil:
		return nil
	case at.asker != nil && at.asker.asked != nil:
		return &toolwayv1.InputRequired{}
	}
	return inputRequired(at.err)
}

// questions translates what is asked. Those that the client cannot be asked are left out, or, where they must be answered, in missing.
func questions(m *catalog.Method, ask *toolwayv1.InputRequired, can abilities) (put map[string]inputRequest, missing []inputRequest, err error) {
	put = map[string]inputRequest{}
	for _, name := range sorted(ask.GetRequests()) {
		r, err := inputRequestOf(m, ask.GetRequests()[name])
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("question %q: %w", name, err)
		case can&r.needs != 0:
			put[name] = r
		case ask.GetRequests()[name].GetOptional():
		default:
			missing = append(missing, r)
		}
	}
	return put, missing, nil
}

// unasked returns the next round if all questions of the backend are optional and the client cannot be asked any: the backend is called
// again with its state and no answers. Else it returns nil.
func (at *attempt) unasked(m *catalog.Method, t *toolCall, ask *toolwayv1.InputRequired, last *round) *round {
	if len(ask.GetRequests()) == 0 { // the chain asks, or the backend only wants to be called again
		return nil
	}
	if put, missing, err := questions(m, ask, t.client.can); err != nil || len(put)+len(missing) > 0 {
		return nil
	}
	next := &round{answers: &toolwayv1.InputResponses{State: ask.GetState()}}
	if last != nil {
		next.question, next.answer, next.sealed = last.question, last.answer, last.sealed
	}
	if at.asker != nil && at.asker.round != nil {
		next.question, next.answer = at.asker.round.question, at.asker.round.answer
	}
	return next
}

// inputResult answers a client of 2026-07-28 with what is asked.
func (a *Adapter) inputResult(m *catalog.Method, t *toolCall, at attempt, ask *toolwayv1.InputRequired, last *round) (*result, error) {
	put, missing, err := questions(m, ask, t.client.can)
	if err != nil {
		return a.badQuestion(at, err), nil
	}
	if len(missing) > 0 {
		return nil, missingCapability(m, missing)
	}
	state := roundState{Expires: time.Now().Add(stateLifetime).Unix(), Principal: principalHash(at.call.Principal), Backend: ask.GetState()}
	if state.Request, err = requestHash(m, t.arguments); err != nil {
		return nil, err
	}
	switch {
	case at.asker != nil && at.asker.asked != nil:
		put[confirmKey] = inputRequest{method: "elicitation/create", params: confirmParams(*at.asker.asked)}
		state.Question = at.asker.asked.ID
		if last != nil && last.answers != nil {
			state.Backend = last.answers.GetState()
		}
	case last != nil:
		state.Question, state.Answer = last.question, last.answer
	}
	sealed, err := a.sealer.seal(state)
	if err != nil {
		return nil, err
	}
	return &result{instead: appendInput(nil, put, sealed)}, nil
}

// appendInput appends the members of an input_required result.
func appendInput(dst []byte, put map[string]inputRequest, state string) []byte {
	if len(put) > 0 {
		dst = append(dst, `"inputRequests":{`...)
		for i, name := range sorted(put) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(append(appendString(dst, name), `:{"method":`...), put[name].method)
			params, err := marshal(put[name].params)
			if err != nil { // it came from JSON
				params = []byte("{}")
			}
			dst = append(append(append(dst, `,"params":`...), params...), '}')
		}
		dst = append(dst, "},"...)
	}
	if state != "" {
		dst = append(appendString(append(dst, `"requestState":`...), state), ',')
	}
	return append(dst, `"resultType":"input_required"`...)
}

// badQuestion is what a caller is told if the backend's question makes no sense.
func (a *Adapter) badQuestion(at attempt, err error) *result {
	a.conf.Logger.Error("a backend asks for input in a way that cannot be shown", "tool", at.call.Method.Tool.Name, "call", at.call.ID, "error", err)
	return errorResult(at.call.Method, describe(status.New(codes.Internal, "the backend asks for input in a way that cannot be shown"), at.call), nil)
}

// tooManyRounds is what an older client's call ends with if the backend never stops to ask.
func (a *Adapter) tooManyRounds(at attempt) *result {
	e := describe(status.Newf(codes.FailedPrecondition, "the backend has asked %d times and still does not know enough", maxRounds), at.call)
	return errorResult(at.call.Method, e, nil)
}

// fulfil asks an older client, one question after the other, and returns the next round; or the result that says why it cannot.
func (a *Adapter) fulfil(ctx context.Context, m *catalog.Method, t *toolCall, at attempt, ask *toolwayv1.InputRequired) (*round, *result) {
	c := at.call
	put, missing, err := questions(m, ask, t.client.can)
	switch {
	case err != nil:
		return nil, a.badQuestion(at, err)
	case len(missing) > 0 || t.client.session == nil:
		e := describe(withoutInput(at.err), c)
		e.Reason, e.Hint = or(e.Reason, "INPUT_REQUIRED"), "this tool has to ask the person, which this client cannot do here; use a client that offers elicitation, over stdio or with a session"
		return nil, errorResult(m, e, nil)
	}
	next := &round{answers: &toolwayv1.InputResponses{Responses: map[string]*toolwayv1.InputResponse{}, State: ask.GetState()}}
	if at.asker != nil && at.asker.round != nil {
		next.question, next.answer = at.asker.round.question, at.asker.round.answer
	}
	for _, name := range sorted(put) {
		raw, err := t.client.ask(ctx, put[name])
		if err == nil {
			next.answers.Responses[name], err = inputResponseOf(raw)
		}
		if err != nil {
			e := describe(status.Newf(codes.FailedPrecondition, "the client did not answer question %q: %v", name, err), c)
			e.Hint = "the tool needs the answer; call again when it can be given"
			return nil, errorResult(m, e, nil)
		}
	}
	return next, nil
}

// ask puts one question to a client with a session.
func (c *client) ask(ctx context.Context, r inputRequest) (json.RawMessage, error) {
	var res any
	var err error
	switch params := r.params.(type) {
	case *mcp.ElicitParams:
		res, err = c.session.Elicit(ctx, params)
	case *mcp.CreateMessageWithToolsParams:
		res, err = c.session.CreateMessageWithTools(ctx, params)
	case *mcp.ListRootsParams:
		res, err = c.session.ListRoots(ctx, params)
	default:
		return nil, errors.New("no such question")
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}
