package call

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// callContext is the context of a call: its door's, with the call, and with what grpc-go has in the context of a server's stream. It is one
// context in place of five, since every policy, and grpc-go's client a dozen times, asks it for something, and each is one more to ask on the way.
type callContext struct {
	context.Context // the door's
	call            *Call
	stream          *Stream // nil: the door's is that of a gRPC stream already
}

type key struct{}

// The keys of grpc-go, which has them to itself: each is what its own function asks a context for.
var (
	outgoingKey = keyOf(func(ctx context.Context) { metadata.FromOutgoingContext(ctx) })
	incomingKey = keyOf(func(ctx context.Context) { metadata.ValueFromIncomingContext(ctx, "") })
	streamKey   = keyOf(func(ctx context.Context) { grpc.ServerTransportStreamFromContext(ctx) })
	peerKey     = keyOf(func(ctx context.Context) { peer.FromContext(ctx) })
)

// Value answers for what the call knows, and asks the door's context for the rest.
func (c *callContext) Value(k any) any {
	switch k.(type) {
	case key:
		return c.call
	case targetKey:
		return nil // it is set inside the chain only, and need not be looked for any further
	}
	if k == outgoingKey {
		return nil // the same: what crosses from a caller is in Call.Forward
	}
	if c.stream != nil {
		switch k {
		case incomingKey:
			return c.call.Forward
		case streamKey:
			return (*transportStream)(c.stream)
		case peerKey:
			return c.peer()
		}
	}
	return c.Context.Value(k)
}

// peer is the caller's address as far as it is known, else the door's name.
func (c *callContext) peer() *peer.Peer {
	if c.call.Peer != nil {
		return &peer.Peer{Addr: c.call.Peer}
	}
	if p, ok := peer.FromContext(c.Context); ok {
		return p
	}
	return doorPeers[c.call.Door]
}

// doorPeers stand for callers of whom only the door is known.
var doorPeers = func() map[Door]*peer.Peer {
	peers := map[Door]*peer.Peer{}
	for _, d := range []Door{GRPC, MCP, HTTP, CLI} {
		peers[d] = &peer.Peer{Addr: doorAddr(d)}
	}
	return peers
}()

// NewContext returns ctx with c in it.
func NewContext(ctx context.Context, c *Call) context.Context {
	return &callContext{Context: ctx, call: c}
}

// FromContext returns the call that a door put there, or nil.
func FromContext(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}

// Incoming returns the metadata with which a gRPC call has come in, as it is: it must not be changed. Its keys are in lower case, as HTTP/2 has them. The
// functions of package metadata copy what they find, and compare every key letter by letter to what is not there, which is most of what a door asks for.
func Incoming(ctx context.Context) metadata.MD {
	md, _ := ctx.Value(incomingKey).(metadata.MD)
	return md
}

// doorAddr is the name of a door in the place of an address.
type doorAddr Door

// DoorNetwork is the network of addresses that only name a door.
const DoorNetwork = "toolway"

// Network says that this is no address of a network.
func (doorAddr) Network() string { return DoorNetwork }

// String is the door's name.
func (a doorAddr) String() string { return string(a) }

var _ net.Addr = doorAddr("")

// Remote is the address of a caller as net/http has it, in Request.RemoteAddr.
type Remote string

// Network is that of HTTP.
func (*Remote) Network() string { return "tcp" }

// String is the address.
func (r *Remote) String() string { return string(*r) }

var _ net.Addr = (*Remote)(nil)

// keyOf returns what look asks a context for.
func keyOf(look func(context.Context)) any {
	s := &spy{Context: context.Background()}
	look(s)
	return s.key
}

// spy is a context that remembers the key that it was asked for last.
type spy struct {
	context.Context
	key any
}

// Value notes the key and has nothing.
func (s *spy) Value(k any) any {
	s.key = k
	return nil
}
