package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestPolicyTest judges calls of a service with one method.
func TestPolicyTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(emptypb.File_google_protobuf_empty_proto), {
		Name: proto.String("a.proto"), Package: proto.String("a"), Syntax: proto.String("proto3"), Dependency: []string{"google/protobuf/empty.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("In"), Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("size"), JsonName: proto.String("size"), Number: proto.Int32(1),
			Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{{Name: proto.String("Do"), InputType: proto.String(".a.In"), OutputType: proto.String(".google.protobuf.Empty")}}}},
	}}}
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	write("a.binpb", string(raw))
	config := write("toolway.yaml", "backends: [{name: a, descriptors: [a.binpb]}]\nrules: {list: [{name: big, match: a.S, when: request.size > 3, message: too big}]}\naudit: {file: no/such/directory}\n")
	odd := write("odd.yaml", "backends: [{name: a, descriptors: [a.binpb]}]\nrules: {list: [{name: big, match: a.S, when: request.sise > 3}]}\n")
	good := write("good.yaml", "cases: [{method: a.S/Do, request: {size: 4}, expect: deny, rule: big}, {name: small, method: s_do, request: {size: 3}, expect: allow}]\n")
	bad := write("bad.yaml", "cases:\n  - {name: small, method: a.S/Do, expect: deny, rule: big}\n  - {method: a.S/Do, request: {size: 4}, expect: allow}\n  - {method: a.S/Doo, expect: allow}\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--config", config, good}, 0, "ok    good.yaml:1: a.S/Do\nok    good.yaml:1: small\n2 cases, 0 failed\n"},
		{[]string{"--config", config, good, bad}, 1, "FAIL  bad.yaml:2: small\n        want  deny by \"big\"\n        got   allow\n" +
			"FAIL  bad.yaml:3: a.S/Do\n        want  allow\n        got   deny by \"big\"\n        why   too big\n" +
			"FAIL  bad.yaml:4: a.S/Doo\n        there is no method \"a.S/Doo\"; did you mean \"a.S/Do\"?\n5 cases, 3 failed\n"},
		{[]string{"--config", odd, good}, 1, "got   deny by \"big\"\n"},
		{[]string{"--config", config}, 2, ""},
		{[]string{"--config", config, filepath.Join(dir, "none.yaml")}, 2, ""},
	} {
		out, code := runWith(t, append([]string{"policy", "test"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: exit code %d, want %d\n%s\nwant\n%s", c.args, code, c.code, out, c.want)
		}
	}
}
