// Package peer is what the programs that toolway is measured next to have in common: flags, listeners, and figures of their own memory.
package peer

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Main runs a peer until SIGTERM: serve gets the backend's address and the listener that callers use, and returns when ctx has ended. The lines
// "admin ADDR" and "listening ADDR" tell the parent where it is; the admin address serves /metrics, as toolway's does.
func Main(serve func(ctx context.Context, backend string, l net.Listener) error) {
	log.SetFlags(0)
	backend := flag.String("backend", "", "address of the gRPC server behind")
	flag.Parse()
	if *backend == "" {
		log.Fatal("-backend is missing: give the address of a gRPC server")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, *backend, serve)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, backend string, serve func(ctx context.Context, backend string, l net.Listener) error) error {
	var lc net.ListenConfig
	admin, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	go func() { _ = HTTP(ctx, admin, mux) }() // what it serves is missed if it fails
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("admin", admin.Addr())
	fmt.Println("listening", l.Addr())
	return serve(ctx, backend, l)
}

// HTTP serves h until ctx ends.
func HTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// Dial connects to the backend with grpc-go's defaults.
func Dial(backend string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+backend, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
