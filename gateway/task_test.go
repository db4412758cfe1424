package gateway_test

import (
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// A caller that prefers not to wait is told where its task is.
func TestPreferRespondAsync(t *testing.T) {
	handler := func(s grpc.ServerStream) error {
		c := call.FromContext(s.Context())
		if c.Async == nil {
			return s.SendMsg(call.NewFrame(c.Method.Desc.Output(), nil))
		}
		c.Task = "t1"
		if c.Method.Kind().Server {
			return nil
		}
		return s.SendMsg(call.NewFrame(c.Method.Desc.Output(), nil))
	}
	for _, c := range []struct {
		path, prefer string
		tasks        bool
		want         int
	}{
		{"/library.v1.Library/GetBook", "respond-async", true, 202},
		{"/library.v1.Library/Watch", "wait=10, Respond-Async; x=1", true, 202},
		{"/library.v1.Library/GetBook", "handling=strict", true, 200},
		{"/library.v1.Library/GetBook", "respond-async", false, 200},
	} {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: handler, Tasks: c.tasks})
		res := do(g, "POST", c.path, "{}", "Content-Type", "application/json", "Prefer", c.prefer, "Accept", "text/event-stream")
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != c.want {
			t.Errorf("%s with %q: %d %s (%v), want %d", c.path, c.prefer, res.StatusCode, body, err, c.want)
		}
		if c.want == 202 && (res.Header.Get("Location") != "/v1/tasks/t1" || res.Header.Get("Preference-Applied") != "respond-async" || !strings.Contains(string(body), `"id":"t1"`)) {
			t.Errorf("%s: %v %s", c.path, res.Header, body)
		}
	}
}
