package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/internal/verify"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const everything = `
	syntax = "proto3";
	package shop.v1;
	import "google/api/annotations.proto";
	import "google/protobuf/any.proto";
	import "google/protobuf/duration.proto";
	import "google/protobuf/field_mask.proto";
	import "google/protobuf/struct.proto";
	import "google/protobuf/timestamp.proto";
	import "google/protobuf/wrappers.proto";
	// Sells things.
	service Shop {
		// Orders a thing.
		rpc Order(OrderRequest) returns (OrderReply) {
			option (google.api.http) = {
				post: "/v1/{name=shops/*}/orders/{number}" body: "item" response_body: "items"
				additional_bindings { get: "/v1/orders/{at}/{kind}" }
				additional_bindings { get: "/v1/{item.key}/x/{many}" }
			};
		}
		// Puts many.
		rpc Put(stream Item) returns (google.protobuf.StringValue);
		// Lists all.
		rpc List(google.protobuf.Value) returns (stream google.protobuf.Timestamp);
	}
	enum Kind { KIND_UNSPECIFIED = 0; KIND_BIG = 1; KIND_SMALL = 2; }
	message Item {
		string key = 1;
		repeated Item parts = 2;
		map<string, Item> named = 3;
		google.protobuf.Any any = 4;
		google.protobuf.Struct free = 5;
		google.protobuf.Value value = 6;
		google.protobuf.ListValue list = 7;
	}
	message OrderRequest {
		string name = 1;
		int64 number = 2;
		google.protobuf.Timestamp at = 3;
		Kind kind = 4;
		Item item = 5;
		oneof pay { string card = 6; uint64 cash = 7; Item barter = 8; }
		optional bool gift = 9;
		repeated Kind kinds = 10;
		map<int32, int64> by_int = 11;
		map<bool, bytes> by_bool = 12;
		map<uint64, google.protobuf.Duration> by_uint = 13;
		google.protobuf.Duration wait = 14;
		google.protobuf.FieldMask mask = 15;
		google.protobuf.Int64Value wide = 16;
		float f = 17;
		double d = 18;
		sint32 s = 19;
		fixed64 x = 20;
		bytes raw = 21;
		google.protobuf.NullValue nothing = 22;
		google.protobuf.FloatValue maybe = 23;
		repeated string many = 24;
		map<string, Kind> kinds_by_name = 25;
		map<string, google.protobuf.Any> anys = 26;
	}
	message OrderReply { repeated Item items = 1; OrderRequest order = 2; }
`

const small = `
	syntax = "proto3";
	package shop.v1;
	// Sells things.
	service Shop {
		// Buys a thing.
		rpc Buy(BuyRequest) returns (BuyReply);
	}
	message BuyRequest { string name = 1; int64 count = 2; }
	message BuyReply { string name = 1; int64 count = 2; }
`

func TestFit(t *testing.T) {
	r := run(t, snapshot(t, everything), verify.Options{})
	if !r.Fit {
		for _, tool := range r.Tools {
			for _, f := range tool.Findings {
				t.Errorf("%s: %+v", tool.Name, f)
			}
		}
		t.Errorf("findings: %v", r.Findings)
	}
	if r.Totals.Tools != 3 || r.Totals.Routes != 3 || r.Totals.Arguments < 100 || r.Totals.Results < 50 {
		t.Errorf("totals %+v: too little was verified", r.Totals)
	}
}

// TestSame runs twice with one seed, and once with another.
func TestSame(t *testing.T) {
	s := snapshot(t, everything)
	text := func(o verify.Options) string {
		b, err := json.Marshal(run(t, s, o))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := text(verify.Options{Seed: 3, Parallel: 1})
	if two := text(verify.Options{Seed: 3, Parallel: 4}); one != two {
		t.Error("the same seed gives another report")
	}
	if none := run(t, s, verify.Options{Instances: -1}); none.Totals.Arguments >= run(t, s, verify.Options{}).Totals.Arguments {
		t.Error("Instances: -1 makes no fewer instances than the default")
	}
}

// faulty is a codec with one fault.
type faulty struct {
	*transcode.Message
	wire      func([]byte) ([]byte, error)
	doc       func([]byte) ([]byte, error)
	canonical func([]byte) ([]byte, error)
	check     error
}

func (f faulty) AppendWire(dst, src []byte, o transcode.ReadOptions) ([]byte, error) {
	if f.wire != nil {
		var err error
		if src, err = f.wire(src); err != nil {
			return dst, err
		}
	}
	return f.Message.AppendWire(dst, src, o)
}

func (f faulty) AppendJSON(dst, wire []byte, o transcode.WriteOptions) ([]byte, error) {
	out, err := f.Message.AppendJSON(dst, wire, o)
	if err == nil && f.doc != nil {
		return f.doc(out)
	}
	return out, err
}

func (f faulty) AppendCanonical(dst, wire []byte) ([]byte, error) {
	if f.canonical != nil {
		return f.canonical(wire)
	}
	return f.Message.AppendCanonical(dst, wire)
}

func (f faulty) Check(wire []byte) error {
	if f.check != nil {
		return f.check
	}
	return f.Message.Check(wire)
}

func TestFaultyCodec(t *testing.T) {
	wide := regexp.MustCompile(`[0-9]{15,}`)
	round := func(b []byte) ([]byte, error) {
		return wide.ReplaceAllFunc(b, func(d []byte) []byte { return append(d[:len(d)-1:len(d)-1], '0') }), nil
	}
	refuse := func([]byte) ([]byte, error) { return nil, errors.New("no") }
	n := 0
	for _, c := range []struct {
		code  string
		fault faulty
	}{
		{"arguments-refused", faulty{wire: refuse}},
		{"arguments-broken", faulty{check: errors.New("no")}},
		{"arguments-unwritable", faulty{doc: refuse}},
		{"arguments-unwritable", faulty{doc: func([]byte) ([]byte, error) { return []byte("{"), nil }}},
		{"arguments-changed", faulty{wire: round}},
		{"arguments-changed", faulty{doc: func([]byte) ([]byte, error) { return []byte("{}"), nil }}},
		{"arguments-changed", faulty{doc: func(b []byte) ([]byte, error) { return bytes.Replace(b, []byte(`{`), []byte(`{"x":1,`), 1), nil }}},
		{"arguments-unstable", faulty{canonical: func(b []byte) ([]byte, error) { n++; return append(b, byte(n)), nil }}},
		{"result-broken", faulty{check: errors.New("no")}},
		{"result-unwritable", faulty{doc: refuse}},
		{"result-refused", faulty{doc: func([]byte) ([]byte, error) { return []byte(`{"name":1}`), nil }}},
		{"result-changed", faulty{wire: round}},
		{"result-changed", faulty{doc: func([]byte) ([]byte, error) { return []byte("{}"), nil }}},
	} {
		o := verify.Options{Parallel: 1}.WithCodec(func(m *transcode.Message) verify.Codec {
			f := c.fault
			f.Message = m
			return f
		})
		r := run(t, snapshot(t, small), o)
		f := find(r, c.code)
		if r.Fit || f == nil {
			t.Errorf("%s: not found, findings are %+v", c.code, r.Tools[0].Findings)
			continue
		}
		if f.Mend == "" || f.Message == "" || f.Count < 1 {
			t.Errorf("%s: %+v lacks something", c.code, f)
		}
	}
}

func TestWrongSchema(t *testing.T) {
	all := strings.Repeat("x", toolschema.DefaultMaxBytes)
	for _, c := range []struct {
		name, code, schema string
		output             bool
	}{
		{"a field that there is none of", "arguments-refused", `{"type":"object","properties":{"nam":{"type":"string"}}}`, false},
		{"another type", "arguments-refused", `{"type":"object","properties":{"count":{"type":"boolean"}}}`, false},
		{"a range that is too wide", "arguments-refused", `{"type":"object","properties":{"count":{"type":"number"}}}`, false},
		{"no JSON", "schema-invalid", `{`, false},
		{"no schema", "schema-invalid", `{"type":"thing"}`, false},
		{"a reference to nothing", "schema-invalid", `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`, false},
		{"rules that contradict each other", "arguments-unproved", `{"type":"object","properties":{"name":{"type":"string","minLength":3,"maxLength":2}},"required":["name"]}`, false},
		{"too large", "schema-too-large", `{"type":"object","properties":{},"description":"` + all + `"}`, false},
		{"what model APIs refuse", "schema-problem", `{"type":"object","properties":{},"anyOf":[{"type":"object"}]}`, false},
		{"a result of another type", "result-refused", `{"type":"object","properties":{"name":{"type":"string","maxLength":3}}}`, true},
		{"closed without its fields", "result-refused", `{"type":"object","properties":{},"additionalProperties":false}`, true},
		{"broken", "schema-invalid", `{"type":1}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := verify.Options{Schema: func(m *catalog.Method, d toolschema.Direction, p toolschema.Profile) []byte {
				switch {
				case c.output == (d == toolschema.Output) && p == toolschema.Portable:
					return []byte(c.schema)
				case d == toolschema.Output:
					return m.OutputSchema(p)
				}
				return m.InputSchema(p)
			}}
			if r := run(t, snapshot(t, small), o); find(r, c.code) == nil {
				t.Errorf("no %s among %+v", c.code, r.Tools[0].Findings)
			}
		})
	}
}

// TestBrokenMethod changes what the catalog says of a method.
func TestBrokenMethod(t *testing.T) {
	for _, c := range []struct {
		code   string
		change func(m *catalog.Method)
	}{
		{"name-invalid", func(m *catalog.Method) { m.Tool.Name = "shop.buy" }},
		{"name-invalid", func(m *catalog.Method) { m.Tool.Name = strings.Repeat("x", catalog.MaxToolName+1) }},
		{"description-invalid", func(m *catalog.Method) { m.Tool.Description = "" }},
		{"route-field-missing", func(m *catalog.Method) { m.Bindings = []catalog.Binding{{Verb: "GET", Template: "/v1/{nam}"}} }},
		{"route-field-missing", func(m *catalog.Method) { m.Bindings = []catalog.Binding{{Verb: "GET", Template: "/v1/{name.x}"}} }},
		{"route-field-missing", func(m *catalog.Method) {
			m.Bindings = []catalog.Binding{{Verb: "POST", Template: "/v1", Body: "thing"}}
		}},
		{"route-field-missing", func(m *catalog.Method) {
			m.Bindings = []catalog.Binding{{Verb: "GET", Template: "/v1", ResponseBody: "thing"}}
		}},
		{"route-field-unfit", func(m *catalog.Method) {
			m.Bindings = []catalog.Binding{{Verb: "GET", Template: "/v1/{count=things/*}"}}
		}},
	} {
		s := snapshot(t, small)
		c.change(s.Tools()[0])
		if r := run(t, s, verify.Options{}); find(r, c.code) == nil {
			t.Errorf("no %s among %+v", c.code, r.Tools[0].Findings)
		}
	}
}

func TestUnserved(t *testing.T) {
	s := snapshot(t, `
		syntax = "proto3";
		package shop.v1;
		import "google/api/annotations.proto";
		service Shop {
			rpc Buy(M) returns (M) { option (google.api.http) = { get: "/v1/{thing}" }; }
		}
		message M { string name = 1; }
	`)
	r := run(t, s, verify.Options{})
	if r.Fit || len(r.Findings) != 1 || r.Findings[0].Code != "route-dropped" {
		t.Errorf("findings %+v, want one route-dropped", r.Findings)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := verify.Run(ctx, snapshot(t, small), verify.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a cancelled context: %v", err)
	}
}

// TestCorpus verifies whole contracts that nobody here wrote: nothing is found.
func TestCorpus(t *testing.T) {
	for _, name := range []string{"etcd.binpb", "connect-conformance.binpb", "grpc-core.binpb"} {
		t.Run(name, func(t *testing.T) {
			r := run(t, corpus(t, name), verify.Options{})
			if r.Totals.Tools == 0 || r.Totals.Arguments < 20*r.Totals.Tools || r.Totals.Unmade*20 > r.Totals.Arguments {
				t.Errorf("totals %+v: too little was verified", r.Totals)
			}
			for _, tool := range r.Tools {
				for _, f := range tool.Findings {
					t.Errorf("%s: %+v", tool.Name, f)
				}
			}
		})
	}
}

// TestGolden pins the JSON form and the text of a report.
func TestGolden(t *testing.T) {
	o := verify.Options{Seed: 7, Parallel: 1}.WithCodec(func(m *transcode.Message) verify.Codec {
		return faulty{Message: m, doc: func(b []byte) ([]byte, error) {
			return bytes.ReplaceAll(b, []byte("9007199254740993"), []byte("9007199254740992")), nil
		}}
	})
	r := run(t, snapshot(t, small), o)
	doc, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for path, got := range map[string][]byte{"testdata/report.json": append(doc, '\n'), "testdata/report.txt": text.Bytes()} {
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs; run with -update if that is meant:\n%s", path, got)
		}
	}
}

// manyNames is a contract with an enum of so many values that schemas tell them by example.
func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "NAME_%d = %d;", i, i)
	}
	return `syntax = "proto3"; package t; service S { rpc Do(M) returns (M); } enum Big { ` + b.String() + ` } message M { Big one = 1; repeated Big more = 2; map<string, Big> by = 3; }`
}

// TestEndless verifies a method whose messages cannot be made, since they require themselves.
func TestEndless(t *testing.T) {
	r := run(t, snapshot(t, `syntax = "proto2"; package t; service S { rpc Do(M) returns (M); } message M { required N n = 1; } message N { required M m = 1; }`), verify.Options{})
	for _, f := range r.Tools[0].Findings {
		if f.Code != "arguments-unproved" && f.Code != "results-unproved" {
			t.Errorf("finding %+v, want none that blames the codec", f)
		}
	}
	if n := len(r.Tools[0].Findings); n < 2 || r.Tools[0].Results != 0 {
		t.Errorf("%d findings, %d results; want arguments and results unproved", n, r.Tools[0].Results)
	}
}

// TestOdd verifies roots and fields that are easy to get wrong: by themselves they are no fault.
func TestOdd(t *testing.T) {
	for _, source := range []string{
		`syntax = "proto2"; package t; service S { rpc Do(M) returns (M); rpc Many(stream M) returns (stream M); }
			message M { required int32 req = 1; optional string s = 2; required M.In in = 3; message In { required string key = 1; optional M m = 2; } map<string, In> ins = 4; }`,
		`edition = "2023"; package t; service S { rpc Do(M) returns (M); } message M { string req = 1 [features.field_presence = LEGACY_REQUIRED]; M m = 2; map<string, M> mm = 3; }`,
		`syntax = "proto3"; package t; import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; message M { google.protobuf.Any one = 1; repeated google.protobuf.Any more = 2; map<string, google.protobuf.Any> by = 3; google.protobuf.Duration d = 4; }
			service S { rpc Do(M) returns (M); rpc Any(google.protobuf.Any) returns (google.protobuf.Any); rpc Anys(stream google.protobuf.Any) returns (stream google.protobuf.Any); }`,
		`syntax = "proto3"; package t; import "google/protobuf/any.proto"; service S { rpc Any(google.protobuf.Any) returns (google.protobuf.Any); }`,
		`syntax = "proto3"; package t; import "google/protobuf/struct.proto"; service S {
			rpc Value(google.protobuf.Value) returns (google.protobuf.Value); rpc Values(stream google.protobuf.Value) returns (stream google.protobuf.Value);
			rpc Struct(google.protobuf.Struct) returns (google.protobuf.Struct); rpc List(google.protobuf.ListValue) returns (google.protobuf.ListValue); }`,
		`syntax = "proto2"; package t; service S { rpc Do(A) returns (A); } message A { optional string name = 1; optional string to_string = 2; optional int32 value_of = 3; optional bool has_own_property = 4;
			optional string p = 5 [json_name = "__proto__"]; oneof o { A constructor = 6; string is_prototype_of = 7; string x = 8; } }`,
		manyNames(300),
	} {
		r := run(t, snapshot(t, source), verify.Options{})
		for _, tool := range r.Tools {
			if tool.Arguments == 0 || tool.Results == 0 {
				t.Errorf("%s: %d arguments, %d results", tool.Name, tool.Arguments, tool.Results)
			}
			for _, f := range tool.Findings {
				t.Errorf("%s: %+v\n%s", tool.Name, f, source)
			}
		}
		if len(r.Tools) == 0 {
			t.Errorf("no tools: %+v", r.Findings)
		}
	}
}
