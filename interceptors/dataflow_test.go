package interceptors_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

const flowing = `syntax = "proto3"; package acme.v1; import "toolway/v1/options.proto"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
	message Who { string id = 1; }
	message Person {
		string name = 1 [(toolway.v1.field).data_label = "pii"]; string email = 2 [(toolway.v1.field).data_label = "pii"]; string city = 3;
		string pin = 4 [(toolway.v1.field) = {sensitive: true, redact_result: true}]; repeated Address addresses = 5 [(toolway.v1.field).data_label = "pii"];
		string token = 6 [(toolway.v1.field).sensitive = true]; map<string, Person> friends = 7; bytes photo = 8 [(toolway.v1.field).data_label = "picture"];
	}
	message Address { string street = 1; }
	message Mail { repeated Part parts = 1; map<string, string> headers = 2; google.protobuf.Any extra = 3; google.protobuf.Struct free = 4; bytes raw = 5; }
	message Part { string text = 1; }
	service People { rpc Get(Who) returns (Person); rpc List(Who) returns (stream Person); rpc Plain(Who) returns (Mail); }
	service Mailer { rpc Send(Mail) returns (Who); rpc Stream(stream Mail) returns (Who); }`

// flowWorld is two backends with one contract behind one policy.
type flowWorld struct {
	t           testing.TB
	crm, mailer *catalog.Snapshot
	policy      interceptors.Policy
}

const janesRecord = `{"name":"Jane van Doe","email":"Jane.Doe@example.com","city":"Springfield","pin":"[redacted]","addresses":[{"street":"12 Evergreen Terrace, 2nd floor, behind the large red house on the left"}],
	"token":"tok-123456","friends":{"x":{"name":"Bartholomew"}},"photo":"cGl4ZWxzLWFuZC1tb3Jl"}`

func newFlow(t testing.TB, o interceptors.DataFlowOptions) *flowWorld {
	w := &flowWorld{t: t, crm: contract(t, flowing), mailer: contract(t, flowing)}
	rename := func(s *catalog.Snapshot, name string) {
		for _, m := range s.Methods() {
			m.Backend.Name = name
		}
	}
	rename(w.crm, "crm")
	rename(w.mailer, "mailer")
	w.policy = interceptors.DataFlow(interceptors.Options{Logger: discard(), DataFlow: o})
	return w
}

// call makes a call of a backend that answers with reply.
func (w *flowWorld) call(s *catalog.Snapshot, method string, who *identity.Principal, request, reply string) error {
	w.t.Helper()
	m := s.Method("/acme.v1." + method)
	c := call.New(m, call.MCP)
	c.Principal = who
	_, err := run(w.t.Context(), c, requestOf(w.t, m, request), func(_ any, s grpc.ServerStream) error {
		var f call.Frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		f.Release()
		return s.SendMsg(call.NewFrame(nil, fromJSON(w.t, m.Response(), reply)))
	}, w.policy)
	return err
}

// field returns the field that a refusal names, and checks what else it says.
func field(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	st := status.Convert(err)
	if st.Code() != codes.PermissionDenied || len(st.Details()) != 1 {
		t.Fatalf("%v, want PERMISSION_DENIED", err)
	}
	info := st.Details()[0].(*errdetails.ErrorInfo)
	if info.GetReason() != "DATA_FLOW_FORBIDDEN" || info.GetMetadata()["label"] == "" || info.GetMetadata()["rule"] == "" {
		t.Errorf("details = %v", info)
	}
	if all := strings.ToLower(st.Proto().String()); strings.Contains(all, "jane") || strings.Contains(all, "evergreen") {
		t.Errorf("the refusal tells the value: %s", all)
	}
	return info.GetMetadata()["field"]
}

var jane = &identity.Principal{ID: "agent", Tenant: "acme"}

func TestDataFlow(t *testing.T) {
	w := newFlow(t, interceptors.DataFlowOptions{Rules: []interceptors.DataFlowRule{{Name: "no pii by mail", Label: "pii", From: []string{"crm"}, To: []string{"mailer"}}}})
	if err := w.call(w.mailer, "Mailer/Send", jane, `{"parts":[{"text":"jane.doe@example.com"}]}`, `{}`); err != nil {
		t.Errorf("before the value was given: %v", err)
	}
	if err := w.call(w.crm, "People/Get", jane, `{}`, janesRecord); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, request, want string }{
		{"whole", `{"parts":[{"text":"Jane.Doe@example.com"}]}`, "parts[0].text"},
		{"in a sentence, in another case", `{"parts":[{"text":"hello"},{"text":"Write to <JANE.DOE@EXAMPLE.COM>."}]}`, "parts[1].text"},
		{"several words", `{"parts":[{"text":"Dear Jane  van\nDoe, hello"}]}`, "parts[0].text"},
		{"a long one as a whole field", `{"parts":[{"text":"12 Evergreen Terrace 2nd floor behind the large red house on the left"}]}`, "parts[0].text"},
		{"a long one within another", `{"parts":[{"text":"to 12 Evergreen Terrace 2nd floor behind the large red house on the left"}]}`, ""},
		{"of a friend, in a map", `{"headers":{"to":"Bartholomew"}}`, "headers"},
		{"as a key", `{"headers":{"Bartholomew":"x"}}`, "headers"},
		{"in a Struct", `{"free":{"a":{"b":["bartholomew"]}}}`, "free.fields.struct_value.fields.list_value.values[0].string_value"},
		{"in an Any", `{"extra":{"@type":"type.googleapis.com/acme.v1.Part","text":"bartholomew"}}`, "extra.text"},
		{"in bytes", `{"raw":"QmFydGhvbG9tZXc="}`, "raw"},
		{"without a label", `{"parts":[{"text":"Springfield"}]}`, ""},
		{"of another label", `{"parts":[{"text":"tok-123456"}]}`, ""},
		{"part of a word", `{"parts":[{"text":"xJane.Doe@example.com"}]}`, ""},
		{"what was kept out", `{"parts":[{"text":"[redacted]"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := field(t, w.call(w.mailer, "Mailer/Send", jane, c.request, `{}`)); got != c.want {
				t.Errorf("refused field = %q, want %q", got, c.want)
			}
		})
	}
	for _, other := range []*identity.Principal{nil, {ID: "agent", Tenant: "other"}, {ID: "somebody", Tenant: "acme"}} {
		if err := w.call(w.mailer, "Mailer/Send", other, `{"parts":[{"text":"Bartholomew"}]}`, `{}`); err != nil {
			t.Errorf("another principal %+v: %v", other, err)
		}
	}
	if err := w.call(w.crm, "Mailer/Send", jane, `{"parts":[{"text":"Bartholomew"}]}`, `{}`); err != nil {
		t.Errorf("a backend that no rule names: %v", err)
	}
}

func TestDataFlowRules(t *testing.T) {
	for _, c := range []struct {
		name                  string
		rule                  interceptors.DataFlowRule
		mailer, crm, toMailer string // what goes to whom; toMailer is the refused field
		toCRM                 string
	}{
		{"sensitive without a label", interceptors.DataFlowRule{Label: "sensitive", To: []string{"mailer"}}, "tok-123456", "tok-123456", "parts[0].text", ""},
		{"any label", interceptors.DataFlowRule{Label: "*", To: []string{"mailer"}}, "pixels-and-more", "pixels-and-more", "parts[0].text", ""},
		{"any other backend", interceptors.DataFlowRule{Label: "pii", To: []string{"*"}}, "Bartholomew", "Bartholomew", "parts[0].text", ""},
		{"from elsewhere", interceptors.DataFlowRule{Label: "pii", From: []string{"hr"}, To: []string{"mailer"}}, "Bartholomew", "Bartholomew", "", ""},
		{"log only", interceptors.DataFlowRule{Label: "pii", To: []string{"mailer"}, LogOnly: true}, "Bartholomew", "Bartholomew", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Name = "rule"
			w := newFlow(t, interceptors.DataFlowOptions{Rules: []interceptors.DataFlowRule{c.rule}})
			if err := w.call(w.crm, "People/List", jane, `{}`, janesRecord); err != nil {
				t.Fatal(err)
			}
			if got := field(t, w.call(w.mailer, "Mailer/Send", jane, `{"parts":[{"text":"`+c.mailer+`"}]}`, `{}`)); got != c.toMailer {
				t.Errorf("to the mailer: refused %q, want %q", got, c.toMailer)
			}
			if got := field(t, w.call(w.crm, "Mailer/Send", jane, `{"parts":[{"text":"`+c.crm+`"}]}`, `{}`)); got != c.toCRM {
				t.Errorf("back to where it came from: refused %q, want %q", got, c.toCRM)
			}
		})
	}
}

func TestDataFlowOfAStreamOfRequests(t *testing.T) {
	w := newFlow(t, interceptors.DataFlowOptions{Rules: []interceptors.DataFlowRule{{Name: "r", Label: "pii", To: []string{"mailer"}}}})
	if err := w.call(w.crm, "People/Get", jane, `{}`, janesRecord); err != nil {
		t.Fatal(err)
	}
	m := w.mailer.Method("/acme.v1.Mailer/Stream")
	requests := []string{`{"parts":[{"text":"hello"}]}`, `{"parts":[{"text":"Bartholomew"}]}`}
	next := func() (*call.Frame, error) {
		if len(requests) == 0 {
			return nil, io.EOF
		}
		f := call.NewFrame(nil, requestOf(t, m, requests[0]))
		requests = requests[1:]
		return f, nil
	}
	c := call.New(m, call.GRPC)
	c.Principal = jane
	seen := 0
	err := interceptors.Chain(func(_ any, s grpc.ServerStream) error {
		for {
			var f call.Frame
			if err := s.RecvMsg(&f); err != nil {
				return err
			}
			f.Release()
			seen++
		}
	}, w.policy)(call.NewStream(t.Context(), c, next, func(*call.Frame) error { return nil }, nil))
	if got := field(t, err); got != "parts[0].text" || seen != 1 || c.Steps[0].Decided().Verdict != "refused" {
		t.Errorf("refused %q after %d messages, decided %+v, want the second one refused", got, seen, c.Steps[0].Decided())
	}
}

func TestDataFlowForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFlow(t, interceptors.DataFlowOptions{Remember: time.Minute, MaxValues: 3, Rules: []interceptors.DataFlowRule{{Name: "r", Label: "pii", To: []string{"mailer"}}}})
		give := func(name string) {
			t.Helper()
			if err := w.call(w.crm, "People/Get", jane, `{}`, `{"name":"`+name+`"}`); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(name string) bool {
			t.Helper()
			return field(t, w.call(w.mailer, "Mailer/Send", jane, `{"parts":[{"text":"`+name+`"}]}`, `{}`)) != ""
		}
		give("first-name")
		time.Sleep(59 * time.Second)
		if !refused("first-name") {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Second)
		if refused("first-name") {
			t.Error("known beyond its time")
		}
		for i := range 4 {
			give(fmt.Sprintf("name-number-%d", i))
		}
		if refused("name-number-0") || !refused("name-number-1") || !refused("name-number-3") {
			t.Error("want the last three known")
		}
		give("short")
		if refused("short") {
			t.Error("a value below eight bytes is known")
		}
	})
}

func TestDataFlowLeavesOut(t *testing.T) {
	w := newFlow(t, interceptors.DataFlowOptions{Rules: []interceptors.DataFlowRule{{Name: "r", Label: "pii", From: []string{"crm"}, To: []string{"mailer"}}}})
	for _, c := range []struct {
		s      *catalog.Snapshot
		method string
		want   bool
	}{
		{w.crm, "People/Get", true}, {w.crm, "People/Plain", false}, {w.mailer, "Mailer/Send", true}, {w.crm, "Mailer/Send", false},
	} {
		if got := w.policy.For(c.s.Method("/acme.v1."+c.method)) != nil; got != c.want {
			t.Errorf("%s of %s is in the chain: %v, want %v", c.method, c.s.Method("/acme.v1."+c.method).Backend.Name, got, c.want)
		}
	}
	if interceptors.DataFlow(interceptors.Options{}).For(w.crm.Method("/acme.v1.People/Get")) != nil {
		t.Error("without rules it is in a chain")
	}
}

func BenchmarkDataFlow(b *testing.B) {
	w := newFlow(b, interceptors.DataFlowOptions{Rules: []interceptors.DataFlowRule{{Name: "r", Label: "pii", To: []string{"mailer"}}}})
	if err := w.call(w.crm, "People/Get", jane, `{}`, janesRecord); err != nil {
		b.Fatal(err)
	}
	give, send := w.crm.Method("/acme.v1.People/Get"), w.mailer.Method("/acme.v1.Mailer/Send")
	reply := call.NewFrame(nil, fromJSON(b, give.Response(), janesRecord))
	for _, c := range []struct {
		name string
		m    *catalog.Method
		wire []byte
	}{
		{"give", give, nil},
		{"send", send, requestOf(b, send, `{"parts":[{"text":"hello there"}],"headers":{"subject":"a few words"}}`)},
		{"send-4KB", send, requestOf(b, send, `{"parts":[{"text":"`+strings.Repeat("some words more ", 256)+`"}]}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := interceptors.Chain(func(_ any, s grpc.ServerStream) error {
				if c.m == give {
					return s.SendMsg(reply)
				}
				return nil
			}, w.policy)
			b.ReportAllocs()
			for b.Loop() {
				cl := call.New(c.m, call.GRPC)
				cl.Principal = jane
				if err := h(call.NewStream(b.Context(), cl, call.One(call.NewFrame(nil, c.wire)), func(*call.Frame) error { return nil }, nil)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
