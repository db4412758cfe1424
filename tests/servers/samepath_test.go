package servers_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestOnePathTwoContents has two backends that bring the same file path with different content. Each method works with its own types, and
// reflection tells of each what is true of it.
func TestOnePathTwoContents(t *testing.T) {
	t.Parallel()
	ctx := patience(t)
	names := startEcho(t, `syntax = "proto3"; package shop; import "item.proto"; service Names { rpc Echo(api.Item) returns (api.Item); }`,
		`syntax = "proto3"; package api; message Item { string name = 1; }`)
	prices := startEcho(t, `syntax = "proto3"; package shop; import "item.proto"; service Prices { rpc Echo(api.Item) returns (api.Item); }`,
		`syntax = "proto3"; package api; message Item { int64 cents = 1; }`)
	mesh := run.Start(t, "--backend", "names="+names, "--backend", "prices="+prices)
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for service, item := range map[string]map[string]any{"Names": {"name": "tea"}, "Prices": {"cents": "250"}} {
		body, _ := json.Marshal(item)
		if code, v := post(t, mesh.URL("/shop."+service+"/Echo"), string(body)); code != http.StatusOK || len(v) != 1 || !equalMaps(v, item) {
			t.Errorf("HTTP: %s: %d %v, want %v", service, code, v, item)
		}
		tool := map[string]string{"Names": "names_echo", "Prices": "prices_echo"}[service]
		res, err := agent.Call(ctx, a, tool, item, nil)
		var got map[string]any
		if err != nil || res.IsError || json.Unmarshal(res.StructuredContent, &got) != nil || !equalMaps(got, item) {
			t.Errorf("MCP: %s: %+v, %v, want %v", tool, res, err, item)
		}
		field := fieldOfItem(ctx, t, run.Dial(t, mesh.GRPC), "shop."+service)
		if _, ok := item[field]; !ok {
			t.Errorf("reflection: the item of shop.%s has the field %q, want that of %v", service, field, item)
		}
	}
}

func equalMaps(a, b map[string]any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// fieldOfItem asks the mesh's reflection for the service as a generic client does, builds what it gets, and returns the name of the one
// field of the request.
func fieldOfItem(ctx context.Context, t *testing.T, cc *grpc.ClientConn, service string) string {
	t.Helper()
	s, err := rpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}
	}()
	set := &descriptorpb.FileDescriptorSet{}
	have := map[string]bool{}
	ask := func(req *rpb.ServerReflectionRequest) {
		t.Helper()
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Recv()
		if err != nil || resp.GetFileDescriptorResponse() == nil {
			t.Fatalf("reflection of %q: %v, %v", service, resp, err)
		}
		for _, b := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(b, f); err != nil {
				t.Fatal(err)
			}
			if !have[f.GetName()] {
				have[f.GetName()] = true
				set.File = append(set.File, f)
			}
		}
	}
	ask(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}})
	for i := 0; i < len(set.File); i++ {
		for _, dep := range set.File[i].GetDependency() {
			if !have[dep] {
				ask(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_FileByFilename{FileByFilename: dep}})
			}
		}
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	return string(d.(protoreflect.ServiceDescriptor).Methods().Get(0).Input().Fields().Get(0).Name())
}

// startEcho compiles a service file and the item.proto that it imports, and serves it with reflection: every method answers with its
// request.
func startEcho(t *testing.T, service, item string) string {
	t.Helper()
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"service.proto": service, "item.proto": item})}}
	compiled, err := c.Compile(t.Context(), "service.proto")
	if err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(protoset.Of(compiled[0]))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := files.FindFileByPath("service.proto")
	if err != nil {
		t.Fatal(err)
	}
	sd := fd.Services().Get(0)
	g := grpc.NewServer()
	g.RegisterService(&grpc.ServiceDesc{ServiceName: string(sd.FullName()), HandlerType: (*any)(nil), Metadata: "service.proto", Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := dynamicpb.NewMessage(sd.Methods().Get(0).Input())
			return m, decode(m)
		},
	}}}, struct{}{})
	rpb.RegisterServerReflectionServer(g, reflection.NewServerV1(reflection.ServerOptions{Services: g, DescriptorResolver: files, ExtensionResolver: protoregistry.GlobalTypes}))
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
	return l.Addr().String()
}
