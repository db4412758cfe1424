package matrix_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// shapeConfig reuses what Ask answers, cuts what is long, and keeps what Ask has given from all methods.
const shapeConfig = `backends: [{name: probe, targets: [BACKEND]}]
policy:
  - {match: probe.v1.Probe/Ask, read_only: true, cache_ttl: 1h, result_limits: {max_bytes: 3000}, fields: [{path: text, data_label: pii}]}
cache: {stale: 1h}
results: {max_bytes: 4000}
data_flow: {rules: [{name: probe keeps pii, from: {label: pii, backends: [probe]}, to: {backends: [probe]}}]}
`

// TestReadsAreShared has one execution for equal reads at all doors.
func TestReadsAreShared(t *testing.T) {
	o := openWith(t, shapeConfig)
	ask := wanted{method: "Ask", json: `{"id":"read","plan":{"size":7}}`}
	for _, door := range onceDoors {
		if got := o.call(t.Context(), t, door, ask); got.code != "OK" || got.text != "xxxxxxx" {
			t.Fatalf("%s: %+v", door, got)
		}
	}
	if n := o.server.Total(); n != 1 {
		t.Errorf("%d executions for %d equal reads, want 1", n, len(onceDoors))
	}
}

// TestOldAnswersWhileTheBackendIsDown has the same old answer at each door, and what is to be redacted in none.
func TestOldAnswersWhileTheBackendIsDown(t *testing.T) {
	o := openWith(t, `backends: [{name: probe, targets: [BACKEND]}]
policy:
  - {match: probe.v1.Probe/Ask, read_only: true, cache_ttl: 1ms}
  - {match: probe.v1.Probe/Watch, fields: [{path: text, redact_result: true}]}
cache: {stale: 1h}
`)
	for _, door := range onceDoors {
		if got := o.call(t.Context(), t, door, wanted{method: "Watch", json: `{"id":"w","text":"secret","plan":{"count":2}}`}); got.text != "[redacted],[redacted]" {
			t.Errorf("%s: %+v, want both texts redacted", door, got)
		}
	}
	ask := wanted{method: "Ask", json: `{"id":"read","plan":{"size":7}}`}
	if got := o.call(t.Context(), t, "grpc", ask); got.text != "xxxxxxx" {
		t.Fatalf("%+v", got)
	}
	o.stop()
	for _, door := range onceDoors {
		if got := o.call(t.Context(), t, door, ask); got.code != "OK" || got.text != "xxxxxxx" {
			t.Errorf("%s: %+v, want the old answer", door, got)
		}
		if got := o.call(t.Context(), t, door, wanted{method: "Ask", json: `{"id":"other"}`}); got.code != "UNAVAILABLE" {
			t.Errorf("%s: %+v, want UNAVAILABLE for what was never asked", door, got)
		}
	}
}

// TestForbiddenFlowsAreRefusedAlike hands what one method has given to another, at each door.
func TestForbiddenFlowsAreRefusedAlike(t *testing.T) {
	o := openWith(t, shapeConfig)
	if got := o.call(t.Context(), t, "grpc", wanted{method: "Ask", json: `{"id":"give","plan":{"size":12}}`}); got.code != "OK" {
		t.Fatalf("%+v", got)
	}
	for _, door := range onceDoors {
		got := o.call(t.Context(), t, door, wanted{method: "Watch", json: `{"id":"take","text":"about xxxxxxxxxxxx, you know","plan":{"count":1}}`})
		if got.String() != "PERMISSION_DENIED DATA_FLOW_FORBIDDEN" || got.metadata["field"] != "text" || got.metadata["label"] != "pii" {
			t.Errorf("%s: %+v, want DATA_FLOW_FORBIDDEN of the field text", door, got)
		}
	}
	if o.server.Saw("take") {
		t.Error("the backend was called")
	}
}

// TestLargeResultsAreLinked reads what was cut over MCP, as a resource and over HTTP.
func TestLargeResultsAreLinked(t *testing.T) {
	o := openWith(t, shapeConfig)
	for _, name := range agentVersions {
		a := o.agent(t, name)
		raw, err := a.Request(t.Context(), "tools/call", map[string]any{"name": "probe_ask", "arguments": json.RawMessage(`{"id":"large","plan":{"size":5000},"number":"7"}`)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var res struct {
			Content           []struct{ Type, URI string }
			StructuredContent json.RawMessage
			IsError           bool
		}
		if err := json.Unmarshal(raw, &res); err != nil {
			t.Fatal(err)
		}
		last := res.Content[len(res.Content)-1]
		if res.IsError || string(res.StructuredContent) != `{"number":"7"}` || last.Type != "resource_link" {
			t.Fatalf("%s: %.300s, want a cut result with a link", name, raw)
		}
		raw, err = a.Request(t.Context(), "resources/read", map[string]any{"uri": last.URI}, nil)
		if err != nil || !strings.Contains(string(raw), strings.Repeat("x", 5000)) {
			t.Errorf("%s: resource %.200s, %v", name, raw, err)
		}
		id := strings.TrimPrefix(last.URI, "toolway://objects/")
		status, header, body := get(t, o.URL("/v1/objects/"+id), "")
		if status != http.StatusOK || header.Get("Content-Type") != "application/json" || !strings.Contains(body, strings.Repeat("x", 5000)) {
			t.Errorf("%s: GET = %d %v %.100s", name, status, header, body)
		}
		if status, _, body := get(t, o.URL("/v1/objects/"+id), header.Get("ETag")); status != http.StatusNotModified || body != "" {
			t.Errorf("%s: GET again = %d %.100s, want 304", name, status, body)
		}
	}
	if status, _, _ := get(t, o.URL("/v1/objects/AAAAAAAAAAAAAAAAAAAAAAAAAA"), ""); status != http.StatusNotFound {
		t.Errorf("an object that is not there = %d, want 404", status)
	}
}

// TestCachedReadsOverHTTP sees the headers of RFC 9111.
func TestCachedReadsOverHTTP(t *testing.T) {
	o := openWith(t, shapeConfig)
	url := o.URL("/v1/probe/web?plan.size=3")
	status, header, first := get(t, url, "")
	if status != http.StatusOK || header.Get("Cache-Control") != "private, max-age=3600" || header.Get("Age") != "" {
		t.Fatalf("%d %v %s", status, header, first)
	}
	status, again, body := get(t, url, "")
	if status != http.StatusOK || body != first || again.Get("Toolway-Cache") != "hit" || again.Get("Age") == "" || again.Get("ETag") != header.Get("ETag") {
		t.Errorf("again: %d %v %s, want the kept answer", status, again, body)
	}
	if n := o.server.Total(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}

func get(t *testing.T, url, etag string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	client := http.Client{Timeout: run.Patience}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(body)
}
