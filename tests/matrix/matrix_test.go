// Package matrix_test holds the matrix: door × call kind × what can happen to a call, before the built binary. The row of doors begins
// with "direct", the backend without a mesh, which shows what right is.
package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

var (
	server  = probe.New()
	backend string
	// mesh has the defaults; hasty gives no call more than haste.
	mesh, hasty *meshes
)

// haste is time enough to reach the backend on a loaded machine, and what every test of TestDeadlineOfMesh has to wait.
const haste = 2 * time.Second

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if code == 0 && err == nil {
		// The backend is in this process: a handler that is left is a call that the mesh did not end.
		http.DefaultClient.CloseIdleConnections()
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	if err := run.Prepare(); err != nil {
		return 1, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1, err
	}
	backend = l.Addr().String()
	g, err := server.NewGRPC(probe.Both)
	if err != nil {
		return 1, err
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer func() {
		g.Stop()
		err = errors.Join(err, <-served)
	}()
	if mesh, err = open("--backend", "probe="+backend); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, mesh.close()) }()
	dir, err := os.MkdirTemp("", "toolway-matrix")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "toolway.yaml")
	config := fmt.Sprintf("backends:\n  - name: probe\n    targets: [%[1]q]\ndeadline:\n  default: %[2]s\n  max: %[2]s\n  stream_max: %[2]s\n", backend, haste)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return 1, err
	}
	if hasty, err = open("--config", file); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, hasty.close()) }()
	return m.Run(), nil
}

// meshes are toolway serve, and toolway mcp for a client of the old protocol and one of the new, all with the same arguments.
type meshes struct {
	*run.Mesh
	stdio []*agent.Stdio
}

func open(args ...string) (*meshes, error) {
	serve, err := run.Serve(args...)
	if err != nil {
		return nil, err
	}
	ms := &meshes{Mesh: serve}
	bin, err := run.Toolway()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), run.Patience)
	defer cancel()
	for _, v := range []string{agent.V20251125, agent.V20260728} {
		a, err := agent.NewStdio(v, nil, nil, bin, append([]string{"mcp"}, args...)...)
		if err != nil {
			return nil, err
		}
		ms.stdio = append(ms.stdio, a)
		if err := a.Initialize(ctx); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

func (ms *meshes) close() error {
	err := ms.Stop()
	for _, a := range ms.stdio {
		if closeErr := a.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("toolway mcp: %w\n%s", closeErr, a.Stderr()))
		}
	}
	return err
}

// doors are the ways to the probe through m, and the direct one.
func doors(t *testing.T, m *meshes) []door {
	connect := func(version string) func(ctx context.Context) (agent.Requester, error) {
		return func(ctx context.Context) (agent.Requester, error) {
			c, err := agent.NewHTTP(ctx, m.URL("/mcp"), version, nil)
			if err != nil {
				return nil, err
			}
			t.Cleanup(c.Close)
			return c, nil
		}
	}
	ds := []door{grpcDoor("direct", run.Dial(t, backend))}
	ds = append(ds, grpcDoor("grpc", run.Dial(t, m.GRPC)), httpDoor(t, "http://"+m.HTTP))
	for _, v := range []string{agent.V20250618, agent.V20251125, agent.V20260728} {
		ds = append(ds, mcpDoor("mcp "+v, connect(v)))
	}
	for _, a := range m.stdio {
		ds = append(ds, mcpDoor("stdio "+a.Version, func(context.Context) (agent.Requester, error) { return a, nil }))
	}
	return ds
}

type cell func(ctx context.Context, t *testing.T, d door, k kind, id string)

// each runs f for every door and kind, side by side.
func each(t *testing.T, m *meshes, f cell) {
	cells(t, m, func(t *testing.T, run func()) {
		t.Parallel()
		run()
	}, f)
}

// inTurn runs f for every door and kind, one after the other.
func inTurn(t *testing.T, m *meshes, f cell) {
	cells(t, m, func(_ *testing.T, run func()) { run() }, f)
}

func cells(t *testing.T, m *meshes, how func(t *testing.T, run func()), f cell) {
	m.Explain(t)
	for _, d := range doors(t, m) {
		for _, k := range kinds {
			t.Run(d.name+"/"+string(k), func(t *testing.T) {
				how(t, func() {
					ctx, cancel := context.WithTimeout(context.Background(), run.Patience)
					defer cancel()
					f(ctx, t, d, k, strings.ReplaceAll(t.Name(), "/", "-"))
				})
			})
		}
	}
}

func mustCall(ctx context.Context, t *testing.T, d door, k kind, a ask) outcome {
	t.Helper()
	o, err := d.call(ctx, k, a)
	if err != nil {
		t.Fatalf("%s through %s: %v", k, d.name, err)
	}
	return o
}

func mustSee(ctx context.Context, t *testing.T, id string) *probe.Call {
	t.Helper()
	c, err := server.Call(ctx, id)
	if err != nil {
		t.Fatalf("the backend did not see call %q: %v", id, err)
	}
	return c
}

func TestOK(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{"é", "\"two\"", ""}, plan: &probev1.Plan{Count: 3}})
		if o.code != codes.OK {
			t.Fatalf("status = %v %q, want OK", o.code, o.message)
		}
		want := map[kind][]string{
			unary: {"é,\"two\","}, serverStream: {"é,\"two\",", "é,\"two\",", "é,\"two\","},
			clientStream: {"é,\"two\","}, bidi: {"é", "\"two\"", ""},
		}[k]
		if got := o.texts(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("replies = %q, want %q", got, want)
		}
		if r, ok := o.replies[0].(*probev1.AskResponse); ok && r.GetNumber() != 1<<62+1 {
			t.Errorf("number = %d, want %d", r.GetNumber(), 1<<62+1)
		}
		for i, r := range o.replies {
			if r, ok := r.(interface{ GetIndex() int32 }); ok && r.GetIndex() != int32(i) {
				t.Errorf("reply %d has index %d", i, r.GetIndex())
			}
		}
		if o.http != 0 && o.http != 200 {
			t.Errorf("HTTP status = %d, want 200", o.http)
		}
	})
}

func TestErrorWithDetails(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{"a", "b"}, plan: &probev1.Plan{Count: 2, Code: int32(codes.NotFound)}})
		if o.code != codes.NotFound || !strings.Contains(o.message, "the plan says so: \"quoted\", ümläut") {
			t.Errorf("status = %v %q, want NotFound and the backend's message", o.code, o.message)
		}
		if o.reason != "PLANNED" {
			t.Errorf("reason = %q, want PLANNED", o.reason)
		}
		if len(o.fields) != 1 || o.fields[0] != "text" {
			t.Errorf("fields = %q, want [text]", o.fields)
		}
		if o.retry != 3*time.Second {
			t.Errorf("retry delay = %v, want 3s", o.retry)
		}
		if k.streamsResponses() && len(o.replies) != 2 {
			t.Errorf("%d replies came before the error, want 2", len(o.replies))
		}
		if o.http != 0 && !k.streamsResponses() && o.http != 404 {
			t.Errorf("HTTP status = %d, want 404", o.http)
		}
	})
}

// An error before the first message of a stream has the HTTP status that it deserves.
func TestErrorBeforeFirstMessage(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		if k != serverStream {
			return
		}
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Code: int32(codes.PermissionDenied)}})
		if o.code != codes.PermissionDenied || len(o.replies) != 0 {
			t.Errorf("status = %v with %d replies, want PermissionDenied with none", o.code, len(o.replies))
		}
		if o.http != 0 && o.http != 403 {
			t.Errorf("HTTP status = %d, want 403", o.http)
		}
	})
}

func TestDeadlineOfCaller(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		if !d.deadline {
			return // MCP has no field for a deadline; see TestDeadlineOfMesh
		}
		const timeout = 2 * time.Second
		latest := time.Now().Add(timeout)
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Count: 1, Hang: true}, timeout: timeout})
		if o.code != codes.DeadlineExceeded {
			t.Errorf("status = %v %q, want DeadlineExceeded", o.code, o.message)
		}
		c := mustSee(ctx, t, id)
		if c.Deadline.IsZero() || c.Deadline.After(latest.Add(timeout)) {
			t.Errorf("the backend's deadline is %v, want at most %v", c.Deadline, latest)
		}
		if o.http != 0 && !k.streamsResponses() && o.http != 504 {
			t.Errorf("HTTP status = %d, want 504", o.http)
		}
		await(t, c.Done, "the end of the call at the backend")
	})
}

func TestDeadlineOfMesh(t *testing.T) {
	t.Parallel()
	each(t, hasty, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		if d.name == "direct" {
			return
		}
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Count: 1, Hang: true}})
		if o.code != codes.DeadlineExceeded {
			t.Errorf("status = %v %q, want DeadlineExceeded", o.code, o.message)
		}
		if k.streamsResponses() && len(o.replies) != 1 {
			t.Errorf("%d replies came before the deadline, want 1", len(o.replies))
		}
		c := mustSee(ctx, t, id)
		if c.Deadline.IsZero() {
			t.Error("the backend was told no deadline")
		}
		await(t, c.Done, "the end of the call at the backend")
	})
}

// A unary call that brings no deadline gets the default one; a stream may go on.
func TestDefaultDeadline(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		if d.name == "direct" || d.name == "grpc" {
			return // this client's context has a deadline
		}
		mustCall(ctx, t, d, k, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Count: 1}})
		c := mustSee(ctx, t, id)
		if !k.streamsRequests() && !k.streamsResponses() {
			if left := time.Until(c.Deadline); c.Deadline.IsZero() || left > time.Minute {
				t.Errorf("the backend's deadline is %v, want the default of a minute", c.Deadline)
			}
		} else if !c.Deadline.IsZero() {
			t.Errorf("the backend's deadline is %v, want none", c.Deadline)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		caller, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = d.call(caller, k, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Count: 1, Hang: true}})
		}()
		c := mustSee(ctx, t, id)
		cancel()
		start := time.Now()
		await(t, c.Done, "the end of the call at the backend")
		t.Logf("cancelled at the backend after %v", time.Since(start))
		if c.Err == nil {
			t.Error("the backend's context did not end")
		}
		await(t, ended, "the end of the call at the caller")
	})
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(run.Patience):
		t.Fatalf("%s did not come in %v", what, run.Patience)
	}
}

func TestLargeMessage(t *testing.T) {
	t.Parallel()
	const size = 4_000_000
	inTurn(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		text := strings.Repeat("ü", size/2)
		o := mustCall(ctx, t, d, k, ask{id: id, texts: []string{text}, plan: &probev1.Plan{Count: 1}})
		if k.streamsResponses() && d.stream < size {
			// The result of a stream is bounded for a model's sake; a message that alone is above the bound is refused.
			if o.code != codes.ResourceExhausted {
				t.Errorf("status = %v %q, want ResourceExhausted", o.code, o.message)
			}
			return
		}
		if o.code != codes.OK {
			t.Fatalf("status = %v %.300q, want OK", o.code, o.message)
		}
		if got := o.texts(); len(got) != 1 || got[0] != text {
			t.Errorf("%d replies, the text is not what was sent", len(got))
		}
	})
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	each(t, mesh, func(ctx context.Context, t *testing.T, d door, k kind, id string) {
		a := ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Count: 1, Unknown: true}}
		if d.wire {
			a.unknown = probe.Unknown()
		}
		o := mustCall(ctx, t, d, k, a)
		if o.code != codes.OK || len(o.replies) != 1 {
			t.Fatalf("status = %v %q, %d replies, want OK and one", o.code, o.message, len(o.replies))
		}
		if got := o.texts()[0]; got != "a" {
			t.Errorf("text = %q, want %q", got, "a")
		}
		if !d.wire {
			return // JSON has no unknown fields; that they do no harm is all there is to say
		}
		if got := string(mustSee(ctx, t, id).Unknown); got != string(probe.Unknown()) {
			t.Errorf("the backend got the unknown fields %q, want %q", got, probe.Unknown())
		}
		if got := string(o.replies[0].ProtoReflect().GetUnknown()); got != string(probe.Unknown()) {
			t.Errorf("the caller got the unknown fields %q, want %q", got, probe.Unknown())
		}
	})
}
