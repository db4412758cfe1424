package matrix_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

// onceConfig makes Ask want a key, Label another principal's approval, and Watch the word of the person at the caller's side.
const onceConfig = `backends: [{name: probe, targets: [%q]}]
policy:
  - {match: probe.v1.Probe/Ask, idempotency: {required: true}}
  - {match: probe.v1.Probe/Label, approval: approver, approver_scope: probe:approve}
  - {match: probe.v1.Probe/Watch, approval: confirm}
approvals: {url: "http://mesh.example.com"}
`

// once is a mesh whose policies decide whether a call runs, and its own backend.
type once struct {
	*run.Mesh
	server *probe.Server
	stop   func() // ends the backend
	conn   *grpc.ClientConn
	agents map[string]*agent.HTTP
}

func openOnce(t *testing.T) *once { return openWith(t, onceConfig) }

// openWith opens a mesh with a configuration that has a place for the backend's address.
func openWith(t *testing.T, config string) *once {
	t.Helper()
	o := &once{server: probe.New(), agents: map[string]*agent.HTTP{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := o.server.NewGRPC(probe.Both)
	if err != nil {
		t.Fatal(err)
	}
	o.stop = g.Stop
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, l.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Mesh = run.Start(t, "--config", file)
	o.conn = run.Dial(t, o.GRPC)
	for name, version := range map[string]string{"mcp 2025-11-25": agent.V20251125, "mcp 2026-07-28": agent.V20260728} {
		a, err := agent.NewHTTP(t.Context(), o.URL("/mcp"), version, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		o.agents[name] = a
	}
	return o
}

var onceDoors = []string{"grpc", "http", "mcp 2025-11-25", "mcp 2026-07-28"}

// wanted is one call, whatever the door.
type wanted struct {
	method, json string
	key, confirm string
}

// told is what the caller gets, in the same words from every door.
type told struct {
	text     string // the reply as JSON
	code     string
	reason   string
	metadata map[string]string
	replayed bool
	http     int
	after    string // Retry-After
}

func (a told) String() string { return strings.TrimSpace(a.code + " " + a.reason) }

func (o *once) call(ctx context.Context, t testing.TB, door string, w wanted) told {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	switch door {
	case "grpc":
		return o.callGRPC(ctx, t, w)
	case "http":
		return o.callHTTP(ctx, t, w)
	}
	return o.callMCP(ctx, t, o.agents[door], w)
}

func (o *once) callGRPC(ctx context.Context, t testing.TB, w wanted) told {
	if w.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", w.key)
	}
	if w.confirm != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "toolway-confirm", w.confirm)
	}
	var header metadata.MD
	var err error
	var texts []string
	client := probev1.NewProbeClient(o.conn)
	switch w.method {
	case "Ask":
		var out *probev1.AskResponse
		in := &probev1.AskRequest{}
		unmarshal(t, w.json, in)
		out, err = client.Ask(ctx, in, grpc.Header(&header))
		texts = append(texts, out.GetText())
	case "Label":
		in := &probev1.LabelRequest{}
		unmarshal(t, w.json, in)
		_, err = client.Label(ctx, in, grpc.Header(&header))
	case "Watch":
		in := &probev1.WatchRequest{}
		unmarshal(t, w.json, in)
		s, openErr := client.Watch(ctx, in)
		if openErr != nil {
			t.Fatal(openErr)
		}
		for err == nil {
			var m *probev1.WatchResponse
			if m, err = s.Recv(); err == nil {
				texts = append(texts, m.GetText())
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		header, _ = s.Header()
	}
	st := status.Convert(err)
	a := told{text: strings.Join(texts, ","), code: code.Code(st.Code()).String(), replayed: len(header.Get("toolway-replayed")) > 0}
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			a.reason, a.metadata = i.GetReason(), i.GetMetadata()
		}
	}
	return a
}

func (o *once) callHTTP(ctx context.Context, t testing.TB, w wanted) told {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL("/probe.v1.Probe/"+w.method), strings.NewReader(w.json))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if w.key != "" {
		req.Header.Set("Idempotency-Key", `"`+w.key+`"`) // as the draft has it
	}
	if w.confirm != "" {
		req.Header.Set("Toolway-Confirm", w.confirm)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := told{code: "OK", replayed: res.Header.Get("Idempotent-Replayed") == "true", http: res.StatusCode, after: res.Header.Get("Retry-After")}
	if res.StatusCode == http.StatusOK {
		var texts []string
		for line := range bytes.Lines(body) {
			var reply struct{ Text string }
			if err := json.Unmarshal(line, &reply); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, reply.Text)
		}
		a.text = strings.Join(texts, ",")
		return a
	}
	var failure struct {
		Code    int
		Details []struct {
			Type     string `json:"@type"`
			Reason   string
			Metadata map[string]string
		}
	}
	if err := json.Unmarshal(body, &failure); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	a.code = code.Code(failure.Code).String()
	for _, d := range failure.Details {
		if strings.HasSuffix(d.Type, "ErrorInfo") {
			a.reason, a.metadata = d.Reason, d.Metadata
		}
	}
	return a
}

func (o *once) callMCP(ctx context.Context, t testing.TB, client *agent.HTTP, w wanted) told {
	meta := map[string]any{}
	if w.key != "" {
		meta["io.toolway/idempotency-key"] = w.key
	}
	if w.confirm != "" {
		meta["io.toolway/confirm"] = w.confirm
	}
	raw, err := client.Request(ctx, "tools/call", map[string]any{"name": "probe_" + strings.ToLower(w.method), "arguments": json.RawMessage(w.json), "_meta": meta}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var res struct {
		StructuredContent struct {
			Text  string
			Items []struct{ Text string }
			Error struct {
				Code, Reason string
				Metadata     map[string]string
			}
		}
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	failure := res.StructuredContent.Error
	a := told{text: res.StructuredContent.Text, code: failure.Code, reason: failure.Reason, metadata: failure.Metadata, replayed: res.Meta["io.toolway/replayed"] == true}
	var texts []string
	for _, i := range res.StructuredContent.Items {
		texts = append(texts, i.Text)
	}
	a.text += strings.Join(texts, ",")
	if a.code == "" {
		a.code = "OK"
	}
	return a
}

// TestOnceAcrossDoors executes a call through each door, and repeats it through every door: there is one execution, and one answer.
func TestOnceAcrossDoors(t *testing.T) {
	o := openOnce(t)
	for _, first := range onceDoors {
		before := o.server.Total()
		w := wanted{method: "Ask", json: fmt.Sprintf(`{"id":%q,"text":"hello"}`, first), key: "key of " + first}
		if a := o.call(t.Context(), t, first, w); a.String() != "OK" || a.replayed || a.text != "hello" {
			t.Fatalf("%s: %v %q, replayed %v", first, a, a.text, a.replayed)
		}
		for _, second := range onceDoors {
			if a := o.call(t.Context(), t, second, w); a.String() != "OK" || !a.replayed || a.text != "hello" {
				t.Errorf("%s, then %s: %v %q, replayed %v", first, second, a, a.text, a.replayed)
			}
			other := w
			other.json = fmt.Sprintf(`{"id":%q,"text":"bye"}`, first)
			if a := o.call(t.Context(), t, second, other); a.String() != "INVALID_ARGUMENT IDEMPOTENCY_KEY_REUSED" || second == "http" && a.http != http.StatusUnprocessableEntity {
				t.Errorf("%s, then another request through %s: %v, HTTP %d", first, second, a, a.http)
			}
		}
		if n := o.server.Total() - before; n != 1 {
			t.Errorf("%s: %d executions, want 1", first, n)
		}
		// A failure is replayed as it was.
		w = wanted{method: "Ask", json: `{"plan":{"code":5}}`, key: "failure of " + first}
		for i, door := range append([]string{first}, onceDoors...) {
			if a := o.call(t.Context(), t, door, w); a.String() != "NOT_FOUND PLANNED" || a.replayed != (i > 0) {
				t.Errorf("failure of %s, then %s: %v, replayed %v", first, door, a, a.replayed)
			}
		}
	}
	for _, door := range onceDoors {
		if a := o.call(t.Context(), t, door, wanted{method: "Ask", json: `{}`}); a.String() != "INVALID_ARGUMENT IDEMPOTENCY_KEY_REQUIRED" || door == "http" && a.http != http.StatusBadRequest {
			t.Errorf("%s without a key: %v, HTTP %d", door, a, a.http)
		}
	}
}

// TestOnceInProgress repeats a call that is under way.
func TestOnceInProgress(t *testing.T) {
	o := openOnce(t)
	for _, first := range onceDoors {
		w := wanted{method: "Ask", json: fmt.Sprintf(`{"id":%q,"text":"slow","plan":{"gate":true}}`, first), key: "slow " + first}
		done := make(chan told, 1)
		go func() { done <- o.call(t.Context(), t, first, w) }()
		ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
		running, err := o.server.Call(ctx, first)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for _, second := range onceDoors {
			a := o.call(t.Context(), t, second, w)
			if a.String() != "ABORTED IDEMPOTENCY_IN_PROGRESS" || a.metadata["call_id"] == "" || second == "http" && (a.http != http.StatusConflict || a.after != "1") {
				t.Errorf("%s, then %s: %v, %v, HTTP %d, Retry-After %q", first, second, a, a.metadata, a.http, a.after)
			}
		}
		running.Pass()
		if a := <-done; a.String() != "OK" || a.text != "slow" {
			t.Errorf("%s: %v %q", first, a, a.text)
		}
		if a := o.call(t.Context(), t, first, w); !a.replayed {
			t.Errorf("%s afterwards: %v, replayed %v", first, a, a.replayed)
		}
	}
	if n := o.server.Total(); n != len(onceDoors) {
		t.Errorf("%d executions, want %d", n, len(onceDoors))
	}
}

// TestApprovalAcrossDoors holds a call at each door, decides about it at each door that may, and makes it again.
func TestApprovalAcrossDoors(t *testing.T) {
	o := openOnce(t)
	n := 0
	for _, door := range onceDoors {
		for _, approver := range []string{"grpc", "http"} {
			for _, decision := range []string{"approve", "refuse"} {
				n++
				w := wanted{method: "Label", json: fmt.Sprintf(`{"id":"call-%d","labels":{"a":"1","b":"2"}}`, n)}
				held := o.call(t.Context(), t, door, w)
				id := held.metadata["approval_id"]
				if held.String() != "FAILED_PRECONDITION APPROVAL_REQUIRED" || id == "" || held.metadata["url"] != "http://mesh.example.com/v1/approvals/"+id || door == "http" && held.http != http.StatusConflict {
					t.Fatalf("%s: %v %v, HTTP %d", door, held, held.metadata, held.http)
				}
				o.decide(t, approver, id, decision)
				a := o.call(t.Context(), t, door, w)
				want := "OK"
				if decision == "refuse" {
					want = "PERMISSION_DENIED APPROVAL_REFUSED"
				}
				if a.String() != want || decision == "refuse" && (a.metadata["comment"] != "because" || door == "http" && a.http != http.StatusForbidden) {
					t.Errorf("%s, %s by %s: %v %v, HTTP %d", door, decision, approver, a, a.metadata, a.http)
				}
				if saw := o.server.Saw(fmt.Sprintf("call-%d", n)); saw != (decision == "approve") {
					t.Errorf("%s, %s by %s: executed %v", door, decision, approver, saw)
				}
				if again := o.call(t.Context(), t, door, w); decision == "approve" && (again.String() != held.String() || again.metadata["approval_id"] == id) {
					t.Errorf("%s, a second time: %v %v", door, again, again.metadata)
				}
			}
		}
	}
	for name, a := range o.agents { // an agent does not decide
		tools, err := agent.Tools(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			if strings.Contains(tool.Name, "appro") {
				t.Errorf("%s: the agent is offered %q", name, tool.Name)
			}
		}
	}
}

func (o *once) decide(t *testing.T, door, id, decision string) {
	t.Helper()
	method := map[string]string{"approve": "Approve", "refuse": "Refuse"}[decision]
	if door == "http" {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.URL("/v1/approvals/"+id+":"+decision), strings.NewReader(`{"comment":"because"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s", decision, id, res.Status, body)
		}
		return
	}
	in := &probev1.AskRequest{Id: id, Text: "because"} // the same fields as those of ApproveRequest and RefuseRequest
	if err := o.conn.Invoke(t.Context(), "/toolway.v1.ApprovalService/"+method, in, &probev1.LabelResponse{}); err != nil {
		t.Fatalf("%s %s: %v", decision, id, err)
	}
}

// TestConfirmAcrossDoors has callers whose clients cannot ask: they bring the person's word with a second call.
func TestConfirmAcrossDoors(t *testing.T) {
	o := openOnce(t)
	for i, door := range onceDoors {
		w := wanted{method: "Watch", json: fmt.Sprintf(`{"id":"watch-%d","text":"x","plan":{"count":2}}`, i)}
		first := o.call(t.Context(), t, door, w)
		if first.String() != "FAILED_PRECONDITION CONFIRMATION_REQUIRED" || first.metadata["confirm"] == "" || door == "http" && first.http != http.StatusConflict {
			t.Fatalf("%s: %v %v, HTTP %d", door, first, first.metadata, first.http)
		}
		wrong := w
		wrong.confirm = "yes"
		if a := o.call(t.Context(), t, door, wrong); a.String() != first.String() || a.metadata["confirm"] != first.metadata["confirm"] {
			t.Errorf("%s with a made-up word: %v %v", door, a, a.metadata)
		}
		w.confirm = first.metadata["confirm"]
		if a := o.call(t.Context(), t, door, w); a.String() != "OK" || a.text != "x,x" {
			t.Errorf("%s, confirmed: %v %q", door, a, a.text)
		}
		if a := o.call(t.Context(), t, door, w); a.String() != first.String() {
			t.Errorf("%s, with the same word again: %v", door, a)
		}
	}
	if n := o.server.Total(); n != len(onceDoors) {
		t.Errorf("%d executions, want %d", n, len(onceDoors))
	}
}

func unmarshal(t testing.TB, text string, m proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
}

// TestConfirmByElicitation has an agent of 2026-07-28 whose client can ask: the person is asked between two rounds of one call.
func TestConfirmByElicitation(t *testing.T) {
	o := openOnce(t)
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	defer cancel()
	type round struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct {
			Method string
			Params struct{ Message string }
		}
		IsError           bool
		StructuredContent json.RawMessage
	}
	call := func(arguments string, more map[string]any) (r round) {
		t.Helper()
		params := map[string]any{"name": "probe_watch", "arguments": json.RawMessage(arguments),
			"_meta": map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}}}
		for k, v := range more {
			params[k] = v
		}
		raw, err := o.agents["mcp 2026-07-28"].Request(ctx, "tools/call", params, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	const arguments = `{"id":"asked","text":"x","plan":{"count":1}}`
	answer := func(r round, action string) map[string]any {
		return map[string]any{"requestState": r.RequestState, "inputResponses": map[string]any{"toolway_confirm": map[string]any{"action": action, "content": map[string]any{}}}}
	}
	first := call(arguments, nil)
	question := first.InputRequests["toolway_confirm"]
	if first.ResultType != "input_required" || first.RequestState == "" || question.Method != "elicitation/create" || !strings.Contains(question.Params.Message, "probe.v1.Probe/Watch") {
		t.Fatalf("first round: %+v", first)
	}
	if declined := call(arguments, answer(first, "decline")); !declined.IsError || !strings.Contains(string(declined.StructuredContent), "CONFIRMATION_DECLINED") {
		t.Errorf("declined: %+v", declined)
	}
	if o.server.Total() != 0 {
		t.Errorf("%d executions before anybody has agreed", o.server.Total())
	}
	second := call(arguments, nil)
	agreed := answer(second, "accept")
	if done := call(arguments, agreed); done.IsError || done.ResultType != "complete" || o.server.Total() != 1 {
		t.Errorf("accepted: %+v after %d executions", done, o.server.Total())
	}
	if again := call(arguments, agreed); again.ResultType != "input_required" || o.server.Total() != 1 {
		t.Errorf("the same answer again: %+v after %d executions", again, o.server.Total())
	}
}
