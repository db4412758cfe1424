// Package servers_test runs the built binary before servers that nobody here wrote, and before servers with every kind of reflection.
package servers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestEtcd puts the mesh before a real etcd: no reflection, a contract with google.api.http rules that was compiled elsewhere, bidi
// streams, and a client with a balancer of its own.
func TestEtcd(t *testing.T) {
	t.Parallel()
	etcd, addr, err := run.Child("etcd", "-data", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Stop(); err != nil {
			t.Error(err)
		}
	})
	set, err := run.Descriptors("etcd.binpb")
	if err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--backend", "etcd="+addr, "--descriptors", "etcd="+set)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{mesh.GRPC}, Logger: zap.NewNop(), Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	// The subtests run side by side and end before this cleanup does.
	t.Cleanup(func() { client.Close() })
	t.Run("client", func(t *testing.T) { t.Parallel(); etcdClient(t, client) })
	t.Run("lease", func(t *testing.T) { t.Parallel(); etcdLease(t, client) })
	t.Run("watch", func(t *testing.T) { t.Parallel(); etcdWatch(t, client) })
	t.Run("rest", func(t *testing.T) { t.Parallel(); etcdREST(t, mesh, client) })
	t.Run("rest watch", func(t *testing.T) { t.Parallel(); etcdRESTWatch(t, mesh, client) })
	t.Run("mcp", func(t *testing.T) { t.Parallel(); etcdMCP(t, mesh, client) })
}

func TestMain(m *testing.M) {
	if err := run.Prepare("etcd", "probe"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		// The backends are in this process: a handler that is left is a call that the mesh did not end.
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	t.Cleanup(cancel)
	return ctx
}

// etcdClient uses etcd's own client through the gRPC door.
func etcdClient(t *testing.T, c *clientv3.Client) {
	ctx := patience(t)
	put, err := c.Put(ctx, "client/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	get, err := c.Get(ctx, "client/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(get.Kvs) != 1 || string(get.Kvs[0].Value) != "1" || get.Kvs[0].ModRevision != put.Header.Revision {
		t.Errorf("Get = %v, want the one key of revision %d", get.Kvs, put.Header.Revision)
	}
	txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value("client/a"), "=", "1")).Then(clientv3.OpPut("client/a", "2")).Commit()
	if err != nil || !txn.Succeeded {
		t.Errorf("Txn = %v, %v, want success", txn, err)
	}
	// etcd's client knows its errors by code and message.
	if _, err := c.Get(ctx, ""); err != rpctypes.ErrEmptyKey { //nolint:errorlint // Identity is what the client promises.
		t.Errorf("Get of no key: error %v, want %v", err, rpctypes.ErrEmptyKey)
	}
	if _, err := c.Get(ctx, "client/a", clientv3.WithRev(1<<40)); status.Code(err) != codes.OutOfRange && err != rpctypes.ErrFutureRev { //nolint:errorlint // As above.
		t.Errorf("Get of a future revision: error %v, want %v", err, rpctypes.ErrFutureRev)
	}
	// Maintenance.Snapshot is a server stream of binary data.
	snapshot, err := c.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if n, err := io.Copy(io.Discard, snapshot); err != nil || n < 4096 {
		t.Errorf("snapshot of %d bytes, %v", n, err)
	}
}

// etcdLease keeps a lease alive, which is a bidi stream.
func etcdLease(t *testing.T, c *clientv3.Client) {
	ctx := patience(t)
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := c.KeepAliveOnce(ctx, lease.ID)
	if err != nil || alive.TTL != 60 {
		t.Errorf("KeepAliveOnce = %v, %v, want a TTL of 60", alive, err)
	}
	if _, err := c.Revoke(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.KeepAliveOnce(ctx, lease.ID); err != rpctypes.ErrLeaseNotFound { //nolint:errorlint // As above.
		t.Errorf("KeepAliveOnce of a revoked lease: error %v, want %v", err, rpctypes.ErrLeaseNotFound)
	}
}

// etcdWatch watches while it writes: both directions of one bidi stream live at once.
func etcdWatch(t *testing.T, c *clientv3.Client) {
	ctx, cancel := context.WithCancel(patience(t))
	events := c.Watch(ctx, "watch/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-events; !created.Created {
		t.Fatalf("first answer = %+v, want the watch's creation", created)
	}
	for i := range 5 {
		if _, err := c.Put(ctx, "watch/key", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		w := <-events
		if w.Err() != nil || len(w.Events) != 1 || string(w.Events[0].Kv.Value) != fmt.Sprint(i) {
			t.Fatalf("after write %d: %+v, %v", i, w.Events, w.Err())
		}
	}
	cancel()
	for range events {
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatalf("POST %s: %s: %v", url, resp.Status, err)
	}
	return resp.StatusCode, v
}

// etcdREST uses the routes of etcd's own google.api.http rules.
func etcdREST(t *testing.T, mesh *run.Mesh, c *clientv3.Client) {
	ctx := patience(t)
	code, v := post(t, mesh.URL("/v3/kv/put"), fmt.Sprintf(`{"key":%q,"value":%q}`, b64("rest/a"), b64("1")))
	if code != http.StatusOK {
		t.Fatalf("put: %d %v", code, v)
	}
	if got, err := c.Get(ctx, "rest/a"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("what REST wrote is not there: %v, %v", got, err)
	}
	code, v = post(t, mesh.URL("/v3/kv/range"), fmt.Sprintf(`{"key":%q,"range_end":%q,"sort_order":"DESCEND","limit":"10"}`, b64("rest/"), b64("rest0")))
	kvs, _ := v["kvs"].([]any)
	if code != http.StatusOK || len(kvs) != 1 {
		t.Fatalf("range: %d %v", code, v)
	}
	if kv := kvs[0].(map[string]any); kv["value"] != b64("1") {
		t.Errorf("range: %v, want the value %q", kv, b64("1"))
	}
	if code, v = post(t, mesh.URL("/v3/kv/range"), `{}`); code != http.StatusBadRequest || v["code"] != float64(codes.InvalidArgument) {
		t.Errorf("range without a key: %d %v, want 400 and INVALID_ARGUMENT", code, v)
	}
	if code, v = post(t, mesh.URL("/v3/kv/put"), `{"kee":"YQ=="}`); code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(v), `"key"`) {
		t.Errorf("put with a mistyped field: %d %v, want 400 that names %q", code, v, "key")
	}
}

// etcdRESTWatch watches through the HTTP door: request lines go up while answer lines come down.
func etcdRESTWatch(t *testing.T, mesh *run.Mesh, c *clientv3.Client) {
	ctx := patience(t)
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, mesh.URL("/v3/watch"), r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	written := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(w, `{"create_request":{"key":%q}}`+"\n", b64("restwatch/a"))
		written <- err
	}()
	defer func() {
		w.Close()
		if err := <-written; err != nil {
			t.Error(err)
		}
	}()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	next := func() map[string]any {
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("watch: %s: %q, %v", resp.Status, line, err)
		}
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("watch: %q: %v", line, err)
		}
		return v
	}
	if v := next(); v["created"] != true {
		t.Fatalf("watch began with %v, want its creation", v)
	}
	for i := range 3 {
		if _, err := c.Put(ctx, "restwatch/a", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if v := next(); !strings.Contains(fmt.Sprint(v["events"]), b64(fmt.Sprint(i))) {
			t.Errorf("after write %d: %v", i, v)
		}
	}
}

// etcdMCP uses etcd as an agent does.
func etcdMCP(t *testing.T, mesh *run.Mesh, c *clientv3.Client) {
	ctx := patience(t)
	if _, err := c.Put(ctx, "mcp/a", "1"); err != nil {
		t.Fatal(err)
	}
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	tools, err := agent.Tools(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Name == "kv_range" })
	if i < 0 {
		t.Fatalf("no tool kv_range among %d", len(tools))
	}
	if want := "Range gets the keys in the range from the key-value store."; !strings.Contains(tools[i].Description, want) {
		t.Errorf("description of kv_range = %q, want the comment %q", tools[i].Description, want)
	}
	for _, tool := range tools {
		if tool.Description == "" || len(tool.Annotations) != 4 || !bytes.Contains(tool.InputSchema, []byte(`"type":"object"`)) {
			t.Errorf("tool %q: description %q, annotations %v, input schema %.100s", tool.Name, tool.Description, tool.Annotations, tool.InputSchema)
		}
	}
	res, err := agent.Call(ctx, a, "kv_range", map[string]any{"key": b64("mcp/a")}, nil)
	if err != nil || res.IsError || !strings.Contains(string(res.StructuredContent), b64("1")) {
		t.Errorf("kv_range = %+v, %v, want the value %q", res, err, b64("1"))
	}
	res, err = agent.Call(ctx, a, "kv_range", map[string]any{}, nil)
	if err != nil || !res.IsError || !strings.Contains(res.Text(), "INVALID_ARGUMENT") || !strings.Contains(res.Text(), "key is not provided") {
		t.Errorf("kv_range without a key = %+v, %v, want INVALID_ARGUMENT and etcd's words", res, err)
	}
}
