package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/mesh"
)

// meshFlags are the flags of every command that talks to a running mesh.
type meshFlags struct{ mesh, tokenFile string }

func (f *meshFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mesh, "mesh", "127.0.0.1:7070", "`TARGET` of the mesh's gRPC door; grpcs://host:port is reached by TLS with the system's roots")
	fs.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the bearer token that says who calls; default TOOLWAY_TOKEN, or an API key in TOOLWAY_API_KEY")
}

// dial connects to the mesh. The context carries the caller's credentials.
func (f *meshFlags) dial(ctx context.Context) (context.Context, *grpc.ClientConn, error) {
	b, err := mesh.ParseBackend(f.mesh)
	if err != nil {
		return ctx, nil, fmt.Errorf("--mesh: %w", err)
	}
	creds := insecure.NewCredentials()
	if b.TLS != nil {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	h := http.Header{}
	if err := credential(f.tokenFile)(h); err != nil {
		return ctx, nil, err
	}
	target := strings.TrimPrefix(b.Targets[0], "dns:///")
	if host, _, err := net.SplitHostPort(target); err == nil && len(h) > 0 && b.TLS == nil && !onThisMachine(host) {
		return ctx, nil, errInTheClear
	}
	for name, values := range h {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), values[0])
	}
	conn, err := grpc.NewClient(b.Targets[0], grpc.WithTransportCredentials(creds))
	return ctx, conn, err
}

// tellStatus tells a call's status on standard error and returns the exit code.
func tellStatus(err error) error {
	st := status.Convert(err)
	fmt.Fprintf(os.Stderr, "toolway: %s: %s\n", code.Code(st.Code()), st.Message())
	for _, d := range st.Proto().GetDetails() {
		fmt.Fprintf(os.Stderr, "  %s\n", detail(d))
	}
	return exitCode(1)
}
