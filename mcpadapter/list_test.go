package mcpadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/mcpadapter"
)

func toolNames(tools []*mcp.Tool) []string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

func TestListTools(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		res, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"orders_cancel", "orders_chat", "orders_follow", "orders_get", "orders_import", "orders_judge", "orders_picture", "orders_show", "orders_watch"}
		if diff := cmp.Diff(want, toolNames(res.Tools)); diff != "" || res.NextCursor != "" {
			t.Errorf("tools (-want +got), next cursor %q:\n%s", res.NextCursor, diff)
		}
		for _, tool := range res.Tools {
			m := w.catalog.Snapshot().Tool(tool.Name)
			if tool.Description != m.Tool.Description || tool.Title != m.Tool.Title || tool.Description == "" {
				t.Errorf("%s: title %q, description %q, want the catalog's", tool.Name, tool.Title, tool.Description)
			}
			schemas := map[string]any{"input": tool.InputSchema, "output": tool.OutputSchema}
			if tool.Name == "orders_show" || tool.Name == "orders_follow" {
				delete(schemas, "output") // content has none
			}
			for what, schema := range schemas {
				if got := asJSON(t, schema); !strings.Contains(got, `"type":"object"`) || !strings.Contains(got, `"properties"`) {
					t.Errorf("%s: %s schema = %s, want an object with properties", tool.Name, what, got)
				}
			}
		}
	})
}

// TestProfile lists tools with the schemas of the profile that the configuration names.
func TestProfile(t *testing.T) {
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		w := newWorld(t, func(c *mcpadapter.Config) { c.Profile = p })
		body := exchange(t, w.serve(), []byte("POST\nContent-Type: application/json\n\n"+`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		m := w.catalog.Snapshot().Tool("orders_get")
		if want := `"inputSchema":` + string(m.InputSchema(p)); !strings.Contains(string(body), want) {
			t.Errorf("%v: the list has not %s", p, want)
		}
	}
}

// TestAnnotations reads the raw list: MCP's defaults for absent hints differ from hint to hint, so all four have to be there.
func TestAnnotations(t *testing.T) {
	w := newWorld(t, nil)
	body := exchange(t, w.serve(), []byte("POST\nContent-Type: application/json\n\n"+`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	_, body, _ = cutBody(body)
	var msg struct {
		Result struct {
			Tools []struct {
				Name        string                     `json:"name"`
				Annotations map[string]json.RawMessage `json:"annotations"`
			} `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal(body, &msg); err != nil || len(msg.Result.Tools) == 0 {
		t.Fatalf("tools/list = %s: %v", body, err)
	}
	for _, tool := range msg.Result.Tools {
		for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			if v := string(tool.Annotations[hint]); v != "true" && v != "false" {
				t.Errorf("%s: %s = %q, want true or false", tool.Name, hint, v)
			}
		}
	}
}

// cutBody parts a response of exchange.
func cutBody(response []byte) (head, body []byte, ok bool) {
	h, b, ok := strings.Cut(string(response), "\n\n")
	return []byte(h), []byte(b), ok
}

func manyTools(n int) string {
	var b strings.Builder
	b.WriteString("syntax = \"proto3\";\npackage many.v1;\nmessage Nothing {}\nservice Many {\n")
	for i := range n {
		fmt.Fprintf(&b, "rpc Do%03d(Nothing) returns (Nothing);\n", i)
	}
	return b.String() + "}\n"
}

func TestPages(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit func(*mcpadapter.Config)
		pages int
	}{
		{"below both limits", nil, 1},
		{"tools", func(c *mcpadapter.Config) { c.PageTools = 40 }, 3},
		{"bytes", func(c *mcpadapter.Config) { c.PageBytes = 1 }, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.limit)
			w.catalog.current.Store(snapshotOf(t, manyTools(100)))
			c := w.connect(doors[1], nil)
			var names []string
			cursor, pages := "", 0
			for {
				res, err := c.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, toolNames(res.Tools)...)
				pages++
				if cursor = res.NextCursor; cursor == "" {
					break
				}
			}
			if pages != tc.pages || len(names) != 100 || names[0] != "many_do000" || names[99] != "many_do099" {
				t.Errorf("%d pages with %d tools, want %d with 100, in order", pages, len(names), tc.pages)
			}
		})
	}
}

// TestCursorSurvivesChange: what a cursor has passed is not listed again, what it has not is, whatever came and went meanwhile.
func TestCursorSurvivesChange(t *testing.T) {
	limit := func(c *mcpadapter.Config) { c.PageTools = 10 }
	before, after := newWorld(t, limit), newWorld(t, limit)
	before.catalog.current.Store(snapshotOf(t, manyTools(20)))
	after.catalog.current.Store(snapshotOf(t, strings.ReplaceAll(manyTools(21), "rpc Do009(Nothing) returns (Nothing);\n", "")))
	first, err := before.connect(doors[0], nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := after.connect(doors[0], nil).ListTools(t.Context(), &mcp.ListToolsParams{Cursor: first.NextCursor})
	if err != nil {
		t.Fatal(err)
	}
	if names := toolNames(second.Tools); names[0] != "many_do010" || len(names) != 10 || second.NextCursor == "" {
		t.Errorf("page after the change = %v (next cursor %q), want 10 tools from many_do010 on, and more", names, second.NextCursor)
	}
}

func TestWithdrawnTool(t *testing.T) {
	down := snapshotOf(t, shopProto)
	down.Backends()[0].State = catalog.Down
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		w.catalog.current.Store(down)
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get"})
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(texts(res), "\n"); !res.IsError || !strings.HasPrefix(text, "UNAVAILABLE: ") || !strings.Contains(text, "TOOL_UNAVAILABLE") || !strings.Contains(text, "hint: ") {
			t.Errorf("call of a withdrawn tool = %q (isError %t)", text, res.IsError)
		}
	})
}

// TestRemovedTool pins that a client which does not list again hears that a tool is gone, and is not told so of one that never was.
func TestRemovedTool(t *testing.T) {
	less := snapshotOf(t, strings.Replace(shopProto, "rpc Watch(WatchRequest) returns (stream Order);", "", 1))
	forDoors(t, nil, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		call := func(want string) {
			t.Helper()
			_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_watch"})
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams || !strings.Contains(e.Message, want) {
				t.Errorf("CallTool() = %v, want -32602 with %q", err, want)
			}
		}
		all := w.catalog.Snapshot()
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.catalog.current.Store(less)
		call(`tool "orders_watch" was removed; list the tools again`)
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		call(`tool "orders_watch" was removed; list the tools again`)
		w.catalog.current.Store(all)
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_watch"}); err != nil {
			t.Errorf("CallTool() of a tool that is back = %v, want nil", err)
		}
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "never_there"})
		if err == nil || !strings.Contains(err.Error(), `unknown tool "never_there"`) {
			t.Errorf("CallTool() of a tool that never was = %v, want it unknown", err)
		}
	})
}

func TestListChanged(t *testing.T) {
	for _, d := range doors {
		if !d.stdio && !d.session && d.version != "2026-07-28" {
			continue // without a session there is no stream to send it on
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel() // the catalog looks at files once a second
			path := filepath.Join(t.TempDir(), "shop.binpb")
			write := func(source string) {
				t.Helper()
				raw, err := proto.Marshal(compile(t, source))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, raw, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(shopProto)
			cat, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{{Name: "shop", Sources: []catalog.Source{catalog.File(path)}}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := cat.Close(); err != nil {
					t.Error(err)
				}
			})
			w := newWorld(t, func(c *mcpadapter.Config) { c.Catalog, c.Sessions = cat, d.session })
			changed := make(chan struct{}, 100)
			c := w.connect(d, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
			before, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			write(strings.Replace(shopProto, "rpc Get(", "rpc Fetch(", 1))
			await(t, "list_changed", changed)
			after, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(toolNames(after.Tools), " "), "orders_fetch") || len(after.Tools) != len(before.Tools) {
				t.Errorf("tools after the notice = %v", toolNames(after.Tools))
			}
			// A change that no client can see is none.
			write(strings.Replace(shopProto, "rpc Get(", "rpc Fetch(", 1) + "message Unused {}")
			write(shopProto)
			await(t, "list_changed", changed)
			if len(changed) > 0 {
				t.Errorf("%d notices too many", len(changed))
			}
		})
	}
}

// TestSeveralListens pins that over stdio every open subscriptions/listen hears of a change, and that ending one leaves the others.
func TestSeveralListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.binpb")
	write := func(source string) {
		t.Helper()
		raw, err := proto.Marshal(compile(t, source))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(shopProto)
	cat, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{{Name: "shop", Sources: []catalog.Source{catalog.File(path)}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cat.Close(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(c *mcpadapter.Config) { c.Catalog = cat })
	k := w.talk(t.Context())
	listen := func(id, notifications string) {
		k.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":` + notifications + `,` + modernMeta + `}}`)
	}
	subscription := func(id string) string { return `"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` }
	for _, id := range []string{`1`, `"two"`, `9007199254740993`} {
		listen(id, `{"toolsListChanged":true,"promptsListChanged":true}`)
		k.hear(`"method":"notifications/subscriptions/acknowledged","params":{` + subscription(id) + `,"notifications":{"toolsListChanged":true,"promptsListChanged":true}}`)
	}
	listen("4", `{"resourceSubscriptions":["nothing:"]}`)
	k.hear(subscription("4") + `,"notifications":{}}`)
	k.hear(`"id":4,"result":`)
	k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	k.say(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	k.hear(`"id":5`)
	write(strings.Replace(shopProto, "rpc Get(", "rpc Fetch(", 1))
	heard := map[string]bool{}
	for range 3 { // two listeners, and the session that began with initialize
		if !k.lines.Scan() {
			t.Fatal("output ended")
		}
		heard[k.lines.Text()] = true
	}
	for _, params := range []string{`"params":{` + subscription(`"two"`) + `}`, `"params":{` + subscription(`9007199254740993`) + `}`, `"params":{}`} {
		if !heard[`{"jsonrpc":"2.0","method":"notifications/tools/list_changed",`+params+`}`] {
			t.Errorf("notices = %v, want one with %s", heard, params)
		}
	}
	_ = k.in.Close()
	k.end()
}
