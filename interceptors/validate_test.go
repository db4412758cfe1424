package interceptors_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

const ruled = `edition = "2023"; package acme.v1;
	import "buf/validate/validate.proto"; import "google/api/field_behavior.proto"; import "toolway/v1/options.proto";
	option features.field_presence = IMPLICIT;
	extend buf.validate.StringRules {
		bool shout = 51299 [(buf.validate.predefined).cel = {id: "string.shout", message: "must be in capitals", expression: "this == this.upperAscii() || !rule"}];
	}
	message User {
		string email = 1 [(buf.validate.field).string.email = true];
		int32 age = 2 [(buf.validate.field).int32 = {gte: 0, lt: 150}];
		string pin = 3 [(toolway.v1.field).sensitive = true, (buf.validate.field).cel = {id: "pin.short", expression: "size(this) < 5 ? '' : 'too long: ' + this"}];
		string code = 4 [(buf.validate.field).string.(shout) = true];
	}
	message Put { User user = 1 [(google.api.field_behavior) = REQUIRED]; map<string, User> others = 2; repeated User more = 3; }
	message Two { int32 a = 1; int32 b = 2; option (buf.validate.message).cel = {id: "a.before.b", message: "a must be below b", expression: "this.a < this.b"}; }
	message Bad { string s = 1 [(buf.validate.field).cel = {id: "x", expression: "this.nothing +"}]; }
	message Part { int32 tenth = 1 [(buf.validate.field).cel = {id: "x", expression: "10 / this > 1"}]; }
	message Free { string s = 1; Free free = 2; }
	service S {
		rpc Do(Put) returns (Free); rpc Up(stream Two) returns (Free); rpc Broken(Bad) returns (Free); rpc Divide(Part) returns (Free); rpc Loose(Free) returns (Put);
	}`

// violations returns what a refusal says of each field.
func violations(t *testing.T, err error) string {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		t.Fatalf("%v, want INVALID_ARGUMENT", err)
	}
	var out []string
	reason := ""
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				out = append(out, fmt.Sprintf("%s: %s %s", v.GetField(), v.GetDescription(), v.GetReason()))
			}
		}
	}
	if reason != "INVALID_REQUEST" {
		t.Errorf("reason = %q, want INVALID_REQUEST", reason)
	}
	return strings.Join(out, "\n")
}

func TestValidate(t *testing.T) {
	s := contract(t, ruled)
	m := s.Method("/acme.v1.S/Do")
	policy := interceptors.Validate(interceptors.Options{Logger: discard()})
	for _, c := range []struct{ name, request, want string }{
		{"good", `{"user":{"email":"a@b.example","age":7,"code":"ABC"}}`, ""},
		{"nested", `{"user":{"email":"nobody","age":200}}`, "user.email: must be a valid email address STRING_EMAIL\nuser.age: must be greater than or equal to 0 and less than 150 INT32_GTE_LT"},
		{"in a map and a list", `{"user":{"email":"a@b.example"},"others":{"x":{"email":"a@b.example","age":-1}},"more":[{"email":"a@b.example"},{"email":"b"}]}`,
			"others[\"x\"].age: must be greater than or equal to 0 and less than 150 INT32_GTE_LT\nmore[1].email: must be a valid email address STRING_EMAIL"},
		{"a rule of the contract's own", `{"user":{"email":"a@b.example","code":"abc"}}`, "user.code: must be in capitals STRING_SHOUT"},
		{"a secret", `{"user":{"email":"a@b.example","pin":"hunter2"}}`, "user.pin: breaks the rule \"pin.short\" PIN_SHORT"},
		{"required", `{"more":[]}`, "user: is required REQUIRED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := call.New(m, call.HTTP)
			called := false
			_, err := run(t.Context(), cl, requestOf(t, m, c.request), func(any, grpc.ServerStream) error { called = true; return nil }, policy)
			if called != (c.want == "") {
				t.Errorf("called = %v", called)
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if got := violations(t, err); got != c.want {
				t.Errorf("violations:\n%s\nwant:\n%s", got, c.want)
			}
			if len(cl.Steps) != 1 || cl.Steps[0].Decided().Verdict != "refused" {
				t.Errorf("steps = %+v, want the refusal", cl.Steps)
			}
		})
	}
}

func TestValidateEachMessageOfAStream(t *testing.T) {
	m := contract(t, ruled).Method("/acme.v1.S/Up")
	requests := []string{`{"a":1,"b":2}`, `{"a":3,"b":2}`, `{"a":1,"b":2}`}
	next := func() (*call.Frame, error) {
		if len(requests) == 0 {
			return nil, io.EOF
		}
		f := call.NewFrame(nil, requestOf(t, m, requests[0]))
		requests = requests[1:]
		return f, nil
	}
	seen := 0
	c := call.New(m, call.GRPC)
	err := interceptors.Chain(func(_ any, s grpc.ServerStream) error {
		for {
			var f call.Frame
			if err := s.RecvMsg(&f); err != nil {
				return err
			}
			f.Release()
			seen++
		}
	}, interceptors.Validate(interceptors.Options{Logger: discard()}))(call.NewStream(t.Context(), c, next, func(*call.Frame) error { return nil }, nil))
	if got, want := violations(t, err), ": a must be below b A_BEFORE_B"; got != want || seen != 1 {
		t.Errorf("violations %q after %d messages, want %q after 1", got, seen, want)
	}
	if got := status.Convert(err).Message(); got != "message 2 of the request stream is not valid: a must be below b" {
		t.Errorf("message = %q", got)
	}
	if got := fmt.Sprint(status.Convert(err).Details()); !strings.Contains(got, "1 of the stream's messages had gone to the backend") {
		t.Errorf("details = %s, though a message has gone to the backend", got)
	}
}

func TestValidateLeavesOut(t *testing.T) {
	s := contract(t, ruled)
	log, out := logger()
	policy := interceptors.Validate(interceptors.Options{Logger: log})
	if policy.For(s.Method("/acme.v1.S/Loose")) != nil {
		t.Error("a method whose request has no rules is validated")
	}
	if out.Len() > 0 {
		t.Errorf("log = %s", out)
	}
	if policy.For(s.Method("/acme.v1.S/Broken")) != nil {
		t.Error("a method whose rules do not compile is validated")
	}
	if !strings.Contains(out.String(), "/acme.v1.S/Broken") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("log = %s, want one line about the rule that does not compile", out)
	}
}

func TestValidateFailsClosed(t *testing.T) {
	s := contract(t, ruled)
	policy := interceptors.Validate(interceptors.Options{Logger: discard()})
	for _, c := range []struct {
		name, method string
		wire         []byte
		reason       string
	}{
		{"a rule that fails", "Divide", nil, "INVALID_REQUEST"},
		{"malformed", "Do", protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{0x0a, 0x7f}), "MALFORMED_REQUEST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t.Context(), call.New(s.Method("/acme.v1.S/"+c.method), call.GRPC), c.wire, func(any, grpc.ServerStream) error {
				t.Error("called")
				return nil
			}, policy)
			if st := status.Convert(err); st.Code() != codes.InvalidArgument || len(st.Details()) == 0 || st.Details()[0].(*errdetails.ErrorInfo).GetReason() != c.reason {
				t.Errorf("%v, want INVALID_ARGUMENT with %s", err, c.reason)
			}
		})
	}
}

func TestValidateBoundsWhatItTells(t *testing.T) {
	m := contract(t, ruled).Method("/acme.v1.S/Do")
	many := `{"user":{"email":"a@b.example"},"more":[` + strings.Repeat(`{"email":"b"},`, 29) + `{"email":"b"}]}`
	_, err := run(t.Context(), call.New(m, call.GRPC), requestOf(t, m, many), echo, interceptors.Validate(interceptors.Options{Logger: discard()}))
	if got := strings.Count(violations(t, err), "\n") + 1; got != 20 {
		t.Errorf("%d violations told, want 20", got)
	}
	if got := status.Convert(err).Message(); !strings.HasSuffix(got, "(and 29 more)") {
		t.Errorf("message = %q", got)
	}
	huge := `{"user":{"email":"a@b.example"},"more":[` + strings.Repeat(`{"email":"b"},`, 29_999) + `{"email":"b"}]}`
	_, err = run(t.Context(), call.New(m, call.GRPC), requestOf(t, m, huge), echo, interceptors.Validate(interceptors.Options{Logger: discard()}))
	if got := violations(t, err); strings.Contains(got, "\n") {
		t.Errorf("a large request has all its violations looked for: %s", got)
	}
}

func BenchmarkValidate(b *testing.B) {
	m := contract(b, ruled).Method("/acme.v1.S/Do")
	wire := requestOf(b, m, `{"user":{"email":"a@b.example","age":7,"code":"ABC"}}`)
	h := interceptors.Chain(func(_ any, s grpc.ServerStream) error { return s.RecvMsg(new(call.Frame)) }, interceptors.Validate(interceptors.Options{Logger: discard()}))
	b.ReportAllocs()
	for b.Loop() {
		if err := h(call.NewStream(b.Context(), call.New(m, call.GRPC), call.One(call.NewFrame(nil, wire)), nil, nil)); err != nil {
			b.Fatal(err)
		}
	}
}
