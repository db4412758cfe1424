package meshapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
)

func snapshot(t *testing.T, files ...protoreflect.FileDescriptor) *catalog.Snapshot {
	t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	for _, fd := range files {
		add(fd)
	}
	s, err := catalog.Static("interop", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// without hides methods by name.
type without map[string]bool

// Visible says whether the method is not hidden.
func (w without) Visible(_ *identity.Principal, _ call.Door, m *catalog.Method) bool {
	return !w[string(m.Desc.Name())]
}

func catalogClient(t *testing.T, who *identity.Principal, o meshapi.CatalogOptions) toolwayv1.CatalogServiceClient {
	t.Helper()
	return toolwayv1.NewCatalogServiceClient(serve(t, who, func(r grpc.ServiceRegistrar) {
		end := meshapi.RegisterCatalog(r, o)
		t.Cleanup(func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}))
}

func TestListTools(t *testing.T) {
	s := snapshot(t, testpb.File_grpc_testing_test_proto)
	c := catalogClient(t, nil, meshapi.CatalogOptions{Snapshot: func() *catalog.Snapshot { return s }, Visibility: without{"EmptyCall": true}})
	var names []string
	for token := ""; ; {
		page, err := c.ListTools(t.Context(), &toolwayv1.ListToolsRequest{PageSize: 3, PageToken: token, Service: "grpc.testing.TestService"})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range page.Tools {
			names = append(names, tool.Name)
			if tool.InputSchema != nil || tool.Hash == "" || tool.Approval != "none" {
				t.Errorf("listed tool %v, want one with a hash and without schemas", tool)
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	want := "test_cacheable_unary_call test_full_duplex_call test_half_duplex_call test_streaming_input_call test_streaming_output_call test_unary_call test_unimplemented_call"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("tools in pages of three\n%s, want\n%s", got, want)
	}
	for name, r := range map[string]*toolwayv1.ListToolsRequest{"negative size": {PageSize: -1}, "made-up token": {PageToken: "%"}, "token of nothing": {PageToken: "zz"}, "token without a checksum": {PageToken: "bGlicmFyeV9nZXQ"}} {
		if _, err := c.ListTools(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
	for name, r := range map[string]*toolwayv1.ListToolsRequest{"backend": {Backend: "other"}, "label": {Label: "x"}, "service": {Service: "x"}} {
		if page, err := c.ListTools(t.Context(), r); err != nil || len(page.Tools) != 0 {
			t.Errorf("tools of another %s: %v, %v, want none", name, page.GetTools(), err)
		}
	}
}

func TestDescribeTool(t *testing.T) {
	s := snapshot(t, testpb.File_grpc_testing_test_proto)
	c := catalogClient(t, nil, meshapi.CatalogOptions{Snapshot: func() *catalog.Snapshot { return s }, Visibility: without{"EmptyCall": true}})
	r, err := c.DescribeTool(t.Context(), &toolwayv1.DescribeToolRequest{Name: "test_unary_call"})
	if err != nil {
		t.Fatal(err)
	}
	in := r.Tool.InputSchema.GetFields()["properties"].GetStructValue().GetFields()
	if r.Tool.Method != "/grpc.testing.TestService/UnaryCall" || in["responseSize"] == nil || r.Tool.OutputSchema.GetFields()["type"].GetStringValue() != "object" {
		t.Errorf("described %v", r.Tool)
	}
	_, err = c.DescribeTool(t.Context(), &toolwayv1.DescribeToolRequest{Name: "test_unary_cal"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `"test_unary_call"`) {
		t.Errorf("a misspelt tool: %v, want NOT_FOUND with the near miss", err)
	}
	_, hidden := c.DescribeTool(t.Context(), &toolwayv1.DescribeToolRequest{Name: "test_empty_call"})
	_, unknown := c.DescribeTool(t.Context(), &toolwayv1.DescribeToolRequest{Name: "test_empty_cxll"})
	if status.Code(hidden) != codes.NotFound || strings.Contains(unknown.Error(), "test_empty_call") {
		t.Errorf("a hidden tool: %v; a name near to it: %v; want both unknown", hidden, unknown)
	}
}

// TestCatalogHidesBackends pins that a backend of which the caller may see no service is not named.
func TestCatalogHidesBackends(t *testing.T) {
	s := snapshot(t, testpb.File_grpc_testing_test_proto)
	all := without{}
	for _, m := range s.Methods() {
		all[string(m.Desc.Name())] = true
	}
	for _, tt := range []struct {
		hidden without
		want   int
	}{{without{}, 1}, {without{"EmptyCall": true}, 1}, {all, 0}} {
		got, err := catalogClient(t, nil, meshapi.CatalogOptions{Snapshot: func() *catalog.Snapshot { return s }, Visibility: tt.hidden}).GetCatalog(t.Context(), &toolwayv1.GetCatalogRequest{})
		if err != nil || len(got.GetCatalog().GetBackends()) != tt.want {
			t.Errorf("hidden %v: %v, %v; want %d backends", tt.hidden, got, err, tt.want)
		}
	}
}

func TestFindTools(t *testing.T) {
	s := snapshot(t, testpb.File_grpc_testing_test_proto)
	c := catalogClient(t, nil, meshapi.CatalogOptions{Snapshot: func() *catalog.Snapshot { return s }, Visibility: without{"CacheableUnaryCall": true}})
	r, err := c.FindTools(t.Context(), &toolwayv1.FindToolsRequest{Query: "a unary call", MaxResults: 2})
	if err != nil || len(r.Tools) == 0 || len(r.Tools) > 2 || r.Tools[0].Name != "test_unary_call" || r.Hint != "" {
		t.Errorf("found %v, %v", r, err)
	}
	if r, err = c.FindTools(t.Context(), &toolwayv1.FindToolsRequest{Query: "zebra crossing"}); err != nil || len(r.Tools) != 0 || r.Hint == "" {
		t.Errorf("nothing fits: %v, %v, want a hint", r, err)
	}
	for name, q := range map[string]*toolwayv1.FindToolsRequest{"empty": {Query: " "}, "negative": {Query: "x", MaxResults: -1}} {
		if _, err := c.FindTools(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
}

func TestGetAndWatchCatalog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.binpb")
	write := func(fd protoreflect.FileDescriptor) {
		raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(fd)}})
		if err == nil {
			err = os.WriteFile(file+"~", raw, 0o600)
		}
		if err == nil {
			err = os.Rename(file+"~", file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(testpb.File_grpc_testing_empty_proto)
	c, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{{Name: "x", Sources: []catalog.Source{catalog.File(file)}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := catalogClient(t, &identity.Principal{ID: "someone"}, meshapi.CatalogOptions{Snapshot: c.Snapshot})
	got, err := client.GetCatalog(t.Context(), &toolwayv1.GetCatalogRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if k := got.Catalog; k.Version != c.Snapshot().Version() || len(k.Backends) != 1 || k.Tools != 0 {
		t.Errorf("catalog %v, want one backend without tools", k)
	}
	stream, err := client.WatchCatalog(t.Context(), &toolwayv1.WatchCatalogRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.Catalog.Version != got.Catalog.Version {
		t.Fatalf("first message %v, %v, want the version at once", first, err)
	}
	write(healthpb.File_grpc_health_v1_health_proto)
	next, err := stream.Recv()
	if err != nil || next.Catalog.Version == first.Catalog.Version {
		t.Fatalf("after a change: %v, %v, want another version", next, err)
	}
}
