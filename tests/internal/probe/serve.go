package probe

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// Reflection says which reflection service a server offers.
type Reflection string

// The kinds of servers met in the field.
const (
	V1      Reflection = "v1"
	V1Alpha Reflection = "v1alpha"
	Both    Reflection = "both"
	None    Reflection = "none"
)

// NewGRPC returns a gRPC server with s, health and the reflection asked for. It takes messages up to 16 MiB.
func (s *Server) NewGRPC(r Reflection, opts ...grpc.ServerOption) (*grpc.Server, error) {
	g := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(16 << 20)}, opts...)...)
	probev1.RegisterProbeServer(g, s)
	healthpb.RegisterHealthServer(g, health.NewServer())
	o := reflection.ServerOptions{Services: g}
	switch r {
	case V1:
		grpc_reflection_v1.RegisterServerReflectionServer(g, reflection.NewServerV1(o))
	case V1Alpha:
		grpc_reflection_v1alpha.RegisterServerReflectionServer(g, reflection.NewServer(o))
	case Both:
		reflection.Register(g)
	case None:
	default:
		return nil, fmt.Errorf("reflection %q: want v1, v1alpha, both or none", r)
	}
	return g, nil
}

// Serve serves s on addr until ctx ends, and calls ready with the address bound.
func (s *Server) Serve(ctx context.Context, addr string, r Reflection, ready func(addr string)) error {
	g, err := s.NewGRPC(r)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	ready(l.Addr().String())
	return g.Serve(l)
}
