package mcpadapter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/mcpadapter"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// asJSON returns v the way it looks after a trip through JSON.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(plain); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func texts(r *mcp.CallToolResult) []string {
	var out []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			out = append(out, t.Text)
		}
	}
	return out
}

func TestCallKinds(t *testing.T) {
	cases := []struct{ tool, arguments, want string }{
		{"orders_get", `{"id":"9007199254740993"}`, `{"id":"9007199254740993","note":"fine"}`},
		{"orders_get", `{"id":9007199254740993}`, `{"id":"9007199254740993","note":"fine"}`},
		{"orders_get", ``, `{"note":"fine"}`},
		{"orders_watch", `{"count":2}`, `{"items":[{"id":"1"},{"id":"2"}]}`},
		{"orders_watch", `{}`, `{"items":[]}`},
		{"orders_import", `{"messages":[{"id":1},{"id":"2"}]}`, `{"count":2,"sum":"3"}`},
		{"orders_import", `{}`, `{}`},
		{"orders_chat", `{"messages":[{"id":5}]}`, `{"items":[{"id":"5","note":"got"}]}`},
		{"orders_judge", `{}`, `{"error":"none"}`},
	}
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, d door) {
		if got := c.InitializeResult().ProtocolVersion; got != d.version {
			t.Errorf("protocol version = %q, want %q", got, d.version)
		}
		for _, tc := range cases {
			params := &mcp.CallToolParams{Name: tc.tool}
			if tc.arguments != "" {
				params.Arguments = json.RawMessage(tc.arguments)
			}
			res, err := c.CallTool(t.Context(), params)
			if err != nil {
				t.Errorf("CallTool(%s, %s) = %v", tc.tool, tc.arguments, err)
				continue
			}
			if got := asJSON(t, res.StructuredContent); got != tc.want || res.IsError {
				t.Errorf("CallTool(%s, %s) = %s (isError %t), want %s", tc.tool, tc.arguments, got, res.IsError, tc.want)
			}
			if got := texts(res); len(got) != 1 || asJSON(t, json.RawMessage(got[0])) != tc.want {
				t.Errorf("CallTool(%s, %s) has the text %q, want %s", tc.tool, tc.arguments, got, tc.want)
			}
		}
	})
}

func TestCallErrors(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get", Arguments: json.RawMessage(`{"act":"missing"}`)})
		if err != nil {
			t.Fatal(err)
		}
		want := `{"error":{"code":"NOT_FOUND","domain":"shop.example.com","fieldViolations":[{"description":"no such order","field":"id"}],` +
			`"hint":"check the name or id; list or search first to find one that exists","message":"order not found","metadata":{"id":"7"},"reason":"ORDER_UNKNOWN","retryDelay":"2s"}}`
		if diff := cmp.Diff(want, asJSON(t, res.StructuredContent)); diff != "" || !res.IsError {
			t.Errorf("structuredContent (-want +got), isError %t:\n%s", res.IsError, diff)
		}
		wantText := "NOT_FOUND: order not found\nfield \"id\": no such order\nreason: ORDER_UNKNOWN (shop.example.com)\nid: 7\nretry after: 2s\nhint: check the name or id; list or search first to find one that exists"
		if diff := cmp.Diff([]string{wantText}, texts(res)); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}

		// A contract with a field "error" of its own: the error must not pretend to be that field.
		res, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_judge", Arguments: json.RawMessage(`{"act":"missing"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if res.StructuredContent != nil || !res.IsError || !strings.Contains(asJSON(t, res.Meta), `"io.toolway/error":{"code":"NOT_FOUND"`) {
			t.Errorf("error of a tool with an error field: structuredContent = %v, _meta = %v", res.StructuredContent, res.Meta)
		}

		// A stream that breaks keeps what came before.
		res, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_watch", Arguments: json.RawMessage(`{"count":9,"breakAfter":2}`)})
		if err != nil {
			t.Fatal(err)
		}
		got := asJSON(t, res.StructuredContent)
		if !res.IsError || !strings.Contains(got, `"code":"ABORTED"`) || !strings.Contains(got, `"items":[{"id":"1"},{"id":"2"}]`) {
			t.Errorf("broken stream = %s (isError %t)", got, res.IsError)
		}
	})
}

func TestBadArguments(t *testing.T) {
	cases := []struct{ tool, arguments, want string }{
		{"orders_get", `[1]`, "got an array: want an object"},
		{"orders_get", `{"id":"x"}`, "id"},
		{"orders_get", `{"idd":1}`, "idd"},
		{"orders_import", `{"message":[]}`, `did you mean "messages"?`},
		{"orders_import", `{"messages":{}}`, "want an array of messages"},
		{"orders_import", `{"messages":[{"id":1},{"nope":2}]}`, "messages[1]"},
	}
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		for _, tc := range cases {
			res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.tool, Arguments: json.RawMessage(tc.arguments)})
			if err != nil {
				t.Errorf("CallTool(%s, %s) = %v, want a tool error", tc.tool, tc.arguments, err)
				continue
			}
			if got, want := asJSON(t, res.StructuredContent), `"field":"`+tc.want+`"`; (tc.want == "id" || tc.want == "idd") && !strings.Contains(got, want) {
				t.Errorf("CallTool(%s, %s) = %s, want %s", tc.tool, tc.arguments, got, want)
			}
			if text := strings.Join(texts(res), "\n"); !res.IsError || !strings.HasPrefix(text, "INVALID_ARGUMENT: ") || !strings.Contains(text, tc.want) {
				t.Errorf("CallTool(%s, %s) = %q (isError %t), want it to name %q", tc.tool, tc.arguments, text, res.IsError, tc.want)
			}
		}
		if w.seen.Load() != nil {
			t.Error("bad arguments reached the backend")
		}
	})
}

func TestStreamLimits(t *testing.T) {
	limits := func(c *mcpadapter.Config) { c.MaxStreamItems, c.MaxStreamBytes, c.MaxResultBytes = 3, 500, 100 }
	forDoors(t, limits, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		for _, tc := range []struct {
			arguments, limit string
			items            int
		}{
			{`{"count":1000000,"hang":true}`, "3 items", 3},
			{`{"count":3,"noteBytes":200}`, "500 bytes", 2},
		} {
			res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_watch", Arguments: json.RawMessage(tc.arguments)})
			if err != nil {
				t.Fatal(err)
			}
			got := asJSON(t, res.StructuredContent)
			if res.IsError || strings.Count(got, `"id"`) != tc.items || !strings.Contains(strings.Join(texts(res), "\n"), tc.limit) ||
				!strings.Contains(asJSON(t, res.Meta), tc.limit) {
				t.Errorf("watch %s = %s %q _meta %v (isError %t), want %d items and %q", tc.arguments, got, texts(res), res.Meta, res.IsError, tc.items, tc.limit)
			}
		}
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_chat", Arguments: json.RawMessage(`{"messages":[]}`)})
		if err != nil || res.IsError {
			t.Errorf("empty chat = %v, %v", res, err)
		}
	})
}

func TestProgress(t *testing.T) {
	notes := make(chan *mcp.ProgressNotificationParams, 1000)
	options := func() *mcp.ClientOptions {
		return &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { notes <- r.Params }}
	}
	forDoors(t, nil, options, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		for _, token := range []any{"a token", 0, 7} {
			params := &mcp.CallToolParams{Name: "orders_watch", Arguments: json.RawMessage(`{"count":5}`)}
			params.SetProgressToken(token)
			if _, err := c.CallTool(t.Context(), params); err != nil {
				t.Fatal(err)
			}
			last := 0.0
			for range 5 {
				n := await(t, "progress", notes)
				if n.Progress <= last || fmt.Sprint(n.ProgressToken) != fmt.Sprint(token) {
					t.Errorf("progress %v with token %v after %v, want it to rise with token %v", n.Progress, n.ProgressToken, last, token)
				}
				last = n.Progress
			}
		}
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_watch", Arguments: json.RawMessage(`{"count":5}`)}); err != nil {
			t.Fatal(err)
		}
		if len(notes) > 0 {
			t.Errorf("%d progress notifications without a token", len(notes))
		}
	})
}

func TestCancel(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		for _, tool := range []string{"orders_get", "orders_watch"} {
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(map[string]string{"orders_get": `{"act":"hang"}`, "orders_watch": `{"count":1,"hang":true}`}[tool])})
				returned <- err
			}()
			await(t, "the call at the backend", w.hung)
			cancel()
			if err := await(t, "the client's return", returned); err == nil {
				t.Error("cancelled call returned no error")
			}
			await(t, "the cancellation at the backend", w.ended)
		}
		// The session lives on.
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get"}); err != nil {
			t.Errorf("call after a cancelled one = %v", err)
		}
	})
}

func TestParallelCalls(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hanging := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "orders_get", Arguments: json.RawMessage(`{"act":"hang"}`)})
			hanging <- err
		}()
		await(t, "the call at the backend", w.hung)
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get"}); err != nil {
			t.Errorf("call beside a hanging one = %v", err)
		}
		cancel()
		if err := await(t, "the end of the hanging call", hanging); err == nil {
			t.Error("cancelled call returned no error")
		}
		await(t, "the cancellation at the backend", w.ended)
	})
}

func TestMetadata(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get", Meta: mcp.Meta{
			"traceparent": parent, "io.toolway/idempotency-key": "k-1", "authorization": "Bearer x", "x-user-id": "admin", "toolway-principal": "root",
		}})
		if err != nil {
			t.Fatal(err)
		}
		md := *w.seen.Load()
		if got := md.Get("traceparent"); len(got) != 1 || got[0] != parent {
			t.Errorf("traceparent at the backend = %q", got)
		}
		if got := md.Get("idempotency-key"); len(got) != 1 || got[0] != "k-1" {
			t.Errorf("idempotency-key at the backend = %q", got)
		}
		for _, key := range []string{"authorization", "x-user-id", "toolway-principal", "mcp-protocol-version"} {
			if got := md.Get(key); got != nil {
				t.Errorf("%s reached the backend: %q", key, got)
			}
		}
	})
}

// TestKeysInMeta has keys that the chain has to see to refuse them, and a read-only tool, whose call nothing refuses.
func TestKeysInMeta(t *testing.T) {
	seen := make(chan []string, 1)
	watch := func(c *mcpadapter.Config) {
		handler := c.Handler
		c.Handler = func(stream grpc.ServerStream) error {
			c := call.FromContext(stream.Context())
			seen <- c.Forward["idempotency-key"]
			delete(c.Forward, "idempotency-key")
			return handler(stream)
		}
	}
	forDoors(t, watch, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		for _, k := range []struct {
			meta mcp.Meta
			want []string
		}{
			{mcp.Meta{"io.toolway/idempotency-key": "k"}, []string{"k"}},
			{mcp.Meta{"io.toolway/idempotency-key": "incident-é"}, []string{"incident-é"}},
			{mcp.Meta{"io.toolway/idempotency-key": "a\nb"}, []string{"a\nb"}},
			{mcp.Meta{"io.toolway/idempotency-key": ""}, []string{""}},
			{mcp.Meta{"io.toolway/idempotency-key": 5}, []string{"\x00"}},
			{mcp.Meta{"io.toolway/idempotency-key": []string{"a"}}, []string{"\x00"}},
			{mcp.Meta{"io.toolway/idempotency-key": "k", "idempotency-key": "j"}, []string{"k", "j"}},
		} {
			if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get", Meta: k.meta}); err != nil {
				t.Fatal(err)
			}
			if got := <-seen; !slices.Equal(got, k.want) {
				t.Errorf("keys of a call with _meta %v = %q, want %q", k.meta, got, k.want)
			}
		}
	})
}

func TestKeyInHeaderAndMeta(t *testing.T) {
	var seen []string
	w := newWorld(t, func(c *mcpadapter.Config) {
		handler := c.Handler
		c.Handler = func(stream grpc.ServerStream) error {
			seen = call.FromContext(stream.Context()).Forward["idempotency-key"]
			return handler(stream)
		}
	})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{},"_meta":{"io.toolway/idempotency-key":"k","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}}}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(body))
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "orders_get", "Idempotency-Key": "j"} {
		r.Header.Set(k, v)
	}
	w.adapter.HTTPHandler().ServeHTTP(httptest.NewRecorder(), r)
	if !slices.Equal(seen, []string{"j", "k"}) {
		t.Errorf("keys = %q, want header's and _meta's, so that the chain refuses the call", seen)
	}
}

func TestDefaultsWritten(t *testing.T) {
	emit := func(c *mcpadapter.Config) { c.JSON.EmitDefaults = true }
	w := newWorld(t, emit)
	res, err := w.connect(doors[1], nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_import"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := asJSON(t, res.StructuredContent), `{"count":0,"sum":"0"}`; got != want {
		t.Errorf("empty summary with EmitDefaults = %s, want %s", got, want)
	}
}

func TestPicture(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_picture"})
		if err != nil {
			t.Fatal(err)
		}
		if image, ok := res.Content[0].(*mcp.ImageContent); !ok || image.MIMEType != "image/png" || len(image.Data) != 4 {
			t.Errorf("content = %s, want a PNG image", asJSON(t, res.Content))
		}
	})
}
