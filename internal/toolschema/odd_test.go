package toolschema_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/toolschema"
)

// TestExtensions holds the schema of a message with extensions to what is written of them.
func TestExtensions(t *testing.T) {
	md := find(t, source(t, `syntax = "proto2"; package t; message M { optional int32 a = 1; extensions 100 to 200; } extend M { optional int32 x = 100; }`), "M")
	for _, d := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
		for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full} {
			schema := mustCompile(t, toolschema.For(md, toolschema.Options{Direction: d, Profile: p}))
			if err := validate(t, schema, []byte(`{"a":1,"[t.x]":2}`)); err != nil {
				t.Errorf("%v schema refuses an extension: %v", p, err)
			}
			if err := validate(t, schema, []byte(`{"b":1}`)); err == nil && p == toolschema.Full {
				t.Errorf("%v schema accepts an unknown key", p)
			}
		}
	}
}

// TestSameKey derives schemas of a contract in which two fields have one JSON name.
func TestSameKey(t *testing.T) {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), JsonName: proto.String("fooBar"), Number: proto.Int32(number), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: kind.Enum()}
	}
	md := message(t, &descriptorpb.FileDescriptorProto{Name: proto.String("x.proto"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
		field("foo_bar", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING),
		field("other", 2, descriptorpb.FieldDescriptorProto_TYPE_BOOL),
	}}}})
	const want = `{"type":"object","properties":{"fooBar":{"type":"string"},"other":{"type":"boolean"}}}`
	if got := string(toolschema.For(md, toolschema.Options{})); got != want {
		t.Errorf("For(M) = %s, want %s", got, want)
	}
}

// FuzzFor derives schemas of whatever descriptor can be built: no panic, and the result is valid and within its budget.
func FuzzFor(f *testing.F) {
	seen := 0
	for _, set := range []string{"connect-conformance", "vault-sdk", "gnmi"} {
		b, err := os.ReadFile(filepath.Join(corpusDir(f), set+".binpb"))
		if err != nil {
			f.Fatal(err)
		}
		s := &descriptorpb.FileDescriptorSet{}
		if err := proto.Unmarshal(b, s); err != nil {
			f.Fatal(err)
		}
		for _, file := range s.GetFile() {
			if seen++; seen%every(f, 4) != 0 {
				continue
			}
			file.SourceCodeInfo = nil
			b, err := proto.Marshal(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file := &descriptorpb.FileDescriptorProto{}
		if proto.Unmarshal(b, file) != nil {
			return
		}
		fd, err := protodesc.FileOptions{AllowUnresolvable: true}.New(file, nil)
		if err != nil {
			return
		}
		for i := range min(fd.Messages().Len(), 20) {
			everyProfile(t, fd.Messages().Get(i))
		}
	})
}

func everyProfile(t *testing.T, md protoreflect.MessageDescriptor) {
	t.Helper()
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		for _, d := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
			schema := toolschema.For(md, toolschema.Options{Profile: p, Direction: d, MaxBytes: 4096})
			if len(schema) > 4096 {
				t.Errorf("%v schema of %s has %d bytes", p, md.FullName(), len(schema))
			}
			if _, err := compile(schema); err != nil {
				t.Errorf("%v schema of %s does not compile: %v\n%s", p, md.FullName(), err, schema)
			}
			for _, problem := range toolschema.Problems(schema, p, d) {
				t.Errorf("%v schema of %s: %s\n%s", p, md.FullName(), problem, schema)
			}
		}
	}
}
