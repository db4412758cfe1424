package call_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

func unary(t *testing.T) *catalog.Method {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(testpb.File_grpc_testing_empty_proto), protodesc.ToFileDescriptorProto(testpb.File_grpc_testing_messages_proto),
		protodesc.ToFileDescriptorProto(testpb.File_grpc_testing_test_proto))
	s, err := catalog.Static("b", set)
	if err != nil {
		t.Fatal(err)
	}
	return s.Method("/grpc.testing.TestService/UnaryCall")
}

// TestOutcome is what is known about a call after its attempts.
func TestOutcome(t *testing.T) {
	type end struct {
		code codes.Code
		out  call.Outcome
	}
	ok, busy, broke, refused := end{codes.OK, call.Answered}, end{codes.Unavailable, call.Answered}, end{codes.Unavailable, call.Unknown}, end{codes.Unavailable, call.NotExecuted}
	for _, c := range []struct {
		ends []end
		sent bool
		want call.Outcome
	}{
		{nil, false, call.NotExecuted},
		{nil, true, call.Unknown}, // a service compiled in has no attempts
		{[]end{ok}, true, call.Answered},
		{[]end{refused, refused}, false, call.NotExecuted},
		{[]end{broke, refused}, true, call.Unknown},
		{[]end{busy, refused}, true, call.Answered},
		{[]end{broke, busy}, true, call.Unknown},
		{[]end{busy, broke}, true, call.Unknown},
		{[]end{broke, ok}, true, call.Answered},
		{[]end{ok, {codes.Canceled, call.Unknown}}, true, call.Answered}, // the slower of two
		{[]end{broke, {codes.NotFound, call.Answered}}, true, call.Answered},
	} {
		cl := call.New(unary(t), call.GRPC)
		cl.Sent = c.sent
		for _, e := range c.ends {
			cl.EndAttempt(cl.BeginAttempt("b"), "addr", e.code, e.out)
		}
		if got := cl.Outcome(); got != c.want {
			t.Errorf("after %v: %q, want %q", c.ends, got, c.want)
		}
	}
}

// TestAbandonedAttempt ends with the call.
func TestAbandonedAttempt(t *testing.T) {
	c := call.New(unary(t), call.GRPC)
	c.BecauseOf("nothing has begun: this is dropped")
	c.BeginAttempt("b")
	c.BecauseOf("why")
	c.EndAttempts()
	if a := c.Attempts[0]; a.Code != codes.Canceled || a.Outcome != call.Unknown || a.End < a.Start || a.Why != "why" || a.Backend != "b" {
		t.Errorf("attempt %+v, want it cancelled, unknown, and ended", a)
	}
}

func TestFailure(t *testing.T) {
	bare := status.Error(codes.Unavailable, "down")
	f := &call.Failure{Err: bare, Outcome: call.NotExecuted}
	wrapped := fmt.Errorf("by somebody's interceptor: %w", f)
	if call.OutcomeOf(wrapped) != call.NotExecuted || !errors.Is(call.Bare(wrapped), bare) || status.Code(f) != codes.Unavailable {
		t.Errorf("outcome %q, bare %v, code %v", call.OutcomeOf(wrapped), call.Bare(wrapped), status.Code(f))
	}
	if call.OutcomeOf(bare) != call.Unknown || call.OutcomeOf(nil) != call.Answered || !errors.Is(call.Bare(bare), bare) {
		t.Error("an error that is no Failure is not taken for unknown, as it is")
	}
	st := status.Convert(call.RetryAfter(bare, 1500*time.Millisecond))
	if info, ok := st.Details()[0].(*errdetails.RetryInfo); !ok || info.GetRetryDelay().AsDuration() != 1500*time.Millisecond || st.Message() != "down" {
		t.Errorf("RetryAfter = %v with %v", st, st.Details())
	}
}

// TestKeyed wants a key that the backend gets, and a contract that declares one.
func TestKeyed(t *testing.T) {
	for _, c := range []struct {
		key, forwarded string
		declared, want bool
	}{{"k", "k", true, true}, {"k", "k", false, false}, {"k", "", true, false}, {"", "k", true, false}} {
		m := unary(t)
		m.Policy.KeyRequired = c.declared
		cl := call.New(m, call.GRPC)
		cl.Key = c.key
		if c.forwarded != "" {
			cl.Forward = metadata.Pairs(call.KeyHeader, c.forwarded)
		}
		if got := cl.Keyed(); got != c.want {
			t.Errorf("%+v: Keyed() = %v", c, got)
		}
	}
}
