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
	w := newWorld(t, func(c *mcpadapter.Config) {
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
