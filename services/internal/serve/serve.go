// Package serve is what the commands of all services have in common: they listen, say how they are, show their contract, take credentials of a mesh
// if told to, and end without breaking off what is under way.
package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/toolway/toolway/interceptors/backendauth"
)

const (
	// grace is how long calls may go on after the context has ended.
	grace = 10 * time.Second
	// maxConcurrentCalls is per connection; more wait at the caller.
	maxConcurrentCalls = 256
)

// Flags is where to listen and whose calls to take. The zero value listens nowhere; use [Flags.Add].
type Flags struct {
	// Addr is the address to serve gRPC on, as host:port.
	Addr string
	// AuthIssuer, AuthAudience and AuthJWKS say which credentials calls must bring: see [backendauth.Config]. All three, or none:
	// then whoever reaches the port may call.
	AuthIssuer, AuthAudience, AuthJWKS string
}

// Add adds the flags to a set. addr is the default of --addr.
func (f *Flags) Add(set *flag.FlagSet, addr string) {
	set.StringVar(&f.Addr, "addr", addr, "address to serve gRPC on")
	set.StringVar(&f.AuthIssuer, "auth-issuer", "", "take only calls of the mesh that has this name (credentials.issuer in its configuration)")
	set.StringVar(&f.AuthAudience, "auth-audience", "", "name of this backend in the mesh's configuration, with --auth-issuer")
	set.StringVar(&f.AuthJWKS, "auth-jwks", "", "URL of the mesh's keys, such as https://mesh/.well-known/jwks.json, with --auth-issuer")
}

// Check refuses contradictions.
func (f *Flags) Check() error {
	given := 0
	for _, v := range []string{f.AuthIssuer, f.AuthAudience, f.AuthJWKS} {
		if v != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("--auth-issuer, --auth-audience and --auth-jwks belong together; give all three or none")
	}
	return nil
}

// Options configures [Run]. The zero value works.
type Options struct {
	// Logger is told the address. Default: nothing is logged.
	Logger *slog.Logger
	// Drain is called when the end begins, before calls are waited for: it must end streams that would go on for ever.
	Drain func()
	// Listener is what [Listen] returned, for services that must not begin anything before they know that they can serve. Run closes it. Default: Run
	// listens.
	Listener net.Listener
	// Server are options of the gRPC server, after those of [Run].
	Server []grpc.ServerOption
}

// Listen takes the address that the flags say.
func Listen(ctx context.Context, flags Flags) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flags.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w; choose another address with --addr", flags.Addr, err)
	}
	return listener, nil
}

// Run serves what register adds until ctx ends, with health of each service and reflection. It then ends: health says NOT_SERVING, new calls
// are refused, those under way may finish for 10 s. It returns nil after that, or what it could not do: listen, serve.
func Run(ctx context.Context, flags Flags, register func(grpc.ServiceRegistrar), options Options) error {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	serverOptions := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxConcurrentCalls),
		// A stream may be silent for long; let its caller ask whether the connection is alive.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if flags.AuthIssuer != "" {
		verifier, err := backendauth.New(backendauth.Config{Issuer: flags.AuthIssuer, Audience: flags.AuthAudience, JWKS: flags.AuthJWKS})
		if err != nil {
			return fmt.Errorf("--auth-issuer: %w", err)
		}
		defer verifier.Close()
		serverOptions = append(serverOptions, grpc.ChainUnaryInterceptor(verifier.Unary), grpc.ChainStreamInterceptor(verifier.Stream))
	}
	server := grpc.NewServer(append(serverOptions, options.Server...)...)
	register(server)
	checks := health.NewServer()
	for name := range server.GetServiceInfo() {
		checks.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, checks)
	reflection.Register(server)

	listener := options.Listener
	if listener == nil {
		var err error
		if listener, err = Listen(ctx, flags); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer cancel()
	stopping.Go(func() {
		<-ctx.Done()
		checks.Shutdown()
		if options.Drain != nil {
			options.Drain()
		}
		hard := time.AfterFunc(grace, server.Stop)
		defer hard.Stop()
		server.GracefulStop()
	})
	options.Logger.Info("serving", "addr", listener.Addr().String())
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // ctx may have ended before
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
