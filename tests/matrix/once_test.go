package matrix_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

// onceConfig makes Ask want a key, Label another principal's approval, and Watch the word of the person at the caller's side.
const onceConfig = `backends: [{name: probe, targets: [BACKEND]}]
policy:
  - {match: probe.v1.Probe/Ask, idempotency: {required: true}}
  - {match: probe.v1.Probe/Label, approval: approver, approver_scope: probe:approve}
  - {match: probe.v1.Probe/Watch, approval: confirm}
approvals: {url: "http://mesh.example.com"}
`

// once is a mesh whose policies decide whether a call runs, and its own backend.
type once struct {
	*run.Mesh
	server  *probe.Server
	backend string // its address
	stop    func() // ends it
	dir     string // of the configuration
	conn    *grpc.ClientConn
}

func openOnce(t *testing.T) *once { return openWith(t, onceConfig) }

// openWith opens a mesh with a configuration, in which BACKEND is the address of a backend of its own.
func openWith(t *testing.T, config string) *once {
	t.Helper()
	o := serveOnce(t, probe.Both)
	o.open(t, config)
	return o
}

// serveOnce starts the backend.
func serveOnce(t *testing.T, reflection probe.Reflection) *once {
	t.Helper()
	o := &once{server: probe.New(), dir: t.TempDir()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.backend = l.Addr().String()
	g, err := o.server.NewGRPC(reflection)
	if err != nil {
		t.Fatal(err)
	}
	o.stop = g.Stop
	o.stop = g.Stop
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return o
}

// write writes a configuration and returns its path.
func (o *once) write(t *testing.T, name, config string) string {
	t.Helper()
	file := filepath.Join(o.dir, name)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "BACKEND", strconv.Quote(o.backend))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// open starts the mesh.
func (o *once) open(t *testing.T, config string) {
	t.Helper()
	o.Mesh = run.Start(t, "--config", o.write(t, "toolway.yaml", config))
	o.conn = run.Dial(t, o.GRPC)
}

// agent is an MCP client.
func (o *once) agent(t *testing.T, version string) *agent.HTTP {
	t.Helper()
	a, err := agent.NewHTTP(t.Context(), o.URL("/mcp"), version, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

var (
	onceDoors     = []string{"grpc", "http", "mcp 2026-07-28", "mcp 2025-11-25"}
	agentVersions = []string{agent.V20251125, agent.V20260728}
)

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
	for _, version := range agentVersions { // an agent does not decide
		tools, err := agent.Tools(t.Context(), o.agent(t, version))
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			if strings.Contains(tool.Name, "appro") {
				t.Errorf("%s: the agent is offered %q", version, tool.Name)
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

// TestConfirmByElicitation has an agent of 2026-07-28 whose client can ask: the person is asked between two rounds of one call.
func TestConfirmByElicitation(t *testing.T) {
	o := openOnce(t)
	client := o.agent(t, agent.V20260728)
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
		raw, err := client.Request(ctx, "tools/call", params, nil)
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
