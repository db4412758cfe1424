package matrix_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/interceptors"
	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata/policy")

// policy is a row of the matrix: a mesh with a configuration, and what is done at each of its doors.
type policy struct {
	// name is that of the transcript, testdata/policy/NAME.txtar.
	name string
	// covers are the interceptors that the row shows.
	covers []string
	head   string
	// config is the configuration; BACKEND stands for the backend's address.
	config string
	// reviewed is the configuration with which a lock is written before, if any.
	reviewed string
	// described has the mesh know the backend by a descriptor set in which texts have at most 12 characters, not by reflection.
	described bool
	// held is the request of a call that is under way at the backend, through the gRPC door, while the others come.
	held  string
	steps []step
}

// step is what happens at each door in turn. "{door}" in a text is the door's name, so that each has calls of its own.
type step struct {
	name string
	// methods are called one after the other; the first is in the transcript.
	methods    []string
	json       string
	key        string
	credential string
	confirm    bool   // bring the id that the step before was told
	decide     string // first "approve" or "refuse" what the step before was told
	want       string // code and reason
	// unasked says that the chain refuses before it asks who calls. Only MCP over HTTP knows by then, since it asks before it reads a request.
	unasked bool
	// unrecorded says that the chain refuses before the audit.
	unrecorded bool
}

// The call kinds a step has.
var (
	plain = []string{"Ask", "Watch"}
	every = []string{"Ask", "Watch", "Collect", "Chat"}
)

// TestPolicies is the matrix of policies: policy × door × call kind. At each door a call meets the same decision, has the same status and
// leaves the same audit record. What callers see there is written down side by side: it is the documentation too.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			r := &policyRun{policy: p, once: p.open(t), ids: map[string]string{}}
			var b strings.Builder
			fmt.Fprintf(&b, "%s See docs/policy.md.\n-- toolway.yaml --\n%s", p.head, p.config)
			for _, s := range p.steps {
				fmt.Fprintf(&b, "-- %s --\n", s.name)
				for i, method := range s.methods {
					shown := r.step(t, s, method)
					if i == 0 {
						b.WriteString(shown)
					}
				}
			}
			compare(t, filepath.Join("testdata", "policy", p.name+".txtar"), r.constant(b.String()))
		})
	}
}

// TestEveryPolicyIsInTheMatrix fails when the chain has a policy that no row shows.
func TestEveryPolicyIsInTheMatrix(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range policies {
		for _, name := range p.covers {
			shown[name] = true
		}
	}
	var all []string
	for _, p := range interceptors.Default(interceptors.Options{}) {
		all = append(all, p.Name)
	}
	attempts, _ := interceptors.DefaultAttempts(interceptors.AttemptOptions{})
	for _, p := range attempts {
		all = append(all, p.Name)
	}
	for _, name := range all {
		why := elsewhere[name]
		if shown[name] == (why != "") {
			t.Errorf("policy %q: shown by a row of the matrix: %v; reason not to be: %q. Add a row to policies, or else a reason to elsewhere", name, shown[name], why)
		}
		delete(shown, name)
	}
	for name := range shown {
		t.Errorf("a row shows %q, which is not in the chain", name)
	}
}

func (p policy) open(t *testing.T) *once {
	t.Helper()
	reflection := probe.Both
	if p.described {
		reflection = probe.None
	}
	o := serveOnce(t, reflection)
	if p.described {
		describe(t, filepath.Join(o.dir, "probe.binpb"))
	}
	if p.reviewed != "" {
		bin, err := run.Toolway()
		if err != nil {
			t.Fatal(err)
		}
		if code, _, stderr, err := run.Output(nil, bin, "lock", "--config", o.write(t, "reviewed.yaml", p.reviewed)); err != nil || code != 0 {
			t.Fatalf("lock: %d %s, %v", code, stderr, err)
		}
	}
	o.open(t, p.config+"audit: {file: audit.jsonl}\n")
	return o
}

// describe writes the probe's contract with a rule of buf.validate at each text.
func describe(t *testing.T, path string) {
	t.Helper()
	set := protoset.Of(validate.File_buf_validate_validate_proto, probev1.File_probe_v1_probe_proto)
	file := set.GetFile()[len(set.GetFile())-1]
	file.Dependency = append(file.Dependency, "buf/validate/validate.proto")
	for _, m := range file.GetMessageType() {
		for _, f := range m.GetField() {
			if f.GetName() == "text" && strings.HasSuffix(m.GetName(), "Request") {
				f.Options = &descriptorpb.FieldOptions{}
				proto.SetExtension(f.GetOptions(), validate.E_Field, validate.FieldRules_builder{String: validate.StringRules_builder{MaxLen: proto.Uint64(12)}.Build()}.Build())
			}
		}
	}
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// policyRun is a row that is run.
type policyRun struct {
	policy
	*once
	ids     map[string]string // by method and door: what the step before was told
	records int               // seen
}

// step does a step with one method at each door, and compares.
func (r *policyRun) step(t *testing.T, s step, method string) string {
	t.Helper()
	var b strings.Builder
	var first told
	var firstRecord map[string]any
	end := r.hold(t, method)
	for i, door := range onceDoors {
		a, record := r.at(t, s, method, door)
		where := fmt.Sprintf("%s: %s %s", s.name, method, door)
		if a.String() != s.want {
			t.Errorf("%s: %s %q, want %s", where, a, a.message, s.want)
		}
		if i == 0 {
			first = a
		}
		if diff := cmp.Diff(r.same(first), r.same(a)); diff != "" {
			t.Errorf("%s: the answer differs (-grpc +%s):\n%s", where, door, diff)
		}
		if len(a.details) > 0 {
			if diff := cmp.Diff(r.constantAll(first.details), r.constantAll(a.details)); diff != "" {
				t.Errorf("%s: the details differ (-grpc +%s):\n%s", where, door, diff)
			}
		}
		if i < 3 { // the eras of MCP look the same
			b.WriteString(a.shown)
		}
		if record == nil {
			continue
		}
		if firstRecord == nil {
			firstRecord = record
		}
		if diff := cmp.Diff(firstRecord, record); diff != "" {
			t.Errorf("%s: the audit record differs (-first +%s):\n%s", where, door, diff)
		}
	}
	end()
	return b.String() + showRecord(firstRecord)
}

// hold has a call under way while a step is done.
func (r *policyRun) hold(t *testing.T, method string) (end func()) {
	t.Helper()
	if r.held == "" {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	done := make(chan told, 1)
	w := wanted{method: method, json: strings.ReplaceAll(r.held, "{method}", method)}
	go func() { done <- r.call(ctx, t, "grpc", w) }()
	if _, err := r.server.Call(ctx, "held-"+method); err != nil {
		t.Fatal(err)
	}
	return func() {
		cancel()
		if a := <-done; a.code != "CANCELLED" {
			t.Errorf("the call that was under way: %v %q", a, a.message)
		}
		r.record(t)
	}
}

// at makes a step's call at a door.
func (r *policyRun) at(t *testing.T, s step, method, door string) (told, map[string]any) {
	t.Helper()
	name, id := strings.NewReplacer("mcp 2025-11-25", "old", "mcp 2026-07-28", "mcp").Replace(door), method+" "+door
	if s.decide != "" {
		r.decide(t, "http", r.ids[id], s.decide)
		r.record(t)
	}
	w := wanted{method: method, json: strings.ReplaceAll(s.json, "{door}", name), key: strings.ReplaceAll(s.key, "{door}", name), credential: s.credential}
	if s.confirm {
		w.confirm = r.ids[id]
	}
	a := r.call(t.Context(), t, door, w)
	if m := heldID.FindStringSubmatch(a.shown); m != nil {
		r.ids[id] = m[1]
	}
	if s.unrecorded {
		return a, nil
	}
	record := r.record(t)
	if got, want := record["toolError"] == true, strings.HasPrefix(door, "mcp") && a.code != "OK"; got != want {
		t.Errorf("%s: %s: the record's tool error is %v, want %v", s.name, door, got, want)
	}
	if record["door"] != strings.Fields(door)[0] {
		t.Errorf("%s: %s: the record is of the door %v", s.name, door, record["door"])
	}
	if s.unasked {
		delete(record, "principal")
		delete(record, "authentication")
	}
	return a, r.comparable(record, name, strings.Contains(s.json, "{door}"), strings.Contains(s.key, "{door}"))
}

// record waits for the next record of the audit and returns it.
func (r *policyRun) record(t *testing.T) (record map[string]any) {
	t.Helper()
	r.records++
	var lines [][]byte
	run.Eventually(t, fmt.Sprintf("the audit has %d records", r.records), func() bool {
		raw, err := os.ReadFile(filepath.Join(r.dir, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines = bytes.SplitAfter(raw, []byte("\n"))
		return len(lines) > r.records
	})
	if len(lines) > r.records+1 {
		t.Fatalf("the audit has %d records, want %d: %s", len(lines)-1, r.records, lines[r.records])
	}
	if err := json.Unmarshal(lines[r.records-1], &record); err != nil {
		t.Fatal(err)
	}
	return record
}

// comparable takes out of a record what differs between the doors for a good reason: which call it was, when, and by which protocol. Where
// each door has a request or key of its own, the hash of it differs too.
func (r *policyRun) comparable(record map[string]any, name string, ownRequest, ownKey bool) map[string]any {
	for _, field := range []string{"callId", "traceId", "requestId", "door", "protocolVersion", "peer", "startedAt", "deadline", "latencyMs", "toolError"} {
		delete(record, field)
	}
	own := map[string]bool{"argumentsHash": ownRequest, "idempotencyKeyHash": ownKey, "arguments": ownRequest, "approvalId": true}
	for field, is := range own {
		if text, ok := record[field].(string); ok && is {
			record[field] = "its own"
			if field == "arguments" {
				record[field] = strings.ReplaceAll(text, `"`+name+`"`, `"{door}"`)
			}
		}
	}
	for _, list := range []string{"steps", "attempts"} {
		all, _ := record[list].([]any)
		for _, one := range all {
			fields := one.(map[string]any)
			delete(fields, "atMs")
			delete(fields, "tookMs")
			for k, v := range fields {
				fields[k] = r.constant(v.(string))
			}
		}
	}
	if text, ok := record["message"].(string); ok {
		record["message"] = r.constant(text)
	}
	return record
}

// same is what of an answer has to be the same at each door.
func (r *policyRun) same(a told) any {
	metadata := map[string]string{}
	for k, v := range a.metadata {
		metadata[k] = r.constant(v)
	}
	return map[string]any{"code": a.code, "reason": a.reason, "message": r.constant(a.message), "metadata": metadata, "replies": a.text, "replayed": a.replayed}
}

func (r *policyRun) constantAll(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, r.constant(text))
	}
	return out
}

var (
	heldID    = regexp.MustCompile(`"(?:approval_id|confirm)":"([A-Z2-7]{26})"`)
	anyHeldID = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	callID    = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	timeText  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	longDelay = regexp.MustCompile(`\b\d{3,}(?:\.\d+)?s\b|(Retry-After: |max-age=)\d{3,}`) // of limits that hold for a test's time
	cause     = regexp.MustCompile(`(is unavailable: )[^;"\n]*`)                           // as the operating system words it
)

// constant takes out what differs from run to run.
func (o *once) constant(text string) string {
	text = anyHeldID.ReplaceAllString(text, "ID")
	text = callID.ReplaceAllString(text, "CALL")
	text = longDelay.ReplaceAllString(text, "${1}DELAY")
	text = cause.ReplaceAllString(text, "${1}CAUSE")
	text = strings.NewReplacer(o.backend, "BACKEND", o.HTTP, "MESH").Replace(text)
	return timeText.ReplaceAllString(text, "TIME")
}

// showRecord is the part of a record that explains the call.
func showRecord(record map[string]any) string {
	if record == nil {
		return "audit none\n"
	}
	text := func(m map[string]any, keys ...string) string {
		var out []string
		for _, k := range keys {
			if v, ok := m[k].(string); ok && v != "" {
				out = append(out, v)
			}
		}
		return strings.Join(out, " ")
	}
	outcome, _ := record["outcome"].(string)
	out := fmt.Sprintf("audit %s: %s\n", strings.ToLower(strings.TrimPrefix(outcome, "OUTCOME_")), text(record, "code", "reason"))
	for _, k := range []string{"principal", "arguments"} {
		if v := text(record, k); v != "" {
			out += fmt.Sprintf("      %-14s %s\n", k, v)
		}
	}
	steps, _ := record["steps"].([]any)
	for _, s := range steps {
		if s := s.(map[string]any); s["verdict"] != nil {
			out += fmt.Sprintf("      %-14s %s\n", s["name"], strings.TrimSpace(text(s, "verdict")+" "+text(s, "detail")))
		}
	}
	attempts, _ := record["attempts"].([]any)
	for _, a := range attempts {
		out += fmt.Sprintf("      %-14s %s\n", "attempt", text(a.(map[string]any), "backend", "target", "code", "outcome", "why"))
	}
	return out
}

// compare compares with a file, or writes it.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; go test -run Policies -update rewrites it (-file +now):\n%s", file, diff)
	}
}
