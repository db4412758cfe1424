// Package meshapi holds the mesh's own gRPC services. They are an ordinary backend in the mesh's own catalog: every door serves them, and
// their calls pass the same chain.
package meshapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/search"
	"github.com/toolway/toolway/internal/toolschema"
)

// CatalogOptions are what the catalog service needs.
type CatalogOptions struct {
	// Snapshot returns the current snapshot. Required.
	Snapshot func() *catalog.Snapshot
	// Visibility says what callers may know of. Nil shows everything.
	Visibility call.Visibility
}

// RegisterCatalog adds toolway.v1.CatalogService to r. Once it is no longer called, end frees what it holds.
func RegisterCatalog(r grpc.ServiceRegistrar, o CatalogOptions) (end func() error) {
	s := &catalogService{options: o}
	toolwayv1.RegisterCatalogServiceServer(r, s)
	return s.index.Close
}

type catalogService struct {
	toolwayv1.UnimplementedCatalogServiceServer
	options CatalogOptions
	index   search.Index
}

// viewer is what one caller may see of one snapshot.
type viewer struct {
	snapshot   *catalog.Snapshot
	principal  *identity.Principal
	visibility call.Visibility
	view       func(*catalog.Method) bool // nil: all
}

func (s *catalogService) viewer(ctx context.Context) viewer {
	v := viewer{snapshot: s.options.Snapshot(), visibility: s.options.Visibility}
	if c := call.FromContext(ctx); c != nil {
		v.principal, v.view = c.Principal, c.View
	}
	return v
}

// sees says whether the tool of m may be told of. Tools are told as the MCP door shows them, whatever door asks.
func (v viewer) sees(m *catalog.Method) bool {
	return (v.view == nil || v.view(m)) && call.Sees(v.visibility, v.principal, call.MCP, m)
}

// GetCatalog returns what is served now.
func (s *catalogService) GetCatalog(ctx context.Context, _ *toolwayv1.GetCatalogRequest) (*toolwayv1.GetCatalogResponse, error) {
	return &toolwayv1.GetCatalogResponse{Catalog: s.viewer(ctx).catalog()}, nil
}

// WatchCatalog sends what is served now, and again at each change.
func (s *catalogService) WatchCatalog(_ *toolwayv1.WatchCatalogRequest, stream grpc.ServerStreamingServer[toolwayv1.WatchCatalogResponse]) error {
	ctx := stream.Context()
	for {
		v := s.viewer(ctx)
		if err := stream.Send(&toolwayv1.WatchCatalogResponse{Catalog: v.catalog()}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.snapshot.Superseded():
		}
	}
}

// catalog tells of the backends that have a service of which the caller may know; of all where nothing is hidden from anybody.
func (v viewer) catalog() *toolwayv1.Catalog {
	out := &toolwayv1.Catalog{Version: v.snapshot.Version()}
	at, known := map[*catalog.Backend]*toolwayv1.Backend{}, map[*catalog.Backend]bool{}
	for _, b := range v.snapshot.Backends() {
		at[b] = &toolwayv1.Backend{Name: b.Name, State: stateOf(b.State)}
	}
	for _, svc := range v.snapshot.Services() {
		if slices.ContainsFunc(svc.Methods, v.sees) {
			at[svc.Backend].Services = append(at[svc.Backend].Services, string(svc.Desc.FullName()))
			known[svc.Backend] = known[svc.Backend] || !svc.Infrastructure
		}
	}
	for _, b := range v.snapshot.Backends() {
		if v.visibility == nil || known[b] {
			out.Backends = append(out.Backends, at[b])
		}
	}
	for _, m := range v.snapshot.Tools() {
		if v.sees(m) {
			out.Tools++
		}
	}
	return out
}

func stateOf(s catalog.State) toolwayv1.Backend_State {
	switch s {
	case catalog.Up:
		return toolwayv1.Backend_STATE_UP
	case catalog.Flapping:
		return toolwayv1.Backend_STATE_FLAPPING
	}
	return toolwayv1.Backend_STATE_DOWN
}

// The bounds of one page and of one search.
const (
	defaultPage, maxPage   = 100, 1000
	defaultFound, maxFound = 8, 50
)

// ListTools returns one page of the tools that the caller may see. A page token means the same in every instance and after a restart.
func (s *catalogService) ListTools(ctx context.Context, r *toolwayv1.ListToolsRequest) (*toolwayv1.ListToolsResponse, error) {
	size, err := bounded(int(r.GetPageSize()), defaultPage, maxPage, "page_size")
	if err != nil {
		return nil, err
	}
	after, ok := afterToken(r.GetPageToken())
	if !ok {
		return nil, call.Error(codes.InvalidArgument, "BAD_PAGE_TOKEN", "page_token is none that this service gave; list again without one")
	}
	v := s.viewer(ctx)
	tools := v.snapshot.Tools()
	first := sort.Search(len(tools), func(i int) bool { return tools[i].Tool.Name > after })
	if len(after) == 0 {
		first = 0
	}
	out := &toolwayv1.ListToolsResponse{}
	for _, m := range tools[first:] {
		if !wanted(r, m) || !v.sees(m) {
			continue
		}
		if len(out.Tools) == size {
			out.NextPageToken = pageToken(out.Tools[size-1].Name)
			break
		}
		out.Tools = append(out.Tools, v.tool(m))
	}
	return out, nil
}

// pageToken is the token of the page behind the tool of the name. Its checksum only tells a made-up token from a real one.
func pageToken(name string) string {
	sum := sha256.Sum256([]byte("toolway catalog tools " + name))
	return base64.RawURLEncoding.EncodeToString(append(sum[:6:6], name...))
}

// afterToken returns the name in a page token, and says whether it is one that this service gave. The empty token is the first page's.
func afterToken(token string) (name string, ok bool) {
	if token == "" {
		return "", true
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) <= 6 {
		return "", false
	}
	name = string(raw[6:])
	return name, pageToken(name) == token
}

func wanted(r *toolwayv1.ListToolsRequest, m *catalog.Method) bool {
	return (r.GetBackend() == "" || m.Backend.Name == r.GetBackend()) &&
		(r.GetService() == "" || string(m.Service.Desc.FullName()) == r.GetService()) &&
		(r.GetLabel() == "" || slices.Contains(m.Policy.Labels, r.GetLabel()))
}

// DescribeTool returns a tool with its whole schemas. What the caller may not see does not exist.
func (s *catalogService) DescribeTool(ctx context.Context, r *toolwayv1.DescribeToolRequest) (*toolwayv1.DescribeToolResponse, error) {
	v := s.viewer(ctx)
	m := v.snapshot.Tool(r.GetName())
	if m == nil || !m.Exposed(catalog.DoorMCP) || m.Quarantine != "" || !v.sees(m) {
		return nil, v.unknown(r.GetName())
	}
	t := v.tool(m)
	var err error
	if t.InputSchema, err = schema(m.WholeSchema(toolschema.Input, toolschema.Full)); err != nil {
		return nil, err
	}
	if t.OutputSchema, err = schema(m.WholeSchema(toolschema.Output, toolschema.Full)); err != nil {
		return nil, err
	}
	return &toolwayv1.DescribeToolResponse{Tool: t}, nil
}

func (v viewer) unknown(name string) error {
	near := nearmiss.Find(name, func(yield func(string) bool) {
		for _, m := range v.snapshot.Tools() {
			if v.sees(m) && !yield(m.Tool.Name) {
				return
			}
		}
	})
	hint := "list or find the tools again, they may have changed"
	if near != "" {
		hint = "did you mean " + strconv.Quote(near) + "?"
	}
	return call.Error(codes.NotFound, "UNKNOWN_TOOL", "unknown tool "+strconv.Quote(name[:min(len(name), 100)])+"; "+hint, "hint", hint)
}

// FindTools returns the tools that fit a few words.
func (s *catalogService) FindTools(ctx context.Context, r *toolwayv1.FindToolsRequest) (*toolwayv1.FindToolsResponse, error) {
	limit, err := bounded(int(r.GetMaxResults()), defaultFound, maxFound, "max_results")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.GetQuery()) == "" {
		return nil, call.Error(codes.InvalidArgument, "QUERY_MISSING", "query is empty: say in a few words what you want to do", "field", "query")
	}
	v := s.viewer(ctx)
	found, err := s.index.Find(ctx, v.snapshot, r.GetQuery(), limit, v.sees)
	if err != nil {
		return nil, err
	}
	out := &toolwayv1.FindToolsResponse{}
	for _, m := range found {
		out.Tools = append(out.Tools, v.tool(m))
	}
	if len(found) == 0 {
		out.Hint = "nothing fits: use fewer or other words, such as the name of a thing and a verb"
	}
	return out, nil
}

// bounded returns a size within its bounds. A negative one is an error; one beyond the bound is cut, as AIP-158 wants it.
func bounded(n, otherwise, limit int, field string) (int, error) {
	switch {
	case n < 0:
		return 0, call.Error(codes.InvalidArgument, "NEGATIVE_SIZE", field+" is negative: leave it out for the default of "+strconv.Itoa(otherwise), "field", field)
	case n == 0:
		return otherwise, nil
	}
	return min(n, limit), nil
}

// tool tells of m without its schemas.
func (v viewer) tool(m *catalog.Method) *toolwayv1.Tool {
	h := m.Tool.Hints
	t := &toolwayv1.Tool{
		Name: m.Tool.Name, Title: m.Tool.Title, Description: m.Tool.Description, Method: m.FullMethod, Backend: m.Backend.Name,
		ReadOnly: h.ReadOnly, Destructive: h.Destructive, Idempotent: h.Idempotent, OpenWorld: h.OpenWorld,
		Streaming: m.Kind().Server, Deprecated: m.Deprecated,
		Scopes: m.Policy.Scopes, Approval: m.Policy.Approval.String(), Labels: m.Policy.Labels, Hash: m.Hash(),
	}
	if v.principal != nil {
		t.MissingScopes = v.principal.Missing(m.Policy.Scopes)
	}
	for _, b := range m.Bindings {
		t.Routes = append(t.Routes, b.Verb+" "+b.Template)
	}
	return t
}

func schema(raw []byte) (*structpb.Struct, error) {
	out := &structpb.Struct{}
	if err := protojson.Unmarshal(raw, out); err != nil {
		return nil, err
	}
	return out, nil
}
