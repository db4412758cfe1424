package interceptors_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// TestAuditOfTexts has texts of all lengths, and one that is no UTF-8.
func TestAuditOfTexts(t *testing.T) {
	for given, want := range map[string]string{
		"":                              "",
		strings.Repeat("a", 90):         strings.Repeat("a", 90),
		strings.Repeat("b", 128):        strings.Repeat("b", 128),
		strings.Repeat("c", 2<<10):      strings.Repeat("c", 1<<10),
		"d\xff":                         "d\ufffd",
		strings.Repeat("d", 1023) + "é": strings.Repeat("d", 1023) + "\ufffd",
	} {
		sink := &records{}
		c := call.New(method(t, "UnaryCall"), call.GRPC)
		c.Protocol = given
		gate := interceptors.Every("gate", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			call.FromContext(s.Context()).Decide("gate", "allowed", given)
			i := c.BeginAttempt("echo")
			c.BecauseOf(given)
			c.EndAttempt(i, given, 0, call.Answered)
			return next(srv, s)
		})
		if _, err := run(t.Context(), c, nil, echo, audited(sink, gate)...); err != nil {
			t.Fatal(err)
		}
		got := sink.last(t)
		if s := got.GetSteps()[len(got.GetSteps())-1]; s.GetName() != "gate" || s.GetVerdict() != "allowed" || s.GetDetail() != want {
			t.Errorf("%.10q: step = %v", given, s)
		}
		if a := got.GetAttempts()[0]; a.GetTarget() != want || a.GetWhy() != want || a.GetBackend() != "echo" || got.GetProtocolVersion() != want {
			t.Errorf("%.10q: record = %v", given, got)
		}
	}
}

// slow authenticates everybody, in its time.
type slow time.Duration

func (s slow) Authenticate(context.Context, call.Credentials) (*identity.Principal, error) {
	time.Sleep(time.Duration(s))
	return &identity.Principal{ID: "ann", How: "jwt"}, nil
}

// TestAuditOfTimes has policies and a backend that take their time: each step says where the time went.
func TestAuditOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &records{}
		gate := interceptors.Every("gate", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			time.Sleep(3 * time.Millisecond)
			defer time.Sleep(5 * time.Millisecond)
			return next(srv, s)
		})
		late := interceptors.Every("late", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			defer time.Sleep(time.Millisecond)
			return next(srv, s)
		})
		chain := interceptors.Default(interceptors.Options{Logger: discard(), Audit: interceptors.AuditOptions{Sink: sink}, Authenticator: slow(20 * time.Millisecond)})
		for name, authenticated := range map[string]float64{"by the door": 0, "by the chain": 20} {
			c := call.New(method(t, "UnaryCall"), call.GRPC)
			if authenticated == 0 {
				c.Principal = identity.Anonymous
			}
			time.Sleep(2 * time.Millisecond) // in the door
			_, err := run(t.Context(), c, nil, func(srv any, s grpc.ServerStream) error {
				time.Sleep(10 * time.Millisecond)
				return echo(srv, s)
			}, append(slices.Clone(chain), gate, late)...)
			if err != nil {
				t.Fatal(err)
			}
			got := sink.last(t)
			times := map[string][2]float64{}
			for _, s := range got.GetSteps() {
				times[s.GetName()] = [2]float64{s.GetAtMs(), s.GetTookMs()}
			}
			all := authenticated + 19
			want := map[string][2]float64{"recover": {2, all}, "in-flight": {2, all}, "observe": {2, all}, "audit": {2, all}, "deadline": {2, all}, "errors": {2, all}, "authenticate": {2, all},
				"gate": {2 + authenticated, 19}, "late": {5 + authenticated, 11}}
			for policy, w := range want {
				if times[policy] != w {
					t.Errorf("authenticated %s: %s at and for %v ms, want %v", name, policy, times[policy], w)
				}
			}
			if got.GetLatencyMs() != all+2 {
				t.Errorf("authenticated %s: %v ms in all, want %v", name, got.GetLatencyMs(), all+2)
			}
		}
	})
}

// TestAuditOfPeers has the addresses as their String gives them.
func TestAuditOfPeers(t *testing.T) {
	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 50051}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1).To4(), Port: 65535}, &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "eth0"},
		&net.TCPAddr{IP: net.IPv6loopback, Port: 8080}, &net.TCPAddr{Port: 1}, &net.UnixAddr{Name: "/run/toolway.sock", Net: "unix"},
	} {
		sink := &records{}
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: addr})
		if _, err := run(ctx, call.New(method(t, "UnaryCall"), call.GRPC), nil, echo, audited(sink)...); err != nil {
			t.Fatal(err)
		}
		if got := sink.last(t).GetPeer(); got != addr.String() {
			t.Errorf("peer = %q, want %q", got, addr)
		}
	}
}
