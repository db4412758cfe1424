package meshapi_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// serve serves what register registers, with every call made by who, and returns a connection to it.
func serve(t *testing.T, who *identity.Principal, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	as := func(ctx context.Context) context.Context { return call.NewContext(ctx, &call.Call{Principal: who}) }
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(as(ctx), req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return h(srv, &caller{stream, as(stream.Context())})
		}))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///mesh", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

type caller struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context with the call.
func (c *caller) Context() context.Context { return c.ctx }
