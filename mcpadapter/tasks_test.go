package mcpadapter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/durable"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/task"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/mcpadapter"
)

const jobsProto = `syntax = "proto3"; package jobs.v1; import "toolway/v1/options.proto"; import "toolway/v1/content.proto"; import "google/protobuf/wrappers.proto";
	message Ask { string act = 1; }
	message Report { string text = 1; repeated string rows = 2; }
	// Runs jobs.
	service Jobs {
		// Runs as a task if that can be.
		rpc Run(Ask) returns (Report) { option (toolway.v1.method) = {task: TASK_SUPPORT_PREFERRED}; }
		// Runs only as a task.
		rpc Must(Ask) returns (Report) { option (toolway.v1.method) = {task: TASK_SUPPORT_REQUIRED}; }
		// Runs as a task if the caller wants it.
		rpc May(Ask) returns (Report);
		// Never runs as a task.
		rpc Never(Ask) returns (Report) { option (toolway.v1.method) = {task: TASK_SUPPORT_FORBIDDEN}; }
		// Sends rows.
		rpc Rows(Ask) returns (stream Report) { option (toolway.v1.method) = {task: TASK_SUPPORT_PREFERRED result_limits: {max_items: 2}}; }
		// Shows content.
		rpc Show(Ask) returns (toolway.v1.ToolResult) { option (toolway.v1.method) = {task: TASK_SUPPORT_PREFERRED}; }
		// Is short.
		rpc Text(Ask) returns (google.protobuf.StringValue) { option (toolway.v1.method) = {task: TASK_SUPPORT_PREFERRED result_limits: {max_bytes: 100}}; }
	}`

// jobs is a door before a backend whose calls can become tasks, with what keeps and runs them.
type jobs struct {
	t         *testing.T
	fast, sdk *mcpadapter.Adapter
	catalog   *mutableCatalog
	tasks     *task.Tasks
	calls     call.Handler
	runs      call.Handler
	release   chan struct{}
	begun     chan struct{}
	made      atomic.Int32 // calls that say what to do
}

// newJobs starts everything but the workers.
func newJobs(t *testing.T, change func(*mcpadapter.Config)) *jobs {
	t.Helper()
	s, err := catalog.Static("jobs", compile(t, jobsProto))
	if err != nil {
		t.Fatal(err)
	}
	j := &jobs{t: t, catalog: &mutableCatalog{}, release: make(chan struct{}), begun: make(chan struct{}, 100)}
	j.catalog.current.Store(s)
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	objects, err := durable.OpenObjects(t.Context(), db, "answers", object.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if j.tasks, err = task.Open(t.Context(), task.Config{Store: db, Catalog: j.catalog, Logger: log, Results: objects, MaxInlineBytes: 2000, MaxResultBytes: 8000}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.tasks.Close)
	j.chain(interceptors.Options{Logger: log}, func(_ any, ss grpc.ServerStream) error { return j.backend(ss) })
	conf := mcpadapter.Config{Catalog: j.catalog, Handler: func(ss grpc.ServerStream) error { return j.calls(ss) }, Logger: log, Tasks: j.tasks, Objects: objects, Version: "v0"}
	if change != nil {
		change(&conf)
	}
	j.fast = mcpadapter.New(conf)
	mcpadapter.SDKOnly(&conf)
	j.sdk = mcpadapter.New(conf)
	t.Cleanup(func() { _, _ = j.fast.Close(), j.sdk.Close() })
	return j
}

// chain makes the chain of calls, and that of runs, before final.
func (j *jobs) chain(o interceptors.Options, final grpc.StreamHandler) {
	o.Task = interceptors.TaskOptions{Submitter: j.tasks}
	policies := interceptors.Default(o)
	j.calls, j.runs = interceptors.Chain(final, policies...), interceptors.Chain(final, interceptors.Runs(policies, o)...)
}

func (j *jobs) start() *jobs {
	pool := j.tasks.Start(j.runs)
	j.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		pool.Drain(ctx)
	})
	return j
}

// backend does what the request says.
func (j *jobs) backend(ss grpc.ServerStream) error {
	m := call.FromContext(ss.Context()).Method
	f := &call.Frame{}
	if err := ss.RecvMsg(f); err != nil {
		return err
	}
	in, err := m.Request().AppendJSON(nil, f.Bytes(), transcode.WriteOptions{})
	if err != nil {
		return err
	}
	var ask struct{ Act string }
	if err := json.Unmarshal(in, &ask); err != nil {
		return err
	}
	if ask.Act != "" {
		j.made.Add(1)
	}
	send := func(reply string) error {
		wire, err := m.Response().AppendWire(nil, []byte(reply), transcode.ReadOptions{})
		if err != nil {
			return err
		}
		return ss.SendMsg(call.NewFrame(nil, wire))
	}
	given, err := given(ss)
	if err != nil {
		return err
	}
	switch ask.Act {
	case "two", "twice", "model", "maybe":
		if q := asksFor(ask.Act, given); q != nil {
			return q
		}
		return send(`{"text":` + strconv.Quote(said(given)) + `}`)
	case "wait":
		if err := j.hold(ss.Context()); err != nil {
			return err
		}
	case "fail":
		return call.Error(codes.FailedPrecondition, "NOT_NOW", "not now", "hint", "wait for the spring")
	case "ask": // waits, asks, and waits again with the answers
		if err := j.hold(ss.Context()); err != nil {
			return err
		}
		if given == nil {
			return askReason("state")
		}
	}
	switch m.Desc.Name() {
	case "Rows":
		for i := range 3 {
			if err := send(fmt.Sprintf(`{"text":"row %d"}`, i)); err != nil {
				return err
			}
		}
		return nil
	case "Show":
		wire, err := proto.Marshal(shown)
		if err != nil {
			return err
		}
		return ss.SendMsg(call.NewFrame(nil, wire))
	case "Text":
		return send(`"` + strings.Repeat("x", 200) + `"`)
	}
	if ask.Act == "large" {
		return send(`{"text":"` + strings.Repeat("y", 3000) + `"}`)
	}
	if ask.Act == "huge" {
		return send(`{"text":"` + strings.Repeat("z", 9000) + `"}`)
	}
	return send(`{"text":"done","rows":["a","b"]}`)
}

// hold says that a call has begun, and waits until it is released or cancelled.
func (j *jobs) hold(ctx context.Context) error {
	j.begun <- struct{}{}
	select {
	case <-j.release:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Client capabilities with and without the extension.
const (
	withTasks    = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	withoutTasks = `{"elicitation":{}}`
)

// ask sends one request of 2026-07-28 over HTTP and returns the answer's HTTP status and its result or error.
func ask(t *testing.T, a *mcpadapter.Adapter, method, params, capabilities string) (code int, result, failure map[string]any) {
	t.Helper()
	h := headerOf("2026-07-28", method, strings.Replace(params, `"taskId"`, `"name"`, 1), "application/json")
	text := exchanged(t.Context(), a, h, message("1", method, params, "-", modernMembers+capabilities))
	first, rest, _ := strings.Cut(text, "\n")
	var out struct{ Result, Error map[string]any }
	if _, err := fmt.Sscan(first, &code); err != nil {
		t.Fatal(err)
	}
	rest = strings.TrimSpace(rest)
	if err := json.Unmarshal([]byte(rest[strings.LastIndex(rest, "\n")+1:]), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return code, out.Result, out.Error
}

// create makes a task of a call and returns its id.
func (j *jobs) create(tool, act string) string {
	j.t.Helper()
	_, res, failure := ask(j.t, j.fast, "tools/call", `"name":"`+tool+`","arguments":{"act":"`+act+`"}`, withTasks)
	id, _ := res["taskId"].(string)
	if res["resultType"] != "task" || id == "" || res["content"] != nil || res["result"] != nil {
		j.t.Fatalf("%s answered with %v %v, want a task", tool, res, failure)
	}
	return id
}

// get asks for a task on the fast path.
func (j *jobs) get(id string) map[string]any {
	j.t.Helper()
	code, res, failure := ask(j.t, j.fast, "tasks/get", `"taskId":"`+id+`"`, withTasks)
	if code != http.StatusOK || res["resultType"] != "complete" || res["taskId"] != id {
		j.t.Fatalf("tasks/get = %d %v %v, want the task", code, res, failure)
	}
	return res
}

// answer gives a task answers.
func (j *jobs) answer(id, responses string) {
	j.t.Helper()
	if code, res, failure := ask(j.t, j.fast, "tasks/update", `"taskId":"`+id+`","inputResponses":`+responses, withTasks); code != http.StatusOK || res["resultType"] != "complete" || res["taskId"] != nil {
		j.t.Fatalf("tasks/update = %d %v %v, want it acknowledged", code, res, failure)
	}
}

// ended waits for the end of a task, and asks for it.
func (j *jobs) ended(id string) map[string]any {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	if err := j.tasks.Watch(ctx, identity.Anonymous, id, 0, func(task.Event) error { return nil }); err != nil {
		j.t.Fatal(err)
	}
	return j.get(id)
}

// TestTaskResults pins that the result in a task is the one that the call without a task gives, on both paths.
func TestTaskResults(t *testing.T) {
	j := newJobs(t, nil).start()
	for _, tool := range []string{"jobs_run", "jobs_rows", "jobs_show", "jobs_text"} {
		for _, act := range []string{"", "fail"} {
			t.Run(tool+"_"+act, func(t *testing.T) {
				_, plain, _ := ask(t, j.fast, "tools/call", `"name":"`+tool+`","arguments":{"act":"`+act+`"}`, withoutTasks)
				id := j.create(tool, act)
				got := j.ended(id)
				if got["status"] != "completed" || got["error"] != nil || got["pollIntervalMs"] != nil {
					t.Errorf("task = %v, want it completed", got)
				}
				want, have := bare(plain), bare(got["result"].(map[string]any))
				if want != have {
					t.Errorf("result of the task:\n%s\nof the call:\n%s", have, want)
				}
				h := headerOf("2026-07-28", "tasks/get", `"name":"`+id+`"`, "application/json")
				body := message("1", "tasks/get", `"taskId":"`+id+`"`, "-", modernMembers+withTasks)
				if fast, sdk := stored(exchanged(t.Context(), j.fast, h, body)), stored(exchanged(t.Context(), j.sdk, h, body)); fast != sdk {
					t.Errorf("the paths differ: fast\n%s\nSDK\n%s", fast, sdk)
				}
				if !j.fast.TakesFastPath(h, body) {
					t.Error("tasks/get does not take the fast path")
				}
			})
		}
	}
}

var ofObjects = regexp.MustCompile(`toolway://objects/[A-Za-z0-9_-]+|"(io.toolway/)?(expires|sha256)":"[^"]*"|until [0-9TZ:-]+`)

// stored is text without what is different for each object that is kept.
func stored(text string) string { return ofObjects.ReplaceAllString(text, "OBJECT") }

// bare is a result without what differs from call to call.
func bare(res map[string]any) string {
	meta, _ := res["_meta"].(map[string]any)
	delete(meta, "io.modelcontextprotocol/serverInfo")
	delete(meta, "io.toolway/call-id")
	if len(meta) == 0 {
		delete(res, "_meta")
	}
	raw, err := json.Marshal(res)
	if err != nil {
		return err.Error()
	}
	return stored(string(raw))
}

// TestTaskDecision pins which calls become tasks, and what clients are told that cannot take one.
func TestTaskDecision(t *testing.T) {
	j := newJobs(t, nil).start()
	for _, a := range []*mcpadapter.Adapter{j.fast, j.sdk} {
		for tool, want := range map[string]string{"jobs_run": "task", "jobs_must": "task", "jobs_may": "complete", "jobs_never": "complete"} {
			if _, res, failure := ask(t, a, "tools/call", `"name":"`+tool+`","arguments":{}`, withTasks); res["resultType"] != want {
				t.Errorf("%s of a client with tasks = %v %v, want %s", tool, res, failure, want)
			}
		}
		if _, res, _ := ask(t, a, "tools/call", `"name":"jobs_run","arguments":{}`, withoutTasks); res["resultType"] != "complete" || res["taskId"] != nil {
			t.Errorf("jobs_run of a client without tasks = %v, want an answer", res)
		}
		before := j.made.Load()
		code, res, failure := ask(t, a, "tools/call", `"name":"jobs_must","arguments":{"act":"x"}`, withoutTasks)
		if code != http.StatusBadRequest || failure["code"] != float64(-32021) || fmt.Sprint(failure["data"]) != "map[requiredCapabilities:map[extensions:map[io.modelcontextprotocol/tasks:map[]]]]" {
			t.Errorf("jobs_must of a client without tasks = %d %v %v, want -32021 with the extension", code, res, failure)
		}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			code, _, failure := ask(t, a, method, `"taskId":"x","inputResponses":{}`, withoutTasks)
			if code != http.StatusBadRequest || failure["code"] != float64(-32021) {
				t.Errorf("%s of a client without tasks = %d %v, want -32021", method, code, failure)
			}
		}
		h := headerOf("2025-11-25", "tools/call", "", "application/json")
		old := exchanged(t.Context(), a, h, message("1", "tools/call", `"name":"jobs_must","arguments":{"act":"x"}`, "-", ""))
		if !strings.Contains(old, `"isError":true`) || !strings.Contains(old, "TASK_REQUIRED") || !strings.Contains(old, "needs a client of protocol version 2026-07-28") {
			t.Errorf("jobs_must of an older client = %s, want a tool error that says what it takes", old)
		}
		if got := j.made.Load(); got != before {
			t.Errorf("%d calls came through, want none", got-before)
		}
	}
}

// TestTaskDiscovery pins that the extension is advertised to clients of 2026-07-28 alone, and only where there are tasks.
func TestTaskDiscovery(t *testing.T) {
	j, none := newJobs(t, nil), newJobs(t, func(c *mcpadapter.Config) { c.Tasks = nil })
	for i, a := range []*mcpadapter.Adapter{j.fast, j.sdk, none.fast, none.sdk} {
		_, res, _ := ask(t, a, "server/discover", "", withTasks)
		extensions, _ := res["capabilities"].(map[string]any)["extensions"].(map[string]any)
		if _, has := extensions["io.modelcontextprotocol/tasks"]; has != (i < 2) {
			t.Errorf("door %d advertises %v", i, extensions)
		}
		old := exchanged(t.Context(), a, headerOf("", "initialize", "", "application/json"),
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
		if !strings.Contains(old, `"capabilities"`) || strings.Contains(old, "extensions") {
			t.Errorf("door %d tells an older client %s", i, old)
		}
	}
	for _, a := range []*mcpadapter.Adapter{none.fast, none.sdk} {
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			if code, _, failure := ask(t, a, method, `"taskId":"x","inputResponses":{}`, withTasks); code != http.StatusNotFound || failure["code"] != float64(-32601) {
				t.Errorf("%s without tasks = %d %v, want -32601", method, code, failure)
			}
		}
	}
	for _, a := range []*mcpadapter.Adapter{j.fast, j.sdk} {
		for _, method := range []string{"tasks/list", "tasks/result"} {
			if code, _, failure := ask(t, a, method, `"taskId":"x"`, withTasks); code != http.StatusNotFound || failure["code"] != float64(-32601) {
				t.Errorf("%s = %d %v, want -32601", method, code, failure)
			}
		}
		old := exchanged(t.Context(), a, headerOf("2025-11-25", "tasks/get", "", "application/json"), []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}`))
		if !strings.Contains(old, "-32601") {
			t.Errorf("tasks/get of an older client = %s, want -32601", old)
		}
	}
}

// TestTaskRequests pins what is answered to requests about tasks, right and wrong, the same on both paths.
func TestTaskRequests(t *testing.T) {
	j := newJobs(t, nil)
	id := j.create("jobs_run", "wait") // nobody works: it waits
	for _, r := range []struct {
		method, params, header string
		status                 int
		want                   string
	}{
		{"tasks/get", `"taskId":"` + id + `"`, id, 200, `"status":"working"`},
		{"tasks/get", `"taskId":"` + id + `"`, "=?base64?" + "eA==" + "?=", 400, `-32020`},
		{"tasks/get", `"taskId":"` + id + `"`, "other", 400, `-32020`},
		{"tasks/get", `"taskId":"` + id + `"`, "", 400, `-32020`},
		{"tasks/cancel", `"taskId":"` + id + `"`, "other", 400, `-32020`},
		{"tasks/update", `"taskId":"` + id + `","inputResponses":{}`, "other", 400, `-32020`},
		{"tasks/get", `"taskId":"` + strings.Repeat("0", 32) + `"`, strings.Repeat("0", 32), 400, `-32602`},
		{"tasks/get", `"taskId":"nobody's"`, "nobody's", 400, `-32602`},
		{"tasks/get", `"taskId":7`, "", 400, `-32602`},
		{"tasks/get", `"taskId":""`, "", 400, `-32602`},
		{"tasks/get", ``, "", 400, `-32602`},
		{"tasks/get", `"taskId":"` + id + `","other":1`, id, 200, `"status":"working"`},
		{"tasks/update", `"taskId":"` + id + `","inputResponses":{"unknown":{"action":"accept"}}`, id, 200, `"resultType":"complete"`},
		{"tasks/update", `"taskId":"` + id + `"`, id, 400, `-32602`},
		{"tasks/update", `"taskId":"nobody's","inputResponses":{}`, "nobody's", 400, `-32602`},
		{"tasks/cancel", `"taskId":"nobody's"`, "nobody's", 400, `-32602`},
		{"tasks/cancel", `"taskId":"` + id + `"`, id, 200, `"resultType":"complete"`},
		{"tasks/cancel", `"taskId":"` + id + `"`, id, 200, `"resultType":"complete"`},
		{"tasks/get", `"taskId":"` + id + `"`, id, 200, `"status":"cancelled"`},
	} {
		h := headerOf("2026-07-28", r.method, "", "application/json, text/event-stream")
		if r.header != "" {
			h.Set("Mcp-Name", r.header)
		}
		body := message("1", r.method, r.params, "-", modernMembers+withTasks)
		fast, sdk := exchanged(t.Context(), j.fast, h, body), exchanged(t.Context(), j.sdk, h, body)
		if fast != sdk {
			t.Errorf("%s: the paths differ: fast\n%s\nSDK\n%s", body, fast, sdk)
		}
		if !strings.HasPrefix(fast, fmt.Sprintln(r.status)) || !strings.Contains(fast, r.want) {
			t.Errorf("%s with Mcp-Name %q = %s, want %d and %s", body, r.header, fast, r.status, r.want)
		}
		if strings.Contains(fast, "requestState") || r.method != "tasks/get" && strings.Contains(fast, `"status"`) {
			t.Errorf("%s = %s, want nothing but what was asked for", body, fast)
		}
	}
	if got := j.made.Load(); got != 0 {
		t.Errorf("%d calls were made, want none", got)
	}
}

// TestTaskLifetime pins the members of a task while it runs and when it is cancelled at the backend.
func TestTaskLifetime(t *testing.T) {
	j := newJobs(t, nil).start()
	id := j.create("jobs_must", "wait")
	await(t, "the call at the backend", j.begun)
	got := j.get(id)
	created, err := time.Parse(time.RFC3339, fmt.Sprint(got["createdAt"]))
	if ttl, _ := got["ttlMs"].(float64); err != nil || time.Since(created) > time.Hour || ttl < float64(time.Hour/time.Millisecond) || got["status"] != "working" || got["lastUpdatedAt"] == nil || got["pollIntervalMs"] != float64(500) || got["result"] != nil {
		t.Errorf("task that runs = %v", got)
	}
	if code, res, failure := ask(t, j.fast, "tasks/cancel", `"taskId":"`+id+`"`, withTasks); code != 200 || res["resultType"] != "complete" || res["taskId"] != nil {
		t.Errorf("tasks/cancel = %d %v %v", code, res, failure)
	}
	if got := j.ended(id); got["status"] != "cancelled" || got["result"] != nil || got["error"] != nil {
		t.Errorf("cancelled task = %v", got)
	}
}

// TestTaskWithoutResult pins what becomes of tasks that have no result which a call could have: MCP's "failed", and of answers that are too large.
func TestTaskWithoutResult(t *testing.T) {
	j := newJobs(t, nil).start()
	for act, want := range map[string]string{"large": "too large for a result", "huge": "more than tasks keep"} {
		got := j.ended(j.create("jobs_run", act))
		raw, _ := json.Marshal(got["result"])
		if got["status"] != "completed" || !strings.Contains(string(raw), want) || !strings.Contains(string(raw), `"isError":true`) || strings.Contains(string(raw), "resource_link") != (act == "large") {
			t.Errorf("task with a %s answer = %s", act, raw)
		}
	}
	id := j.create("jobs_run", "")
	if got := j.ended(id); got["status"] != "completed" {
		t.Errorf("task = %v", got)
	}
	j.catalog.current.Store(snapshotOf(t, shopProto))
	if got := j.get(id); got["status"] != "failed" || !strings.Contains(fmt.Sprint(got["error"]), "no longer in the catalog") {
		t.Errorf("task whose tool has gone = %v, want it failed", got)
	}
}

// TestTaskOwners pins that a task is its maker's alone, on both paths and over subscriptions.
func TestTaskOwners(t *testing.T) {
	keys := map[string]string{}
	var conf identity.Config
	for _, name := range []string{"ann", "bob"} {
		key, hash := identity.NewAPIKey()
		keys[name] = key
		conf.APIKeys = append(conf.APIKeys, identity.APIKey{Name: name, SHA256: hash})
	}
	auth, err := identity.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auth.Close)
	j := newJobs(t, func(c *mcpadapter.Config) { c.Authenticator, c.Resource = auth, &identity.Resource{} })
	send := func(a *mcpadapter.Adapter, who, method, params, name string) string {
		h := headerOf("2026-07-28", method, "", "application/json")
		h.Set("Mcp-Name", name)
		h.Set("X-Api-Key", keys[who])
		return exchanged(t.Context(), a, h, message("1", method, params, "-", modernMembers+withTasks))
	}
	made := send(j.fast, "ann", "tools/call", `"name":"jobs_run","arguments":{}`, "jobs_run")
	_, id, _ := strings.Cut(made, `"taskId":"`)
	id, _, _ = strings.Cut(id, `"`)
	if id == "" {
		t.Fatalf("no task: %s", made)
	}
	for _, a := range []*mcpadapter.Adapter{j.fast, j.sdk} {
		if got := send(a, "ann", "tasks/get", `"taskId":"`+id+`"`, id); !strings.Contains(got, `"status":"working"`) {
			t.Errorf("ann's own task = %s", got)
		}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			if got := send(a, "bob", method, `"taskId":"`+id+`","inputResponses":{}`, id); !strings.Contains(got, "-32602") {
				t.Errorf("%s of ann's task by bob = %s, want -32602", method, got)
			}
		}
	}
	if got := send(j.fast, "ann", "tasks/get", `"taskId":"`+id+`"`, id); !strings.Contains(got, `"status":"working"`) {
		t.Errorf("ann's task after bob = %s", got)
	}
}

// listen subscribes to tasks over one transport, and returns what waits for the next message. Everything ends with the test.
func (j *jobs) listen(t *testing.T, stdio bool, ids ...string) (hear func() string) {
	t.Helper()
	raw, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	listen := string(message(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":`+string(raw)+`}`, "-", modernMembers+withTasks))
	w := &world{t: t, adapter: j.fast}
	messages := make(chan string, 100)
	var lines *bufio.Scanner
	var stop func()
	if stdio {
		k := w.talk(t.Context())
		k.say(listen)
		lines, stop = k.lines, func() { _ = k.in.Close() }
	} else {
		ctx, cancel := context.WithCancel(t.Context())
		res := post(ctx, t, w.serve(), listen, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
		lines, stop = bufio.NewScanner(res.Body), func() { cancel(); _ = res.Body.Close() }
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(messages)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok || stdio && data != "" {
				messages <- data
			}
		}
	})
	t.Cleanup(func() { stop(); reading.Wait() })
	return func() string { t.Helper(); return await(t, "a message of the subscription", messages) }
}

// TestTaskNotifications pins notifications/tasks over both transports: what is acknowledged, the status at first, each one after it, and the one at the
// end with its result.
func TestTaskNotifications(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdio=%v", stdio), func(t *testing.T) {
			j := newJobs(t, nil).start()
			id := j.create("jobs_run", "ask")
			await(t, "the call at the backend", j.begun)
			hear := j.listen(t, stdio, id, strings.Repeat("0", 32), id)
			const subscription = `"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}`
			if got, want := hear(), `"notifications":{"taskIds":["`+id+`"]}`; !strings.Contains(got, want) || !strings.Contains(got, subscription) {
				t.Errorf("acknowledgement = %s, want %s", got, want)
			}
			of := `"method":"notifications/tasks","params":{` + subscription + `,"taskId":"` + id + `","status":`
			wants := func(members ...string) {
				t.Helper()
				got := hear()
				for _, want := range append(members, of) {
					if !strings.Contains(got, want) {
						t.Fatalf("notification = %s, want %s in it", got, want)
					}
				}
			}
			wants(of + `"working"`)
			j.release <- struct{}{}
			wants(of+`"input_required"`, `"inputRequests":{"reason":{"method":"elicitation/create","params":{"mode":"form","message":"Why?"`)
			j.answer(id, `{"reason":{"action":"accept","content":{"reason":"spring"}}}`)
			wants(of + `"working"`)
			await(t, "the call with the answers", j.begun)
			j.release <- struct{}{}
			wants(of+`"completed"`, `"result":{"content":`)
		})
	}
	j := newJobs(t, nil)
	listen := `"notifications":{"taskIds":["x"]}`
	h := headerOf("2026-07-28", "subscriptions/listen", "", "application/json, text/event-stream")
	if got := exchanged(t.Context(), j.fast, h, message("1", "subscriptions/listen", listen, "-", modernMembers+withoutTasks)); !strings.Contains(got, "-32021") {
		t.Errorf("taskIds of a client without tasks = %s, want -32021", got)
	}
	if got := exchanged(t.Context(), j.fast, h, message("1", "subscriptions/listen", `"notifications":{"taskIds":7}`, "-", modernMembers+withTasks)); !strings.Contains(got, "-32602") {
		t.Errorf("taskIds that are no list = %s, want -32602", got)
	}
}
