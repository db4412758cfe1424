package servers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

const runbookURI = "grpc://runbooks.agentops.dev/runbooks/"

// TestRunbooks puts the mesh before the runbook service with its samples: the same answers through each door, and what only MCP has:
// resources with listing, completion and subscription, and prompts with a runbook in them.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	dir := copySamples(t)
	addr := startService(t, "runbooks", "--dir", dir, "--poll", "50ms")
	mesh := run.Start(t, "--backend", "runbooks="+addr)
	ctx := patience(t)
	client := runbooksv1.NewRunbookServiceClient(run.Dial(t, mesh.GRPC))
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()

	t.Run("one answer through each door", func(t *testing.T) {
		for _, c := range []struct {
			path, tool string
			arguments  map[string]any
			grpc       func() (proto.Message, error)
			into       proto.Message
		}{
			{"/v1/runbooks/disk-full", "runbooks_get", map[string]any{"name": "runbooks/disk-full"}, func() (proto.Message, error) {
				return client.GetRunbook(ctx, &runbooksv1.GetRunbookRequest{Name: "runbooks/disk-full"})
			}, &runbooksv1.Runbook{}},
			{"/v1/runbooks?pageSize=2", "runbooks_list", map[string]any{"pageSize": 2}, func() (proto.Message, error) {
				return client.ListRunbooks(ctx, &runbooksv1.ListRunbooksRequest{PageSize: 2})
			}, &runbooksv1.ListRunbooksResponse{}},
			{"/v1/runbooks:search?query=memory+leak&service=checkout", "runbooks_search", map[string]any{"query": "memory leak", "service": "checkout"}, func() (proto.Message, error) {
				return client.SearchRunbooks(ctx, &runbooksv1.SearchRunbooksRequest{Query: "memory leak", Service: "checkout"})
			}, &runbooksv1.SearchRunbooksResponse{}},
		} {
			want, err := c.grpc()
			if err != nil {
				t.Fatal(err)
			}
			if err := protojson.Unmarshal([]byte(fetchText(t, mesh.URL(c.path))), c.into); err != nil || !proto.Equal(c.into, want) {
				t.Errorf("GET %s = %v, %v, want what gRPC gives: %v", c.path, c.into, err, want)
			}
			res, err := agent.Call(ctx, a, c.tool, c.arguments, nil)
			if err != nil || res.IsError {
				t.Fatalf("%s: %+v, %v", c.tool, res, err)
			}
			proto.Reset(c.into)
			if err := protojson.Unmarshal(res.StructuredContent, c.into); err != nil || !proto.Equal(c.into, want) {
				t.Errorf("%s = %v, %v, want what gRPC gives: %v", c.tool, c.into, err, want)
			}
		}
	})

	t.Run("one error through each door", func(t *testing.T) {
		_, err := client.GetRunbook(ctx, &runbooksv1.GetRunbookRequest{Name: "runbooks/none"})
		if status.Code(err) != codes.NotFound || !slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
			info, ok := d.(*errdetails.ResourceInfo)
			return ok && info.ResourceName == "runbooks/none"
		}) {
			t.Errorf("gRPC: %v with %v, want NOT_FOUND that names the resource", err, status.Convert(err).Details())
		}
		resp, err := http.Get(mesh.URL("/v1/runbooks/none"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNotFound || !strings.Contains(string(b), "RUNBOOK_NOT_FOUND") {
			t.Errorf("HTTP: %s %s, want 404 with the reason", resp.Status, b)
		}
		res, err := agent.Call(ctx, a, "runbooks_get", map[string]any{"name": "runbooks/none"}, nil)
		if err != nil || !res.IsError || !strings.Contains(res.Text(), "RUNBOOK_NOT_FOUND") {
			t.Errorf("MCP: %+v, %v, want a tool error with the reason", res, err)
		}
	})

	t.Run("resources", func(t *testing.T) {
		templates := request(ctx, t, a, "resources/templates/list", nil)
		if !strings.Contains(templates, `"uriTemplate":"`+runbookURI+`{runbook}"`) {
			t.Errorf("templates = %s, want the runbook's", templates)
		}
		listed := request(ctx, t, a, "resources/list", nil)
		for _, name := range []string{"checkout-latency", "dependency-down", "disk-full", "error-rate-after-deploy", "memory-growth"} {
			if !strings.Contains(listed, `"`+runbookURI+name+`"`) {
				t.Errorf("resources = %s, want %s among them", listed, name)
			}
		}
		if !strings.Contains(listed, `"title":"A disk is nearly full"`) {
			t.Errorf("resources = %s, want titles", listed)
		}
		read := request(ctx, t, a, "resources/read", map[string]any{"uri": runbookURI + "disk-full"})
		etag := getRunbook(t, client, "disk-full").GetEtag()
		if !strings.Contains(read, "never delete it by hand") || !strings.Contains(read, etag) {
			t.Errorf("read = %s, want the content and the etag %s", read, etag)
		}
		completed := request(ctx, t, a, "completion/complete", map[string]any{
			"ref": map[string]any{"type": "ref/resource", "uri": runbookURI + "{runbook}"}, "argument": map[string]any{"name": "runbook", "value": "d"},
		})
		if !strings.Contains(completed, `"dependency-down","disk-full"`) {
			t.Errorf("completion = %s, want the two that begin with d", completed)
		}
	})

	t.Run("prompts", func(t *testing.T) {
		listed := request(ctx, t, a, "prompts/list", nil)
		for _, want := range []string{`"name":"incident_review"`, `"name":"triage"`, `"name":"symptom"`, `"required":true`} {
			if !strings.Contains(listed, want) {
				t.Errorf("prompts = %s, want %s", listed, want)
			}
		}
		type message struct {
			Role    string
			Content struct {
				Type, Text string
				Resource   struct{ URI, Text string }
			}
		}
		var review, triage struct{ Messages []message }
		unmarshal(t, request(ctx, t, a, "prompts/get", map[string]any{"name": "incident_review", "arguments": map[string]any{"incident": "inc-7", "runbook": "runbooks/memory-growth"}}), &review)
		if len(review.Messages) != 2 || !strings.Contains(review.Messages[0].Content.Text, "incidents_list_diagnoses with incident inc-7") {
			t.Fatalf("review = %+v, want the text and the runbook", review)
		}
		if m := review.Messages[1]; m.Role != "user" || m.Content.Type != "resource" || m.Content.Resource.URI != runbookURI+"memory-growth" || !strings.Contains(m.Content.Resource.Text, "Do not raise the limit") {
			t.Errorf("second message = %+v, want the runbook's content", m)
		}
		unmarshal(t, request(ctx, t, a, "prompts/get", map[string]any{"name": "triage", "arguments": map[string]any{"service": "checkout", "symptom": "it is slow {service}"}}), &triage)
		if len(triage.Messages) != 1 || !strings.Contains(triage.Messages[0].Content.Text, "The service checkout shows: it is slow {service}.") {
			t.Errorf("triage = %+v, want the arguments put in as they are", triage)
		}
		_, err := a.Request(ctx, "prompts/get", map[string]any{"name": "triage", "arguments": map[string]any{"service": "checkout"}}, nil)
		var refused *agent.Error
		if !errors.As(err, &refused) || refused.Code != -32602 || !strings.Contains(refused.Message, "symptom") {
			t.Errorf("triage without its symptom = %v, want -32602 that names it", err)
		}
		_, err = a.Request(ctx, "prompts/get", map[string]any{"name": "incident_review", "arguments": map[string]any{"incident": "inc-7", "runbook": "runbooks/none"}}, nil)
		if !errors.As(err, &refused) {
			t.Errorf("review with no such runbook = %v, want an error", err)
		}
		for _, typed := range []string{"runbooks/mem", "mem"} {
			completed := request(ctx, t, a, "completion/complete", map[string]any{
				"ref": map[string]any{"type": "ref/prompt", "name": "incident_review"}, "argument": map[string]any{"name": "runbook", "value": typed},
			})
			if !strings.Contains(completed, `"values":["runbooks/memory-growth"]`) {
				t.Errorf("completion of %q = %s, want the runbook", typed, completed)
			}
		}
	})

	t.Run("changes", func(t *testing.T) {
		watch, err := client.WatchRunbooks(ctx, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/-"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Header(); err != nil {
			t.Fatal(err)
		}
		before := getRunbook(t, client, "disk-full")
		events := streamed(ctx, t, mesh.URL("/v1/runbooks/disk-full:watch?etag=of-another-day"))
		if event := <-events; !strings.Contains(event, before.GetEtag()) {
			t.Errorf("first event = %q, want what the caller missed, with the etag %s", event, before.GetEtag())
		}
		updated := subscribed(ctx, t, mesh, runbookURI+"disk-full")

		write(t, filepath.Join(dir, "disk-full.md"), "---\ntitle: Disk is full\n---\nDelete the cache.\n")
		msg, err := watch.Recv()
		if err != nil || msg.Name != "runbooks/disk-full" || msg.Change != runbooksv1.WatchRunbooksResponse_CHANGE_WRITTEN {
			t.Fatalf("watch = %v, %v, want the change", msg, err)
		}
		if event := <-events; !strings.Contains(event, msg.Etag) || !strings.Contains(event, "CHANGE_WRITTEN") {
			t.Errorf("event = %q, want the change with the etag %s", event, msg.Etag)
		}
		select {
		case <-updated:
		case <-ctx.Done():
			t.Fatal("notifications/resources/updated did not come")
		}
		// Whoever was told reads the new content: nothing between has kept the old one.
		if read := request(ctx, t, a, "resources/read", map[string]any{"uri": runbookURI + "disk-full"}); !strings.Contains(read, "Delete the cache.") || !strings.Contains(read, msg.Etag) {
			t.Errorf("read after the update = %s, want the new content", read)
		}
		if got := fetchText(t, mesh.URL("/v1/runbooks:search?query=cache")); !strings.Contains(got, "Delete the cache.") {
			t.Errorf("search after the update = %s, want the new passage", got)
		}
		if err := os.Remove(filepath.Join(dir, "disk-full.md")); err != nil {
			t.Fatal(err)
		}
		if msg, err := watch.Recv(); err != nil || msg.Change != runbooksv1.WatchRunbooksResponse_CHANGE_REMOVED || msg.Etag != "" {
			t.Errorf("watch = %v, %v, want that it is gone", msg, err)
		}
		if event := <-events; !strings.Contains(event, "CHANGE_REMOVED") {
			t.Errorf("event = %q, want that it is gone", event)
		}
	})
}

// copySamples copies the service's sample runbooks to a folder that the test may change.
func copySamples(t *testing.T) string {
	t.Helper()
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(module, "..", "services", "runbooks", "samples"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startService builds one of our own services and starts it on a free port; it is stopped when the test ends.
func startService(t *testing.T, name string, args ...string) string {
	t.Helper()
	bin, err := run.Service(name)
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	p, err := run.Spawn(nil, bin, append([]string{"--addr", addr}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	run.Eventually(t, name+" listens on "+addr, func() bool { return canConnect(addr) })
	return addr
}

func getRunbook(t *testing.T, client runbooksv1.RunbookServiceClient, name string) *runbooksv1.Runbook {
	t.Helper()
	r, err := client.GetRunbook(patience(t), &runbooksv1.GetRunbookRequest{Name: "runbooks/" + name})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request returns the result as JSON.
func request(ctx context.Context, t *testing.T, a agent.Requester, method string, params map[string]any) string {
	t.Helper()
	raw, err := a.Request(ctx, method, params, nil)
	if err != nil {
		t.Fatalf("%s %v: %v", method, params, err)
	}
	return string(raw)
}

func unmarshal(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// fetchText returns the body of a good answer.
func fetchText(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %s, %v", url, resp.Status, b, err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// streamed reads server-sent events with curl, until the test ends; each element is an event's data.
func streamed(ctx context.Context, t *testing.T, url string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	curl := exec.CommandContext(ctx, "curl", "-sS", "-N", "-H", "Accept: text/event-stream", url)
	out, err := curl.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := curl.Start(); err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
		_ = curl.Wait() // it is ended by the test
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// subscribed listens for updates of a resource with an MCP client of its own, and returns when the mesh has acknowledged it.
func subscribed(ctx context.Context, t *testing.T, mesh *run.Mesh, uri string) <-chan struct{} {
	t.Helper()
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	acknowledged, updated := make(chan string, 1), make(chan struct{}, 16)
	done := make(chan error, 1)
	go func() {
		_, err := a.Request(ctx, "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{uri}}}, func(m agent.Message) {
			switch m.Method {
			case "notifications/subscriptions/acknowledged":
				acknowledged <- string(m.Params)
			case "notifications/resources/updated":
				if strings.Contains(string(m.Params), `"`+uri+`"`) {
					updated <- struct{}{}
				}
			}
		})
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err == nil {
			t.Error("the subscription was ended by the mesh")
		}
		a.Close()
	})
	select {
	case params := <-acknowledged:
		if !strings.Contains(params, uri) {
			t.Fatalf("acknowledged %s, want %s", params, uri)
		}
	case err := <-done:
		done <- errors.Join(err, errors.New("refused"))
		t.Fatalf("subscriptions/listen: %v", err)
	case <-ctx.Done():
		t.Fatal("subscriptions/listen was not acknowledged")
	}
	return updated
}
