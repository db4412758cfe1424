package catalog_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// file returns the file of a set by path.
func file(tb testing.TB, set *descriptorpb.FileDescriptorSet, path string) *descriptorpb.FileDescriptorProto {
	tb.Helper()
	for _, f := range set.File {
		if f.GetName() == path {
			return f
		}
	}
	tb.Fatalf("no file %q", path)
	return nil
}

// without returns the set without some files.
func without(set *descriptorpb.FileDescriptorSet, paths ...string) *descriptorpb.FileDescriptorSet {
	set.File = slices.DeleteFunc(set.File, func(f *descriptorpb.FileDescriptorProto) bool { return slices.Contains(paths, f.GetName()) })
	return set
}

var shop = map[string]string{
	"acme/types.proto":  `syntax = "proto3"; package acme; message T { string id = 1; } enum Kind { KIND_A = 0; }`,
	"acme/option.proto": `syntax = "proto2"; package acme; import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions { optional string note = 50123; }`,
	"acme/api.proto": `syntax = "proto3"; package acme; import "acme/types.proto"; import "acme/option.proto"; import "google/protobuf/any.proto";
		message Own { string id = 1 [(note) = "x"]; google.protobuf.Any any = 2; }
		message Uses { oneof a { T t = 1; string s = 2; } oneof b { T only = 3; } oneof c { string last = 4; } }
		message Reaches { map<string, Uses> m = 1; repeated Reaches r = 2; }
		message Values { map<string, T> m = 1; string id = 2; }
		service S { rpc Keep(Own) returns (Own); rpc Direct(T) returns (Own); rpc Field(Uses) returns (Own); rpc Deep(Own) returns (Reaches); rpc Map(Values) returns (Own); }
		service Other { rpc Keep(Own) returns (Own); }`,
}

// TestLoad pins what is lost, and what is said, when a set is not as it should be.
func TestLoad(t *testing.T) {
	all := "Deep Direct Field Keep Map"
	for _, c := range []struct {
		name    string
		damage  func(*descriptorpb.FileDescriptorSet)
		methods string // of acme.S
		codes   string
		says    []string // in some finding
	}{
		{"as it was", func(*descriptorpb.FileDescriptorSet) {}, all, "", nil},
		{"reversed", func(s *descriptorpb.FileDescriptorSet) { slices.Reverse(s.File) }, all, "", nil},
		{"twice", func(s *descriptorpb.FileDescriptorSet) { s.File = append(s.File, s.File...) }, all, "", nil},
		{"no well-known types (C38)", func(s *descriptorpb.FileDescriptorSet) {
			without(s, "google/protobuf/any.proto", "google/protobuf/descriptor.proto")
		}, all, "", nil},
		{"an import for options is missing (C28)", func(s *descriptorpb.FileDescriptorSet) { without(s, "acme/option.proto") }, all, "import-missing", []string{`"acme/option.proto"`}},
		{"types are missing", func(s *descriptorpb.FileDescriptorSet) { without(s, "acme/types.proto") }, "Keep", "import-missing method-dropped", []string{"acme.T", "acme.S.Deep"}},
		{"another path (C31)", func(s *descriptorpb.FileDescriptorSet) {
			file(t, s, "acme/types.proto").Name = proto.String("types.proto")
		}, all, "import-repaired", []string{`"acme/types.proto"`, `"types.proto"`}},
		{"imports left out", func(s *descriptorpb.FileDescriptorSet) { file(t, s, "acme/api.proto").Dependency = nil }, all, "import-repaired", []string{`"acme/types.proto"`}},
		{"an import twice", func(s *descriptorpb.FileDescriptorSet) {
			f := file(t, s, "acme/api.proto")
			f.Dependency = append(f.Dependency, f.Dependency...)
		}, all, "", nil},
		{"weak and public imports out of range", func(s *descriptorpb.FileDescriptorSet) {
			f := file(t, s, "acme/api.proto")
			f.WeakDependency, f.PublicDependency = []int32{0, 77}, []int32{-1, 99}
		}, all, "", nil},
		{"imports itself", func(s *descriptorpb.FileDescriptorSet) {
			f := file(t, s, "acme/api.proto")
			f.Dependency = append(f.Dependency, f.GetName())
		}, all, "import-cycle", []string{"imports itself"}},
		{"import cycle", func(s *descriptorpb.FileDescriptorSet) {
			f := file(t, s, "acme/types.proto")
			f.Dependency = append(f.Dependency, "acme/api.proto")
			f.MessageType[0].Field = append(f.MessageType[0].Field, &descriptorpb.FieldDescriptorProto{
				Name: proto.String("own"), Number: proto.Int32(9), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
				Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".acme.Own"),
			})
		}, "Keep", "import-cycle method-dropped", []string{"import each other"}},
		{"the types' file is bad", func(s *descriptorpb.FileDescriptorSet) { file(t, s, "acme/types.proto").EnumType[0].Value = nil }, "Keep", "file-dropped method-dropped", []string{`"acme/types.proto"`}},
		{"another file is bad", func(s *descriptorpb.FileDescriptorSet) {
			s.File = append(s.File, &descriptorpb.FileDescriptorProto{Name: proto.String("bad.proto"), Syntax: proto.String("proto9")})
		}, all, "file-dropped", []string{`"bad.proto"`, "proto9"}},
		{"unknown edition", func(s *descriptorpb.FileDescriptorSet) {
			s.File = append(s.File, &descriptorpb.FileDescriptorProto{Name: proto.String("bad.proto"), Syntax: proto.String("editions"), Edition: descriptorpb.Edition_EDITION_MAX.Enum()})
		}, all, "file-dropped", []string{`"bad.proto"`}},
		{"no path", func(s *descriptorpb.FileDescriptorSet) { s.File = append(s.File, &descriptorpb.FileDescriptorProto{}) }, all, "file-dropped", []string{"no path"}},
		{"one path, two contents", func(s *descriptorpb.FileDescriptorSet) {
			s.File = append(s.File, &descriptorpb.FileDescriptorProto{Name: proto.String("acme/api.proto")})
		}, all, "file-duplicate", []string{`"acme/api.proto"`}},
		{"a type and an enum value twice", func(s *descriptorpb.FileDescriptorSet) {
			f := proto.CloneOf(file(t, s, "acme/types.proto"))
			f.Name = proto.String("acme/copy.proto")
			f.EnumType[0].Name = proto.String("Kind2")
			f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("New")})
			s.File = append(s.File, f)
		}, all, "symbol-duplicate", []string{"acme.T", `"acme/copy.proto"`}},
		{"a package named as a message", func(s *descriptorpb.FileDescriptorSet) {
			s.File = append(s.File, &descriptorpb.FileDescriptorProto{Name: proto.String("bad.proto"), Package: proto.String("acme.T")})
		}, all, "file-dropped", []string{`"bad.proto"`}},
		{"a misshapen well-known type", func(s *descriptorpb.FileDescriptorSet) {
			file(t, s, "google/protobuf/any.proto").MessageType[0].Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
		}, all, "file-dropped", []string{"google.protobuf.Any"}},
		{"a map entry is misnamed (C29)", func(s *descriptorpb.FileDescriptorSet) {
			m := file(t, s, "acme/api.proto").MessageType[3]
			m.NestedType[0].Name = proto.String("mEntry")
			m.Field[0].TypeName = proto.String(".acme.Values.mEntry")
		}, all, "map-entry-renamed", []string{"acme.Values.mEntry", "MEntry", "library"}},
		{"relative type names", func(s *descriptorpb.FileDescriptorSet) {
			file(t, s, "acme/api.proto").Service[0].Method[0].InputType = proto.String("Own")
		}, all, "", nil},
		{"no json_name", func(s *descriptorpb.FileDescriptorSet) {
			for _, m := range file(t, s, "acme/api.proto").MessageType {
				for _, f := range m.Field {
					f.JsonName = nil
				}
			}
		}, all, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := compile(t, shop)
			c.damage(set)
			s := static(t, set)
			var got []string
			if svc := s.Service("acme.S"); svc != nil {
				for _, m := range svc.Methods {
					got = append(got, string(m.Desc.Name()))
				}
			}
			if strings.Join(got, " ") != c.methods || codesOf(s) != c.codes {
				t.Errorf("methods %q, findings %q; want %q, %q\n%v", got, codesOf(s), c.methods, c.codes, s.Findings())
			}
			if s.Method("/acme.Other/Keep") == nil {
				t.Errorf("the other service is lost")
			}
			text := fmt.Sprint(s.Findings())
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("findings %s do not say %q", text, want)
				}
			}
		})
	}
}

func TestCommentsSurvivePruning(t *testing.T) {
	set, err := catalog.ReadFile("x", filepath.Join(corpus, "temporal-api.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	pruned, err := catalog.ReadFile("x", filepath.Join(corpus, "variants/temporal-api-noimports.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range set.Methods() {
		if p := pruned.Method(m.FullMethod); p == nil || p.Tool.Description != m.Tool.Description {
			t.Errorf("%s: the description changed when imports were missing", m.FullMethod)
		}
	}
	// The methods before the last lose theirs: positions move.
	sources := map[string]string{
		"a.proto": "syntax = \"proto3\"; import \"b.proto\"; message M {}\nservice S {\n// One.\nrpc One(B) returns (M);\n// Two.\nrpc Two(M) returns (M);\n}",
		"b.proto": `syntax = "proto3"; message B {}`,
	}
	path := writeSet(t, "a.binpb", without(compile(t, sources), "b.proto"))
	s, err := catalog.ReadFile("x", path)
	if err != nil {
		t.Fatal(err)
	}
	if m := s.Method("/S/Two"); m == nil || !strings.HasPrefix(m.Tool.Description, "Two.") {
		t.Errorf("S.Two = %+v", m)
	}
}

// TestOwnTypesPerBackend pins C32: one path and one name in two backends, and a file that this binary links in another age.
func TestOwnTypesPerBackend(t *testing.T) {
	source := func(svc, field string) catalog.Source {
		return catalog.File(writeSet(t, "set.binpb", compile(t, map[string]string{
			"api.proto":               `syntax = "proto3"; package api; import "google/rpc/status.proto"; message Item { ` + field + ` = 1; } service ` + svc + ` { rpc Get(Item) returns (google.rpc.Status); }`,
			"google/rpc/status.proto": `syntax = "proto3"; package google.rpc; message Status { ` + field + ` = 7; }`,
		})))
	}
	s := open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "a", Sources: []catalog.Source{source("A", "string name")}},
		{Name: "b", Sources: []catalog.Source{source("B", "int32 count")}},
	}}).Snapshot()
	for _, c := range []struct{ method, in, out string }{{"/api.A/Get", `{"name":"x"}`, `{"name":"y"}`}, {"/api.B/Get", `{"count":3}`, `{"count":4}`}} {
		m := s.Method(c.method)
		for _, dir := range []struct {
			msg  *transcode.Message
			json string
		}{{m.Request(), c.in}, {m.Response(), c.out}} {
			wire, err := dir.msg.AppendWire(nil, []byte(dir.json), transcode.ReadOptions{})
			if err != nil {
				t.Errorf("%s: AppendWire(%s) = %v", c.method, dir.json, err)
				continue
			}
			if back, err := dir.msg.AppendJSON(nil, wire, transcode.WriteOptions{}); err != nil || string(back) != dir.json {
				t.Errorf("%s: AppendJSON = %s, %v, want %s", c.method, back, err, dir.json)
			}
		}
	}
}

func TestOwnership(t *testing.T) {
	set := func(pkg, path string) catalog.Source {
		return catalog.File(writeSet(t, "set.binpb", compileOne(t, header+`service S { rpc Do(In) returns (Out) { option (google.api.http) = {get: "/v1/x"}; } }
			service `+pkg+` { rpc Own(In) returns (Out) { option (google.api.http) = {get: "`+path+`"}; } }`)))
	}
	s := open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "first", Sources: []catalog.Source{set("A", "/v1/a")}},
		{Name: "second", Sources: []catalog.Source{set("B", "/v1/x")}, Services: []string{"acme.v1.*", "acme.v9.Nope"}},
		{Name: "third", Sources: []catalog.Source{set("C", "/v1/c")}, Services: []string{"acme.v1.S"}},
	}}).Snapshot()
	if got := s.Service("acme.v1.S").Backend.Name; got != "first" {
		t.Errorf("acme.v1.S belongs to %q, want the first", got)
	}
	if s.Service("acme.v1.B").Backend.Name != "second" || s.Service("acme.v1.C") != nil {
		t.Errorf("services = %v", s.Services())
	}
	if b := s.Method("/acme.v1.B/Own").Bindings; len(b) != 0 {
		t.Errorf("bindings of B = %v, want none: the first backend owns the route", b)
	}
	f := finding(t, s, "service-owned")
	for _, want := range []string{"acme.v1.S", `"first"`, `"second"`} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("finding %q does not say %s", f.Message, want)
		}
	}
	if f := finding(t, s, "service-missing"); f.Subject != "acme.v9.Nope" {
		t.Errorf("finding = %+v", f)
	}
	finding(t, s, "route-clash")
}

// FuzzLoad gives the loader, the builder and the check any bytes.
func FuzzLoad(f *testing.F) {
	set := compile(f, shop)
	b, err := proto.Marshal(set)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-40])
	b, err = proto.Marshal(compileOne(f, header+`service S { rpc Do(In) returns (Out) { option (google.api.http) = {get: "/v1/{id=a/*}:x"}; } }`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"file":[{"name":"a.proto"}]}`))
	f.Add([]byte("file { name: \"a.proto\" }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := catalog.Decode(data)
		if err != nil {
			return
		}
		use(t, c)
	})
}

// FuzzBuild mutates one valid set at one place, which gets further than any bytes do.
func FuzzBuild(f *testing.F) {
	b, err := proto.Marshal(file(f, compile(f, shop), "acme/api.proto"))
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(b); i += 7 {
		f.Add(i, byte(i), byte(1))
	}
	types, err := proto.Marshal(file(f, compile(f, shop), "acme/types.proto"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at int, with, more byte) {
		if at < 0 || at >= len(b)-1 {
			return
		}
		c := slices.Clone(b)
		c[at], c[at+1] = with, c[at+1]+more
		s, err := catalog.LoadFiles(c, types)
		if err == nil {
			use(t, s)
		}
	})
}

// use does with a snapshot what the doors do.
func use(t *testing.T, s *catalog.Snapshot) {
	catalog.Check(s)
	s.ToolsVersion()
	for _, m := range s.Methods() {
		msg := dynamicpb.NewMessage(m.Desc.Input())
		msg.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { return true })
		if m.Tool.Name != "" && s.Tool(m.Tool.Name) == nil {
			t.Errorf("tool %q is not found", m.Tool.Name)
		}
	}
	for _, r := range s.Resources() {
		values := slices.Repeat([]string{"~/ä"}, len(r.Vars()))
		if _, err := r.Request(values); err == nil {
			s.Resource(r.Expand(values))
		}
	}
	for _, p := range s.Prompts() {
		for _, m := range p.Messages {
			m.Text.With(nil)
		}
	}
}
