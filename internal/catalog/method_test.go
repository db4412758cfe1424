package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

const header = `syntax = "proto3"; package acme.v1;
	import "google/api/annotations.proto"; import "google/api/client.proto"; import "toolway/v1/options.proto"; import "google/protobuf/timestamp.proto";
	message In { string id = 1; In sub = 2; repeated int32 nums = 3; map<string, string> tags = 4; google.protobuf.Timestamp at = 5; }
	message Out { string name = 1; In sub = 2; }
	`

func methodOf(t *testing.T, body string) (*catalog.Method, *catalog.Snapshot) {
	t.Helper()
	s := static(t, compileOne(t, header+"service S { rpc Do(In) returns (Out) {"+body+"} }"))
	return s.Method("/acme.v1.S/Do"), s
}

func TestHints(t *testing.T) {
	cautious := catalog.Hints{Destructive: true, OpenWorld: true}
	read := catalog.Hints{ReadOnly: true, Idempotent: true, OpenWorld: true}
	again := catalog.Hints{Destructive: true, Idempotent: true, OpenWorld: true}
	for _, c := range []struct {
		body string
		want catalog.Hints
	}{
		{"", cautious},
		{`option (google.api.http) = {post: "/v1/x"};`, cautious},
		{`option (google.api.http) = {patch: "/v1/x"};`, cautious},
		{`option (google.api.http) = {get: "/v1/x"};`, read},
		{`option (google.api.http) = {post: "/v1/x" additional_bindings {get: "/v1/y"}};`, cautious},
		{`option (google.api.http) = {put: "/v1/x"};`, again},
		{`option (google.api.http) = {delete: "/v1/x"};`, again},
		{`option idempotency_level = NO_SIDE_EFFECTS;`, read},
		{`option idempotency_level = IDEMPOTENT;`, again},
		{`option idempotency_level = IDEMPOTENT; option (google.api.http) = {get: "/v1/x"};`, again},
		{`option (toolway.v1.method) = {read_only: true};`, read},
		{`option (toolway.v1.method) = {read_only: true, idempotent: false};`, catalog.Hints{ReadOnly: true, OpenWorld: true}},
		{`option (toolway.v1.method) = {destructive: false, open_world: false};`, catalog.Hints{}},
		{`option (toolway.v1.method) = {read_only: false}; option idempotency_level = NO_SIDE_EFFECTS;`, again},
		{`option (toolway.v1.method) = {read_only: true, destructive: true};`, read},
	} {
		m, _ := methodOf(t, c.body)
		if m.Tool.Hints != c.want {
			t.Errorf("hints of %q = %+v, want %+v", c.body, m.Tool.Hints, c.want)
		}
	}
}

func TestBindings(t *testing.T) {
	for _, c := range []struct{ rule, want, finding string }{
		{`get: "/v1/{id}"`, "GET /v1/{id}", ""},
		{`get: "/v1/{id=books/*/pages/**}:read"`, "GET /v1/{id=books/*/pages/**}:read", ""},
		{`get: "/v1/{sub.id}/{at}/{nums}"`, "GET /v1/{sub.id}/{at}/{nums}", ""},
		{`get: "/"`, "GET /", ""},
		{`get: "/v1/{id=a/**}/b"`, "GET /v1/{id=a/**}/b", ""},
		{`get: "/v1/a:b:c"`, "GET /v1/a:b:c", ""},
		{`get: "/v1/%7Ea"`, "GET /v1/%7Ea", ""},
		{`custom: {kind: "HEAD" path: "/v1/x"}`, "HEAD /v1/x", ""},
		{`custom: {kind: "*" path: "/v1/x"}`, "* /v1/x", ""},
		{`post: "/v1/x" body: "*"`, "POST /v1/x body=*", ""},
		{`post: "/v1/x" body: "sub" response_body: "name"`, "POST /v1/x body=sub response=name", ""},
		{`post: "/v1/x" additional_bindings {get: "/v1/{id}"}`, "POST /v1/x, GET /v1/{id}", ""},
		{`post: "/v1/x" additional_bindings {post: "/v1/x"}`, "POST /v1/x", "route-dropped"},
		{`get: "/v1/{a" additional_bindings {get: "/v1/{id}"}`, "GET /v1/{id}", "route-dropped"},
		{`get: "v1"`, "", "route-dropped"},
		{`get: "/v1//x"`, "", "route-dropped"},
		{`get: "/v1/**/**"`, "", "route-dropped"},
		{`get: "/v1/{id}x"`, "", "route-dropped"},
		{`get: "/v1/{id}:"`, "", "route-dropped"},
		{`get: "/v1/{=x}"`, "", "route-dropped"},
		{`get: "/v1/a b"`, "", "route-dropped"},
		{`get: "/v1/{id}/{id}"`, "", "route-dropped"},
		{`get: "/v1/{nope}"`, "", "route-dropped"},
		{`get: "/v1/{sub}"`, "", "route-dropped"},
		{`get: "/v1/{tags}"`, "", "route-dropped"},
		{`get: "/v1/{tags.x}"`, "", "route-dropped"},
		{`post: "/v1/x" body: "nope"`, "", "route-dropped"},
		{`get: "/v1/x" response_body: "nope"`, "", "route-dropped"},
		{`custom: {kind: "a b" path: "/v1/x"}`, "", "route-dropped"},
		{`body: "*"`, "", "route-dropped"},
	} {
		m, s := methodOf(t, "option (google.api.http) = {"+c.rule+"};")
		var got []string
		for _, b := range m.Bindings {
			one := b.Verb + " " + b.Template
			if b.Body != "" {
				one += " body=" + b.Body
			}
			if b.ResponseBody != "" {
				one += " response=" + b.ResponseBody
			}
			got = append(got, one)
		}
		if strings.Join(got, ", ") != c.want || codesOf(s) != c.finding {
			t.Errorf("bindings of %q = %q (findings %q), want %q (%q)", c.rule, got, s.Findings(), c.want, c.finding)
		}
	}
}

func TestRouteClash(t *testing.T) {
	s := static(t, compileOne(t, header+`service S {
		rpc A(In) returns (Out) { option (google.api.http) = {get: "/v1/{id}"}; }
		rpc B(In) returns (Out) { option (google.api.http) = {get: "/v1/{sub.id=*}" additional_bindings {get: "/v2/{id}"}}; }
	}`))
	if b := s.Method("/acme.v1.S/B").Bindings; len(b) != 1 || b[0].Template != "/v2/{id}" {
		t.Errorf("bindings of B = %v, want the second alone", b)
	}
	f := finding(t, s, "route-clash")
	if !strings.Contains(f.Message, "acme.v1.S.A") || !strings.Contains(f.Message, "acme.v1.S.B") {
		t.Errorf("clash = %q, want both methods named", f.Message)
	}
}

func TestDescriptions(t *testing.T) {
	s := static(t, compileOne(t, header+`
		// Everything about orders.
		service OrderService {
			// Finds an order.
			//
			// Slow.
			rpc Commented(In) returns (Out);
			rpc GetHTTPStatus(In) returns (stream Out);
			rpc Option(In) returns (Out) { option (toolway.v1.method) = {title: "An option\u202e", description: "Says\u200b it.\U000E0041"}; }
			// Old.
			rpc Gone(In) returns (Out) { option deprecated = true; }
			// `+strings.Repeat("long ", 2000)+`
			rpc Long(In) returns (Out);
		}`))
	for _, c := range []struct{ method, title, want string }{
		{"Commented", "Commented", "Finds an order."},
		{"GetHTTPStatus", "Get HTTP Status", "Get HTTP Status: a method of the service OrderService. Takes In, returns a stream of Out."},
		{"Option", "An option", "Says it.\n\nCalls acme.v1.OrderService.Option."},
		{"Gone", "Gone", "Deprecated. Old."},
		{"Long", "Long", "long long"},
	} {
		tool := s.Method("/acme.v1.OrderService/" + c.method).Tool
		if tool.Title != c.title || !strings.HasPrefix(tool.Description, c.want) {
			t.Errorf("%s: title %q, description %q, want %q, %q", c.method, tool.Title, tool.Description, c.title, c.want)
		}
		if n := len([]rune(tool.Description)); n > catalog.MaxDescription {
			t.Errorf("%s: description of %d characters", c.method, n)
		}
	}
	if !s.Method("/acme.v1.OrderService/Gone").Deprecated || s.Method("/acme.v1.OrderService/Long").Deprecated {
		t.Errorf("Deprecated does not follow the option")
	}
}

func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		body         string
		timeout, cap time.Duration
		codes        string
	}{
		{"", 0, 0, ""},
		{`option (toolway.v1.method) = {timeout: {seconds: 2} max_timeout: {seconds: 5}};`, 2 * time.Second, 5 * time.Second, ""},
		{`option (toolway.v1.method) = {timeout: {seconds: 9} max_timeout: {seconds: 5}};`, 5 * time.Second, 5 * time.Second, "option-contradiction"},
		{`option (toolway.v1.method) = {timeout: {seconds: -9}};`, 0, 0, ""},
	} {
		m, s := methodOf(t, c.body)
		if m.Timeout != c.timeout || m.MaxTimeout != c.cap || codesOf(s) != c.codes {
			t.Errorf("%q: timeout %v, cap %v, findings %q; want %v, %v, %q", c.body, m.Timeout, m.MaxTimeout, codesOf(s), c.timeout, c.cap, c.codes)
		}
	}
}

// TestHash pins what a definition is: everything that the method reaches, and nothing else of the file.
func TestHash(t *testing.T) {
	const src = `syntax = "proto3"; package acme.v1; message In { string id = 1; Deep deep = 2; } message Deep { Kind kind = 1; } enum Kind { A = 0; }
		message Other { string x = 1; } service S { rpc Do(In) returns (Deep); } service T { rpc Do(Other) returns (Other); }`
	hash := func(src string) (string, string) {
		s := static(t, compileOne(t, src))
		return s.Method("/acme.v1.S/Do").Hash(), s.Version()
	}
	base, version := hash(src)
	for _, c := range []struct {
		old, new string
		same     bool
	}{
		{"message Other {", "message Other { int32 y = 2;", true},
		{"service T {", "message New {} service T { rpc More(New) returns (New);", true},
		{"enum Kind { A = 0;", "enum Kind { A = 0; B = 1;", false},
		{"Kind kind = 1;", "\n// Of what kind.\n Kind kind = 1;", false},
		{"rpc Do(In)", "\n// Does.\n rpc Do(In)", false},
		{"string id = 1;", "string id = 3;", false},
		{"rpc Do(In) returns (Deep)", "rpc Do(In) returns (stream Deep)", false},
		{"returns (Deep);", "returns (Deep) { option deprecated = true; }", false},
	} {
		got, v := hash(strings.Replace(src, c.old, c.new, 1))
		if (got == base) != c.same {
			t.Errorf("with %q the hash is the same: %v, want %v", c.new, got == base, c.same)
		}
		if v == version {
			t.Errorf("with %q the version is the same", c.new)
		}
	}
}

func TestToolsVersion(t *testing.T) {
	version := func(body string) string {
		_, s := methodOf(t, body)
		return s.ToolsVersion()
	}
	base := version(`option (google.api.http) = {post: "/v1/x"};`)
	for body, same := range map[string]bool{
		`option (google.api.http) = {post: "/v1/y" body: "*"};`: true,
		`option (google.api.http) = {get: "/v1/x"};`:            false, // another hint
		`option (toolway.v1.method) = {tool_name: "other"};`:    false,
		`option (toolway.v1.method) = {title: "Other"};`:        false,
	} {
		if (version(body) == base) != same {
			t.Errorf("with %q ToolsVersion stays: %v, want %v", body, !same, same)
		}
	}
}

func TestSchemasAreMadeOnce(t *testing.T) {
	m, _ := methodOf(t, "")
	a, b := m.InputSchema(toolschema.Full), m.InputSchema(toolschema.Full)
	if &a[0] != &b[0] {
		t.Errorf("InputSchema was made twice")
	}
}

// TestUnknownOptionsStay pins that options which the catalog does not know pass through untouched, and damaged ones cost only themselves.
func TestUnknownOptionsStay(t *testing.T) {
	set := compileOne(t, header+`service S { rpc Do(In) returns (Out); }`)
	raw := []byte{0xc2, 0xf3, 0x0c, 2, 'h', 'i'} // field 26424, length-delimited
	opts := new(descriptorpb.MethodOptions)
	opts.ProtoReflect().SetUnknown(raw)
	set.File[len(set.File)-1].Service[0].Method[0].Options = opts
	s := static(t, set)
	if got := s.Method("/acme.v1.S/Do").Desc.Options().ProtoReflect().GetUnknown(); string(got) != string(raw) {
		t.Errorf("unknown options = %x, want %x", got, raw)
	}
	opts = new(descriptorpb.MethodOptions)
	opts.ProtoReflect().SetUnknown([]byte{0x82, 0xd3, 0xe4, 0x93, 0x02, 2, 0xff, 0xff}) // google.api.http, damaged
	set.File[len(set.File)-1].Service[0].Method[0].Options = opts
	s = static(t, set)
	if s.Method("/acme.v1.S/Do") == nil || codesOf(s) != "options-unreadable" {
		t.Errorf("with damaged options: findings %v", s.Findings())
	}
	if proto.Size(s.Method("/acme.v1.S/Do").Desc.Options()) == 0 {
		t.Errorf("the damaged options are gone")
	}
}

// TestRequired pins that what a tool requires is what its listed schema calls required.
func TestRequired(t *testing.T) {
	s := static(t, compileOne(t, `syntax = "proto3"; package acme.v1; import "google/api/field_behavior.proto"; import "google/protobuf/timestamp.proto";
		message In { string b_c = 1 [(google.api.field_behavior) = REQUIRED]; string d = 2; int32 a = 3 [(google.api.field_behavior) = REQUIRED]; }
		service S { rpc One(In) returns (In); rpc Many(stream In) returns (In); rpc At(google.protobuf.Timestamp) returns (In); }`))
	for method, want := range map[string]string{"One": "b_c a", "Many": "b_c a", "At": ""} {
		var got []string
		for _, fd := range s.Method("/acme.v1.S/" + method).Required() {
			got = append(got, string(fd.Name()))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: Required() = %q, want %q", method, text, want)
		}
	}
}

// TestWholeSchema pins that what a list leaves out for its size can be had.
func TestWholeSchema(t *testing.T) {
	s, err := catalog.ReadFile("temporal", "../../../shared/descriptors/temporal-api.binpb")
	if err != nil {
		t.Fatal(err)
	}
	m := s.Method("/temporal.api.workflowservice.v1.WorkflowService/GetWorkflowExecutionHistory")
	cut, whole := m.OutputSchema(toolschema.Full), m.WholeSchema(toolschema.Output, toolschema.Full)
	if len(cut) > toolschema.DefaultMaxBytes || len(whole) < 2*len(cut) || !json.Valid(whole) {
		t.Errorf("the listed schema has %d bytes, the whole one %d", len(cut), len(whole))
	}
}
