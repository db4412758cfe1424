package call_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/toolway/toolway/internal/call"
)

type elsewhere struct{}

// TestContextOfACall asks a call's context for all that interceptors may ask a gRPC server's stream for.
func TestContextOfACall(t *testing.T) {
	here := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}
	there := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 8}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), elsewhere{}, "kept"))
	withPeer := peer.NewContext(ctx, &peer.Peer{Addr: there})
	for name, c := range map[string]struct {
		ctx  context.Context
		addr net.Addr
		want string
	}{
		"the call's peer":     {withPeer, here, here.String()},
		"the context's peer":  {withPeer, nil, there.String()},
		"nobody but the door": {ctx, nil, "http"},
	} {
		made := call.New(method(t, "UnaryCall"), call.HTTP)
		made.Peer, made.Forward = c.addr, metadata.Pairs("x-request-id", "r")
		s := call.NewStream(c.ctx, made, call.One(nil), nil, nil).Context()
		if got := call.FromContext(s); got != made {
			t.Errorf("%s: the call = %p, want %p", name, got, made)
		}
		if p, ok := peer.FromContext(s); !ok || p.Addr.String() != c.want {
			t.Errorf("%s: peer = %v, %v, want %s", name, p, ok, c.want)
		}
		if got := metadata.ValueFromIncomingContext(s, "x-request-id"); len(got) != 1 || got[0] != "r" {
			t.Errorf("%s: incoming x-request-id = %q", name, got)
		}
		if got := grpc.ServerTransportStreamFromContext(s); got == nil || got.Method() != made.Method.FullMethod {
			t.Errorf("%s: server transport stream = %v, want one of %s", name, got, made.Method.FullMethod)
		}
		if got := s.Value(elsewhere{}); got != "kept" {
			t.Errorf("%s: a value of the door's context = %v", name, got)
		}
	}

	// Of the door's own context nothing gets to a backend, nor does another call's target.
	outside := call.WithTarget(metadata.AppendToOutgoingContext(ctx, "authorization", "secret"), "another")
	made := call.New(method(t, "UnaryCall"), call.GRPC)
	for name, s := range map[string]context.Context{
		"stream":  call.NewStream(outside, made, call.One(nil), nil, nil).Context(),
		"context": call.NewContext(outside, made),
	} {
		if md, ok := metadata.FromOutgoingContext(s); ok {
			t.Errorf("%s: outgoing metadata of the door's context = %v, want none", name, md)
		}
		if got := call.Target(s, made); got != made.Method.Backend.Name {
			t.Errorf("%s: target = %q, want the method's backend", name, got)
		}
		inside := call.WithTarget(metadata.AppendToOutgoingContext(s, "k", "v"), "failover")
		if md, _ := metadata.FromOutgoingContext(inside); len(md["k"]) != 1 || call.Target(inside, made) != "failover" {
			t.Errorf("%s: inside the chain: outgoing = %v, target %q", name, md, call.Target(inside, made))
		}
		if err := s.Err(); err != nil {
			t.Errorf("%s: error = %v before the door's context ends", name, err)
		}
	}
	s := call.NewStream(ctx, made, call.One(nil), nil, nil).Context()
	cancel()
	<-s.Done()
	if s.Err() == nil {
		t.Error("the call's context outlives the door's")
	}
}
