package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"

	"github.com/toolway/toolway/tests/internal/run"
)

// relay is an address that stays while what is behind it changes, as a load balancer's does.
type relay struct {
	listener net.Listener
	all      sync.WaitGroup

	mu     sync.Mutex
	target string
}

func startRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target}
	r.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.all.Wait()
	})
	return r
}

func (r *relay) pass(c net.Conn) {
	defer c.Close()
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(to, c)
		to.Close()
	})
	_, _ = io.Copy(c, to)
	c.Close()
	back.Wait()
}

// lead sends new connections elsewhere.
func (r *relay) lead(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// startLogs starts the log service over a directory and returns it with its address.
func startLogs(t *testing.T, data string) (*run.Process, string) {
	t.Helper()
	bin, err := run.Service("logs")
	if err != nil {
		t.Fatal(err)
	}
	p, err := run.Spawn(nil, bin, "--addr", "127.0.0.1:0", "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(p.Kill)
	var addr string
	err = p.Await(func(line string) bool {
		_, rest, ok := strings.Cut(line, "addr=")
		if ok {
			addr, _, _ = strings.Cut(rest, " ")
		}
		return ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, addr
}

// startMesh starts a mesh whose readers come back soon.
func startMesh(t *testing.T, logs string) *run.Mesh {
	t.Helper()
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("backends:\n  - name: logs\n    targets: [%q]\nhttp: {reconnect: 50ms}\n", logs)), 0o600); err != nil {
		t.Fatal(err)
	}
	return run.Start(t, "--config", file)
}

func ingest(ctx context.Context, t *testing.T, addr string, from, to int) {
	t.Helper()
	in, err := logsv1.NewLogServiceClient(run.Dial(t, addr)).IngestLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if err := in.Send(&logsv1.IngestLogsRequest{Entries: []*logsv1.LogEntry{{Message: fmt.Sprintf("entry %d", i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := in.CloseAndRecv(); err != nil || got.GetAccepted() != int64(to-from) {
		t.Fatalf("IngestLogs = %v, %v", got, err)
	}
}

// TestEventSourceGoesOn stops the backend under an EventSource, and then the mesh: another mesh, which knows nothing of it, goes on where the
// reader is. The reader does nothing for it.
func TestEventSourceGoesOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	defer cancel()
	data := filepath.Join(t.TempDir(), "logs")
	service, addr := startLogs(t, data)
	first := startMesh(t, addr)
	front := startRelay(t, first.HTTP)
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	target := "http://" + front.listener.Addr().String() + "/v1/logs:tail?startTime=" + url.QueryEscape(since)
	reader, err := run.Spawn(nil, "node", filepath.Join(clients, "eventsource.mjs"), target, "6")
	if err != nil {
		t.Fatal(err)
	}
	reader.Explain(t)
	t.Cleanup(reader.Kill)
	await := func(what string, match func(line string) bool) {
		t.Helper()
		if err := reader.Await(match); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	ingest(ctx, t, addr, 0, 3)
	await("entry 2", func(l string) bool { return strings.Contains(l, `"entry 2"`) })

	if err := service.Stop(); err != nil {
		t.Error(err)
	}
	// The reader hears that it broke, comes back to a mesh without a backend, and does not give up.
	tries := 0
	await("the backend is away", func(l string) bool {
		if strings.Contains(l, `"error"`) && strings.Contains(l, `\"code\":14`) {
			tries++
		}
		return tries == 3
	})

	_, addr = startLogs(t, data)
	second := startMesh(t, addr)
	ingest(ctx, t, addr, 3, 6)
	front.lead(second.HTTP)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	if err := reader.Wait(run.Patience); err != nil {
		t.Fatalf("the reader: %v", err)
	}
	var texts, ids []string
	for line := range strings.Lines(reader.Log()) {
		var e struct{ Event, ID, Text string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.Event == "message" {
			texts, ids = append(texts, e.Text), append(ids, e.ID)
		}
	}
	if got := strings.Join(texts, ", "); got != "entry 0, entry 1, entry 2, entry 3, entry 4, entry 5" {
		t.Errorf("entries %s, ids %q, want each once", got, ids)
	}
}

// TestWatchCatalogHasIDs reads the mesh's own stream.
func TestWatchCatalogHasIDs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/v1/catalog:watch"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var head string
	for !strings.Contains(head, "data: ") {
		b := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			t.Fatalf("%v after %q", err, head)
		}
		head += string(b)
	}
	_, head, _ = strings.Cut(head, "\n\n")
	if !strings.HasPrefix(head, "id: ") {
		t.Errorf("first event begins with %q, want the catalog's version as id", head)
	}
}
