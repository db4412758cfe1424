package interceptors_test

import (
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/rules"
)

func ruleSet(t testing.TB, c rules.Config) *rules.Set {
	t.Helper()
	s, err := rules.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRules(t *testing.T) {
	set := ruleSet(t, rules.Config{Rules: []rules.Rule{
		{Name: "size", When: `request.response_size > 10`, Message: "at most 10"},
		{Name: "guests", When: `principal.tenant == "guests"`, Hide: true},
	}})
	for _, c := range []struct {
		name    string
		wire    []byte
		tenant  string
		code    codes.Code
		reason  string
		rule    string
		verdict string
		detail  string
		reached bool
	}{
		{"allowed", marshal(t, &testpb.SimpleRequest{ResponseSize: 10}), "acme", codes.OK, "", "", "allowed", "", true},
		{"denied", marshal(t, &testpb.SimpleRequest{ResponseSize: 11}), "acme", codes.PermissionDenied, "POLICY_DENIED", "size", "denied", "size: at most 10", false},
		{"hidden", marshal(t, &testpb.SimpleRequest{ResponseSize: 10}), "guests", codes.Unimplemented, "UNKNOWN_METHOD", "", "hidden", `guests: rule "guests" does not allow this call`, false},
		{"malformed", []byte{0x10}, "acme", codes.InvalidArgument, "MALFORMED_REQUEST", "", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := call.New(method(t, "UnaryCall"), call.MCP)
			cl.Principal = &identity.Principal{ID: "ann", Tenant: c.tenant}
			reached := false
			_, err := run(t.Context(), cl, c.wire, func(srv any, s grpc.ServerStream) error {
				reached = true
				return echo(srv, s)
			}, interceptors.Rules(interceptors.Options{Logger: discard(), Rules: set}))
			if status.Code(err) != c.code || infoOf(err).GetReason() != c.reason || infoOf(err).GetMetadata()["rule"] != c.rule || reached != c.reached || cl.Hidden != (c.name == "hidden") {
				t.Errorf("%v, %v, reached = %v, hidden = %v", err, infoOf(err), reached, cl.Hidden)
			}
			if s := cl.Steps[0].Decided(); s.Verdict != c.verdict || s.Detail != c.detail {
				t.Errorf("step = %+v", s)
			}
			if v := interceptors.Visibility(set, nil); call.Sees(v, cl.Principal, call.MCP, cl.Method) != (c.name != "hidden") {
				t.Error("what is listed and what is answered differ")
			}
		})
	}
}

// TestRulesOfStreams denies the second message of a request stream.
func TestRulesOfStreams(t *testing.T) {
	set := ruleSet(t, rules.Config{Rules: []rules.Rule{{Name: "count", When: `size(request.response_parameters) > 1`, Message: "one at a time"}}})
	one := marshal(t, &testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 1}}})
	two := append(append([]byte{}, one...), one...)
	cl := call.New(method(t, "FullDuplexCall"), call.GRPC)
	sent := [][]byte{one, two, one}
	var replies int
	s := call.NewStream(t.Context(), cl, func() (*call.Frame, error) {
		if len(sent) == 0 {
			return nil, io.EOF
		}
		f := call.NewFrame(nil, sent[0])
		sent = sent[1:]
		return f, nil
	}, func(*call.Frame) error { replies++; return nil }, nil)
	err := interceptors.Chain(echo, interceptors.Rules(interceptors.Options{Logger: discard(), Rules: set}))(s)
	if status.Code(err) != codes.PermissionDenied || infoOf(err).GetMetadata()["rule"] != "count" || replies != 1 || len(sent) != 1 {
		t.Errorf("%v, %d replies, %d requests left", err, replies, len(sent))
	}
	if st := cl.Steps[0].Decided(); st.Verdict != "denied" || st.Detail != "count: one at a time" {
		t.Errorf("step = %+v", st)
	}
}

// TestRulesThatFail refuse, say so in the log, and tell the caller nothing of why.
func TestRulesThatFail(t *testing.T) {
	set := ruleSet(t, rules.Config{Rules: []rules.Rule{{Name: "team", When: `principal.claims.team == "x"`}, {Name: "other", When: `request.nothing == 1`}}})
	log, out := logger()
	for _, claims := range []map[string]any{nil, {"team": "y"}} {
		cl := call.New(method(t, "UnaryCall"), call.GRPC)
		cl.Principal = &identity.Principal{ID: "ann", Claims: claims}
		_, err := run(t.Context(), cl, nil, echo, interceptors.Rules(interceptors.Options{Logger: log, Rules: set}))
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "cannot be decided") {
			t.Errorf("claims %v: %v", claims, err)
		}
	}
	if !strings.Contains(out.String(), "no such key: team") || !strings.Contains(out.String(), `has no field \"nothing\"`) {
		t.Errorf("log = %s", out)
	}
}

func TestNoRules(t *testing.T) {
	if interceptors.Rules(interceptors.Options{}).For(method(t, "UnaryCall")) != nil || interceptors.Visibility(nil, nil) != nil {
		t.Error("no rules are in the chain")
	}
}
