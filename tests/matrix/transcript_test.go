package matrix_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
	"github.com/toolway/toolway/tests/internal/run"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// step is one thing that happens, at each of the three doors. "{door}" in a text is the door's name, so that each has calls of its own.
type step struct {
	name, method, json string
	key                string
	confirm            bool   // bring the id that the step before was told
	decide             string // first "approve" or "refuse" what the step before was told
}

// TestPolicyTranscripts writes down what callers see at the three doors, side by side: it is the documentation too.
func TestPolicyTranscripts(t *testing.T) {
	o := openOnce(t)
	for _, policy := range []struct {
		file, head string
		steps      []step
	}{
		{"idempotency", "A method that wants an idempotency key: probe.v1.Probe/Ask with `idempotency: {required: true}`. See docs/policy.md.", []step{
			{name: "no key", method: "Ask", json: `{"text":"hello"}`},
			{name: "the first call with a key", method: "Ask", json: `{"text":"hello"}`, key: "order-7-{door}"},
			{name: "the same call again: a replay", method: "Ask", json: `{"text":"hello"}`, key: "order-7-{door}"},
			{name: "another request with the key", method: "Ask", json: `{"text":"bye"}`, key: "order-7-{door}"},
			{name: "a call that fails", method: "Ask", json: `{"plan":{"code":5}}`, key: "order-8-{door}"},
			{name: "the failed call again: a replay", method: "Ask", json: `{"plan":{"code":5}}`, key: "order-8-{door}"},
		}},
		{"approval", "A method that another principal has to approve: probe.v1.Probe/Label with `approval: approver, approver_scope: probe:approve`. See docs/policy.md.", []step{
			{name: "a call that nobody has approved", method: "Label", json: `{"id":"{door}"}`},
			{name: "approved, the same call again", method: "Label", json: `{"id":"{door}"}`, decide: "approve"},
			{name: "once more: an approval is for one call", method: "Label", json: `{"id":"{door}"}`},
			{name: "refused, the same call again", method: "Label", json: `{"id":"{door}"}`, decide: "refuse"},
		}},
		{"confirm", "A method that the person at the caller's side has to confirm, called by clients that cannot ask: probe.v1.Probe/Watch with `approval: confirm`. See docs/policy.md.", []step{
			{name: "a call that nobody has confirmed", method: "Watch", json: `{"id":"{door}","text":"x","plan":{"count":1}}`},
			{name: "the same call with the person's word", method: "Watch", json: `{"id":"{door}","text":"x","plan":{"count":1}}`, confirm: true},
		}},
	} {
		var b strings.Builder
		b.WriteString(policy.head + "\n")
		ids := map[string]string{} // of each door: what the step before was told
		for _, s := range policy.steps {
			fmt.Fprintf(&b, "-- %s --\n", s.name)
			for _, door := range []string{"grpc", "http", "mcp"} {
				if s.decide != "" {
					o.decide(t, "http", ids[door], s.decide)
				}
				w := wanted{method: s.method, json: strings.ReplaceAll(s.json, "{door}", door), key: strings.ReplaceAll(s.key, "{door}", door)}
				if s.confirm {
					w.confirm = ids[door]
				}
				text := o.shown(t, door, w)
				if m := heldID.FindStringSubmatch(text); m != nil {
					ids[door] = m[1]
				}
				b.WriteString(text)
			}
		}
		compare(t, filepath.Join("testdata", policy.file+".txtar"), constant(b.String()))
	}
}

var (
	heldID    = regexp.MustCompile(`"(?:approval_id|confirm)":"([A-Z2-7]{26})"`)
	anyHeldID = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	callID    = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	timeText  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// constant takes out what differs from run to run.
func constant(text string) string {
	text = anyHeldID.ReplaceAllString(text, "ID")
	text = callID.ReplaceAllString(text, "CALL")
	return timeText.ReplaceAllString(text, "TIME")
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test -run Transcripts -update rewrites it. got:\n%s", file, got)
	}
}

// shown makes a call at a door and writes down what went and came.
func (o *once) shown(t *testing.T, door string, w wanted) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	defer cancel()
	switch door {
	case "grpc":
		return o.shownGRPC(ctx, t, w)
	case "http":
		return o.shownHTTP(ctx, t, w)
	}
	return o.shownMCP(ctx, t, w)
}

func (o *once) shownGRPC(ctx context.Context, t *testing.T, w wanted) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "gRPC  probe.v1.Probe/%s %s\n", w.method, w.json)
	for _, h := range [][2]string{{"idempotency-key", w.key}, {"toolway-confirm", w.confirm}} {
		if h[1] != "" {
			fmt.Fprintf(&b, "      %s: %s\n", h[0], h[1])
			ctx = metadata.AppendToOutgoingContext(ctx, h[0], h[1])
		}
	}
	in, out := map[string]proto.Message{"Ask": &probev1.AskRequest{}, "Label": &probev1.LabelRequest{}, "Watch": &probev1.WatchRequest{}}[w.method],
		map[string]proto.Message{"Ask": &probev1.AskResponse{}, "Label": &probev1.LabelResponse{}, "Watch": &probev1.WatchResponse{}}[w.method]
	unmarshal(t, w.json, in)
	s, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/probe.v1.Probe/"+w.method)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(in); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	replies := ""
	for {
		if err = s.RecvMsg(out); err != nil {
			break
		}
		replies += " " + compact(t, out)
	}
	header, _ := s.Header()
	if err == io.EOF { //nolint:errorlint // RecvMsg returns it bare
		fmt.Fprintf(&b, "   → OK%s\n", replies)
	} else {
		st := status.Convert(err)
		fmt.Fprintf(&b, "   → %s: %s\n", code.Code(st.Code()), st.Message())
		for _, d := range st.Details() {
			if i, ok := d.(*errdetails.ErrorInfo); ok {
				m, _ := json.Marshal(i.GetMetadata()) // texts
				fmt.Fprintf(&b, "      ErrorInfo %s %s %s\n", i.GetReason(), i.GetDomain(), m)
				continue
			}
			fmt.Fprintf(&b, "      %s %s\n", d.(proto.Message).ProtoReflect().Descriptor().Name(), compact(t, d.(proto.Message)))
		}
	}
	if v := header.Get("toolway-replayed"); len(v) > 0 {
		fmt.Fprintf(&b, "      toolway-replayed: %s\n", v[0])
	}
	return b.String()
}

// compact is a message as JSON without protojson's random spaces.
func compact(t *testing.T, m proto.Message) string {
	t.Helper()
	spaced, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(spaced, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (o *once) shownHTTP(ctx context.Context, t *testing.T, w wanted) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP  POST /probe.v1.Probe/%s %s\n", w.method, w.json)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL("/probe.v1.Probe/"+w.method), strings.NewReader(w.json))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if w.key != "" {
		w.key = `"` + w.key + `"`
	}
	for _, h := range [][2]string{{"Idempotency-Key", w.key}, {"Toolway-Confirm", w.confirm}} {
		if h[1] != "" {
			fmt.Fprintf(&b, "      %s: %s\n", h[0], h[1])
			req.Header.Set(h[0], h[1])
		}
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
	fmt.Fprintf(&b, "   → %s\n", res.Status)
	for _, h := range []string{"Idempotent-Replayed", "Retry-After"} {
		if v := res.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "      %s: %s\n", h, v)
		}
	}
	fmt.Fprintf(&b, "      %s\n", strings.TrimSpace(string(body)))
	return b.String()
}

func (o *once) shownMCP(ctx context.Context, t *testing.T, w wanted) string {
	t.Helper()
	params := map[string]any{"name": "probe_" + strings.ToLower(w.method), "arguments": json.RawMessage(w.json)}
	meta := map[string]any{}
	for _, m := range [][2]string{{"io.toolway/idempotency-key", w.key}, {"io.toolway/confirm", w.confirm}} {
		if m[1] != "" {
			meta[m[0]] = m[1]
		}
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	sent, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := o.agents["mcp "+agent.V20260728].Request(ctx, "tools/call", params, nil)
	if err != nil {
		t.Fatal(err)
	}
	var res struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
		Meta              map[string]any  `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("MCP   tools/call %s\n   → isError %v %s\n", sent, res.IsError, res.StructuredContent)
	if replayed := res.Meta["io.toolway/replayed"]; replayed != nil {
		out += fmt.Sprintf("      _meta io.toolway/replayed: %v\n", replayed)
	}
	return out
}
