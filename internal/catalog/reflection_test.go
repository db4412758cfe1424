package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

// servers are real gRPC servers behind one address, over memory.
type servers struct {
	listeners []atomic.Pointer[bufconn.Listener]
	running   []*grpc.Server
}

func (s *servers) start(tb testing.TB, i int, register func(*grpc.Server)) {
	tb.Helper()
	lis, srv := bufconn.Listen(1<<20), grpc.NewServer()
	register(srv)
	s.listeners[i].Store(lis)
	s.running[i] = srv
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	tb.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			tb.Errorf("Serve: %v", err)
		}
	})
}

func (s *servers) stop(i int) {
	s.listeners[i].Store(nil)
	s.running[i].Stop()
}

// serve starts one server per register and returns a connection that spreads calls over them.
func serve(tb testing.TB, registers ...func(*grpc.Server)) (*servers, *grpc.ClientConn) {
	tb.Helper()
	s := &servers{listeners: make([]atomic.Pointer[bufconn.Listener], len(registers)), running: make([]*grpc.Server, len(registers))}
	r := manual.NewBuilderWithScheme("memory")
	var addrs []resolver.Address
	for i, register := range registers {
		s.start(tb, i, register)
		addrs = append(addrs, resolver.Address{Addr: fmt.Sprint(i)})
	}
	r.InitialState(resolver.State{Addresses: addrs})
	conn, err := grpc.NewClient("memory:///backend", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			lis := s.listeners[addr[0]-'0'].Load()
			if lis == nil {
				return nil, errors.New("nobody listens")
			}
			return lis.DialContext(ctx)
		}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s, conn
}

// infos lists services as a server with them registered would.
type infos []string

func (s infos) GetServiceInfo() map[string]grpc.ServiceInfo {
	out := map[string]grpc.ServiceInfo{}
	for _, name := range s {
		out[name] = grpc.ServiceInfo{}
	}
	return out
}

func options(tb testing.TB, set *descriptorpb.FileDescriptorSet, services ...string) reflection.ServerOptions {
	tb.Helper()
	files, err := protodesc.NewFiles(set)
	if err != nil {
		tb.Fatal(err)
	}
	return reflection.ServerOptions{Services: infos(append(services, "grpc.health.v1.Health")), DescriptorResolver: files}
}

func v1(tb testing.TB, set *descriptorpb.FileDescriptorSet, services ...string) func(*grpc.Server) {
	return func(s *grpc.Server) {
		reflectionpb.RegisterServerReflectionServer(s, reflection.NewServerV1(options(tb, set, services...)))
	}
}

// plain takes the comments out, as compilers do for servers.
func plain(set *descriptorpb.FileDescriptorSet) *descriptorpb.FileDescriptorSet {
	for _, f := range set.File {
		f.SourceCodeInfo = nil
	}
	return set
}

func reflecting(name string, conn catalog.Conn, more ...catalog.Source) catalog.Config {
	return catalog.Config{Backends: []catalog.BackendConfig{{Name: name, Sources: append([]catalog.Source{catalog.Reflection(conn, catalog.ReflectionOptions{})}, more...)}}}
}

const orders = `syntax = "proto3"; package acme;
message M {
  // Which one.
  string id = 1;
}
service Orders {
  // Gets an order.
  rpc Get(M) returns (M);
}
service Hidden { rpc Get(M) returns (M); }
`

func TestReflectionVersions(t *testing.T) {
	set := compileOne(t, orders)
	for name, register := range map[string]func(*grpc.Server){
		"v1": v1(t, set, "acme.Orders"),
		"v1alpha": func(s *grpc.Server) {
			alphapb.RegisterServerReflectionServer(s, reflection.NewServer(options(t, set, "acme.Orders")))
		},
	} {
		_, conn := serve(t, register)
		s := open(t, reflecting("a", conn)).Snapshot()
		if got := strings.Join(toolNames(s), " "); got != "orders_get" || codesOf(s) != "" || s.Backends()[0].State != catalog.Up {
			t.Errorf("%s: tools %q, findings %v, state %v", name, got, s.Findings(), s.Backends()[0].State)
		}
	}
}

func TestNoReflection(t *testing.T) {
	register := func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }
	_, conn := serve(t, register)
	s := open(t, reflecting("a", conn)).Snapshot()
	if f := finding(t, s, "reflection-missing"); !strings.Contains(f.Message, "--descriptors") || len(s.Tools()) != 0 || s.Backends()[0].State != catalog.Up {
		t.Errorf("finding = %+v, tools %v", f, toolNames(s))
	}
	path := writeSet(t, "a.binpb", compileOne(t, orders))
	_, conn = serve(t, register)
	s = open(t, reflecting("a", conn, catalog.File(path))).Snapshot()
	if got := strings.Join(toolNames(s), " "); got != "hidden_get orders_get" || codesOf(s) != "" {
		t.Errorf("with a file: tools %q, findings %v", got, s.Findings())
	}
}

// TestFileGivesComments pins that a file supplies comments by symbol, whatever the path, and what the server does not deliver.
func TestFileGivesComments(t *testing.T) {
	_, conn := serve(t, v1(t, plain(compileOne(t, orders)), "acme.Orders"))
	path := writeSet(t, "a.binpb", compileFiles(t, map[string]string{"other/path.proto": orders}, false))
	s := open(t, reflecting("a", conn, catalog.File(path))).Snapshot()
	m := s.Method("/acme.Orders/Get")
	if m == nil || !strings.HasPrefix(m.Tool.Description, "Gets an order.") || s.Service("acme.Hidden") != nil {
		t.Fatalf("method = %+v, findings %v", m, s.Findings())
	}
	fd := m.Desc.Input().Fields().Get(0)
	if got := strings.TrimSpace(fd.ParentFile().SourceLocations().ByDescriptor(fd).LeadingComments); got != "Which one." {
		t.Errorf("field comment = %q", got)
	}
}

// scripted answers reflection as a test says.
type scripted struct {
	reflectionpb.UnimplementedServerReflectionServer
	services []string
	files    map[string][][]byte // by symbol or path
	endless  bool
}

func (s *scripted) ServerReflectionInfo(stream reflectionpb.ServerReflection_ServerReflectionInfoServer) error {
	for n := 0; ; n++ {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp := &reflectionpb.ServerReflectionResponse{OriginalRequest: req}
		key := req.GetFileContainingSymbol() + req.GetFileByFilename()
		data, ok := s.files[key]
		switch {
		case key == "":
			list := &reflectionpb.ListServiceResponse{}
			for _, name := range s.services {
				list.Service = append(list.Service, &reflectionpb.ServiceResponse{Name: name})
			}
			resp.MessageResponse = &reflectionpb.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}
		case s.endless:
			b, err := proto.Marshal(&descriptorpb.FileDescriptorProto{Name: proto.String(key + "x"), Dependency: []string{key + "xx"}})
			if err != nil {
				return err
			}
			resp.MessageResponse = &reflectionpb.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: &reflectionpb.FileDescriptorResponse{FileDescriptorProto: [][]byte{b}}}
		case ok && data == nil:
			return errors.New("broken")
		case ok:
			resp.MessageResponse = &reflectionpb.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: &reflectionpb.FileDescriptorResponse{FileDescriptorProto: data}}
		default:
			resp.MessageResponse = &reflectionpb.ServerReflectionResponse_ErrorResponse{ErrorResponse: &reflectionpb.ErrorResponse{ErrorCode: int32(codes.NotFound), ErrorMessage: "no " + key}}
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func script(s *scripted) func(*grpc.Server) {
	return func(srv *grpc.Server) { reflectionpb.RegisterServerReflectionServer(srv, s) }
}

func raw(tb testing.TB, fdp *descriptorpb.FileDescriptorProto) [][]byte {
	tb.Helper()
	b, err := proto.Marshal(fdp)
	if err != nil {
		tb.Fatal(err)
	}
	return [][]byte{b}
}

// TestPoorReflection pins C28, C38 and what a broken or hostile server may do.
func TestPoorReflection(t *testing.T) {
	set := compile(t, map[string]string{
		"gogoproto/gogo.proto": `syntax = "proto2"; package gogoproto; import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions { optional string casttype = 65007; }`,
		"a.proto":              `syntax = "proto3"; package acme; import "gogoproto/gogo.proto"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto"; message A { string id = 1 [(gogoproto.casttype) = "x"]; google.protobuf.Any any = 2; google.protobuf.Struct s = 3; } service A1 { rpc Get(A) returns (A); }`,
		"b.proto":              `syntax = "proto3"; package acme; message B {} service B1 { rpc Get(B) returns (B); }`,
	})
	a, b := raw(t, file(t, set, "a.proto")), raw(t, file(t, set, "b.proto"))
	both := []string{"acme.A1", "acme.B1"}
	moved := compile(t, map[string]string{
		"acme/types.proto": `syntax = "proto3"; package acme; message T {}`,
		"c.proto":          `syntax = "proto3"; package acme; import "acme/types.proto"; service C1 { rpc Get(T) returns (T); }`,
	})
	c1 := raw(t, file(t, moved, "c.proto"))
	file(t, moved, "acme/types.proto").Name = proto.String("types.proto")
	types := raw(t, file(t, moved, "types.proto"))
	for _, c := range []struct {
		name   string
		server *scripted
		tools  string
		codes  string
		says   string
	}{
		{"an import is not delivered", &scripted{services: both, files: map[string][][]byte{"acme.A1": a, "acme.B1": b}}, "a1_get b1_get", "import-missing", `"gogoproto/gogo.proto"`},
		{"a service is not described", &scripted{services: both, files: map[string][][]byte{"acme.B1": b}}, "b1_get", "service-undescribed", "acme.A1"},
		{"the stream breaks at one question", &scripted{services: both, files: map[string][][]byte{"acme.A1": nil, "acme.B1": b}}, "b1_get", "service-undescribed", "broke off"},
		{"noise for a file", &scripted{services: both, files: map[string][][]byte{"acme.A1": {{0xff, 0xff}}, "acme.B1": b}}, "b1_get", "service-undescribed", "acme.A1"},
		{"another file than asked for", &scripted{services: []string{"acme.A1"}, files: map[string][][]byte{"acme.A1": b}}, "", "service-undescribed", "does not define it"},
		{"a file under another path (C31)", &scripted{services: []string{"acme.C1"}, files: map[string][][]byte{"acme.C1": c1, "acme.T": types}}, "c1_get", "import-repaired", `"acme/types.proto"`},
		{"no services", &scripted{}, "", "reflection-empty", "register"},
		{"no end of files", &scripted{services: both, endless: true}, "", "reflection-failed", "4096 files"},
		{"no end of services", &scripted{services: slices.Repeat([]string{"x"}, 5000)}, "", "reflection-failed", "5000 services"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, conn := serve(t, script(c.server))
			s := open(t, reflecting("a", conn)).Snapshot()
			if got := strings.Join(toolNames(s), " "); got != c.tools || codesOf(s) != c.codes {
				t.Errorf("tools %q, findings %q; want %q, %q\n%v", got, codesOf(s), c.tools, c.codes, s.Findings())
			}
			if text := fmt.Sprint(s.Findings()); !strings.Contains(text, c.says) {
				t.Errorf("findings %s do not say %q", text, c.says)
			}
		})
	}
}

// TestServersDisagree pins C37: two servers behind one address, with different services, and with different forms of one.
func TestServersDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := compileFiles(t, map[string]string{"a.proto": `syntax = "proto3"; package acme; message A {} service A1 { rpc Get(A) returns (A); }`}, false)
		second := compileFiles(t, map[string]string{"b.proto": `syntax = "proto3"; package acme; message B {} service B1 { rpc Get(B) returns (B); }`}, false)
		_, conn := serve(t, v1(t, first, "acme.A1"), v1(t, second, "acme.B1"))
		c := open(t, reflecting("a", conn))
		time.Sleep(time.Minute)
		s := c.Snapshot()
		if got := strings.Join(toolNames(s), " "); got != "a1_get b1_get" {
			t.Errorf("tools = %q, want both servers'", got)
		}
		if f := finding(t, s, "reflection-mismatch"); !strings.Contains(f.Message, "acme.A1") || !strings.Contains(f.Message, "acme.B1") {
			t.Errorf("finding = %q, want both lists", f.Message)
		}
		version := s.ToolsVersion()
		for range 20 {
			time.Sleep(30 * time.Second)
			if got := c.Snapshot(); got.ToolsVersion() != version {
				t.Fatalf("the list flaps: %v", toolNames(got))
			}
		}
	})
}

// TestReflectionFollowsTheServer pins that a changed server is noticed at the interval, and at a reconnect at once.
func TestReflectionFollowsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := compileOne(t, `syntax = "proto3"; package acme; message M {} service S { rpc One(M) returns (M); }`)
		two := compileOne(t, `syntax = "proto3"; package acme; message M {} service S { rpc Two(M) returns (M); }`)
		svr, conn := serve(t, v1(t, one, "acme.S"))
		c := open(t, reflecting("a", conn))
		before := c.Snapshot()
		svr.stop(0)
		svr.start(t, 0, v1(t, two, "acme.S"))
		time.Sleep(4 * time.Second)
		if got := strings.Join(toolNames(c.Snapshot()), " "); got != "s_two" {
			t.Errorf("tools after a restart = %q, want s_two", got)
		}
		select {
		case <-before.Superseded():
		default:
			t.Error("the old snapshot is not superseded")
		}
	})
}

// TestFlapping pins the states: lost is Flapping at once and Down after the grace period; lists do not storm.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := compileOne(t, orders)
		svr, conn := serve(t, v1(t, set, "acme.Orders"))
		c := open(t, reflecting("a", conn))
		up := c.Snapshot()
		state := func() catalog.State { return c.Snapshot().Backends()[0].State }

		for range 3 { // short outages change no list
			svr.stop(0)
			time.Sleep(200 * time.Millisecond)
			if s := c.Snapshot(); state() != catalog.Flapping || s.ToolsVersion() != up.ToolsVersion() {
				t.Fatalf("after a lost connection: state %v, tools %v", state(), toolNames(s))
			}
			svr.start(t, 0, v1(t, set, "acme.Orders"))
			time.Sleep(4 * time.Second)
			if s := c.Snapshot(); state() != catalog.Up || s.Version() != up.Version() {
				t.Fatalf("after a short outage: state %v, findings %v", state(), s.Findings())
			}
			time.Sleep(time.Minute)
		}
		svr.stop(0)
		time.Sleep(4900 * time.Millisecond)
		if state() != catalog.Flapping {
			t.Errorf("within the grace period the state is %v", state())
		}
		time.Sleep(400 * time.Millisecond)
		s := c.Snapshot()
		if state() != catalog.Down || len(s.Tools()) != 0 || s.Tool("orders_get") == nil || s.Method("/acme.Orders/Get") == nil {
			t.Errorf("after the grace period: state %v, tools %v", state(), toolNames(s))
		}
		finding(t, s, "backend-unreachable")
		svr.start(t, 0, v1(t, set, "acme.Orders"))
		time.Sleep(5 * time.Minute)
		if s := c.Snapshot(); state() != catalog.Up || s.Version() != up.Version() {
			t.Errorf("healed: state %v, tools %v, findings %v", state(), toolNames(s), s.Findings())
		}
	})
}

// TestBackendThatIsNotThere pins that a catalog opens and is ready without its backend, and lists nothing of it after the grace period.
func TestBackendThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svr, conn := serve(t, func(*grpc.Server) {})
		svr.stop(0)
		path := writeSet(t, "a.binpb", compileOne(t, orders))
		c := open(t, reflecting("a", conn, catalog.File(path)))
		finding(t, c.Snapshot(), "backend-unreachable")
		time.Sleep(6 * time.Second)
		if s := c.Snapshot(); s.Backends()[0].State != catalog.Down || len(s.Tools()) != 0 || s.Tool("orders_get") == nil {
			t.Errorf("state %v, tools %v", s.Backends()[0].State, toolNames(s))
		}
	})
}

// TestCompiledIn pins that only compiled-in services may be infrastructure, and that these are no tools.
func TestCompiledIn(t *testing.T) {
	c := open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "mesh", Sources: []catalog.Source{catalog.CompiledIn(healthpb.File_grpc_health_v1_health_proto, reflectionpb.File_grpc_reflection_v1_reflection_proto)}},
		{Name: "core", Sources: []catalog.Source{catalog.File(corpus + "/triton.binpb")}},
	}})
	s := c.Snapshot()
	svc := s.Service("grpc.health.v1.Health")
	if svc == nil || svc.Backend.Name != "mesh" || !svc.Infrastructure || svc.Methods[0].Tool.Name != "" {
		t.Errorf("health = %+v", svc)
	}
	if len(s.Tools()) != 20 || codesOf(s) != "" {
		t.Errorf("tools %d, findings %v", len(s.Tools()), s.Findings())
	}
	if m := s.Method("/grpc.health.v1.Health/Check"); m.Request() == nil || m.Hash() == "" {
		t.Errorf("method = %+v", m)
	}
}
