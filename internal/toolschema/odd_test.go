package toolschema_test

import (
	"encoding/json"
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

// TestEmptyName derives schemas of a field whose JSON name is empty.
func TestEmptyName(t *testing.T) {
	md := message(t, &descriptorpb.FileDescriptorProto{Name: proto.String("x.proto"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
		{Name: proto.String("a"), JsonName: proto.String(""), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()},
	}}}})
	for _, c := range []struct {
		o    toolschema.Options
		want string
	}{
		{toolschema.Options{Profile: toolschema.Full}, `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`},
		{toolschema.Options{Direction: toolschema.Output}, `{"type":"object","description":"There if set, but not described here: \"\" (a string).","properties":{}}`},
	} {
		if got := string(toolschema.For(md, c.o)); got != c.want {
			t.Errorf("For(M, %v) = %s, want %s", c.o, got, c.want)
		}
	}
}

// TestOddRules derives input schemas of rules whose values model APIs and validators refuse in a keyword.
func TestOddRules(t *testing.T) {
	for _, c := range []struct {
		field, portable, full string
	}{
		{
			`string a = 1 [(buf.validate.field).string = {in: ["", "x", "y", "x"]}];`,
			`{"type":"string","description":"May be empty.","enum":["x","y"]}`, `{"type":"string","enum":["","x","y"]}`,
		},
		{
			`string a = 1 [(buf.validate.field).string.const = ""];`,
			`{"type":"string","description":"Must be empty."}`, `{"type":"string","enum":[""]}`,
		},
		{
			`string a = 1 [(buf.validate.field).string.not_in = "x", (buf.validate.field).string.not_in = "x"];`,
			`{"type":"string","description":"None of \"x\"."}`, `{"type":"string","not":{"enum":["x"]}}`,
		},
		{
			`string a = 1 [(buf.validate.field).string = {not_in: ["\xfe", "\xff"]}];`,
			`{"type":"string","description":"None of \"\"."}`, "{\"type\":\"string\",\"not\":{\"enum\":[\"\ufffd\"]}}",
		},
		{
			`enum E { E_A = 0; } optional E a = 1 [(buf.validate.field).enum = {not_in: [5, 5]}];`,
			`{"type":"string","enum":["E_A"]}`, `{"anyOf":[{"type":"string","enum":["E_A"]},{"type":"integer","not":{"enum":[5]}}]}`,
		},
		{
			`string a = 1 [(buf.validate.field).string.max_len = 18446744073709551615];`,
			`{"type":"string","description":"At most 18446744073709551615 characters."}`, `{"type":"string","description":"At most 18446744073709551615 characters."}`,
		},
		{
			`string a = 1 [(buf.validate.field).string.len = 9007199254740992, (buf.validate.field).ignore = IGNORE_IF_ZERO_VALUE];`,
			`{"type":"string","description":"Exactly 9007199254740992 characters."}`, `{"description":"Exactly 9007199254740992 characters.","anyOf":[{"enum":[""]},{"type":"string"}]}`,
		},
		{
			`optional int64 a = 1 [(buf.validate.field).int64 = {in: [9223372036854775807, 1, 1]}];`,
			`{"type":"string","description":"int64 in decimal; a number works too.","enum":["9223372036854775807","1"],"pattern":"^-?(0|[1-9][0-9]{0,18})$"}`,
			`{"type":["string","integer"],"description":"int64 in decimal; a string keeps its value everywhere.","enum":["9223372036854775807",1,"1"],"pattern":"^-?(0|[1-9][0-9]{0,18})$"}`,
		},
		{
			`optional uint64 a = 1 [(buf.validate.field).uint64 = {not_in: [18446744073709551615]}];`,
			`{"type":"string","description":"uint64 in decimal; a number works too. None of 18446744073709551615.","pattern":"^(0|[1-9][0-9]{0,19})$"}`,
			`{"type":["string","integer"],"description":"uint64 in decimal; a string keeps its value everywhere. None of 18446744073709551615.","pattern":"^(0|[1-9][0-9]{0,19})$","minimum":0}`,
		},
		{
			`map<string, string> a = 1 [(buf.validate.field).map.values.string = {in: ["", "x"]}];`,
			`{"type":"object","description":"Map: keys are strings, each value is a string. Values: one of \"\", \"x\"."}`,
			`{"type":"object","description":"Map: keys are strings.","additionalProperties":{"type":"string","enum":["","x"]}}`,
		},
	} {
		md := find(t, source(t, imports+`message M { `+c.field+` }`), "M")
		for p, want := range map[toolschema.Profile]string{toolschema.Portable: c.portable, toolschema.Full: c.full} {
			schema := toolschema.For(md, toolschema.Options{Profile: p})
			var parsed struct{ Properties map[string]json.RawMessage }
			if err := json.Unmarshal(schema, &parsed); err != nil {
				t.Fatal(err)
			}
			if got := string(parsed.Properties["a"]); got != want {
				t.Errorf("%s: %v schema %s, want %s", c.field, p, got, want)
			}
			for _, problem := range toolschema.Problems(schema, p, toolschema.Input) {
				t.Errorf("%s: %v schema: %s", c.field, p, problem)
			}
		}
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
