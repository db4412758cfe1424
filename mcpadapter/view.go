package mcpadapter

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// View chooses the tools of one endpoint, with their resources and prompts. The zero value is everything in the catalog.
type View struct {
	// Has says whether a method belongs to the view; nil means that all do. It must always say the same of a method.
	Has func(*catalog.Method) bool
	// Search lists find_tools, describe_tool and call_tool in place of the view's tools, which an agent reaches by them: hundreds of tools do
	// not fit a model.
	Search bool
}

// The tools of a view with Search. The first two are methods of the mesh's own API; the third is any other tool.
const (
	findTools    = "find_tools"
	describeTool = "describe_tool"
	callTool     = "call_tool"
)

var searchMethods = map[string]string{
	findTools:    "/toolway.v1.CatalogService/FindTools",
	describeTool: "/toolway.v1.CatalogService/DescribeTool",
}

// callToolDefinition is call_tool as it is listed. Its hints are the most cautious ones, since it may be any tool.
const callToolDefinition = `{"name":"` + callTool + `","title":"Call a tool","description":"Calls a tool by its name, with the arguments that describe_tool shows for it. ` +
	`Find the tool with find_tools first, and describe it before you call it.","inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The tool's name, as find_tools gave it."},` +
	`"arguments":{"type":"object","description":"The tool's arguments, as its input schema says.","additionalProperties":true}},"required":["name"]},` +
	`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`

// tool returns the method that a caller means by a tool's name, or nil if there is none that it may know of.
func (a *Adapter) tool(ctx context.Context, s *catalog.Snapshot, name string) *catalog.Method {
	if a.conf.View.Search {
		if full := searchMethods[name]; full != "" {
			return s.Method(full)
		}
	}
	return a.within(ctx, s.Tool(name))
}

// within returns m if it belongs to the view and the caller may know of it.
func (a *Adapter) within(ctx context.Context, m *catalog.Method) *catalog.Method {
	if m == nil || a.conf.View.Has != nil && !a.conf.View.Has(m) {
		return nil
	}
	return a.visible(ctx, m)
}

// visible returns m if the door exposes it and the caller may know of it.
func (a *Adapter) visible(ctx context.Context, m *catalog.Method) *catalog.Method {
	if m == nil || !m.Exposed(catalog.DoorMCP) {
		return nil
	}
	if a.conf.Visibility == nil || a.conf.Visibility.Visible(call.PrincipalFrom(ctx), call.MCP, m) {
		return m
	}
	return nil
}

// toolsOf returns the tools that the view lists, whoever asks, by name.
func (v View) toolsOf(s *catalog.Snapshot) []listedTool {
	if v.Search {
		return []listedTool{{callTool, nil}, {describeTool, s.Method(searchMethods[describeTool])}, {findTools, s.Method(searchMethods[findTools])}}
	}
	tools := make([]listedTool, 0, len(s.Tools()))
	for _, m := range s.Tools() {
		if v.Has == nil || v.Has(m) {
			tools = append(tools, listedTool{m.Tool.Name, m})
		}
	}
	return tools
}

// listedTool is a tool under the name that the view gives it. call_tool has no method.
type listedTool struct {
	name   string
	method *catalog.Method
}

// listings are the listings of one snapshot: one for all, or, where not everybody may see everything, one for each set of tools that some
// caller may see.
type listings struct {
	snapshot *catalog.Snapshot
	tools    []listedTool
	all      *listing

	mu     sync.Mutex
	byTool map[[sha256.Size]byte]*listing   // by which tools are in it
	byWho  map[*identity.Principal]*listing // principals are the same object for as long as their credentials are remembered
}

// maxListings bounds what is kept for one snapshot; beyond it a listing is made for each request.
const maxListings = 256

// forCaller returns what p may see.
func (ls *listings) forCaller(a *Adapter, p *identity.Principal) *listing {
	if a.conf.Visibility == nil {
		return ls.all
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byWho[p]; l != nil {
		return l
	}
	seen := make([]byte, len(ls.tools))
	var tools []listedTool
	for i, t := range ls.tools {
		if t.method == nil || t.method.Service.Mesh || a.conf.Visibility.Visible(p, call.MCP, t.method) {
			seen[i] = 1
			tools = append(tools, t)
		}
	}
	set := sha256.Sum256(seen)
	l := ls.byTool[set]
	if l == nil {
		l = newListing(tools, a.conf.Profile)
		if len(ls.byTool) < maxListings {
			ls.byTool[set] = l
		}
	}
	if len(ls.byWho) < maxListings*8 {
		ls.byWho[p] = l
	}
	return l
}
