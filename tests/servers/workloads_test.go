package servers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// The callers, by API key: two agents, and who approves what they ask for.
const (
	agentKey    = "tw_an-agent-in-a-test"
	otherKey    = "tw_another-agent-in-a-test"
	approverKey = "tw_an-approver-in-a-test"
)

// workloadsMesh is a mesh before our own workload service, which takes calls of the mesh alone.
type workloadsMesh struct {
	*run.Mesh
	conn   *grpc.ClientConn
	agents map[string]*agent.HTTP // by key
	starts string                 // the file that each replica writes a line to as it begins
}

// TestWorkloads restarts and scales through each door: held until a second principal approves, made once however often it is repeated, looked up afterwards, and refused with the same
// code, reason and details.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	m := startWorkloads(t)
	ctx := patience(t)
	for _, door := range []string{"grpc", "http", "mcp"} {
		w := m.running(ctx, t, door)
		req := &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc-" + door, Generation: w.GetGeneration(), Etag: w.GetEtag(), Reason: "it hangs"}
		a := m.approved(ctx, t, door, agentKey, req)
		if a.err != "" || a.action.GetId() != fmt.Sprintf("inc-%s:restart:web:%d", door, w.GetGeneration()) || !strings.Contains(a.action.GetPrincipal(), "agent") {
			t.Fatalf("%s: restart = %v, %s, want an action on behalf of the agent", door, a.action, a.err)
		}
		for range 3 {
			if again := m.ask(ctx, t, door, agentKey, req); again.err != "" || again.action.GetId() != a.action.GetId() {
				t.Errorf("%s: repeated = %v, %s, want the same action", door, again.action, again.err)
			}
		}
		m.succeeded(ctx, t, door, req.Incident, workloadsv1.Action_KIND_RESTART, w.GetGeneration())
		now := m.running(ctx, t, door)
		if now.GetGeneration() != w.GetGeneration()+1 || now.GetEtag() == w.GetEtag() {
			t.Errorf("%s: after the restart %v, before it %v", door, now, w)
		}
		run.Eventually(t, "the replica of the restart has begun", func() bool { return m.began(t, now.GetGeneration()) > 0 })
		if n := m.began(t, now.GetGeneration()); n != 1 {
			t.Errorf("%s: the restart started the replica %d times, want once", door, n)
		}

		scale := &workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc-" + door, Generation: now.GetGeneration(), Replicas: 2}
		if a := m.approved(ctx, t, door, agentKey, scale); a.err != "" {
			t.Fatalf("%s: scale: %s", door, a.err)
		}
		m.succeeded(ctx, t, door, scale.Incident, workloadsv1.Action_KIND_SCALE, now.GetGeneration())

		// Of another caller, so that it is the service that compares, not the mesh.
		conflict := proto.CloneOf(scale)
		conflict.Replicas = 3
		old := proto.CloneOf(req)
		old.Incident, old.Etag = "late-"+door, ""
		stale := proto.CloneOf(req)
		stale.Incident = "stale-" + door
		none := &workloadsv1.RestartWorkloadRequest{Name: "workloads/none", Incident: "inc-" + door, Generation: 1}
		for _, c := range []struct {
			req  proto.Message
			want string
			http int
		}{
			{conflict, "ALREADY_EXISTS ACTION_CONFLICT", http.StatusConflict},
			{old, "FAILED_PRECONDITION GENERATION_MISMATCH", http.StatusBadRequest},
			{stale, "ABORTED ETAG_MISMATCH", http.StatusConflict},
			{none, "NOT_FOUND WORKLOAD_NOT_FOUND", http.StatusNotFound},
		} {
			if got := m.approved(ctx, t, door, otherKey, c.req); got.err != c.want || door == "http" && got.http != c.http {
				t.Errorf("%s: %v = %q, HTTP %d; want %q, HTTP %d", door, c.req, got.err, got.http, c.want, c.http)
			}
		}

		// What cannot be is refused before anybody is asked about it.
		for _, impossible := range []proto.Message{
			&workloadsv1.RestartWorkloadRequest{Name: "workloads/-", Incident: "inc", Generation: 1},
			&workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "no incident", Generation: 1},
			&workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: -1},
			&workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Reason: strings.Repeat("ä", 513)},
			&workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: strings.Repeat("i", 65), Generation: 1, Replicas: 1},
			&workloadsv1.ScaleWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Replicas: -1},
		} {
			if got := m.ask(ctx, t, door, agentKey, impossible); got.err != "INVALID_ARGUMENT INVALID_REQUEST" || got.approval != "" {
				t.Errorf("%s: %v = %q, approval %q; want INVALID_ARGUMENT INVALID_REQUEST and no approval", door, impossible, got.err, got.approval)
			}
		}
	}

	// If-Match fills the etag of a request, and what does not hold is 412.
	w := m.running(ctx, t, "http")
	req := &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "match", Generation: w.GetGeneration()}
	if got := m.approved(ctx, t, "http", agentKey, req, "If-Match", `"old"`); got.err != "ABORTED ETAG_MISMATCH" || got.http != http.StatusPreconditionFailed {
		t.Errorf("If-Match of an old etag: %q, HTTP %d", got.err, got.http)
	}
	req.Incident = "match-now"
	resp := m.http(ctx, t, http.MethodGet, "/v1/workloads/web", nil, agentKey)
	if got := m.approved(ctx, t, "http", agentKey, req, "If-Match", resp.header.Get("ETag")); got.err != "" {
		t.Errorf("If-Match %s of a GET: %s", resp.header.Get("ETag"), got.err)
	}
}

// outcome is how a call ended, at whichever door.
type outcome struct {
	action   *workloadsv1.Action
	err      string // code and reason; "" if it was done
	approval string // the id that it is held under
	http     int
}

// approved makes a call that is held, has it approved by somebody else, and makes it again.
func (m *workloadsMesh) approved(ctx context.Context, t *testing.T, door, key string, req proto.Message, header ...string) outcome {
	t.Helper()
	held := m.ask(ctx, t, door, key, req, header...)
	if held.err != "FAILED_PRECONDITION APPROVAL_REQUIRED" || held.approval == "" || door == "http" && held.http != http.StatusConflict {
		t.Fatalf("%s: %v = %q, approval %q, HTTP %d, want it held", door, req, held.err, held.approval, held.http)
	}
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	approve := exec.CommandContext(ctx, bin, "approvals", "approve", "--mesh", m.GRPC, held.approval)
	approve.Env = append(os.Environ(), "TOOLWAY_API_KEY="+approverKey)
	if out, err := approve.CombinedOutput(); err != nil {
		t.Fatalf("approve: %v: %s", err, out)
	}
	return m.ask(ctx, t, door, key, req, header...)
}

// ask restarts or scales.
func (m *workloadsMesh) ask(ctx context.Context, t *testing.T, door, key string, req proto.Message, header ...string) outcome {
	t.Helper()
	restart, isRestart := req.(*workloadsv1.RestartWorkloadRequest)
	scale, _ := req.(*workloadsv1.ScaleWorkloadRequest)
	switch door {
	case "grpc":
		ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", key)
		client := workloadsv1.NewWorkloadServiceClient(m.conn)
		var a *workloadsv1.Action
		var err error
		if isRestart {
			a, err = client.RestartWorkload(ctx, restart)
		} else {
			a, err = client.ScaleWorkload(ctx, scale)
		}
		return ofStatus(a, err)
	case "http":
		name, verb := restart.GetName(), ":restart"
		if !isRestart {
			name, verb = scale.GetName(), ":scale"
		}
		body, err := protojson.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		resp := m.http(ctx, t, http.MethodPost, "/v1/"+name+verb, body, key, header...)
		out := outcome{http: resp.status}
		if resp.status != http.StatusOK {
			out.fail(t, resp.body)
			return out
		}
		out.action = actionOf(t, resp.body)
		return out
	}
	tool := "workloads_restart"
	if !isRestart {
		tool = "workloads_scale"
	}
	var out outcome
	res := m.mcp(ctx, t, tool, key, req)
	if res.IsError {
		out.fail(t, res.StructuredContent)
		return out
	}
	out.action = actionOf(t, res.StructuredContent)
	return out
}

func (m *workloadsMesh) mcp(ctx context.Context, t *testing.T, tool, key string, req proto.Message) *agent.Result {
	t.Helper()
	arguments, err := protojson.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if m.agents[key] == nil {
		a, err := agent.NewHTTP(ctx, m.URL("/mcp"), agent.V20260728, http.Header{"X-Api-Key": {key}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		m.agents[key] = a
	}
	res, err := agent.Call(ctx, m.agents[key], tool, json.RawMessage(arguments), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func actionOf(t *testing.T, body []byte) *workloadsv1.Action {
	t.Helper()
	a := &workloadsv1.Action{}
	if err := protojson.Unmarshal(body, a); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return a
}

func ofStatus(a *workloadsv1.Action, err error) outcome {
	if err == nil {
		return outcome{action: a}
	}
	out := outcome{err: codeNames[status.Code(err)]}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			out.err += " " + info.GetReason()
			out.approval = info.GetMetadata()["approval_id"]
		}
	}
	return out
}

var codeNames = map[codes.Code]string{
	codes.AlreadyExists: "ALREADY_EXISTS", codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.NotFound: "NOT_FOUND",
	codes.InvalidArgument: "INVALID_ARGUMENT",
}

var (
	codePattern     = regexp.MustCompile(`"code":\s*("?)(\w+)`)
	reasonPattern   = regexp.MustCompile(`"reason":\s*"([A-Z_]+)"`)
	approvalPattern = regexp.MustCompile(`"approval_id":\s*"(\w+)"`)
)

// fail reads an error from its JSON, which HTTP and MCP have in different places.
func (o *outcome) fail(t *testing.T, body []byte) {
	t.Helper()
	code, reason := codePattern.FindSubmatch(body), reasonPattern.FindSubmatch(body)
	if code == nil || reason == nil {
		t.Fatalf("error without code or reason: %s", body)
	}
	o.err = string(code[2])
	if n, err := strconv.Atoi(o.err); err == nil {
		o.err = codeNames[codes.Code(n)]
	}
	o.err += " " + string(reason[1])
	if id := approvalPattern.FindSubmatch(body); id != nil {
		o.approval = string(id[1])
	}
}

type response struct {
	status int
	header http.Header
	body   []byte
}

func (m *workloadsMesh) http(ctx context.Context, t *testing.T, method, path string, body []byte, key string, header ...string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, m.URL(path), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, b}
}

// read makes a call that only reads, and fails the test if it does not succeed.
func (m *workloadsMesh) read(ctx context.Context, t *testing.T, door, tool, path string, req, into proto.Message, call func(context.Context, workloadsv1.WorkloadServiceClient) (proto.Message, error)) {
	t.Helper()
	var body []byte
	switch door {
	case "grpc":
		got, err := call(metadata.AppendToOutgoingContext(ctx, "x-api-key", agentKey), workloadsv1.NewWorkloadServiceClient(m.conn))
		if err != nil {
			t.Fatal(err)
		}
		proto.Merge(into, got)
		return
	case "http":
		resp := m.http(ctx, t, http.MethodGet, path, nil, agentKey)
		if resp.status != http.StatusOK {
			t.Fatalf("GET %s: %d %s", path, resp.status, resp.body)
		}
		body = resp.body
	case "mcp":
		res := m.mcp(ctx, t, tool, agentKey, req)
		if res.IsError {
			t.Fatalf("%s: %s", tool, res.Text())
		}
		body = res.StructuredContent
	}
	if err := protojson.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// running waits until the workload is as wanted.
func (m *workloadsMesh) running(ctx context.Context, t *testing.T, door string) *workloadsv1.Workload {
	t.Helper()
	var w *workloadsv1.Workload
	req := &workloadsv1.GetWorkloadRequest{Name: "workloads/web"}
	run.Eventually(t, "the workload runs", func() bool {
		w = &workloadsv1.Workload{}
		m.read(ctx, t, door, "workloads_get", "/v1/workloads/web", req, w, func(ctx context.Context, c workloadsv1.WorkloadServiceClient) (proto.Message, error) {
			return c.GetWorkload(ctx, req)
		})
		return w.GetState() == workloadsv1.Workload_STATE_RUNNING
	})
	return w
}

// succeeded waits until an action is looked up as done.
func (m *workloadsMesh) succeeded(ctx context.Context, t *testing.T, door, incident string, kind workloadsv1.Action_Kind, generation int64) {
	t.Helper()
	req := &workloadsv1.LookupActionRequest{Name: "workloads/web", Incident: incident, Kind: kind, Generation: generation}
	path := fmt.Sprintf("/v1/workloads/web/action?incident=%s&kind=%s&generation=%d", incident, kind, generation)
	run.Eventually(t, "the action has succeeded", func() bool {
		a := &workloadsv1.Action{}
		m.read(ctx, t, door, "workloads_lookup_action", path, req, a, func(ctx context.Context, c workloadsv1.WorkloadServiceClient) (proto.Message, error) {
			return c.LookupAction(ctx, req)
		})
		return a.GetState() == workloadsv1.Action_STATE_SUCCEEDED
	})
}

// began counts the starts of replica 0 that came from the restart which made a generation.
func (m *workloadsMesh) began(t *testing.T, generation int64) int {
	t.Helper()
	text, err := os.ReadFile(m.starts)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), fmt.Sprintf("/web/0/%d/", generation))
}

// startWorkloads starts the service, which takes credentials of the mesh alone, and the mesh.
func startWorkloads(t *testing.T) *workloadsMesh {
	t.Helper()
	bin, err := run.Service("workloads")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &workloadsMesh{starts: filepath.Join(dir, "starts"), agents: map[string]*agent.HTTP{}}
	addr, door := freeAddr(t), freeAddr(t)
	p, err := run.Spawn(nil, bin, "--addr", addr, "--data", filepath.Join(dir, "data"), "--workload", "web=echo $WORKLOADS_REPLICA >>"+m.starts+"; exec sleep 1000",
		"--auth-issuer", "toolway", "--auth-audience", "workloads", "--auth-jwks", "http://"+door+"/.well-known/jwks.json")
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	run.Eventually(t, "the workload service listens on "+addr, func() bool { return canConnect(addr) })
	hash := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	config := fmt.Sprintf(`backends: [{name: workloads, targets: [%q], credentials: {mint: {}}}]
auth:
  api_keys:
    - {name: agent, sha256: %s, scopes: ["workloads:write"]}
    - {name: other-agent, sha256: %s, scopes: ["workloads:write"]}
    - {name: approver, sha256: %s, scopes: ["toolway:approve"]}
`, addr, hash(agentKey), hash(otherKey), hash(approverKey))
	file := filepath.Join(dir, "toolway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Mesh = run.Start(t, "--config", file, "--http-addr", door)
	m.conn = run.Dial(t, m.GRPC)
	return m
}
