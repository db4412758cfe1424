package interceptors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

func TestChainOrderAndInfo(t *testing.T) {
	var order []string
	mark := func(name string) interceptors.Policy {
		return interceptors.Every(name, func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			order = append(order, fmt.Sprintf("%s %s %v %v", name, info.FullMethod, info.IsClientStream, info.IsServerStream))
			return h(srv, s)
		})
	}
	c := call.New(method(t, "StreamingOutputCall"), call.MCP)
	if _, err := run(t.Context(), c, nil, echo, mark("outer"), mark("inner")); err != nil {
		t.Fatal(err)
	}
	want := "[outer /grpc.testing.TestService/StreamingOutputCall false true inner /grpc.testing.TestService/StreamingOutputCall false true]"
	if got := fmt.Sprint(order); got != want {
		t.Errorf("chain = %s, want %s", got, want)
	}
}

func TestChainWithoutCall(t *testing.T) {
	s := call.NewStream(t.Context(), call.New(method(t, "UnaryCall"), call.MCP), call.One(nil), nil, nil)
	lost := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, &otherContext{s})
	}
	pass := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, s)
	}
	if err := interceptors.Chain(echo, interceptors.Every("lost", lost), interceptors.Every("pass", pass))(s); status.Code(err) != codes.Internal {
		t.Errorf("a stream without its call: %v, want INTERNAL", err)
	}
}

type otherContext struct{ grpc.ServerStream }

func (*otherContext) Context() context.Context { return context.Background() }

func TestRecover(t *testing.T) {
	log, out := logger()
	c := call.New(method(t, "UnaryCall"), call.MCP)
	_, err := run(t.Context(), c, nil, func(any, grpc.ServerStream) error { panic("secret detail") }, interceptors.Default(interceptors.Options{Logger: log})...)
	if st := status.Convert(err); st.Code() != codes.Internal || strings.Contains(st.Message(), "secret") || !strings.Contains(st.Message(), c.ID) {
		t.Errorf("after a panic: %v, want INTERNAL with the call id only", err)
	}
	for _, want := range []string{"secret detail", "default_test.go", c.ID, `"code":"INTERNAL"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log has no %q:\n%s", want, out)
		}
	}
}

func TestDeadline(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name           string
		method         string
		caller         time.Duration // 0: none
		timeout, max   time.Duration // the method's
		spent          time.Duration // before the chain
		want           time.Duration // budget; 0: none
		o              interceptors.Options
		deadlineInPast bool
	}{
		{name: "the caller's less the reserve", method: "UnaryCall", caller: 10 * second, want: 10*second - 5*time.Millisecond},
		{name: "another reserve", method: "UnaryCall", caller: 10 * second, o: interceptors.Options{Reserve: second}, want: 9 * second},
		{name: "no reserve", method: "UnaryCall", caller: 10 * second, o: interceptors.Options{Reserve: -1}, want: 10 * second},
		{name: "the default", method: "UnaryCall", want: 60 * second},
		{name: "the default counts from the start", method: "UnaryCall", spent: 10 * second, want: 50 * second},
		{name: "the method's own", method: "UnaryCall", timeout: 2 * second, want: 2 * second},
		{name: "the cap", method: "UnaryCall", caller: 100 * time.Hour, want: 10 * time.Minute},
		{name: "the method's cap", method: "UnaryCall", caller: 10 * second, max: 3 * second, want: 3 * second},
		{name: "a cap below the default", method: "UnaryCall", max: second, want: second},
		{name: "a stream has none", method: "FullDuplexCall", want: 0},
		{name: "a stream with the caller's", method: "StreamingOutputCall", caller: second, o: interceptors.Options{Reserve: -1}, want: second},
		{name: "a stream with its own", method: "StreamingOutputCall", timeout: second, want: second},
		{name: "a stream with its cap", method: "StreamingOutputCall", max: second, want: second},
		{name: "stream options", method: "StreamingOutputCall", o: interceptors.Options{StreamTimeout: 2 * second, MaxStreamTimeout: second}, want: second},
		{name: "spent", method: "UnaryCall", caller: 5 * time.Millisecond, deadlineInPast: true},
		{name: "spent by the method's cap", method: "UnaryCall", caller: 10 * second, max: second, spent: second, deadlineInPast: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := method(t, c.method) // a snapshot of its own
			m.Timeout, m.MaxTimeout = c.timeout, c.max
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				cl := call.New(m, call.GRPC)
				if c.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.caller)
					defer cancel()
				}
				time.Sleep(c.spent)
				called := false
				_, err := run(ctx, cl, nil, func(_ any, s grpc.ServerStream) error {
					called = true
					deadline, ok := s.Context().Deadline()
					if got := time.Until(deadline); ok != (c.want > 0) || ok && got != c.want {
						t.Errorf("budget = %v, %v, want %v", got, ok, c.want)
					}
					return nil
				}, interceptors.Deadline(c.o))
				if c.deadlineInPast {
					if called || status.Code(err) != codes.DeadlineExceeded {
						t.Errorf("called = %v, %v, want DEADLINE_EXCEEDED without a call", called, err)
					}
					return
				}
				if err != nil || !called {
					t.Errorf("called = %v, %v", called, err)
				}
			})
		})
	}
}

func TestErrors(t *testing.T) {
	detailed, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "R"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		err     error
		code    codes.Code
		message string // "": the fixed text
		logged  string // "": nothing
	}{
		{"ok", nil, codes.OK, "", ""},
		{"status", detailed.Err(), codes.NotFound, "gone", ""},
		{"deadline", context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded", ""},
		{"cancel", fmt.Errorf("read: %w", context.Canceled), codes.Canceled, "context canceled", ""},
		{"plain", errors.New("dsn postgres://u:p@h"), codes.Internal, "", "dsn postgres"},
		{"wrapped status", fmt.Errorf("in the pool of h: %w", detailed.Err()), codes.NotFound, "gone", "in the pool"},
		{"end of stream", io.EOF, codes.Internal, "", "unexpected end of stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, out := logger()
			cl := call.New(method(t, "UnaryCall"), call.HTTP)
			_, err := run(t.Context(), cl, nil, func(any, grpc.ServerStream) error { return c.err }, interceptors.Errors(interceptors.Options{Logger: log}))
			st := status.Convert(err)
			want := c.message
			if want == "" && c.code != codes.OK {
				want = "internal error; the log has the cause under call id " + cl.ID
			}
			if st.Code() != c.code || st.Message() != want {
				t.Errorf("got %v %q, want %v %q", st.Code(), st.Message(), c.code, want)
			}
			if c.code == codes.NotFound && len(st.Details()) != 1 {
				t.Errorf("details = %v, want them kept", st.Details())
			}
			if c.logged == "" && out.Len() > 0 || !strings.Contains(out.String(), c.logged) {
				t.Errorf("log = %s, want %q", out, c.logged)
			}
		})
	}
}

func TestErrorsReproduce(t *testing.T) {
	log, out := logger()
	c := call.New(method(t, "UnaryCall"), call.HTTP)
	wire := marshal(t, &testpb.SimpleRequest{ResponseSize: 7, Payload: &testpb.Payload{Body: []byte("it's")}, FillOauthScope: true})
	_, _ = run(t.Context(), c, wire, func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		return errors.New("broken")
	}, interceptors.Errors(interceptors.Options{Logger: log, Address: "mesh:7070"}))
	var line struct{ Reproduce, Call_id, Method string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(line.Reproduce, `, "`, `,"`) // protojson varies its spaces
	got = strings.ReplaceAll(got, `": `, `":`)
	want := `grpcurl -plaintext -d '{"responseSize":7,"payload":{"body":"aXQncw=="},"fillOauthScope":true}' mesh:7070 grpc.testing.TestService/UnaryCall`
	if got != want || line.Call_id != c.ID {
		t.Errorf("reproduce = %s, want %s", got, want)
	}
}

// TestChainLeavesOut has a policy that has nothing to do for a method: it is asked once and is not in the chain.
func TestChainLeavesOut(t *testing.T) {
	asked := 0
	idle := interceptors.Policy{Name: "idle", For: func(*catalog.Method) grpc.StreamServerInterceptor { asked++; return nil }}
	busy := interceptors.Every("busy", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, s)
	})
	h := interceptors.Chain(echo, idle, busy)
	m := method(t, "UnaryCall")
	for range 3 {
		c := call.New(m, call.MCP)
		if err := h(call.NewStream(t.Context(), c, call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { return nil }, nil)); err != nil {
			t.Fatal(err)
		}
		if len(c.Steps) != 1 || c.Steps[0].Name != "busy" || c.Steps[0].Back < c.Steps[0].At {
			t.Errorf("steps %+v, want busy alone, left after it was reached", c.Steps)
		}
	}
	if asked != 1 {
		t.Errorf("the idle policy was asked %d times, want once", asked)
	}
}
