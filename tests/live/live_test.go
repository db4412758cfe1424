// Package live_test tests what happens around calls: backends that die and return, callers that go away, shutdown, and hostile callers and
// backends. All of it against the built binary.
package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare("probe"); err != nil {
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

// startProbe serves a probe from this process.
func startProbe(t *testing.T, opts ...grpc.ServerOption) (*probe.Server, string) {
	t.Helper()
	s := probe.New()
	g, err := s.NewGRPC(probe.Both, opts...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

func mustSee(ctx context.Context, t *testing.T, s *probe.Server, id string) *probe.Call {
	t.Helper()
	c, err := s.Call(ctx, id)
	if err != nil {
		t.Fatalf("the backend did not see call %q: %v", id, err)
	}
	return c
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(run.Patience):
		t.Fatalf("%s did not come in %v", what, run.Patience)
		panic("unreachable")
	}
}

// start runs f and returns a channel with what it returns.
func start[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// answer is an answer of the HTTP door.
type answer struct {
	code int
	body map[string]any
	err  error
}

func (a answer) String() string { return fmt.Sprintf("%d %v %v", a.code, a.body, a.err) }

func post(ctx context.Context, url, body string, header http.Header) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	a := answer{code: resp.StatusCode, err: err}
	if jsonErr := json.Unmarshal(b, &a.body); jsonErr != nil && err == nil {
		a.body = map[string]any{"text": string(b)}
	}
	return a
}

func mcp(ctx context.Context, t *testing.T, m *run.Mesh, version string, header http.Header) *agent.HTTP {
	t.Helper()
	a, err := agent.NewHTTP(ctx, m.URL("/mcp"), version, header)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

var versions = []string{agent.V20250618, agent.V20251125, agent.V20260728}
