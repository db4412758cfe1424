package interceptors_test

import (
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
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
