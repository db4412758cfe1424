package proxy_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/proxy"
)

// snapshots is a catalog that is set once it exists: the services that describe it must be there before it.
type snapshots struct{ *catalog.Catalog }

// infrastructure returns a local backend with health and reflection over a catalog that is opened with these backends and itself.
func infrastructure(t *testing.T, backends ...catalog.BackendConfig) (*snapshots, *backend.Local, *proxy.Health) {
	t.Helper()
	s := &snapshots{}
	l := backend.NewLocal()
	h := proxy.RegisterHealth(l, s, nil)
	proxy.RegisterReflection(l, s, nil)
	own := catalog.BackendConfig{Name: "toolway", Sources: []catalog.Source{catalog.CompiledIn(
		healthpb.File_grpc_health_v1_health_proto, reflectionpb.File_grpc_reflection_v1_reflection_proto, alphapb.File_grpc_reflection_v1alpha_reflection_proto)}}
	c, err := catalog.Open(t.Context(), catalog.Config{Backends: append([]catalog.BackendConfig{own}, backends...), Debounce: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s.Catalog = c
	return s, l, h
}

// write writes a descriptor set and returns its path.
func write(t *testing.T, set *descriptorpb.FileDescriptorSet) string {
	t.Helper()
	b, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "set.binpb")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shop is a backend's files: common.proto, whose message has the field given, and api.proto, which imports it.
func shop(pkg, field string) *descriptorpb.FileDescriptorSet {
	str := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
	msg := descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	one := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
	return &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		{Name: proto.String("shared/common.proto"), Package: proto.String("shared"), Syntax: proto.String("proto2"), MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("Item"), Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String(field), Number: proto.Int32(1), Type: str, Label: one}},
			ExtensionRange: []*descriptorpb.DescriptorProto_ExtensionRange{{Start: proto.Int32(100), End: proto.Int32(200)}},
		}}},
		{Name: proto.String("shared/mid.proto"), Package: proto.String("shared"), Syntax: proto.String("proto2"), Dependency: []string{"shared/common.proto"}, MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("Box"), Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("item"), Number: proto.Int32(1), Type: msg, TypeName: proto.String(".shared.Item"), Label: one}},
		}}},
		{Name: proto.String("api.proto"), Package: proto.String(pkg), Syntax: proto.String("proto2"), Dependency: []string{"shared/mid.proto", "shared/common.proto"},
			Extension: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("extra"), Number: proto.Int32(100), Type: str, Label: one, Extendee: proto.String(".shared.Item")}},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Shop"), Method: []*descriptorpb.MethodDescriptorProto{
				{Name: proto.String("Get"), InputType: proto.String(".shared.Box"), OutputType: proto.String(".shared.Item")},
			}}}},
	}}
}

// load asks reflection for a symbol as grpcurl does, with one request for each import that is missing, and builds the files.
func load(t *testing.T, ask func(*reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse, symbol string) (*descriptorpb.FileDescriptorSet, protoreflect.Descriptor) {
	t.Helper()
	files := map[string]*descriptorpb.FileDescriptorProto{}
	take := func(r *reflectionpb.ServerReflectionResponse) {
		if e := r.GetErrorResponse(); e != nil {
			t.Fatalf("reflection of %q: %v", symbol, e)
		}
		for _, b := range r.GetFileDescriptorResponse().GetFileDescriptorProto() {
			fd := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(b, fd); err != nil {
				t.Fatal(err)
			}
			files[fd.GetName()] = fd
		}
	}
	take(ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}}))
	for again := true; again; {
		again = false
		for _, fd := range files {
			for _, dep := range fd.GetDependency() {
				if files[dep] == nil {
					again = true
					take(ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: dep}}))
				}
			}
		}
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, fd := range files {
		set.File = append(set.File, fd)
	}
	built, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("files of %q do not fit together: %v", symbol, err)
	}
	d, err := built.FindDescriptorByName(protoreflect.FullName(symbol))
	if err != nil {
		t.Fatal(err)
	}
	return set, d
}

func TestReflectionOfConflictingBackends(t *testing.T) {
	cat, local, _ := infrastructure(t,
		catalog.BackendConfig{Name: "a", Sources: []catalog.Source{catalog.File(write(t, shop("one", "red")))}},
		catalog.BackendConfig{Name: "b", Sources: []catalog.Source{catalog.File(write(t, shop("two", "blue")))}},
		catalog.BackendConfig{Name: "c", Sources: []catalog.Source{catalog.File(write(t, shop("one", "green")))}}) // owns nothing
	m := newMesh(t, meshOptions{catalog: cat, locals: map[string]*backend.Local{"toolway": local}})

	// v1alpha has the same bytes, so one test client speaks both.
	for _, method := range []string{reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName, alphapb.ServerReflection_ServerReflectionInfo_FullMethodName} {
		t.Run(method, func(t *testing.T) {
			stream, err := m.door.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(in *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
				if err := stream.SendMsg(in); err != nil {
					t.Fatal(err)
				}
				out := &reflectionpb.ServerReflectionResponse{}
				if err := stream.RecvMsg(out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			var names []string
			for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
				names = append(names, s.GetName())
			}
			want := []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", "one.Shop", "two.Shop"}
			if !slices.Equal(names, want) {
				t.Errorf("services = %q, want %q", names, want)
			}
			for service, field := range map[string]string{"one.Shop": "red", "two.Shop": "blue"} {
				_, d := load(t, ask, service)
				item := d.(protoreflect.ServiceDescriptor).Methods().Get(0).Output()
				if item.Fields().ByName(protoreflect.Name(field)) == nil {
					t.Errorf("%s: output has fields %v, want %q", service, item.Fields(), field)
				}
			}
			load(t, ask, "grpc.health.v1.Health.Watch")
			load(t, ask, "two.extra")
			ext := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingExtension{
				FileContainingExtension: &reflectionpb.ExtensionRequest{ContainingType: "shared.Item", ExtensionNumber: 100}}})
			if len(ext.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
				t.Errorf("extension 100 of shared.Item: %v", ext)
			}
			numbers := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "shared.Item"}})
			if got := numbers.GetAllExtensionNumbersResponse().GetExtensionNumber(); !slices.Equal(got, []int32{100}) {
				t.Errorf("extension numbers = %v, want [100]", got)
			}
			for _, in := range []*reflectionpb.ServerReflectionRequest{
				{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "no.Such"}},
				{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: "no.proto"}},
				{MessageRequest: &reflectionpb.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "no.Such"}},
			} {
				if got := ask(in).GetErrorResponse().GetErrorCode(); got != int32(codes.NotFound) {
					t.Errorf("%v: error %d, want NOT_FOUND", in, got)
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestHealthFollowsBackends(t *testing.T) {
	// A backend whose connection the catalog watches.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, &scripted{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	conn := client(t, addr)
	conn.Connect()
	cat, local, health := infrastructure(t, catalog.BackendConfig{Name: "echo", Sources: []catalog.Source{
		catalog.File(write(t, setOf(testpb.File_grpc_testing_test_proto))), catalog.Connection(conn, catalog.ReflectionOptions{})}})
	m := newMesh(t, meshOptions{catalog: cat, locals: map[string]*backend.Local{"toolway": local}})
	hc := healthpb.NewHealthClient(m.door)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	watch := func(service string) func() (healthpb.HealthCheckResponse_ServingStatus, error) {
		w, err := hc.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return func() (healthpb.HealthCheckResponse_ServingStatus, error) {
			r, err := w.Recv()
			return r.GetStatus(), err
		}
	}
	until := func(next func() (healthpb.HealthCheckResponse_ServingStatus, error), want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for {
			got, err := next()
			if err != nil {
				t.Fatalf("Watch: %v, want %v", err, want)
			}
			if got == want {
				return
			}
		}
	}
	echo, overall := watch("grpc.testing.TestService"), watch("")
	until(echo, healthpb.HealthCheckResponse_SERVING)
	until(overall, healthpb.HealthCheckResponse_SERVING)
	until(watch("no.Such"), healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
	if _, err := hc.Check(ctx, &healthpb.HealthCheckRequest{Service: "no.Such"}); status.Code(err) != codes.NotFound {
		t.Errorf("Check of an unknown service: %v, want NOT_FOUND", err)
	}
	list, err := hc.List(ctx, &healthpb.HealthListRequest{})
	if err != nil || list.GetStatuses()["grpc.testing.TestService"].GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("List = %v, %v", list, err)
	}

	s.Stop()
	<-served
	until(echo, healthpb.HealthCheckResponse_NOT_SERVING)
	if r, err := hc.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("overall = %v, %v, want SERVING: the mesh is up", r, err)
	}

	health.Shutdown()
	until(overall, healthpb.HealthCheckResponse_NOT_SERVING)
	if _, err := overall(); status.Code(err) != codes.Unavailable {
		t.Errorf("Watch after Shutdown ended with %v, want UNAVAILABLE", err)
	}
}
