// Package durable_test shows what of the mesh's state survives what: processes that are killed, stores that go away, are cut in two, fill up or are
// damaged. It runs the built binary before a backend that counts what it executes.
package durable_test

import (
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
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// counter is a backend that counts executions: of Ask by idempotency key, of Label by id. Collect and Chat are not served.
type counter struct {
	probev1.UnimplementedProbeServer
	addr string
	// reached and gate, if they are set, hold Ask until gate is closed.
	reached chan string
	gate    chan struct{}

	mu    sync.Mutex
	times map[string]int
	// gates hold Ask with a key until they are closed.
	gates map[string]chan struct{}
}

// hold has Ask with a key wait, and returns what lets it go on.
func (c *counter) hold(key string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.gates[key] = gate
	return func() { close(gate) }
}

func (c *counter) did(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[what]++
	return c.times[what]
}

func (c *counter) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[what]
}

// Ask executes once more. The answer tells how often that was.
func (c *counter) Ask(ctx context.Context, in *probev1.AskRequest) (*probev1.AskResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	key := strings.Join(md.Get("idempotency-key"), ",")
	c.mu.Lock()
	gate := c.gates[key]
	c.mu.Unlock()
	if gate == nil {
		gate = c.gate
	}
	if gate != nil {
		select {
		case c.reached <- key:
		default:
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return &probev1.AskResponse{Text: in.GetText(), Number: int64(c.did(key))}, nil
}

// Label executes once more.
func (c *counter) Label(_ context.Context, in *probev1.LabelRequest) (*probev1.LabelResponse, error) {
	c.did(in.GetId())
	return &probev1.LabelResponse{Labels: in.GetLabels()}, nil
}

// Watch needs no store.
func (c *counter) Watch(in *probev1.WatchRequest, stream grpc.ServerStreamingServer[probev1.WatchResponse]) error {
	return stream.Send(&probev1.WatchResponse{Text: in.GetText()})
}

func startCounter(t *testing.T) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{addr: l.Addr().String(), times: map[string]int{}, gates: map[string]chan struct{}{}}
	g := grpc.NewServer()
	probev1.RegisterProbeServer(g, c)
	reflection.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// config has keys required for Ask, an approver for Label, and nothing that needs a store for Watch.
const config = `backends: [{name: probe, targets: [%q]}]
policy:
  - {match: probe.v1.Probe/Ask, idempotency: {required: true}}
  - {match: probe.v1.Probe/Label, approval: approver, approver_scope: probe:approve}
`

// configFile writes the configuration, and what is added to it.
func (c *counter) configFile(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config+more, c.addr), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// mesh is a running mesh and ways to call it.
type mesh struct {
	*run.Mesh
	conn   *grpc.ClientConn
	client *http.Client
	agent  *agent.HTTP
}

func serve(t *testing.T, args ...string) *mesh {
	t.Helper()
	m, err := run.Serve(args...)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, m)
}

func connect(t *testing.T, m *run.Mesh) *mesh {
	t.Helper()
	m.Explain(t)
	t.Cleanup(m.Kill)
	out := &mesh{Mesh: m, conn: run.Dial(t, m.GRPC), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(out.client.CloseIdleConnections)
	var err error
	if out.agent, err = agent.NewHTTP(t.Context(), m.URL("/mcp"), agent.V20260728, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.agent.Close)
	return out
}

// stop ends the mesh as an operator does.
func (m *mesh) stop(t *testing.T) {
	t.Helper()
	if err := m.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

var doors = []string{"grpc", "http", "mcp"}

// answer is what a caller gets, in the same words from every door.
type answer struct {
	code, reason string
	number       int64
	replayed     bool
	approval     string
	status       string // where to see the call that is under way
	retry        bool   // it says when to call again
}

func (a answer) String() string { return strings.TrimSpace(a.code + " " + a.reason) }

const (
	ok        = "OK"
	needed    = "FAILED_PRECONDITION APPROVAL_REQUIRED"
	unknown   = "UNKNOWN OUTCOME_UNKNOWN"
	underWay  = "ABORTED IDEMPOTENCY_IN_PROGRESS"
	noKeys    = "UNAVAILABLE IDEMPOTENCY_STORE_UNAVAILABLE"
	noHolding = "UNAVAILABLE APPROVAL_STORE_UNAVAILABLE"
	noAudit   = "UNAVAILABLE AUDIT_STORE_UNAVAILABLE"
)

// ask makes a keyed call.
func (m *mesh) ask(ctx context.Context, door, key string) (answer, error) {
	return m.call(ctx, door, "Ask", key, fmt.Sprintf(`{"id":%q,"text":"hello"}`, key))
}

// label makes a call that needs approval.
func (m *mesh) label(ctx context.Context, door, id string) (answer, error) {
	return m.call(ctx, door, "Label", "", fmt.Sprintf(`{"id":%q,"labels":{"a":"1"}}`, id))
}

// watch makes a call that needs no store.
func (m *mesh) watch(ctx context.Context) error {
	s, err := probev1.NewProbeClient(m.conn).Watch(ctx, &probev1.WatchRequest{Text: "x"})
	if err != nil {
		return err
	}
	if _, err = s.Recv(); err != nil {
		return err
	}
	if _, err = s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("a second answer, or %w", err)
	}
	return nil
}

// call returns an error if there is no answer of the mesh.
func (m *mesh) call(ctx context.Context, door, method, key, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	switch door {
	case "grpc":
		return m.callGRPC(ctx, method, key, body)
	case "http":
		return m.callHTTP(ctx, "/probe.v1.Probe/"+method, key, body)
	}
	return m.callMCP(ctx, method, key, body)
}

func (m *mesh) callGRPC(ctx context.Context, method, key, body string) (answer, error) {
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
	}
	var in struct {
		ID, Text string
		Labels   map[string]string
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return answer{}, err
	}
	var header metadata.MD
	var err error
	var a answer
	client := probev1.NewProbeClient(m.conn)
	if method == "Ask" {
		var out *probev1.AskResponse
		out, err = client.Ask(ctx, &probev1.AskRequest{Id: in.ID, Text: in.Text}, grpc.Header(&header))
		a.number = out.GetNumber()
	} else {
		_, err = client.Label(ctx, &probev1.LabelRequest{Id: in.ID, Labels: in.Labels}, grpc.Header(&header))
	}
	st := status.Convert(err)
	a.code, a.replayed = code.Code(st.Code()).String(), len(header.Get("toolway-replayed")) > 0
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			a.reason, a.approval, a.status = d.GetReason(), d.GetMetadata()["approval_id"], d.GetMetadata()["status_uri"]
		case *errdetails.RetryInfo:
			a.retry = true
		}
	}
	if st.Code() == codes.Unavailable && a.reason == "" {
		return a, err // the connection's
	}
	return a, nil
}

func (m *mesh) callHTTP(ctx context.Context, path, key, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL(path), strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := m.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: ok, replayed: res.Header.Get("Idempotent-Replayed") == "true", retry: res.Header.Get("Retry-After") != ""}
	if res.StatusCode == http.StatusOK {
		var reply struct{ Number string }
		if err := json.Unmarshal(raw, &reply); err != nil {
			return a, err
		}
		_, _ = fmt.Sscan(reply.Number, &a.number) // none in other answers
		return a, nil
	}
	var failure struct {
		Code    int
		Details []struct {
			Type     string `json:"@type"`
			Reason   string
			Metadata map[string]string
		}
	}
	if err := json.Unmarshal(raw, &failure); err != nil {
		return a, fmt.Errorf("%s: %w", raw, err)
	}
	a.code = code.Code(failure.Code).String()
	for _, d := range failure.Details {
		if strings.HasSuffix(d.Type, "ErrorInfo") {
			a.reason, a.approval, a.status = d.Reason, d.Metadata["approval_id"], d.Metadata["status_uri"]
		}
	}
	return a, nil
}

func (m *mesh) callMCP(ctx context.Context, method, key, body string) (answer, error) {
	meta := map[string]any{}
	if key != "" {
		meta["io.toolway/idempotency-key"] = key
	}
	raw, err := m.agent.Request(ctx, "tools/call", map[string]any{"name": "probe_" + strings.ToLower(method), "arguments": json.RawMessage(body), "_meta": meta}, nil)
	if err != nil {
		return answer{}, err
	}
	var res struct {
		StructuredContent struct {
			Number string
			Error  struct {
				Code, Reason string
				Metadata     map[string]string
				RetryDelay   string
			}
		}
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return answer{}, fmt.Errorf("%s: %w", raw, err)
	}
	failure := res.StructuredContent.Error
	a := answer{code: failure.Code, reason: failure.Reason, approval: failure.Metadata["approval_id"], status: failure.Metadata["status_uri"], replayed: res.Meta["io.toolway/replayed"] == true, retry: failure.RetryDelay != ""}
	_, _ = fmt.Sscan(res.StructuredContent.Number, &a.number) // none in other answers
	if a.code == "" {
		a.code = ok
	}
	return a, nil
}

// approve decides about a held call.
func (m *mesh) approve(ctx context.Context, id string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	return m.callHTTP(ctx, "/v1/approvals/"+id+":approve", "", "{}")
}

// text reads a resource.
func (m *mesh) text(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := m.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
		err = fmt.Errorf("%s: %s", res.Status, raw)
	}
	return string(raw), err
}

// approval is the state of one.
func (m *mesh) approval(ctx context.Context, id string) (string, error) {
	raw, err := m.text(ctx, m.URL("/v1/approvals/"+id))
	if err != nil {
		return "", err
	}
	var out struct{ State string }
	err = json.Unmarshal([]byte(raw), &out)
	return out.State, err
}

// store is what /readyz says of the store, and the HTTP status.
type store struct{ State, Place, Why string }

func (m *mesh) store(ctx context.Context) (store, string, error) {
	raw, err := m.text(ctx, "http://"+m.Admin+"/readyz")
	if err != nil {
		return store{}, "", err
	}
	var out struct {
		Status string
		Store  store
	}
	err = json.Unmarshal([]byte(raw), &out)
	return out.Store, out.Status, err
}

// awaitStore waits until /readyz says that the store is up or down.
func (m *mesh) awaitStore(t *testing.T, state string) store {
	t.Helper()
	var s store
	run.Eventually(t, "the store is "+state, func() bool {
		var err error
		s, _, err = m.store(t.Context())
		return err == nil && s.State == state
	})
	return s
}

// record is a line of the audit.
type record struct {
	CallID    string
	Tool      string
	Code      string
	Arguments string
}

// audited returns what toolway audit export writes, with further arguments.
func (m *mesh) audited(t *testing.T, args ...string) []record {
	t.Helper()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	exit, stdout, stderr, err := run.Output(nil, bin, append([]string{"audit", "export", "--mesh", m.URL("")}, args...)...)
	if err != nil || exit != 0 {
		t.Fatalf("audit export: %d, %v\n%s", exit, err, stderr)
	}
	var out []record
	for line := range strings.Lines(string(stdout)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// id is that of the request.
func (r record) id() string {
	var in struct{ ID string }
	_ = json.Unmarshal([]byte(r.Arguments), &in) // calls of other kinds have none
	return in.ID
}
