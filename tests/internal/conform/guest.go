package conform

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
)

// Guest is a backend that every deployment gives another contract: none of the services Guest and Visitor, the one, both, the other, and so on.
// Two deployments in quick succession, of which a mesh may see only the second, are still a change.
type Guest struct {
	listener net.Listener
	conns    chan net.Conn
	accepted chan struct{}

	mu     sync.Mutex
	server *grpc.Server
	served chan struct{}
	turn   int
}

// NewGuest deploys a guest without its services, on a port of its own.
func NewGuest() (*Guest, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &Guest{listener: l, conns: make(chan net.Conn), accepted: make(chan struct{})}
	go g.accept()
	g.Redeploy()
	return g, nil
}

// accept takes connections for whichever server there is, so that none is refused while one follows the other.
func (g *Guest) accept() {
	defer close(g.accepted)
	defer close(g.conns)
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.conns <- conn
	}
}

// Addr is where it serves.
func (g *Guest) Addr() string { return g.listener.Addr().String() }

// Redeploy stops the server and starts one with the other contract on the same port.
func (g *Guest) Redeploy() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop()
	g.server, g.served = grpc.NewServer(), make(chan struct{})
	if turn := g.turn % 4; turn == 1 || turn == 2 {
		conformancev1.RegisterGuestServer(g.server, guestServer{})
	}
	if turn := g.turn % 4; turn >= 2 {
		conformancev1.RegisterVisitorServer(g.server, visitorServer{})
	}
	g.turn++
	reflection.Register(g.server)
	go func(s *grpc.Server, served chan<- struct{}) {
		defer close(served)
		_ = s.Serve(&shared{Guest: g, closed: make(chan struct{})}) // it ends when the server is stopped
	}(g.server, g.served)
}

// Stop ends it.
func (g *Guest) Stop() {
	_ = g.listener.Close()
	for conn := range g.conns { // one that came too late
		_ = conn.Close()
	}
	<-g.accepted
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop()
}

func (g *Guest) stop() {
	if g.server != nil {
		g.server.Stop()
		<-g.served
	}
}

// shared is a listener of one server on the port of all.
type shared struct {
	*Guest
	once   sync.Once
	closed chan struct{}
}

// Accept returns the next connection, until the server stops.
func (s *shared) Accept() (net.Conn, error) {
	select {
	case conn, ok := <-s.conns:
		if !ok {
			return nil, net.ErrClosed
		}
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. The port stays bound.
func (s *shared) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is the address of the port.
func (s *shared) Addr() net.Addr { return s.listener.Addr() }

type guestServer struct {
	conformancev1.UnimplementedGuestServer
}

// Greet greets.
func (guestServer) Greet(context.Context, *request) (*result, error) { return text("Hello."), nil }

type visitorServer struct {
	conformancev1.UnimplementedVisitorServer
}

// Greet greets.
func (visitorServer) Greet(context.Context, *request) (*result, error) { return text("Hello."), nil }
