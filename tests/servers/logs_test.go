package servers_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestLogs puts the mesh before our own log service: entries go in by a client stream, come out by a search through each door, and are
// followed by a tail that goes on from its cursor.
func TestLogs(t *testing.T) {
	t.Parallel()
	addr := startLogs(t)
	mesh := run.Start(t, "--backend", "logs="+addr)
	ctx := patience(t)
	client := logsv1.NewLogServiceClient(run.Dial(t, mesh.GRPC))

	// A tail through the HTTP door stands before anything is written.
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	tail := exec.CommandContext(ctx, "curl", "-sS", "-N", "-H", "Accept: text/event-stream", mesh.URL("/v1/logs:tail?maxEntries=3&startTime="+url.QueryEscape(since)))
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	in, err := client.IngestLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		entry := &logsv1.LogEntry{Message: fmt.Sprintf("order %d was refused", i), Fields: map[string]string{"service": "orders", "level": "ERROR"}}
		if err := in.Send(&logsv1.IngestLogsRequest{Entries: []*logsv1.LogEntry{entry}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := in.CloseAndRecv(); err != nil || got.GetAccepted() != 3 {
		t.Fatalf("IngestLogs = %v, %v, want 3 accepted", got, err)
	}

	var events []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if l := lines.Text(); strings.HasPrefix(l, "data: ") || strings.HasPrefix(l, "event: ") {
			events = append(events, l)
		}
	}
	if err := tail.Wait(); err != nil {
		t.Error(err)
	}
	if len(events) < 4 || !strings.Contains(events[2], "order 2 was refused") || !strings.Contains(events[2], `"cursor"`) || events[3] != "event: end" {
		t.Errorf("tail = %q, want the three entries with cursors, and the end", events)
	}

	const query = `service:orders "was refused"`
	run.Eventually(t, "the entries are found through gRPC", func() bool {
		got, err := client.SearchLogs(ctx, &logsv1.SearchLogsRequest{Query: query})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.GetEntries()) == 3
	})
	resp, err := http.Get(mesh.URL("/v1/logs:search?pageSize=2&query=" + url.QueryEscape(query)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b := string(b); resp.StatusCode != http.StatusOK || strings.Count(b, "was refused") != 2 || !strings.Contains(b, "nextPageToken") {
		t.Errorf("HTTP: %s %s, want a page of two", resp.Status, b)
	}
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if res, err := agent.Call(ctx, a, "logs_search", map[string]any{"query": query}, nil); err != nil || res.IsError || strings.Count(string(res.StructuredContent), "was refused") != 3 {
		t.Errorf("MCP: %+v, %v, want three entries", res, err)
	}
	progress := 0
	res, err := agent.Call(ctx, a, "logs_tail", map[string]any{"maxEntries": 3, "startTime": since}, func(string) { progress++ })
	if err != nil || res.IsError || strings.Count(string(res.StructuredContent), `"cursor"`) != 3 || progress == 0 {
		t.Errorf("MCP: tail = %+v, %v, %d progress notifications, want three entries with cursors", res, err, progress)
	}
	tools, err := agent.Tools(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if reads := strings.HasSuffix(tool.Name, "_search") || strings.HasSuffix(tool.Name, "_tail"); tool.Annotations["readOnlyHint"] != reads || tool.Annotations["openWorldHint"] {
			t.Errorf("tool %q: annotations %v, want what the contract's options say", tool.Name, tool.Annotations)
		}
	}
	_, err = client.SearchLogs(ctx, &logsv1.SearchLogsRequest{Query: "level:("})
	if status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Details()) == 0 {
		t.Errorf("a query that does not parse: %v with details %v, want INVALID_ARGUMENT that names the field", err, status.Convert(err).Details())
	}
}

// startLogs builds the log service, which is in a module of its own, and starts it with an embedded store.
func startLogs(t *testing.T) string {
	t.Helper()
	bin, err := run.Service("logs")
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	p, err := run.Spawn(nil, bin, "--addr", addr, "--data", filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	run.Eventually(t, "the log service listens on "+addr, func() bool { return canConnect(addr) })
	return addr
}
