package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

func TestToolNames(t *testing.T) {
	long := "very.long.company.division.product.subsystem.v1"
	for _, c := range []struct{ pkg, service, method, want string }{
		{"acme.v1", "Orders", "Get", "orders_get"}, // C05: no dots
		{"acme.v1", "OrderService", "GetOrder", "order_get_order"},
		{"acme", "Service", "Do", "service_do"},
		{"acme.v2", "LogService", "Search", "log_search_v2"},
		{"acme.v1beta1.resources", "LogService", "Search", "log_search_v1beta1"},
		{"acme.api_v2", "LogService", "Search", "log_search"},
		{"acme", "Stats", "GetHTTPStatus", "stats_get_http_status"},
		{"acme", "Stats", "GetIDs", "stats_get_ids"},
		{"acme", "Stats", "ListVMsByZone", "stats_list_vms_by_zone"},
		{"acme", "OAuth2", "Get2FACode", "o_auth2_get2_fa_code"},
		{"acme", "snake_service", "_do__it_", "snake_do_it"},
		{"acme", "_1st", "Go", "t_1st_go"},
		{"acme", "XMLHTTPService", "RPC", "xmlhttp_rpc"},
		{long, "SecuritiesResearchService", "GetEquityResearchReportByInstrument", "securities_research_get_equity_research_5frj5bep"}, // C04
	} {
		set := compileOne(t, fmt.Sprintf("syntax = \"proto3\"; package %s; message M {} service %s { rpc %s(M) returns (M); }", c.pkg, c.service, c.method))
		s := static(t, set)
		if got := toolNames(s); len(got) != 1 || got[0] != c.want {
			t.Errorf("tool of %s.%s.%s = %q, want %q", c.pkg, c.service, c.method, got, c.want)
		}
		full := c.pkg + "." + c.service + "." + c.method
		if d := s.Tools()[0].Tool.Description; !strings.Contains(d, full) {
			t.Errorf("description of %s = %q, which does not name it", full, d)
		}
	}
}

func TestToolNameOption(t *testing.T) {
	set := compileOne(t, `syntax = "proto3"; package acme.v1; import "toolway/v1/options.proto"; message M {}
		service S {
			rpc Good(M) returns (M) { option (toolway.v1.method) = {tool_name: "find-it"}; }
			rpc Bad(M) returns (M) { option (toolway.v1.method) = {tool_name: "1.bad"}; }
		}`)
	s := static(t, set)
	if got := strings.Join(toolNames(s), " "); got != "find-it s_bad" {
		t.Errorf("tools = %q, want %q", got, "find-it s_bad")
	}
	if f := finding(t, s, "tool-name-invalid"); !strings.Contains(f.Message, `"1.bad"`) {
		t.Errorf("finding = %+v, want one that quotes the name", f)
	}
}

func TestToolPrefix(t *testing.T) {
	path := writeSet(t, "a.binpb", compileOne(t, `syntax = "proto3"; package acme.v1; message M {} service S { rpc Do(M) returns (M); }`))
	c := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{catalog.File(path)}, ToolPrefix: "shop"}}})
	if got := toolNames(c.Snapshot()); len(got) != 1 || got[0] != "shop_s_do" {
		t.Errorf("tools = %q, want shop_s_do", got)
	}
}

// TestToolClash pins C07: both methods can be called under names that depend on them alone, and the clash is reported.
func TestToolClash(t *testing.T) {
	sources := map[string]string{
		"b.proto": `syntax = "proto3"; package shop.v1; message A {} service Api { rpc Get(A) returns (A); }`,
		"a.proto": `syntax = "proto3"; package shop_v1; message B {} service Api { rpc Get(B) returns (B); }`,
	}
	set := compile(t, sources)
	s := static(t, set)
	second := s.Method("/shop_v1.Api/Get").Tool.Name
	if got := strings.Join(toolNames(s), " "); got != "api_get "+second || !strings.HasPrefix(second, "api_get_") {
		t.Errorf("tools = %q, want api_get, and the other with its hash", got)
	}
	if m := s.Tool("api_get"); m.FullMethod != "/shop.v1.Api/Get" {
		t.Errorf("api_get = %s, want the earlier full name", m.FullMethod)
	}
	f := finding(t, s, "tool-clash")
	for _, want := range []string{"shop.v1.Api.Get", "shop_v1.Api.Get", `; set the tool_name option on one method, or list the backend twice, once with services: ["shop_v1.*"] and a tool_prefix`, s.Method("/shop_v1.Api/Get").Tool.Name} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("clash = %q, want it to say %q", f.Message, want)
		}
	}
	if m := s.Tool(second); m == nil || m.FullMethod != "/shop_v1.Api/Get" {
		t.Errorf("Tool(%q) = %v, want the second method", second, m)
	}
	set.File[0], set.File[1] = set.File[1], set.File[0]
	if again := static(t, set); again.Version() != s.Version() {
		t.Errorf("the order of files decides the clash")
	}
	both := []catalog.Source{catalog.File(writeSet(t, "both.binpb", set))}
	twice := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: both, Services: []string{"shop.v1.*"}}, {Name: "b", Sources: both, Services: []string{"shop_v1.*"}, ToolPrefix: "old"}}})
	if got := strings.Join(toolNames(twice.Snapshot()), " "); got != "api_get old_api_get" {
		t.Errorf("tools of the backend listed twice = %q, want the clash gone", got)
	}
	a, b := writeSet(t, "a.binpb", compileOne(t, sources["a.proto"])), writeSet(t, "b.binpb", compileOne(t, sources["b.proto"]))
	two := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{catalog.File(a)}}, {Name: "b", Sources: []catalog.Source{catalog.File(b)}}}})
	if f := finding(t, two.Snapshot(), "tool-clash"); !strings.Contains(f.Message, "; set a tool prefix on one backend, or the tool_name option") {
		t.Errorf("clash of two backends = %q, want the prefix as its mend", f.Message)
	}
}

// TestNamesDependOnTheMethodAlone takes random parts of the shared sets: every listed tool keeps the name it has alone.
func TestNamesDependOnTheMethodAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	name := regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	alone := map[string]string{}
	var sets []string
	for _, p := range corpusFiles(t) {
		if strings.HasSuffix(p, ".binpb") && !strings.Contains(p, "variants") && !strings.Contains(p, "googleapis") {
			sets = append(sets, p)
		}
	}
	for round := range 6 {
		var backends []catalog.BackendConfig
		for i, p := range rng.Perm(len(sets))[:3] {
			backends = append(backends, catalog.BackendConfig{Name: fmt.Sprint(i), Sources: []catalog.Source{catalog.File(sets[p])}})
		}
		s := open(t, catalog.Config{Backends: backends}).Snapshot()
		for _, m := range s.Tools() {
			if old, ok := alone[m.FullMethod]; ok && old != m.Tool.Name {
				t.Errorf("round %d: %s is named %q and %q", round, m.FullMethod, old, m.Tool.Name)
			}
			alone[m.FullMethod] = m.Tool.Name
			if !name.MatchString(m.Tool.Name) {
				t.Errorf("%s has the name %q", m.FullMethod, m.Tool.Name)
			}
		}
	}
}

// FuzzToolName gives services and methods any names that a descriptor can hold.
func FuzzToolName(f *testing.F) {
	f.Add("acme.v1", "OrderService", "GetHTTPStatus")
	f.Add("", "_", "__")
	f.Add("a.v99x", strings.Repeat("X", 300), strings.Repeat("y_", 300))
	f.Add("p", "É", "9")
	name := regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,47}$`)
	f.Fuzz(func(t *testing.T, pkg, service, method string) {
		fdp := &descriptorpb.FileDescriptorProto{
			Name: proto.String("f.proto"), Package: proto.String(pkg), Syntax: proto.String("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M_")}},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: &service, Method: []*descriptorpb.MethodDescriptorProto{
				{Name: &method, InputType: proto.String("M_"), OutputType: proto.String("M_")},
			}}},
		}
		s, err := catalog.Static("x", &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{fdp}})
		if err != nil {
			return
		}
		for _, m := range s.Tools() {
			if !name.MatchString(m.Tool.Name) || m.Tool.Title == "" || m.Tool.Description == "" {
				t.Errorf("%q: tool %+v", m.FullMethod, m.Tool)
			}
		}
	})
}

func TestReservedServices(t *testing.T) {
	c := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "core", Sources: []catalog.Source{catalog.File(filepath.Join(corpus, "grpc-core.binpb"))}}}})
	s := c.Snapshot()
	for _, name := range []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.channelz.v1.Channelz"} {
		if s.Service(name) != nil {
			t.Errorf("%s of a backend is served", name)
		}
	}
	if s.Service("grpc.testing.TestService") == nil {
		t.Errorf("grpc.testing.TestService is not served")
	}
	path := writeSet(t, "a.binpb", compileOne(t, `syntax = "proto3"; package toolway.v9; message M {} service S { rpc Do(M) returns (M); }`))
	c = open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{catalog.File(path)}}}})
	if f := finding(t, c.Snapshot(), "service-reserved"); f.Subject != "toolway.v9.S" || c.Snapshot().Service(f.Subject) != nil {
		t.Errorf("finding = %+v", f)
	}
}

// TestMeshIsNoTool has the mesh's own API beside a backend's: it has methods and routes, but no tools.
func TestMeshIsNoTool(t *testing.T) {
	set := compile(t, map[string]string{"toolway/x.proto": `syntax = "proto3"; package toolway.x; import "google/api/annotations.proto"; message M {}
		service S { rpc Do(M) returns (M) { option (google.api.http) = {get: "/v1/x"}; } }`})
	all, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := all.FindFileByPath("toolway/x.proto")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "toolway", Sources: []catalog.Source{catalog.CompiledIn(fd)}}}})
	s := c.Snapshot()
	m := s.Method("/toolway.x.S/Do")
	if m == nil || !m.Service.Mesh || len(m.Bindings) != 1 || m.Tool.Description == "" {
		t.Fatalf("method %+v, want the mesh's own, with a route and a description", m)
	}
	if len(s.Tools()) != 0 || s.Tool("s_do") != nil || m.Tool.Name != "" {
		t.Errorf("tools %v: the mesh's own API is no tool", toolNames(s))
	}

	c = open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "toolway", Sources: []catalog.Source{catalog.CompiledIn(fd)}},
		{Name: "mesh", Sources: []catalog.Source{catalog.File(writeSet(t, "mesh.binpb", set))}},
	}})
	s = c.Snapshot()
	if f := s.Findings(); len(f) != 0 || s.Service("toolway.x.S").Backend.Name != "toolway" {
		t.Errorf("findings of a mesh before a mesh = %+v, want none: both have the service, and each serves its own", f)
	}
	if r := catalog.Check(s); !r.Fit || r.Totals != (catalog.Totals{Backends: 1}) {
		t.Errorf("Check = %+v, want nothing of the mesh's own", r)
	}
}
