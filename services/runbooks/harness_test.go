package runbooks_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/runbooks"
)

// patience is how long a test waits for what must happen; it is not reached unless something is broken.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // the index's workers start when its package is loaded, and have no stop
}

// folder makes a folder of files, given as pairs of path and text.
func folder(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i+1 < len(files); i += 2 {
		write(t, dir, files[i], files[i+1])
	}
	return dir
}

func write(t testing.TB, dir, path, text string) {
	t.Helper()
	full := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// open opens a folder that is looked at often, until the test ends.
func open(t testing.TB, dir string, options runbooks.Options) *runbooks.Library {
	t.Helper()
	options.Poll, options.Settle = 10*time.Millisecond, 10*time.Millisecond
	library, err := runbooks.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := library.Close(); err != nil {
			t.Error(err)
		}
	})
	return library
}

// start serves a folder on an in-memory listener and returns a client. Everything stops when the test ends.
func start(t testing.TB, dir string, options runbooks.Options) (runbooksv1.RunbookServiceClient, *runbooks.Server) {
	t.Helper()
	service := runbooks.NewServer(open(t, dir, options), nil)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:runbooks",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		service.Drain()
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return runbooksv1.NewRunbookServiceClient(conn), service
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually asks until ok, for what a look at the folder decides.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// names lists every runbook's.
func names(t testing.TB, client runbooksv1.RunbookServiceClient) []string {
	t.Helper()
	resp, err := client.ListRunbooks(within(t), &runbooksv1.ListRunbooksRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range resp.Runbooks {
		out = append(out, strings.TrimPrefix(r.Name, "runbooks/"))
	}
	return out
}

func get(t testing.TB, client runbooksv1.RunbookServiceClient, name string) *runbooksv1.Runbook {
	t.Helper()
	r, err := client.GetRunbook(within(t), &runbooksv1.GetRunbookRequest{Name: "runbooks/" + name})
	if err != nil {
		t.Fatalf("GetRunbook(%q): %v", name, err)
	}
	return r
}

// detail returns the first detail of type T in err's status.
func detail[T any](err error) (T, bool) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok {
			return d, true
		}
	}
	var none T
	return none, false
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("code = %v, want %v (%v)", got, want, err)
	}
}

// wantField wants INVALID_ARGUMENT that names a field and says something.
func wantField(t testing.TB, err error, field, text string) {
	t.Helper()
	wantCode(t, err, codes.InvalidArgument)
	bad, ok := detail[*errdetails.BadRequest](err)
	if !ok || len(bad.FieldViolations) != 1 {
		t.Fatalf("details of %v: want one BadRequest violation", err)
	}
	if v := bad.FieldViolations[0]; v.Field != field || !strings.Contains(v.Description, text) {
		t.Errorf("violation = %q: %q, want %q with %q", v.Field, v.Description, field, text)
	}
}

// warned says whether a warning of path says something, on a line.
func warned(warnings []runbooks.Warning, path string, line int, text string) bool {
	return slices.ContainsFunc(warnings, func(w runbooks.Warning) bool {
		return w.Path == path && w.Line == line && strings.Contains(w.Text, text)
	})
}
