package mcpadapter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/mcpadapter"
)

// failing calls orders_get with a chain that fails with what fail returns.
func failing(t *testing.T, tool string, fail func(*call.Call) error) *mcp.CallToolResult {
	t.Helper()
	return failingOn(t, func(*mcpadapter.Config) {}, tool, fail)
}

func failingOn(t *testing.T, path func(*mcpadapter.Config), tool string, fail func(*call.Call) error) *mcp.CallToolResult {
	t.Helper()
	w := newWorld(t, func(c *mcpadapter.Config) {
		path(c)
		c.Handler = func(stream grpc.ServerStream) error { return fail(call.FromContext(stream.Context())) }
	})
	res, err := w.connect(doors[1], nil).CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestEveryCode(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		res := failing(t, "orders_get", func(*call.Call) error { return status.Error(code, "words") })
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		want := map[codes.Code]string{codes.Canceled: "CANCELLED", codes.OutOfRange: "OUT_OF_RANGE", codes.Internal: "INTERNAL"}[code]
		if want != "" && got.Error.Code != want {
			t.Errorf("%s is shown as %q, want %q", code, got.Error.Code, want)
		}
		if !res.IsError || got.Error.Code == "" || got.Error.Code != strings.ToUpper(got.Error.Code) || got.Error.Message != "words" || got.Error.Hint == "" {
			t.Errorf("%s is shown as %s", code, raw)
		}
		if text := texts(res)[0]; !strings.HasPrefix(text, got.Error.Code+": words\n") || !strings.Contains(text, "hint: ") {
			t.Errorf("%s has the text %q", code, text)
		}
	}
}

func TestCodeOfTomorrow(t *testing.T) {
	res := failing(t, "orders_get", func(*call.Call) error { return status.Error(99, "words") })
	if got := asJSON(t, res.StructuredContent); !strings.Contains(got, `"code":"CODE_99"`) {
		t.Errorf("code 99 is shown as %s", got)
	}
}

// TestOutcome pins what is said about whether the call took effect.
func TestOutcome(t *testing.T) {
	for _, tc := range []struct {
		sent bool
		want string
	}{
		{false, "did not reach the backend"},
		{true, "not known whether the call took effect"},
	} {
		res := failing(t, "orders_get", func(c *call.Call) error {
			c.Sent = tc.sent
			return status.Error(codes.Unavailable, "gone")
		})
		if text := texts(res)[0]; !strings.Contains(text, tc.want) {
			t.Errorf("UNAVAILABLE with Sent = %t has the text %q, want %q", tc.sent, text, tc.want)
		}
	}
}

// TestOneHint pins that a hint of the mesh's own takes the place of the one for its code, beside what is said about whether the call took effect.
func TestOneHint(t *testing.T) {
	for _, tc := range []struct {
		code   codes.Code
		sent   bool
		domain string
		want   string
	}{
		{codes.Unavailable, false, call.Domain, "the call did not reach the backend, so nothing was done; start it"},
		{codes.Unavailable, true, call.Domain, "it is not known whether the call took effect; look up the state before calling again"},
		{codes.Unimplemented, false, call.Domain, "start it"},
		{codes.Unimplemented, false, "shop.example.com", "the backend does not offer this; use another tool"},
	} {
		forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
			res := failingOn(t, path, "orders_get", func(c *call.Call) error {
				c.Sent = tc.sent
				st, err := status.New(tc.code, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "R", Domain: tc.domain, Metadata: map[string]string{"hint": "start it", "backend": "b"}})
				if err != nil {
					t.Error(err)
				}
				return st.Err()
			})
			text := texts(res)[0]
			hints := 1
			if tc.domain != call.Domain {
				hints = 2 // metadata of a backend is no hint of the mesh
			}
			if strings.Count(text, "\nhint: ") != hints || !strings.HasSuffix(text, "\nhint: "+tc.want) || !strings.Contains(text, "\nbackend: b\n") {
				t.Errorf("%s with Sent = %t of %s has the text %q, want the hint %q", tc.code, tc.sent, tc.domain, text, tc.want)
			}
		})
	}
}

// TestHidden pins that no text of an error has characters in it that are not seen but change how it reads.
// TestNothingWasDoneOnce has a hint of the mesh's own that says already that nothing was done.
func TestNothingWasDoneOnce(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		for _, hint := range []string{"nothing was done; wait", "wait; nothing was done", "too much to do; nothing was done, so wait"} {
			res := failingOn(t, path, "orders_get", func(*call.Call) error { return call.Error(codes.Unavailable, "OVERLOADED", "gone", "hint", hint) })
			if text := texts(res)[0]; strings.Count(text, "nothing was done") != 1 {
				t.Errorf("hint %q is shown as %q, want it said once", hint, text)
			}
		}
	})
}

func TestHidden(t *testing.T) {
	const dirty = "a\u202eb\U000e0041\u200b\u001b[31mc\r\u2066d"
	order := &anypb.Any{TypeUrl: "type.googleapis.com/shop.v1.Order", Value: append([]byte{0x12, byte(len(dirty))}, dirty...)}
	st, err := status.New(codes.InvalidArgument, dirty).WithDetails(
		&errdetails.ErrorInfo{Reason: dirty, Domain: dirty, Metadata: map[string]string{dirty: dirty}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: dirty, Description: dirty + "x", Reason: dirty}}},
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: dirty, Subject: dirty, Description: dirty}}},
		&errdetails.ResourceInfo{ResourceType: dirty, ResourceName: dirty, Owner: dirty, Description: dirty},
		&errdetails.Help{Links: []*errdetails.Help_Link{{Description: dirty, Url: dirty}}},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: dirty, Description: dirty}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	proto := st.Proto()
	proto.Details = append(proto.Details, order)
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		for _, tool := range []string{"orders_get", "orders_judge"} { // in structuredContent, and in _meta
			res := failingOn(t, path, tool, func(*call.Call) error { return status.ErrorProto(proto) })
			got := texts(res)[0] + asJSON(t, res.StructuredContent) + asJSON(t, res.Meta)
			if got != call.PlainText(got) || strings.Contains(got, `\u`) || strings.Contains(got, "[31m") || strings.Count(got, "abcd") < 30 {
				t.Errorf("%s: %q", tool, got)
			}
		}
	})
	// What agents are told about their own words is an error text too.
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		url := w.serve()
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{"a\u202eb":1}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u202eb"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"a\u202eb"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"a\u202eb"}`,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"a\u202eb":1},"extensions":5}}}`,
		} {
			if body := closed(t, post(t.Context(), t, url, message, nil)); body != call.PlainText(body) || !strings.Contains(body, `"error"`) {
				t.Errorf("%s = %q", message, body)
			}
		}
	})
}

// TestErrorWithoutStatus pins that a fault of the mesh itself stays out of the answer.
func TestErrorWithoutStatus(t *testing.T) {
	for _, fail := range []func(*call.Call) error{
		func(*call.Call) error { return errSecret },
		func(*call.Call) error { return nil }, // no reply either
	} {
		res := failing(t, "orders_get", fail)
		if got := asJSON(t, res.StructuredContent); !res.IsError || !strings.Contains(got, `"code":"INTERNAL"`) || strings.Contains(got, "secret") {
			t.Errorf("error without a status is shown as %s", got)
		}
	}
}

type secretError struct{}

func (secretError) Error() string { return "dial db-7: secret" }

var errSecret = secretError{}

func TestDetails(t *testing.T) {
	own := &anypb.Any{TypeUrl: "type.googleapis.com/shop.v1.Order", Value: []byte{0x08, 0x07}} // id: 7
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/shop.v2.Strange", Value: []byte{0xff}}
	st, err := status.New(codes.FailedPrecondition, "not yet").WithDetails(
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: "TOS", Subject: "acme", Description: "not accepted"}}},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "acme", Description: "too many"}}},
		&errdetails.ResourceInfo{ResourceType: "order", ResourceName: "orders/7"},
		&errdetails.Help{Links: []*errdetails.Help_Link{{Description: "more", Url: "https://example.com/tos"}}},
		&errdetails.DebugInfo{Detail: "stack trace"},
		&errdetails.ErrorInfo{Reason: "FIRST"}, &errdetails.ErrorInfo{Reason: "SECOND"},
	)
	if err != nil {
		t.Fatal(err)
	}
	plain := st.Proto()
	plain.Details = append(plain.Details, own, unknown)
	res := failing(t, "orders_get", func(*call.Call) error { return status.ErrorProto(plain) })
	got := asJSON(t, res.StructuredContent)
	for _, want := range []string{
		`"preconditions":[{"description":"not accepted","subject":"acme","type":"TOS"}]`,
		`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"description":"too many","subject":"acme"}]}`,
		`"resource":{"name":"orders/7","type":"order"}`, `"url":"https://example.com/tos"`,
		`"reason":"FIRST"`, `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SECOND"}`,
		`{"@type":"type.googleapis.com/shop.v1.Order","id":"7"}`, `{"@type":"type.googleapis.com/shop.v2.Strange"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("details = %s, want %s in them", got, want)
		}
	}
	if strings.Contains(got+texts(res)[0], "stack trace") {
		t.Errorf("the caller is shown debug information: %s", got)
	}
}

func TestReplyTooLarge(t *testing.T) {
	w := newWorld(t, func(c *mcpadapter.Config) { c.MaxResultBytes = 10 })
	res, err := w.connect(doors[1], nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_get"})
	if err != nil {
		t.Fatal(err)
	}
	if text := texts(res)[0]; !res.IsError || !strings.HasPrefix(text, "RESOURCE_EXHAUSTED: ") || !strings.Contains(text, "did its work") {
		t.Errorf("reply that is too large = %q (isError %t)", text, res.IsError)
	}
}
