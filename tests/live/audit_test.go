package live_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// record is what is compared of an audit record: all that does not depend on the door or the clock.
type record struct {
	CallID, Door, Backend, Method, Tool, DefinitionHash, Principal, Tenant, Authentication string
	Outcome, Code, Reason, Domain, Message, Arguments, ArgumentsHash, ResultHash           string
	ToolError                                                                              bool
	Steps                                                                                  []struct{ Name, Verdict, Detail string }
}

// records reads an audit file.
func records(t *testing.T, path string) []record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []record
	for line := range bytes.Lines(data) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// TestAuditOfTheDoors makes the same calls at each door, one of which a rule refuses, and finds the same decisions in the records.
func TestAuditOfTheDoors(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	config := configFile(t, `backends: [{name: probe, targets: [`+addr+`]}]
policy: [{match: probe.v1.Probe/Ask, sensitive: [text]}]
audit: {file: audit.jsonl}
rules:
  list:
    - {name: closed, match: probe.v1.Probe/Ask, when: request.id == "seven", message: seven is closed}
    - {name: no-labels, match: probe.v1.Probe/Label, when: door != "cli", hide: true}
`)
	file := filepath.Join(filepath.Dir(config), "audit.jsonl")
	mesh := run.Start(t, "--config", config)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	a := mcp(ctx, t, mesh, agent.V20260728, nil)
	ids := map[string]string{} // of the refused calls, by door, as the caller is told
	for _, id := range []string{"one", "seven"} {
		var trailer metadata.MD
		_, err := client.Ask(ctx, &probev1.AskRequest{Id: id, Text: "hunter2"}, grpc.Trailer(&trailer))
		if want := map[string]codes.Code{"one": codes.OK, "seven": codes.PermissionDenied}[id]; status.Code(err) != want {
			t.Fatalf("gRPC: %v, want %v", err, want)
		}
		ids["grpc"] = strings.Join(trailer.Get("toolway-call-id"), ",")
		res, err := agent.Call(ctx, a, "probe_ask", map[string]any{"id": id, "text": "hunter2"}, nil)
		if err != nil || res.IsError != (id == "seven") {
			t.Fatalf("MCP: %+v, %v", res, err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, mesh.URL("/v1/probe/"+id+":ask"), strings.NewReader(`{"text":"hunter2"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", "mine")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want := map[string]int{"one": 200, "seven": 403}[id]; resp.StatusCode != want {
			t.Fatalf("HTTP: %d, want %d", resp.StatusCode, want)
		}
		ids["http"] = resp.Header.Get("Toolway-Call-Id")
	}
	all := records(t, file)
	if len(all) != 6 {
		t.Fatalf("%d records, want one for each of 6 calls: %+v", len(all), all)
	}
	for i := 0; i < 6; i += 3 {
		for j, door := range []string{"grpc", "mcp", "http"} {
			r := all[i+j]
			if told := ids[door]; r.Door != door || i == 3 && told != r.CallID && door != "mcp" || r.ToolError != (i == 3 && door == "mcp") {
				t.Errorf("record %d is of door %q, call %q, tool error %t; the caller was told of %q", i+j, r.Door, r.CallID, r.ToolError, told)
			}
			r.Door, r.CallID, r.ToolError = all[i].Door, all[i].CallID, all[i].ToolError
			if diff := cmp.Diff(all[i], r); diff != "" {
				t.Errorf("the records of gRPC and %s differ (-grpc +%s):\n%s", door, door, diff)
			}
		}
	}
	ok, denied := all[0], all[3]
	if ok.Outcome != "OUTCOME_OK" || ok.Arguments != `{"id":"one","text":"REDACTED"}` || ok.ResultHash == "" || ok.Principal != "anonymous" {
		t.Errorf("record of a call = %+v", ok)
	}
	last := denied.Steps[len(denied.Steps)-1]
	if denied.Outcome != "OUTCOME_REFUSED" || denied.Reason != "POLICY_DENIED" || denied.Message != "seven is closed" || denied.ResultHash != "" || last.Name != "rules" || last.Verdict != "denied" || last.Detail != "closed: seven is closed" {
		t.Errorf("record of a refused call = %+v", denied)
	}

	for _, from := range [][]string{{"--mesh", mesh.URL("")}, {"--file", file}} {
		out := command(t, 0, append([]string{"why", ids["http"]}, from...)...)
		for _, want := range []string{"refused: PERMISSION_DENIED POLICY_DENIED", `"seven is closed"`, "closed: seven is closed", "request     mine", `{"id":"seven","text":"REDACTED"}`} {
			if !strings.Contains(out, want) {
				t.Errorf("why %q: %q is not in\n%s", from, want, out)
			}
		}
	}
	if out := command(t, 0, "audit", "list", "--mesh", mesh.URL(""), "--outcome", "refused"); strings.Count(out, "probe_ask") != 3 {
		t.Errorf("audit list =\n%s", out)
	}
	if raw, err := os.ReadFile(file); err != nil || bytes.Contains(raw, []byte("hunter2")) {
		t.Errorf("the audit file holds a secret, or %v", err)
	}

	hidden(t, mesh, client, a)
	refusedByDoors(t, mesh, a, file)
	rotated(t, mesh, client, file)
}

// hidden looks for a method that a rule hides.
func hidden(t *testing.T, mesh *run.Mesh, client probev1.ProbeClient, a agent.Requester) {
	t.Helper()
	ctx := patience(t)
	if _, err := client.Label(ctx, &probev1.LabelRequest{}); status.Code(err) != codes.Unimplemented || strings.Contains(err.Error(), "did you mean \"Label\"") {
		t.Errorf("gRPC: %v, want an unknown method", err)
	}
	if _, err := agent.Call(ctx, a, "probe_label", nil, nil); err == nil || !strings.Contains(err.Error(), `unknown tool "probe_label"`) || strings.Contains(err.Error(), `did you mean "probe_label"`) {
		t.Errorf("MCP: %v, want an unknown tool", err)
	}
	if code, body := send(ctx, t, http.MethodPost, mesh.URL("/probe.v1.Probe/Label"), "{}"); code != http.StatusNotFound || strings.Contains(body, `did you mean "/probe.v1.Probe/Label"`) {
		t.Errorf("HTTP: %d %s, want 404", code, body)
	}
	if _, doc := send(ctx, t, http.MethodGet, mesh.URL("/openapi.json"), ""); !strings.Contains(doc, "probe.v1.Probe.Ask") || strings.Contains(doc, "Label") {
		t.Error("OpenAPI: the document has a hidden method, or lacks others")
	}
	reflected(t, mesh)
	tools, err := agent.Tools(ctx, a)
	if err != nil || len(tools) == 0 {
		t.Fatalf("tools = %v, %v", tools, err)
	}
	for _, tool := range tools {
		if tool.Name == "probe_label" {
			t.Error("a hidden tool is listed")
		}
	}
}

// reflected asks the gRPC door's reflection for a service with a hidden method.
func reflected(t *testing.T, mesh *run.Mesh) {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(run.Dial(t, mesh.GRPC)).ServerReflectionInfo(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(symbol string) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}}); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	files := ask("probe.v1.Probe").GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(files) == 0 {
		t.Fatal("reflection does not know the service")
	}
	file := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(files[0], file); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range file.GetService()[0].GetMethod() {
		names = append(names, m.GetName())
	}
	if got := strings.Join(names, " "); got != "Ask Watch Collect Chat Search" {
		t.Errorf("reflection shows the methods %s", got)
	}
	if out := ask("probe.v1.Probe.Label"); out.GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
		t.Errorf("reflection of a hidden method = %v", out)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end of reflection: %v", err)
	}
}

// refusedByDoors makes calls that the doors themselves cannot take.
func refusedByDoors(t *testing.T, mesh *run.Mesh, a agent.Requester, file string) {
	t.Helper()
	ctx := patience(t)
	before := len(records(t, file))
	if res, err := agent.Call(ctx, a, "probe_ask", map[string]any{"idd": 1}, nil); err != nil || !res.IsError {
		t.Errorf("MCP: %+v, %v", res, err)
	}
	if code, body := send(ctx, t, http.MethodPost, mesh.URL("/probe.v1.Probe/Ask"), `{"idd":1}`); code != http.StatusBadRequest {
		t.Errorf("HTTP: %d %s", code, body)
	}
	for _, r := range records(t, file)[before:] {
		if r.Code != "INVALID_ARGUMENT" || r.Outcome != "OUTCOME_REFUSED" || r.Principal != "anonymous" {
			t.Errorf("record = %+v", r)
		}
	}
	if n := len(records(t, file)) - before; n != 2 {
		t.Errorf("%d records of 2 calls", n)
	}
}

// rotated has the file renamed and the mesh told.
func rotated(t *testing.T, mesh *run.Mesh, client probev1.ProbeClient, file string) {
	t.Helper()
	old := len(records(t, file))
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := mesh.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	run.Eventually(t, "there is a new file", func() bool {
		_, err := os.Stat(file)
		return err == nil && mesh.Contains("opened anew")
	})
	if _, err := client.Ask(patience(t), &probev1.AskRequest{Id: "after"}); err != nil {
		t.Error(err)
	}
	if got := records(t, file); len(got) != 1 || len(records(t, file+".1")) != old {
		t.Errorf("%d records in the new file, %d in the old one, want 1 and %d", len(got), len(records(t, file+".1")), old)
	}
}
