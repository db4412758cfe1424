package toolschema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/structpb"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// source compiles the text of a .proto file, as a backend's descriptors reach the mesh: as bytes, parsed again.
func source(t testing.TB, text string) *protoregistry.Files {
	t.Helper()
	if !strings.HasPrefix(text, "syntax") && !strings.HasPrefix(text, "edition") {
		text = `syntax = "proto3"; package t; ` + text
	}
	c := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.CompositeResolver{
			protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
				fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
				return protocompile.SearchResult{Desc: fd}, err
			}),
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"t.proto": text})},
		},
	}
	compiled, err := c.Compile(context.Background(), "t.proto")
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(protodesc.ToFileDescriptorProto(compiled[0]))
	if err != nil {
		t.Fatal(err)
	}
	fdp := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(b, fdp); err != nil {
		t.Fatal(err)
	}
	fd, err := protodesc.FileOptions{AllowUnresolvable: true}.New(fdp, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	files := &protoregistry.Files{}
	if err := files.RegisterFile(fd); err != nil {
		t.Fatal(err)
	}
	return files
}

func find(t testing.TB, files *protoregistry.Files, name string) protoreflect.MessageDescriptor {
	t.Helper()
	d, err := files.FindDescriptorByName(protoreflect.FullName("t." + name))
	if err != nil {
		if d, err = files.FindDescriptorByName(protoreflect.FullName("google.protobuf." + name)); err != nil {
			t.Fatal(err)
		}
	}
	return d.(protoreflect.MessageDescriptor)
}

const imports = `import "google/protobuf/struct.proto"; import "google/protobuf/any.proto"; import "google/protobuf/field_mask.proto";
import "buf/validate/validate.proto"; import "google/api/field_behavior.proto"; import "google/api/resource.proto";
`

// TestCases pins what public reports found wrong elsewhere (cases/BUGS.md): a schema holds each text of has, none of lacks.
func TestCases(t *testing.T) {
	for _, c := range []struct {
		name, proto, message string
		options              toolschema.Options
		has, lacks           []string
	}{
		{
			name: "C01 recursion is finite", message: "Rule",
			proto: `message Rule { message All { repeated Rule rules = 1; } oneof kind { All all = 1; string tag = 2; } }`,
			has:   []string{`Set at most one of all, tag.`, `Nests on: the same keys as the Rule around it.`},
			lacks: []string{`$ref`},
		},
		{
			name: "C01 recursion refers to itself in full", message: "Rule", options: toolschema.Options{Profile: toolschema.Full},
			proto: `message Rule { message All { repeated Rule rules = 1; } oneof kind { All all = 1; string tag = 2; } }`,
			has:   []string{`"items":{"$ref":"#/$defs/t.Rule"}`, `"oneOf":[{"required":["all"]},{"required":["tag"]},{"not":`},
		},
		{
			name: "C02 map keys in words", message: "In",
			proto: `message In { map<bool,string> flags = 1; map<int64,In> by_id = 2; map<uint32,bytes> raw = 3; }`,
			has:   []string{`keys are \"true\" or \"false\", each value is a string`, `keys are decimal integers`, `keys are decimal digits, each value is a base64 string`},
			lacks: []string{`additionalProperties`},
		},
		{
			name: "C02 map keys as keywords", message: "In", options: toolschema.Options{Profile: toolschema.Full},
			proto: `message In { map<bool,string> flags = 1; map<int64,In> by_id = 2; map<uint32,bytes> raw = 3; }`,
			has:   []string{`"propertyNames":{"enum":["true","false"]}`, `"propertyNames":{"pattern":"^-?(0|[1-9][0-9]{0,18})$"}`, `"propertyNames":{"pattern":"^(0|[1-9][0-9]{0,19})$"}`},
		},
		{
			name: "C02 map keys where maps cannot be said", message: "In", options: toolschema.Options{Profile: toolschema.Strict},
			proto: `message In { map<bool,string> flags = 1; string s = 2; }`,
			has:   []string{`not described here: flags (map: keys are \"true\" or \"false\", each value is a string)`},
		},
		{
			name: "C08 no union at the root", message: "Pay", options: toolschema.Options{Profile: toolschema.Full},
			proto: `message Pay { oneof method { Card card = 1; Iban iban = 2; } } message Card { string no = 1; } message Iban { string no = 1; }`,
			has:   []string{`Set at most one of card, iban.`},
			lacks: []string{`oneOf`, `anyOf`},
		},
		{
			name: "C10 small things are inlined", message: "In",
			proto: `enum Color { COLOR_UNSPECIFIED = 0; RED = 1; } message In { Color a = 1; Color b = 2; Point p = 3; Point q = 4; } message Point { double x = 1; }`,
			has:   []string{`"b":{"type":"string","enum":["COLOR_UNSPECIFIED","RED"]}`, `"q":{"type":"object","properties":{"x":{"type":"number"}}}`},
			lacks: []string{`$`},
		},
		{
			name: "C13 the accepted subset", message: "In",
			proto: imports + `enum Color { NONE = 0; RED = 1; } message In { map<string,int32> m = 1; optional string s = 2; int32 n = 3 [(buf.validate.field).int32.gt = 0]; Color c = 4; google.protobuf.Struct x = 5; double d = 6 [(buf.validate.field).double.gt = 0]; }`,
			has: []string{`"m":{"type":"object","description":"Map: keys are strings, each value is an integer."}`, `"n":{"type":"integer","format":"int32","minimum":1}`,
				`"d":{"type":"number","description":"Must be more than 0.","minimum":0}`, `"x":{"type":"object","description":"Any JSON object."}`},
			lacks: []string{`additionalProperties`, `exclusive`, `["string"`},
		},
		{
			name: "C14 enum names, aliases too", message: "In",
			proto: `enum Size { option allow_alias = true; SIZE_UNSPECIFIED = 0; S = 256; SMALL = 256; L = 512; } message In { Size size = 1; }`,
			has:   []string{`"type":"string","enum":["SIZE_UNSPECIFIED","S","SMALL","L"]`},
			lacks: []string{`256`},
		},
		{
			name: "C14 an alias is never written", message: "In", options: toolschema.Options{Direction: toolschema.Output},
			proto: `enum Size { option allow_alias = true; SIZE_UNSPECIFIED = 0; S = 256; SMALL = 256; L = 512; } message In { Size size = 1; }`,
			has:   []string{`{"anyOf":[{"type":"string","enum":["SIZE_UNSPECIFIED","S","L"]},{"type":"integer"}]}`},
		},
		{
			name: "C16 64-bit integers are strings", message: "M", options: toolschema.Options{Direction: toolschema.Output},
			proto: `message M { int64 id = 1; uint64 m = 2; repeated sint64 l = 3; }`,
			has: []string{`"id":{"type":"string","pattern":"^-?(0|[1-9][0-9]{0,18})$"}`, `"m":{"type":"string","pattern":"^(0|[1-9][0-9]{0,19})$"}`,
				`"l":{"type":"array","items":{"type":"string","pattern":"^-?(0|[1-9][0-9]{0,18})$"}}`},
		},
		{
			name: "C19 JSON types are not expanded", message: "In",
			proto: imports + `message In { google.protobuf.Struct meta = 1; google.protobuf.Value any = 2; repeated google.protobuf.ListValue rows = 3; google.protobuf.NullValue none = 4; }`,
			has: []string{`"meta":{"type":"object","description":"Any JSON object."}`, `"any":{"anyOf":[{"type":"string",`,
				`"rows":{"type":"array","items":{"type":"array","description":"Any JSON values.","items":{"anyOf"`, `"none":{"type":"null"}`},
			lacks: []string{`fields`, `structValue`},
		},
		{
			name: "C20 Any in words", message: "In", options: toolschema.Options{AnyTypes: []string{"t.In", "t.Out"}},
			proto: imports + `message In { google.protobuf.Any config = 1; }`,
			has:   []string{`\"@type\" is required`, `go into \"value\"`, `Known types: t.In, t.Out.`},
			lacks: []string{`typeUrl`},
		},
		{
			name: "C20 Any as keywords", message: "In", options: toolschema.Options{Profile: toolschema.Full},
			proto: imports + `message In { google.protobuf.Any config = 1; }`,
			has:   []string{`"properties":{"@type":{"type":"string"}},"required":["@type"]}`},
		},
		{
			name: "C22 one naming", message: "In",
			proto: `message In { oneof pick { string first_name = 1; string last_name = 2 [json_name = "surname"]; } }`,
			has:   []string{`Set at most one of firstName, surname.`, `"surname":{`},
			lacks: []string{`last`, `first_name`},
		},
		{
			name: "C23 lenient input", message: "M", options: toolschema.Options{Profile: toolschema.Full},
			proto: imports + `enum E { Z = 0; } message M { double d = 1; int64 n = 2; bytes b = 3; E e = 4; google.protobuf.FieldMask m = 5; }`,
			has:   []string{`{"type":"integer"}`, `["string","integer"]`, `"m":{"type":"string"`, `"NaN"`},
		},
		{
			name: "C23 exact output", message: "M", options: toolschema.Options{Direction: toolschema.Output},
			proto: imports + `enum E { Z = 0; } message M { double d = 1; int64 n = 2; bytes b = 3; E e = 4; google.protobuf.FieldMask m = 5; }`,
			has:   []string{`"d":{"anyOf":[{"type":"number"},{"type":"string","enum":["NaN","Infinity","-Infinity"]}]}`, `"b":{"type":"string","description":"Base64.","pattern":"^[A-Za-z0-9+/]*={0,2}$"}`},
		},
		{
			name: "C25 unknown keys", message: "M", options: toolschema.Options{Profile: toolschema.Full},
			proto: `message M { string name = 1; }`,
			has:   []string{`"additionalProperties":false`},
		},
		{
			name: "C26 JSON names, swapped ones too", message: "M",
			proto: `message M { string test_test = 1; string a_b = 2 [json_name = "_aB"]; int32 a_b_ordered = 3 [json_name = "aB"]; }`,
			has:   []string{`"testTest":{`, `"_aB":{"type":"string"}`, `"aB":{"type":"integer"`},
		},
		{
			name: "C41 a field mask is a string", message: "M",
			proto: imports + `message M { google.protobuf.FieldMask update_mask = 1; }`,
			has:   []string{`"updateMask":{"type":"string"`}, lacks: []string{`paths\"`},
		},
		{
			name: "field behaviour in inputs", message: "M",
			proto: imports + `message M {
				// Required. The title.
				string title = 1 [(google.api.field_behavior) = REQUIRED];
				// Output only. When.
				string time = 2 [(google.api.field_behavior) = OUTPUT_ONLY];
				string key = 3 [(google.api.field_behavior) = INPUT_ONLY];
				string kind = 4 [(google.api.field_behavior) = IMMUTABLE];
				string topic = 5 [(google.api.resource_reference).type = "x.example/Topic"];
				string old = 6 [deprecated = true]; }`,
			has: []string{`"title":{"type":"string","description":"The title."}`, `"required":["title"]`, `"key":`, `Cannot be changed once set.`,
				`Resource name of a x.example/Topic.`, `"old":{"type":"string","description":"Deprecated."}`},
			lacks: []string{`"time"`},
		},
		{
			name: "field behaviour in outputs", message: "M", options: toolschema.Options{Direction: toolschema.Output},
			proto: imports + `message M { string title = 1 [(google.api.field_behavior) = REQUIRED]; string time = 2 [(google.api.field_behavior) = OUTPUT_ONLY]; string key = 3 [(google.api.field_behavior) = INPUT_ONLY]; }`,
			has:   []string{`"time":`, `"title":`}, lacks: []string{`"key"`, `required`},
		},
		{
			name: "keys that a model API refuses", message: "M",
			proto: `message M { string type_of = 1 [json_name = "@type"]; string b = 2 [json_name = "sp ace"]; string c = 3 [json_name = "$x"]; }`,
			has:   []string{`"type_of":{`, `"b":{`, `"c":{`}, lacks: []string{`@type`, `$`, `sp ace`},
		},
		{
			name: "keys in outputs are what is written", message: "M", options: toolschema.Options{Direction: toolschema.Output},
			proto: `message M { string type_of = 1 [json_name = "@type"]; }`,
			has:   []string{`"@type":{`}, lacks: []string{`type_of`},
		},
		{
			name: "proto2", message: "M",
			proto: `syntax = "proto2"; package t; message M { required string r = 1; optional int32 d = 2 [default = 42]; repeated group Row = 3 { optional bool b = 1; } optional E e = 4 [default = TWO]; extensions 100 to 200; } enum E { ONE = 1; TWO = 2; }`,
			has: []string{`"required":["r"]`, `Default: 42.`, `"row":{"type":"array","items":{"type":"object","properties":{"b":{"type":"boolean"}}}}`,
				`Default: TWO.`, `Extensions are accepted as \"[full.name]\".`},
		},
		{
			name: "editions", message: "M",
			proto: `edition = "2023"; package t; message M { string r = 1 [features.field_presence = LEGACY_REQUIRED]; M m = 2 [features.message_encoding = DELIMITED]; }`,
			has:   []string{`"required":["r"]`, `"m":{"type":"object"`},
		},
		{
			name: "rules of oneofs and messages in words", message: "M",
			proto: imports + `message M {
				option (buf.validate.message).cel = { id: "x", message: "a must be below b", expression: "this.a < this.b" };
				option (buf.validate.message).oneof = { fields: ["a", "b"], required: true };
				int32 a = 1; int32 b = 2; oneof o { option (buf.validate.oneof).required = true; string c = 3; string d = 4; } }`,
			has: []string{`Set exactly one of c, d.`, `Set exactly one of a, b.`, `Rule: a must be below b.`},
		},
		{
			name: "strict is closed, required and nullable", message: "M", options: toolschema.Options{Profile: toolschema.Strict},
			proto: `enum E { A = 0; } message M { string s = 1; E e = 2; M m = 3; repeated int32 l = 4; }`,
			has: []string{`"s":{"type":["string","null"]}`, `"e":{"type":["string","null"],"enum":["A",null]}`, `"m":{"anyOf":[{"$ref":"#/$defs/t.M"},{"type":"null"}]}`,
				`"l":{"type":["array","null"]`, `"required":["s","e","m","l"]`, `"additionalProperties":false`},
		},
		{
			name: "keys of every JavaScript object in outputs", message: "A", options: toolschema.Options{Direction: toolschema.Output},
			proto: `message A { string name = 1; string to_string = 2; int32 value_of = 3; bool has_own_property = 4; repeated A constructor = 5; map<string, A> is_prototype_of = 6; A toLocaleString = 7; }`,
			has:   []string{`{"type":"object","description":"There if set, but not described here: toString (a string), valueOf (an integer), hasOwnProperty (a boolean), constructor (an array), isPrototypeOf (a map), toLocaleString (an object).","properties":{"name":{"type":"string"}}}`},
		},
		{
			name: "keys of every JavaScript object in full outputs", message: "B", options: toolschema.Options{Direction: toolschema.Output, Profile: toolschema.Full},
			proto: `syntax = "proto2"; package t; message A { required string constructor = 1; oneof o { string to_string = 2; string x = 3; string y = 4; } } message B { optional A a = 1; optional A b = 2 [json_name = "__proto__"]; }`,
			has: []string{`"properties":{"a":{"$ref":"#/$defs/t.A"}}`, `There if set, but not described here: __proto__ (an object).`, `There if set, but not described here: constructor (a string), toString (a string).`,
				`At most one is set of toString, x, y.`, `"properties":{"x":{"type":"string"},"y":{"type":"string"}},"oneOf":[{"required":["x"]},{"required":["y"]},{"not"`},
			lacks: []string{`additionalProperties`, `"constructor"`},
		},
		{
			name: "keys of every JavaScript object in inputs", message: "A",
			proto: `message A { string to_string = 1; string constructor = 2; string p = 3 [json_name = "__proto__"]; }`,
			has:   []string{`"properties":{"to_string":{"type":"string"},"constructor":{"type":"string"},"p":{"type":"string"}}`},
		},
		{
			name: "keys of every JavaScript object in full inputs", message: "B", options: toolschema.Options{Profile: toolschema.Full},
			proto: imports + `message A { oneof o { string constructor = 1; string x = 2; string y = 3; } oneof must { option (buf.validate.oneof).required = true; string toString = 4; string z = 5; } } message B { A a = 1; }`,
			has:   []string{`Set at most one of constructor, x, y.`, `"oneOf":[{"required":["x"]},{"required":["y"]},{"not":`},
			lacks: []string{`"required":["constructor"]`, `"required":["z"]`},
		},
		{
			name: "C20 a request that is an Any", message: "Any",
			proto: `syntax = "proto3"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }`,
			has:   []string{`"description":"A message of any type: \"@type\" is required and holds its type URL`, `"properties":{}`},
		},
		{
			name: "C20 a request that is an Any, in full", message: "Any", options: toolschema.Options{Profile: toolschema.Full},
			proto: `syntax = "proto3"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }`,
			has:   []string{`"description":"A message of any type: \"@type\" is required`, `"properties":{"@type":{"type":"string"}},"required":["@type"]`},
		},
		{
			name: "defaults are what the call takes", message: "M",
			proto: `syntax = "proto2"; package t; message M { optional double d = 1 [default = inf]; optional float n = 2 [default = -inf]; optional double x = 3 [default = nan]; optional bytes b = 4 [default = "\001\377"]; optional string s = 5 [default = "he said \"x\"\n<b>"]; optional float f = 6 [default = 0.1]; optional uint64 u = 7 [default = 18446744073709551615]; optional bool t = 8 [default = true]; }`,
			has:   []string{`Default: Infinity.`, `Default: -Infinity.`, `Default: NaN.`, `Default: \"Af8=\". Base64.`, `Default: \"he said \\\"x\\\"\\n<b>\".`, `Default: 0.1.`, `Default: 18446744073709551615.`, `Default: true.`},
		},
		{
			name: "rules of times and infinities are what the call takes", message: "M",
			proto: imports + `import "google/protobuf/duration.proto"; message M { google.protobuf.Duration d = 1 [(buf.validate.field).duration.gte = {seconds: 90}]; double x = 2 [(buf.validate.field).double.lt = inf]; }`,
			has:   []string{`Must be at least 90s.`, `Must be less than Infinity.`},
		},
		{
			name: "widths that strict has no keyword for", message: "M", options: toolschema.Options{Profile: toolschema.Strict},
			proto: `message M { int32 i = 1; uint32 u = 2; float f = 3; double d = 4; }`,
			has:   []string{`"description":"32 bits."`, `"description":"Not negative, 32 bits."`, `"description":"32-bit float."`, `"d":{"type":["number","null"]}`},
		},
		{
			name: "a stream is a list", message: "M", options: toolschema.Options{Direction: toolschema.Output, List: "items"},
			proto: `message M { string s = 1; }`,
			has:   []string{`{"type":"object","properties":{"items":{"type":"array","items":{"type":"object","properties":{"s":{"type":"string"}}}}}}`},
		},
		{
			name: "comments of enum values", message: "M",
			proto: "enum E {\n // Nothing.\n E_NONE = 0;\n // Red. Like blood.\n E_RED = 1;\n} message M {\n // The colour.\n E e = 1; }",
			has:   []string{`"description":"The colour. E_NONE: Nothing; E_RED: Red."`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema := string(toolschema.For(find(t, source(t, c.proto), c.message), c.options))
			for _, s := range c.has {
				if !strings.Contains(schema, s) {
					t.Errorf("schema lacks %s\n%s", s, schema)
				}
			}
			for _, s := range c.lacks {
				if strings.Contains(schema, s) {
					t.Errorf("schema holds %s\n%s", s, schema)
				}
			}
			if problems := toolschema.Problems([]byte(schema), c.options.Profile, c.options.Direction); len(problems) > 0 {
				t.Errorf("problems: %q\n%s", problems, schema)
			}
			mustCompile(t, []byte(schema))
		})
	}
}

// TestDeepCall is the other half of C01: what the schema cut is still accepted by the call.
func TestDeepCall(t *testing.T) {
	files := source(t, `message Rule { message All { repeated Rule rules = 1; } oneof kind { All all = 1; string tag = 2; } }`)
	md := find(t, files, "Rule")
	doc := `{"tag":"x"}`
	for range 6 {
		doc = `{"all":{"rules":[` + doc + `]}}`
	}
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full} {
		if err := validate(t, mustCompile(t, toolschema.For(md, toolschema.Options{Profile: p})), []byte(doc)); err != nil {
			t.Errorf("%v schema refuses six levels: %v", p, err)
		}
	}
	if _, err := transcode.NewSet(dynamicpb.NewTypes(files)).Message(md).AppendWire(nil, []byte(doc), transcode.ReadOptions{}); err != nil {
		t.Errorf("the transcoder refuses six levels: %v", err)
	}
}

// TestLenientCall is the runtime half of C14, C23 and C26: forms that the portable schema does not list are accepted all the same.
func TestLenientCall(t *testing.T) {
	files := source(t, imports+`enum E { Z = 0; S = 256; } message M { double d = 1; int64 n = 2; bytes b = 3; E e = 4; google.protobuf.FieldMask m = 5; string some_name = 6; }`)
	codec := transcode.NewSet(dynamicpb.NewTypes(files)).Message(find(t, files, "M"))
	for _, doc := range []string{`{"d":"1.5","n":7,"b":"-_8","e":256,"m":"a,b"}`, `{"some_name":"x"}`, `{"d":"NaN"}`, `{"d":null,"e":"S"}`} {
		if _, err := codec.AppendWire(nil, []byte(doc), transcode.ReadOptions{}); err != nil {
			t.Errorf("the transcoder refuses %s: %v", doc, err)
		}
	}
}

// TestNarrow holds the input schemas to what the call takes: what it refuses, they refuse too, and nothing is refused that it takes.
func TestNarrow(t *testing.T) {
	files := source(t, imports+`import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
		message M { int64 n = 1; uint64 u = 2; google.protobuf.Duration d = 3; float f = 4; google.protobuf.FloatValue w = 5; int32 i = 6; repeated fixed64 l = 7; }`)
	md := find(t, files, "M")
	codec := transcode.NewSet(dynamicpb.NewTypes(files)).Message(md)
	profiles := []toolschema.Profile{toolschema.Portable, toolschema.Full}
	for _, c := range []struct {
		doc  string
		good bool
		only []toolschema.Profile
	}{
		{doc: `{"n":"00012"}`}, {doc: `{"n":"-01"}`}, {doc: `{"n":"92233720368547758070"}`}, {doc: `{"u":"007"}`}, {doc: `{"u":"-1"}`}, {doc: `{"l":["01"]}`},
		{doc: `{"n":"0","u":"0","l":["0"]}`, good: true}, {doc: `{"n":"-9223372036854775808","u":"18446744073709551615"}`, good: true}, {doc: `{"n":"9223372036854775807"}`, good: true},
		{doc: `{"d":"007.5s"}`}, {doc: `{"d":"1315576000001s"}`}, {doc: `{"d":"1.0000000001s"}`},
		{doc: `{"d":"315576000000s"}`, good: true}, {doc: `{"d":"-0.5s"}`, good: true}, {doc: `{"d":"0s"}`, good: true},
		{doc: `{"f":1e300}`, only: profiles[1:]}, {doc: `{"w":-1e39}`, only: profiles[1:]}, {doc: `{"f":3.4028236e38}`, only: profiles[1:]},
		{doc: `{"f":3.4028235e38,"w":-3.4028235e38}`, good: true}, {doc: `{"i":3000000000}`, only: profiles[1:]}, {doc: `{"i":2147483647}`, good: true},
	} {
		if _, err := codec.AppendWire(nil, []byte(c.doc), transcode.ReadOptions{}); (err == nil) != c.good {
			t.Errorf("the transcoder on %s: %v", c.doc, err)
		}
		for _, p := range profiles {
			if c.only != nil && !slices.Contains(c.only, p) {
				continue
			}
			if err := validate(t, mustCompile(t, toolschema.For(md, toolschema.Options{Profile: p})), []byte(c.doc)); (err == nil) != c.good {
				t.Errorf("the %v schema on %s: %v", p, c.doc, err)
			}
		}
	}
}

// TestNaming holds "required" and the words of oneofs to the keys that the schema lists, over the corpus (C22).
func TestNaming(t *testing.T) {
	words := regexp.MustCompile(`Set (?:at most|exactly) one of ([a-zA-Z0-9_.,\- ]+?)\.(?: |$)`)
	var walk func(t *testing.T, path string, schema map[string]any)
	walk = func(t *testing.T, path string, schema map[string]any) {
		props, _ := schema["properties"].(map[string]any)
		desc, _ := schema["description"].(string)
		for _, m := range words.FindAllStringSubmatch(desc, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				if props[name] == nil && len(props) > 0 && !strings.Contains(desc, "not described here") {
					t.Errorf("%s speaks of %q, which is no property", path, name)
				}
			}
		}
		for name, p := range props {
			if p, ok := p.(map[string]any); ok {
				walk(t, path+"/"+name, p)
			}
		}
		if items, ok := schema["items"].(map[string]any); ok {
			walk(t, path+"/items", items)
		}
	}
	eachSet(t, func(t *testing.T, files *protoregistry.Files) {
		stride := 3 * every(t, 3)
		for i, s := range shapes(files) {
			if i%stride > 0 {
				continue
			}
			var parsed map[string]any
			if err := json.Unmarshal(toolschema.For(s.md, toolschema.Options{Direction: s.dir}), &parsed); err != nil {
				t.Fatal(err)
			}
			walk(t, string(s.md.FullName()), parsed)
		}
	})
}

// TestUnparsedOptions gives the same schema however the options of a contract reach it: parsed, or as unknown fields.
func TestUnparsedOptions(t *testing.T) {
	files := source(t, imports+`message M { string s = 1 [(buf.validate.field).string.min_len = 3, (google.api.field_behavior) = REQUIRED]; string o = 2 [(google.api.field_behavior) = OUTPUT_ONLY]; }`)
	md := find(t, files, "M")
	fdp := protodesc.ToFileDescriptorProto(md.ParentFile())
	b, err := proto.Marshal(fdp)
	if err != nil {
		t.Fatal(err)
	}
	raw := &descriptorpb.FileDescriptorProto{}
	if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types)}).Unmarshal(b, raw); err != nil {
		t.Fatal(err)
	}
	foreign := &descriptorpb.FileDescriptorProto{}
	if err := (proto.UnmarshalOptions{Resolver: dynamicpb.NewTypes(protoregistry.GlobalFiles)}).Unmarshal(b, foreign); err != nil {
		t.Fatal(err)
	}
	want := toolschema.For(md, toolschema.Options{})
	if !strings.Contains(string(want), `"minLength":3`) || !strings.Contains(string(want), `"required":["s"]`) {
		t.Fatalf("schema lacks the rules: %s", want)
	}
	for name, p := range map[string]*descriptorpb.FileDescriptorProto{"unknown fields": raw, "dynamic messages": foreign} {
		fd, err := protodesc.NewFile(p, protoregistry.GlobalFiles)
		if err != nil {
			t.Fatal(err)
		}
		if got := toolschema.For(fd.Messages().Get(0), toolschema.Options{}); string(got) != string(want) {
			t.Errorf("options as %s give %s, want %s", name, got, want)
		}
	}
}

// TestMissingTypes derives schemas of a contract whose imports are missing.
func TestMissingTypes(t *testing.T) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("x.proto"), Dependency: []string{"gone.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("a"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".gone.A")},
			{Name: proto.String("e"), Number: proto.Int32(2), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), TypeName: proto.String(".gone.E")},
			{Name: proto.String("t"), Number: proto.Int32(3), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".google.protobuf.Timestamp")},
		}}},
	}
	md := message(t, file)
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		for _, d := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
			schema := toolschema.For(md, toolschema.Options{Profile: p, Direction: d})
			mustCompile(t, schema)
			if problems := toolschema.Problems(schema, p, d); len(problems) > 0 {
				t.Errorf("%v: %q", p, problems)
			}
			if !strings.Contains(string(schema), "gone.A") || !strings.Contains(string(schema), "date-time") {
				t.Errorf("%v schema does not name what is missing: %s", p, schema)
			}
		}
		placeholder := md.Fields().Get(0).Message()
		mustCompile(t, toolschema.For(placeholder, toolschema.Options{Profile: p}))
	}
	if got := toolschema.Comment(md.Fields().Get(0).Message(), 0); got != "" {
		t.Errorf("comment of a missing type is %q, want none", got)
	}
}

func TestWrapped(t *testing.T) {
	files := source(t, imports+`import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.StringValue s = 1; google.protobuf.Struct o = 2; google.protobuf.Value v = 3; google.protobuf.ListValue l = 4; google.protobuf.Any a = 5; google.protobuf.Timestamp t = 6; M m = 7; google.protobuf.FieldMask f = 8; }`)
	fields := find(t, files, "M").Fields()
	var got []string
	for i := range fields.Len() {
		md := fields.Get(i).Message()
		schema := toolschema.For(md, toolschema.Options{})
		if toolschema.Wrapped(md) {
			got = append(got, string(fields.Get(i).Name()))
		}
		if wrapped := strings.Contains(string(schema), `"required":["value"]`); wrapped != toolschema.Wrapped(md) {
			t.Errorf("Wrapped(%s) = %v, but the schema is %s", md.FullName(), toolschema.Wrapped(md), schema)
		}
	}
	if want := []string{"s", "v", "l", "t", "f"}; !slices.Equal(got, want) {
		t.Errorf("wrapped are %v, want %v", got, want)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		schema string
		p      toolschema.Profile
		want   string
	}{
		{`{"type":"array"}`, toolschema.Portable, "root-object"},
		{`{"type":"object","properties":{},"oneOf":[]}`, toolschema.Full, "root-union"},
		{`{"type":"object"}`, toolschema.Portable, "root-properties"},
		{`{"type":"object","properties":{"a":{"$ref":"other.json"}}}`, toolschema.Full, "#/properties/a: local-ref"},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}`, toolschema.Full, "which is not there"},
		{`{"type":"object","properties":{"a b":{"type":"string"}}}`, toolschema.Portable, `property-key: property key "a b"`},
		{`{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}}}`, toolschema.Portable, "keywords"},
		{`{"type":"object","properties":{"a":{"type":["string","null"]}}}`, toolschema.Portable, "one-type"},
		{`{"type":"object","properties":{"a":{"type":"integer","enum":[1]}}}`, toolschema.Portable, "string-enum"},
		{`{"type":"object","properties":{"a":{"type":"string","format":"uuid"}}}`, toolschema.Portable, "format"},
		{`{"type":"object","properties":{"a":{}}}`, toolschema.Portable, "typed"},
		{`{"type":"object","properties":{"a":true}}`, toolschema.Full, "no-boolean-schema"},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}],"description":"x"}}}`, toolschema.Portable, "lone-anyof"},
		{`{"type":"object","properties":{"a":{"type":"array"}}}`, toolschema.Portable, "items"},
		{`{"type":"object","properties":{},"required":["a"]}`, toolschema.Portable, "required-defined"},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, toolschema.Strict, "closed"},
		{`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`, toolschema.Strict, "all-required"},
		{`{"type":"object","properties":{"a":{"type":"string","minLength":1}},"required":["a"],"additionalProperties":false}`, toolschema.Strict, "strict-keywords"},
		{`{"type":"object","properties":{"a":{"type":"string","enum":["x",""]}}}`, toolschema.Portable, "string-enum"},
		{`{"type":"object","properties":{"a":{"enum":[{},"x",{}]}}}`, toolschema.Full, "#/properties/a: distinct"},
		{`{"type":"object","properties":{"a":{"type":"integer","maximum":9223372036854775807}}}`, toolschema.Full, `#/properties/a: safe-number: "maximum" is 9223372036854775807`},
		{`{"type":"object","properties":{"a":{"type":"integer","enum":[1,18446744073709551616]}}}`, toolschema.Full, "safe-number"},
		{`[]`, toolschema.Portable, "not a JSON object"},
		{`{`, toolschema.Portable, "not JSON"},
	} {
		got := toolschema.Problems([]byte(c.schema), c.p, toolschema.Input)
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("Problems(%s, %v) = %q, want one with %q", c.schema, c.p, got, c.want)
		}
	}
}

// TestInheritedKeys checks the one rule that binds results alone.
func TestInheritedKeys(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{"a":{"type":"object","properties":{"valueOf":{"type":"string"}}}}}`)
	if got := toolschema.Problems(schema, toolschema.Full, toolschema.Output); len(got) != 1 || !strings.Contains(got[0], "#/properties/a: inherited-key") {
		t.Errorf("Problems of an output schema = %q, want one inherited-key", got)
	}
	if got := toolschema.Problems(schema, toolschema.Full, toolschema.Input); len(got) != 0 {
		t.Errorf("Problems of an input schema = %q, want none", got)
	}
}

func ExampleFor() {
	fd := descriptorpb.File_google_protobuf_descriptor_proto
	md := fd.Messages().ByName("UninterpretedOption").Messages().ByName("NamePart")
	fmt.Println(string(toolschema.For(md, toolschema.Options{})))
	fmt.Println(string(toolschema.For(md, toolschema.Options{Profile: toolschema.Full})))
	// Output:
	// {"type":"object","properties":{"namePart":{"type":"string"},"isExtension":{"type":"boolean"}},"required":["namePart","isExtension"]}
	// {"type":"object","properties":{"namePart":{"type":"string"},"isExtension":{"type":"boolean"}},"required":["namePart","isExtension"],"additionalProperties":false}
}
