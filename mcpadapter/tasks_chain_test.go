package mcpadapter_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/mcpadapter"
)

// records keeps the audit of a chain.
type records struct {
	mu  sync.Mutex
	all []*toolwayv1.AuditRecord
}

// Record keeps r.
func (r *records) Record(_ context.Context, rec audit.Record) error {
	one, err := rec.Decode()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
	return nil
}

// taken returns what was recorded since it was last asked, a line each: method, principal, code, reason, what authorise has decided.
func (r *records) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, one := range r.all {
		line := fmt.Sprintf("%s %s %s %s", one.GetMethod(), one.GetPrincipal(), one.GetCode(), one.GetReason())
		if one.GetDoor() != "mcp" || one.GetCallId() == "" {
			line += fmt.Sprintf(" by door %q as call %q", one.GetDoor(), one.GetCallId())
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	r.all = nil
	return lines
}

// office is a door before the backend of jobs and the mesh's own API, with everybody's key.
type office struct {
	*jobs
	records *records
	keys    map[string]string
}

// newOffice starts it: "ann" and "bob" may do everything, "eve" may make and read tasks.
func newOffice(t *testing.T, rules []catalog.Rule, limits interceptors.LimitOptions) *office {
	t.Helper()
	var conf identity.Config
	o := &office{records: &records{}, keys: map[string]string{}}
	for _, name := range []string{"ann", "bob", "eve"} {
		key, hash := identity.NewAPIKey()
		o.keys[name] = key
		scopes := []string{"jobs", "tasks.read", "tasks.write"}
		if name == "eve" {
			scopes = scopes[:2]
		}
		conf.APIKeys = append(conf.APIKeys, identity.APIKey{Name: name, SHA256: hash, Scopes: scopes})
	}
	auth, err := identity.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auth.Close)
	o.jobs = newJobs(t, func(c *mcpadapter.Config) { c.Authenticator, c.Resource = auth, &identity.Resource{} })
	raw, err := proto.Marshal(compile(t, jobsProto))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jobs.binpb")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	contract, err := meshapi.Contract()
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalog.Open(t.Context(), catalog.Config{Rules: rules, Backends: []catalog.BackendConfig{
		{Name: "toolway", Sources: []catalog.Source{catalog.CompiledIn(contract...)}}, {Name: "jobs", Sources: []catalog.Source{catalog.File(path)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cat.Close() })
	o.catalog.current.Store(cat.Snapshot())
	local := backend.NewLocal()
	meshapi.RegisterTasks(local, meshapi.TaskOptions{Tasks: o.tasks, Snapshot: o.catalog.Snapshot, Handler: func(s grpc.ServerStream) error { return o.calls(s) }})
	router := backend.New(nil, map[string]*backend.Local{"toolway": local}, backend.Options{})
	o.chain(interceptors.Options{Logger: slog.New(slog.DiscardHandler), Authenticator: auth, Limits: limits, Audit: interceptors.AuditOptions{Sink: o.records}}, func(srv any, ss grpc.ServerStream) error {
		if call.FromContext(ss.Context()).Method.Service.Mesh {
			return router.Handle(srv, ss)
		}
		return o.backend(ss)
	})
	o.start()
	return o
}

// send sends a request by somebody over HTTP, and returns what came.
func (o *office) send(a *mcpadapter.Adapter, who, method, params, name string) string {
	h := headerOf("2026-07-28", method, "", "application/json, text/event-stream")
	h.Set("Mcp-Name", name)
	h.Set("X-Api-Key", o.keys[who])
	return exchanged(o.t.Context(), a, h, message("1", method, params, "-", modernMembers+withTasks))
}

// make makes a task that asks, and returns its id when it does.
func (o *office) make(t *testing.T, who string) string {
	t.Helper()
	made := o.send(o.fast, who, "tools/call", `"name":"jobs_run","arguments":{"act":"two"}`, "jobs_run")
	_, id, _ := strings.Cut(made, `"taskId":"`)
	if id, _, _ = strings.Cut(id, `"`); id == "" {
		t.Fatalf("no task: %s", made)
	}
	o.asks(&identity.Principal{ID: "key:" + who}, id, 1)
	o.records.taken()
	return id
}

const (
	getting    = "toolway.v1.TaskService/GetTask"
	providing  = "toolway.v1.TaskService/ProvideTaskInput"
	cancelling = "toolway.v1.TaskService/CancelTask"
)

// TestTaskPassesTheChain pins that tasks/get, tasks/update and tasks/cancel are calls of the mesh's own API to every policy, on both paths: each leaves
// the record of the method that it is, is authorised as that, and of another's task learns and changes nothing.
func TestTaskPassesTheChain(t *testing.T) {
	write := []string{"tasks.write"}
	o := newOffice(t, []catalog.Rule{
		{Methods: []string{"jobs.v1.*"}, Scopes: []string{"jobs"}},
		{Methods: []string{getting}, Scopes: []string{"tasks.read"}}, {Methods: []string{providing, cancelling}, Scopes: write},
	}, interceptors.LimitOptions{})
	const partial = `,"inputResponses":{"name":{"action":"accept"}}`
	for i, a := range []*mcpadapter.Adapter{o.fast, o.sdk} {
		t.Run([]string{"fast", "sdk"}[i], func(t *testing.T) {
			anns, eves := o.make(t, "ann"), o.make(t, "eve")
			for _, r := range []struct {
				who, method, id, more string
				want, record          string
			}{
				{"ann", "tasks/get", anns, "", `"status":"input_required"`, getting + " key:ann OK"},
				{"bob", "tasks/get", anns, "", `-32602`, getting + " key:bob NOT_FOUND TASK_NOT_FOUND"},
				{"bob", "tasks/update", anns, partial, `-32602`, providing + " key:bob NOT_FOUND TASK_NOT_FOUND"},
				{"bob", "tasks/cancel", anns, "", `-32602`, cancelling + " key:bob NOT_FOUND TASK_NOT_FOUND"},
				{"bob", "tasks/get", strings.Repeat("0", 32), "", `-32602`, getting + " key:bob NOT_FOUND TASK_NOT_FOUND"},
				{"ann", "tasks/get", anns, "", `"inputRequests":{"name":`, getting + " key:ann OK"},
				{"ann", "tasks/update", anns, partial, `"resultType":"complete"`, providing + " key:ann OK"},
				{"ann", "tasks/update", anns, `,"inputResponses":{"reason":1}`, `params.inputResponses.reason`, providing + " key:ann INVALID_ARGUMENT INPUT_INVALID"},
				{"ann", "tasks/update", anns, `,"inputResponses":{"shape":{}}`, `"io.toolway/ignored":["shape"]`, providing + " key:ann INVALID_ARGUMENT TASK_NOT_ASKED"},
				{"ann", "tasks/get", anns, "", `"inputRequests":{"reason":`, getting + " key:ann OK"},
				{"ann", "tasks/cancel", anns, "", `"resultType":"complete"`, cancelling + " key:ann OK"},
				{"ann", "tasks/get", anns, "", `"status":"cancelled"`, getting + " key:ann OK"},
				{"ann", "tasks/update", anns, partial, `"io.toolway/ignored":["name"]`, providing + " key:ann FAILED_PRECONDITION TASK_NEEDS_NO_INPUT"},
				// Eve may read her task, and no more.
				{"eve", "tasks/update", eves, partial, `"reason":"INSUFFICIENT_SCOPE"`, providing + " key:eve PERMISSION_DENIED INSUFFICIENT_SCOPE"},
				{"eve", "tasks/cancel", eves, "", `"reason":"INSUFFICIENT_SCOPE"`, cancelling + " key:eve PERMISSION_DENIED INSUFFICIENT_SCOPE"},
				{"eve", "tasks/get", eves, "", `"inputRequests":{"name":`, getting + " key:eve OK"},
			} {
				got := o.send(a, r.who, r.method, `"taskId":"`+r.id+`"`+r.more, r.id)
				if !strings.Contains(got, r.want) {
					t.Errorf("%s %s by %s = %s, want %s", r.method, r.more, r.who, got, r.want)
				}
				if records := o.records.taken(); fmt.Sprint(records) != "["+r.record+"]" {
					t.Errorf("%s %s by %s left the records %q, want %q", r.method, r.more, r.who, records, r.record)
				}
			}
			unknown, others := o.send(a, "bob", "tasks/get", `"taskId":"`+strings.Repeat("0", 32)+`"`, strings.Repeat("0", 32)), o.send(a, "bob", "tasks/get", `"taskId":"`+anns+`"`, anns)
			if strings.ReplaceAll(others, anns, strings.Repeat("0", 32)) != unknown {
				t.Errorf("another's task = %s, want what an unknown one is: %s", others, unknown)
			}
			if got := o.send(a, "nobody", "tasks/get", `"taskId":"`+anns+`"`, anns); !strings.HasPrefix(got, "401") {
				t.Errorf("a task without credentials = %s, want 401", got)
			}
			o.records.taken()
		})
	}
}

// TestTaskLimitsHold pins that rate limits of the mesh's own API hold for requests about tasks.
func TestTaskLimitsHold(t *testing.T) {
	o := newOffice(t, nil, interceptors.LimitOptions{Method: func(m *catalog.Method) interceptors.RateLimit {
		if m.Service.Mesh {
			return interceptors.RateLimit{PerSecond: 1e-6, Burst: 2} // one for each path
		}
		return interceptors.RateLimit{}
	}})
	id := o.make(t, "ann")
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		for i, a := range []*mcpadapter.Adapter{o.fast, o.sdk, o.fast, o.sdk} {
			got := o.send(a, "ann", method, `"taskId":"`+id+`","inputResponses":{}`, id)
			if limited := strings.Contains(got, "RESOURCE_EXHAUSTED"); limited != (i >= 2) {
				t.Errorf("%s, request %d = %s, want it refused: %v", method, i, got, i >= 2)
			}
		}
	}
}

// TestTaskServiceNotExposed pins that what the operator does not expose to MCP is not there by another name.
func TestTaskServiceNotExposed(t *testing.T) {
	doors := catalog.DoorGRPC
	o := newOffice(t, []catalog.Rule{{Methods: []string{"toolway.v1.TaskService"}, Doors: &doors}}, interceptors.LimitOptions{})
	id := o.make(t, "ann")
	for _, a := range []*mcpadapter.Adapter{o.fast, o.sdk} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if got := o.send(a, "ann", method, `"taskId":"`+id+`","inputResponses":{"name":{"action":"accept"}}`, id); !strings.HasPrefix(got, "404") || !strings.Contains(got, "-32601") {
				t.Errorf("%s = %s, want -32601", method, got)
			}
		}
	}
	if got, err := o.tasks.Get(t.Context(), &identity.Principal{ID: "key:ann"}, id); err != nil || got.State != "input_required" || got.CancelRequested {
		t.Errorf("task %+v, %v: want it untouched", got, err)
	}
}
