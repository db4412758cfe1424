package interceptors_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
)

// alone returns the policies as anybody plugs them into another chain: as interceptors.
func alone(policies []interceptors.Policy) []interceptors.Policy {
	out := make([]interceptors.Policy, len(policies))
	for i, p := range policies {
		out[i] = interceptors.Policy{Name: p.Name, For: p.For}
	}
	return out
}

// TestPoliciesAlone makes calls of every outcome through the default chain, and through the same policies as bare interceptors: callers, records and what
// is counted do not differ, and nothing is left under way.
func TestPoliciesAlone(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, method, key string
		final             grpc.StreamHandler
		refused           error
		want              codes.Code
		named             string
	}{
		{name: "answered", method: "UnaryCall", final: echo, named: "OK"},
		{name: "answered with a stream", method: "StreamingOutputCall", final: echo, named: "OK"},
		{name: "answered to a stream", method: "FullDuplexCall", final: echo, named: "OK"},
		{name: "with a key", method: "UnaryCall", key: "k", final: echo, named: "OK"},
		{name: "a status", method: "UnaryCall", final: func(any, grpc.ServerStream) error { return status.Error(codes.NotFound, "gone") }, want: codes.NotFound, named: "NOT_FOUND"},
		{name: "an error", method: "UnaryCall", final: func(any, grpc.ServerStream) error { return broken }, want: codes.Internal, named: "INTERNAL"},
		{name: "a panic", method: "UnaryCall", final: func(any, grpc.ServerStream) error { panic("x") }, want: codes.Internal, named: "INTERNAL"},
		{name: "a panic with a key", method: "UnaryCall", key: "k", final: func(any, grpc.ServerStream) error { panic("x") }, want: codes.Internal, named: "INTERNAL"},
		{name: "refused by the door", method: "UnaryCall", final: echo, refused: status.Error(codes.InvalidArgument, "no"), want: codes.InvalidArgument, named: "INVALID_ARGUMENT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outcome := func(wrap func([]interceptors.Policy) []interceptors.Policy) (steps []string, recorded []string) {
				var kept records
				var o interceptors.Options
				o.Logger, o.Audit.Sink = discard(), &kept
				o.Limits.InFlight = 2 // of which a call of normal priority has one
				o.Limits.Backend.Max = 1
				policies := wrap(interceptors.Default(o))
				m := method(t, tt.method)
				for range 3 { // the second call finds what the first has left
					c := call.New(m, call.GRPC)
					if tt.key != "" {
						c.Key = tt.key + c.ID
					}
					if tt.refused != nil {
						c.Refuse(tt.refused)
					}
					if _, err := run(t.Context(), c, nil, tt.final, policies...); status.Code(err) != tt.want {
						t.Fatalf("%v, want %v", err, tt.want)
					}
					steps = steps[:0]
					for _, s := range c.Steps {
						steps = append(steps, s.Name+" "+s.Decided().Verdict)
					}
				}
				for _, r := range kept.all {
					recorded = append(recorded, r.GetCode())
				}
				return steps, recorded
			}
			steps, recorded := outcome(func(p []interceptors.Policy) []interceptors.Policy { return p })
			bareSteps, bareRecorded := outcome(alone)
			if want := []string{tt.named, tt.named, tt.named}; !slices.Equal(recorded, want) || !slices.Equal(bareRecorded, want) {
				t.Errorf("recorded %v, and as interceptors %v, want %v", recorded, bareRecorded, want)
			}
			if len(steps) < 7 || !slices.Equal(steps, bareSteps) {
				t.Errorf("steps %q, and as interceptors %q", steps, bareSteps)
			}
		})
	}
}

// TestPanicOnTheWayOut has one policy panic when a call has come back: those around it are left all the same, and the next call finds room.
func TestPanicOnTheWayOut(t *testing.T) {
	for _, final := range []grpc.StreamHandler{echo, func(any, grpc.ServerStream) error { panic("first") }} {
		var o interceptors.Options
		o.Logger = discard()
		o.Audit.Sink = panicking{}
		o.Limits.InFlight = 2
		policies := interceptors.Default(o)
		m := method(t, "UnaryCall")
		for range 3 {
			c := call.New(m, call.GRPC)
			_, err := run(t.Context(), c, nil, final, policies...)
			if st := status.Convert(err); st.Code() != codes.Internal {
				t.Fatalf("%v, want INTERNAL", err)
			}
		}
	}
}

type panicking struct{}

func (panicking) Record(context.Context, audit.Record) error { panic("no record") }

// TestRecoverInside has Recover stand inside of others, which see the error that it makes.
func TestRecoverInside(t *testing.T) {
	var o interceptors.Options
	o.Logger = discard()
	var kept records
	o.Audit.Sink = &kept
	outer := interceptors.Audit(o)
	var came error
	see := interceptors.Every("see", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		came = next(srv, s)
		return came
	})
	for _, chain := range [][]interceptors.Policy{{outer, interceptors.Recover(o), interceptors.Errors(o)}, {see, interceptors.Recover(o)}} {
		_, err := run(t.Context(), call.New(method(t, "UnaryCall"), call.GRPC), nil, func(any, grpc.ServerStream) error { panic("x") }, chain...)
		if status.Code(err) != codes.Internal {
			t.Errorf("%v, want INTERNAL", err)
		}
	}
	if r := kept.last(t); r.GetCode() != "INTERNAL" || status.Code(came) != codes.Internal {
		t.Errorf("the record is %v, the error outside %v; want INTERNAL", r, came)
	}
}
