package mcpadapter_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/mcpadapter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/descriptorpb"
)

func named(names ...string) func(*catalog.Method) bool {
	return func(m *catalog.Method) bool { return slices.Contains(names, m.Tool.Name) }
}

// hiding hides a tool from everybody who has not the scope "all".
type hiding string

// Visible says whether p may know of m.
func (h hiding) Visible(p *identity.Principal, _ call.Door, m *catalog.Method) bool {
	return m.Tool.Name != string(h) || p.Has("all")
}

// TestView has an endpoint with two of the tools: the others are not listed, and are unknown when they are called.
func TestView(t *testing.T) {
	forDoors(t, func(c *mcpadapter.Config) { c.View.Has = named("orders_get", "orders_watch") }, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		res, err := c.ListTools(t.Context(), nil)
		if err != nil || !slices.Equal(toolNames(res.Tools), []string{"orders_get", "orders_watch"}) {
			t.Errorf("tools %q, %v, want the view's", toolNames(res.Tools), err)
		}
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get", Arguments: map[string]any{"id": "1"}}); err != nil {
			t.Errorf("a tool of the view: %v", err)
		}
		_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_picture", Arguments: map[string]any{}})
		if err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("a tool outside the view: %v, want it unknown", err)
		}
	})
}

// TestHiddenTools has a tool that nobody may know of: no list, near miss or message tells of it.
func TestHiddenTools(t *testing.T) {
	forDoors(t, func(c *mcpadapter.Config) { c.Visibility = hiding("orders_watch") }, nil, func(t *testing.T, w *world, c *mcp.ClientSession, _ door) {
		res, err := c.ListTools(t.Context(), nil)
		if err != nil || slices.Contains(toolNames(res.Tools), "orders_watch") || len(res.Tools) != len(w.catalog.Snapshot().Tools())-1 {
			t.Errorf("tools %q, %v, want all but the hidden one", toolNames(res.Tools), err)
		}
		for _, name := range []string{"orders_watch", "orders_wetch"} {
			_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{}})
			if err == nil || !strings.Contains(err.Error(), "unknown tool") || strings.Contains(err.Error(), `mean "orders_watch"`) {
				t.Errorf("call of %s: %v, want it unknown, and no hint at the hidden tool", name, err)
			}
		}
	})
}

// TestListingPerCaller lists for two principals at once.
func TestListingPerCaller(t *testing.T) {
	w := newWorld(t, func(c *mcpadapter.Config) { c.Visibility = hiding("orders_watch") })
	all := &identity.Principal{ID: "a", Scopes: []string{"all"}}
	for _, who := range []*identity.Principal{nil, all, {ID: "b"}, all, {ID: "c", Scopes: []string{"all"}}} {
		ctx := call.WithPrincipal(context.Background(), who)
		got := strings.Contains(string(mcpadapter.Listed(ctx, w.adapter)), `"orders_watch"`)
		if got != who.Has("all") {
			t.Errorf("%+v is shown the tool: %v, want %v", who, got, !got)
		}
	}
}

// searchWorld is a world whose adapter has the search view, with the mesh's own API in its catalog.
func searchConfig(t *testing.T, w **mutableCatalog) func(*mcpadapter.Config) {
	return func(c *mcpadapter.Config) {
		set := compile(t, shopProto)
		local := backend.NewLocal()
		forward := c.Handler
		cat := &mutableCatalog{}
		end := meshapi.RegisterCatalog(local, meshapi.CatalogOptions{Snapshot: cat.Snapshot, Visibility: hiding("orders_judge")})
		t.Cleanup(func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		})
		own, err := local.Descriptors()
		if err != nil {
			t.Fatal(err)
		}
		set = merged(set, own)
		s, err := catalog.Static("shop", set)
		if err != nil {
			t.Fatal(err)
		}
		cat.current.Store(s)
		mine := backend.New(nil, map[string]*backend.Local{"shop": local}, backend.Options{})
		c.Catalog, c.View, c.Visibility = cat, mcpadapter.View{Search: true, Has: named("orders_get", "orders_watch", "orders_judge")}, hiding("orders_judge")
		c.Handler = func(stream grpc.ServerStream) error {
			if call.FromContext(stream.Context()).Method.Service.Mesh {
				return mine.Handle(nil, stream)
			}
			return forward(stream)
		}
		*w = cat
	}
}

func merged(sets ...*descriptorpb.FileDescriptorSet) *descriptorpb.FileDescriptorSet {
	out, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	for _, s := range sets {
		for _, f := range s.File {
			if !seen[f.GetName()] {
				seen[f.GetName()] = true
				out.File = append(out.File, f)
			}
		}
	}
	return out
}

// TestSearchView goes the way of an agent that has three tools: find, describe, call.
func TestSearchView(t *testing.T) {
	var cat *mutableCatalog
	forDoors(t, searchConfig(t, &cat), nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		res, err := c.ListTools(t.Context(), nil)
		if err != nil || !slices.Equal(toolNames(res.Tools), []string{"call_tool", "describe_tool", "find_tools"}) {
			t.Fatalf("tools %q, %v, want the three", toolNames(res.Tools), err)
		}
		call := func(name string, args any) (*mcp.CallToolResult, string) {
			t.Helper()
			r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r, asJSON(t, r)
		}
		if r, text := call("find_tools", map[string]any{"query": "watch orders"}); r.IsError || !strings.Contains(text, `"orders_watch"`) {
			t.Errorf("find_tools: %s, want orders_watch", text)
		}
		if _, text := call("find_tools", map[string]any{"query": "judge"}); strings.Contains(text, `"orders_judge"`) {
			t.Errorf("find_tools tells of a hidden tool: %s", text)
		}
		if _, text := call("find_tools", map[string]any{"query": "picture"}); strings.Contains(text, `"orders_picture"`) {
			t.Errorf("find_tools tells of a tool outside the view: %s", text)
		}
		if r, text := call("describe_tool", map[string]any{"name": "orders_picture"}); !r.IsError {
			t.Errorf("describe_tool tells of a tool outside the view: %s", text)
		}
		if r, text := call("describe_tool", map[string]any{"name": "orders_watch"}); r.IsError || !strings.Contains(text, `"inputSchema"`) {
			t.Errorf("describe_tool: %s", text)
		}
		direct, plain := call("orders_get", map[string]any{"id": "1"})
		for _, arguments := range []any{map[string]any{"id": "1"}, `{"id":"1"}`} { // models write both
			if r, text := call("call_tool", map[string]any{"name": "orders_get", "arguments": arguments}); r.IsError != direct.IsError || text != plain {
				t.Errorf("call_tool gives %s, the tool itself %s", text, plain)
			}
		}
		for _, bad := range []struct {
			args any
			want string
		}{
			{map[string]any{"name": "orders_gat", "arguments": map[string]any{}}, "orders_get"},
			{map[string]any{"name": "orders_judge", "arguments": map[string]any{}}, "unknown tool"},
			{map[string]any{"name": "orders_picture", "arguments": map[string]any{}}, "unknown tool"}, // not in the view
			{map[string]any{"arguments": map[string]any{}}, `[{"description":"is missing: want the name of a tool, as find_tools gave it","field":"name"}]`},
			{map[string]any{"name": "call_tool"}, "does not call itself"},
			{map[string]any{"name": 5}, `{"description":"got a number: want the name of a tool, as find_tools gave it","field":"name"}`},
			{map[string]any{"name": "orders_get", "argument": map[string]any{}}, `did you mean \"arguments\"?`},
			{map[string]any{"name": "orders_get", "arguments": "x"}, `{"description":"got a string: want an object","field":"arguments"}`},
			{map[string]any{"name": "orders_get", "arguments": map[string]any{"idd": "1"}}, `did you mean`},
		} {
			if r, text := call("call_tool", bad.args); !r.IsError || !strings.Contains(text, bad.want) {
				t.Errorf("call_tool with %v: %s, want a tool error with %q", bad.args, text, bad.want)
			}
		}
	})
}
