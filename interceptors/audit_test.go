package interceptors_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// records is a sink of a test. It fails while err is set.
type records struct {
	mu  sync.Mutex
	all []*toolwayv1.AuditRecord
	err error
}

func (r *records) Record(_ context.Context, rec audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	m, err := rec.Decode()
	if err != nil {
		return err
	}
	r.all = append(r.all, m)
	return nil
}

func (r *records) last(t testing.TB) *toolwayv1.AuditRecord {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Fatal("no record")
	}
	return r.all[len(r.all)-1]
}

func sum(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func length(b []byte) []byte { return protowire.AppendVarint(nil, uint64(len(b))) }

func audited(sink interceptors.AuditSink, more ...interceptors.Policy) []interceptors.Policy {
	return append(interceptors.Default(interceptors.Options{Logger: discard(), Audit: interceptors.AuditOptions{Sink: sink}}), more...)
}

func TestAuditOfACall(t *testing.T) {
	sink := &records{}
	c := call.New(method(t, "UnaryCall"), call.MCP)
	c.Protocol = "2026-07-28"
	c.Forward = metadata.MD{"x-request-id": {"mine"}}
	c.Approval, c.Key = "ap-1", "secret-key-of-mine"
	c.Principal = &identity.Principal{ID: "idp#ann", Tenant: "acme", How: "jwt", Scopes: []string{"x"}}
	c.Attempts = []call.Attempt{
		{Backend: "echo", Target: "10.0.0.1:50051", Start: time.Millisecond, End: 3 * time.Millisecond, Code: codes.Unavailable, Outcome: call.NotExecuted, Why: "refused stream"},
		{Backend: "echo", Target: "10.0.0.2:50051", Start: 4 * time.Millisecond, End: 5 * time.Millisecond, Outcome: call.Answered},
	}
	wire := marshal(t, &testpb.SimpleRequest{ResponseSize: 7, FillUsername: true})
	reply := marshal(t, &testpb.SimpleResponse{Username: "u"})
	_, err := run(t.Context(), c, wire, func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		c.Sent = true
		if err := s.SetHeader(metadata.Pairs("side-effect-id", "deploy/7")); err != nil {
			return err
		}
		return s.SendMsg(call.NewFrame(nil, reply))
	}, audited(sink)...)
	if err != nil {
		t.Fatal(err)
	}
	got := sink.last(t)
	if len(got.GetSteps()) < 5 || got.GetSteps()[3].GetName() != "audit" || got.GetSteps()[4].GetTookMs() <= 0 || got.GetLatencyMs() < got.GetSteps()[4].GetTookMs() {
		t.Errorf("steps = %v", got.GetSteps())
	}
	if d := got.GetDeadline().AsTime(); !d.Equal(c.Start.Add(time.Minute)) || !got.GetStartedAt().AsTime().Equal(c.Start) {
		t.Errorf("started %v, deadline %v, want %v and a minute later", got.GetStartedAt().AsTime(), d, c.Start)
	}
	want := &toolwayv1.AuditRecord{
		CallId: c.ID, TraceId: c.ID, RequestId: "mine", Door: "mcp", ProtocolVersion: "2026-07-28", Backend: "echo", Method: "grpc.testing.TestService/UnaryCall",
		Tool: "test_unary_call", DefinitionHash: c.Method.Hash(), Principal: "idp#ann", Tenant: "acme", Authentication: "jwt", ApprovalId: "ap-1", IdempotencyKeyHash: sum([]byte("secret-key-of-mine")),
		ArgumentsHash: sum(wire), Arguments: `{"responseSize":7,"fillUsername":true}`, Requests: 1, Outcome: toolwayv1.AuditRecord_OUTCOME_OK, Code: "OK",
		ResultHash: sum(reply), ResultBytes: int64(len(reply)), Results: 1, SideEffectId: "deploy/7",
		Attempts: []*toolwayv1.AuditAttempt{
			{Backend: "echo", Target: "10.0.0.1:50051", AtMs: 1, TookMs: 2, Code: "UNAVAILABLE", Outcome: "not executed", Why: "refused stream"},
			{Backend: "echo", Target: "10.0.0.2:50051", AtMs: 4, TookMs: 1, Code: "OK", Outcome: "answered"},
		},
	}
	want.Steps, want.StartedAt, want.Deadline, want.LatencyMs = got.Steps, got.StartedAt, got.Deadline, got.LatencyMs
	if !proto.Equal(got, want) {
		t.Errorf("record = %v\nwant     %v", got, want)
	}
}

func TestAuditOfFailures(t *testing.T) {
	refuse := interceptors.Every("gate", func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		call.FromContext(s.Context()).Decide("gate", "refused", "not on a Friday")
		return call.Error(codes.PermissionDenied, "POLICY_DENIED", "not on a Friday")
	})
	sent := func(err error) grpc.StreamHandler {
		return func(_ any, s grpc.ServerStream) error {
			if err := s.RecvMsg(&call.Frame{}); err != nil {
				return err
			}
			call.FromContext(s.Context()).Sent = true
			return err
		}
	}
	backend, err := status.New(codes.NotFound, "no order hunter2").WithDetails(&errdetails.ErrorInfo{Reason: "NO_ORDER", Domain: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		final   grpc.StreamHandler
		more    []interceptors.Policy
		outcome toolwayv1.AuditRecord_Outcome
		code    string
		reason  string
		message string
		read    bool
	}{
		{"refused", sent(nil), []interceptors.Policy{refuse}, toolwayv1.AuditRecord_OUTCOME_REFUSED, "PERMISSION_DENIED", "POLICY_DENIED", "not on a Friday", false},
		{"failed", sent(backend.Err()), nil, toolwayv1.AuditRecord_OUTCOME_FAILED, "NOT_FOUND", "NO_ORDER", "", true},
		{"lost", sent(call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", "the backend is gone")), nil, toolwayv1.AuditRecord_OUTCOME_UNKNOWN, "UNAVAILABLE", "BACKEND_UNAVAILABLE", "the backend is gone", true},
		{"bad arguments", sent(call.Error(codes.InvalidArgument, "BAD", `"hunter2" is no number`)), nil, toolwayv1.AuditRecord_OUTCOME_UNKNOWN, "INVALID_ARGUMENT", "BAD", "", true},
		{"full", sent(call.Error(codes.Canceled, call.ResultFull, "enough")), nil, toolwayv1.AuditRecord_OUTCOME_OK, "CANCELLED", "RESULT_FULL", "", true},
		{"panic", func(any, grpc.ServerStream) error { panic("hunter2") }, nil, toolwayv1.AuditRecord_OUTCOME_REFUSED, "INTERNAL", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := &records{}
			cl := call.New(method(t, "UnaryCall"), call.MCP)
			if _, err := run(t.Context(), cl, nil, c.final, audited(sink, c.more...)...); err == nil {
				t.Error("no error")
			}
			got := sink.last(t)
			if got.GetOutcome() != c.outcome || got.GetCode() != c.code || got.GetReason() != c.reason || got.GetMessage() != c.message || (got.GetArgumentsHash() != "") != c.read ||
				got.GetToolError() != (c.outcome != toolwayv1.AuditRecord_OUTCOME_OK) {
				t.Errorf("record = %v", got)
			}
			line, err := audit.AppendJSON(nil, got)
			if err != nil || strings.Contains(string(line), "hunter2") {
				t.Errorf("line = %s, %v", line, err)
			}
			if c.name == "refused" {
				if s := got.GetSteps()[len(got.GetSteps())-1]; s.GetName() != "gate" || s.GetVerdict() != "refused" || s.GetDetail() != "not on a Friday" {
					t.Errorf("last step = %v", s)
				}
			}
		})
	}
}

// TestAuditOfStreams sends three messages each way, as frames and as messages that an interceptor has decoded.
func TestAuditOfStreams(t *testing.T) {
	var in, out []byte
	var wires [][]byte
	for i := range 3 {
		w := marshal(t, &testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: int32(i + 1)}}})
		wires = append(wires, w)
		in = append(append(in, length(w)...), w...)
		r := marshal(t, &testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte{byte(i)}}})
		out = append(append(out, length(r)...), r...)
	}
	for name, typed := range map[string]bool{"frames": false, "messages": true} {
		t.Run(name, func(t *testing.T) {
			sink := &records{}
			c := call.New(method(t, "FullDuplexCall"), call.GRPC)
			next := 0
			s := call.NewStream(t.Context(), c, func() (*call.Frame, error) {
				if next == len(wires) {
					return nil, io.EOF
				}
				next++
				return call.NewFrame(nil, wires[next-1]), nil
			}, func(*call.Frame) error { return nil }, nil)
			err := interceptors.Chain(func(_ any, s grpc.ServerStream) error {
				c.Sent = true
				for i := 0; ; i++ {
					var err error
					if typed {
						err = s.RecvMsg(&testpb.StreamingOutputCallRequest{})
					} else {
						err = s.RecvMsg(&call.Frame{})
					}
					if errors.Is(err, io.EOF) {
						return nil
					} else if err != nil {
						return err
					}
					reply := &testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte{byte(i)}}}
					var m any = reply
					if !typed {
						m = call.NewFrame(nil, marshal(t, reply))
					}
					if err := s.SendMsg(m); err != nil {
						return err
					}
				}
			}, audited(sink)...)(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := sink.last(t); got.GetRequests() != 3 || got.GetResults() != 3 || got.GetArgumentsHash() != sum(in) || got.GetResultHash() != sum(out) || got.GetArguments() != `{"responseParameters":[{"size":1}]}` {
				t.Errorf("record = %v", got)
			}
		})
	}
}

// TestAuditOfLargeRequests has a request that nobody keeps until the call is over, and one that a compiled-in service decodes.
func TestAuditOfLargeRequests(t *testing.T) {
	wire := marshal(t, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 100<<10)}})
	for _, m := range []any{&call.Frame{}, &testpb.SimpleRequest{}} {
		sink := &records{}
		_, err := run(t.Context(), call.New(method(t, "UnaryCall"), call.GRPC), wire, func(_ any, s grpc.ServerStream) error { return s.RecvMsg(m) }, audited(sink)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := sink.last(t); got.GetArgumentsHash() != sum(wire) || got.GetArguments() != "" || !got.GetArgumentsCut() || got.GetRequests() != 1 {
			t.Errorf("%T: record = %v", m, got)
		}
	}
	sink := &records{}
	small := marshal(t, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 6<<10)}, ResponseSize: 3})
	if _, err := run(t.Context(), call.New(method(t, "UnaryCall"), call.GRPC), small, echo, audited(sink)...); err != nil {
		t.Fatal(err)
	}
	if got := sink.last(t); !got.GetArgumentsCut() || len(got.GetArguments()) > 4<<10 || got.GetArgumentsHash() != sum(small) {
		t.Errorf("record = %v", got)
	}
}

// TestAuditHashIsCanonical sends the same request in two encodings.
func TestAuditHashIsCanonical(t *testing.T) {
	wire := marshal(t, &testpb.SimpleRequest{ResponseSize: 7, FillUsername: true})
	turned := append(marshal(t, &testpb.SimpleRequest{FillUsername: true}), marshal(t, &testpb.SimpleRequest{ResponseSize: 7})...)
	sink := &records{}
	for _, w := range [][]byte{wire, turned} {
		if _, err := run(t.Context(), call.New(method(t, "UnaryCall"), call.GRPC), w, echo, audited(sink)...); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := sink.all[0], sink.all[1]; a.GetArgumentsHash() != b.GetArgumentsHash() || a.GetArguments() != b.GetArguments() {
		t.Errorf("%s %s, %s %s", a.GetArgumentsHash(), a.GetArguments(), b.GetArgumentsHash(), b.GetArguments())
	}
}

// TestAuditRequired refuses calls while the sink fails, and serves again once it has kept the record of a refused one.
func TestAuditRequired(t *testing.T) {
	for _, required := range []bool{true, false} {
		log, out := logger()
		sink := &records{err: errors.New("disk full")}
		chain := interceptors.Default(interceptors.Options{Logger: log, Audit: interceptors.AuditOptions{Sink: sink, Required: required}})
		ran := 0
		final := func(srv any, s grpc.ServerStream) error {
			ran++
			return echo(srv, s)
		}
		h := interceptors.Chain(final, chain...)
		once := func() error {
			return h(call.NewStream(t.Context(), call.New(method(t, "UnaryCall"), call.GRPC), call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { return nil }, nil))
		}
		if err := once(); err != nil {
			t.Fatalf("nothing is known yet of the fault: %v", err)
		}
		if !strings.Contains(out.String(), "not in the audit") || !strings.Contains(out.String(), "disk full") {
			t.Errorf("log = %s", out)
		}
		err := once()
		if refused := status.Code(err) == codes.Unavailable; refused != required {
			t.Errorf("required %v, while the sink fails: %v", required, err)
		}
		sink.err = nil
		if refused := status.Code(once()) == codes.Unavailable; refused != required {
			t.Errorf("required %v, first call after the fault: refused = %v", required, refused)
		}
		if err := once(); err != nil {
			t.Errorf("required %v, after the fault: %v", required, err)
		}
		if want := map[bool]int{true: 2, false: 4}[required]; ran != want {
			t.Errorf("required %v: %d calls ran, want %d", required, ran, want)
		}
	}
}

func TestAuditOff(t *testing.T) {
	for _, p := range interceptors.Default(interceptors.Options{Logger: discard()}) {
		if p.Name == "audit" && p.For(method(t, "UnaryCall")) != nil {
			t.Error("audit without a sink is in the chain")
		}
	}
}
