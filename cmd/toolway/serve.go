package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/mesh"
)

// reopenOnHangup opens files anew at SIGHUP, as logrotate asks for, until stop is called.
func reopenOnHangup(m *mesh.Mesh) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var running sync.WaitGroup
	running.Go(func() {
		for range hangups {
			m.Reopen()
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		running.Wait()
	}
}

func serveCommand() *cobra.Command {
	var (
		f                         sourceFlags
		grpcAddr, httpAddr, admin string
		data, nats                string
		pprof, anonymous          bool
	)
	cmd := &cobra.Command{
		Use:   "serve --backend [NAME=]TARGET...",
		Short: "Serve backends through the gRPC, MCP and HTTP doors",
		Long: `Serve backends through three doors until SIGTERM or SIGINT, then drain.

  gRPC  --grpc-addr   every registered service, with reflection and health
  HTTP  --http-addr   REST from google.api.http, POST /{package.Service}/{Method}, SSE, /openapi.json
  MCP   --http-addr   Streamable HTTP at /mcp`,
		Example: "  toolway serve --backend 127.0.0.1:50051\n  toolway serve --backend orders=dns:///orders.internal:50051 --descriptors orders=orders.binpb\n  toolway serve --config toolway.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.loadServing()
			if err != nil {
				return err
			}
			for _, o := range []struct {
				flag string
				from string
				to   *string
			}{{"grpc-addr", grpcAddr, &c.GRPC.Addr}, {"http-addr", httpAddr, &c.HTTP.Addr}, {"admin-addr", admin, &c.Admin.Addr}, {"data", data, &c.Data}, {"nats", nats, &c.Store.NATS}} {
				if cmd.Flags().Changed(o.flag) || *o.to == "" {
					*o.to = o.from
				}
			}
			c.Admin.Pprof = c.Admin.Pprof || pprof
			c.Auth.AllowAnonymous = c.Auth.AllowAnonymous || anonymous
			m, done, err := openServing(cmd.Context(), c, call.Credentials{})
			if err != nil {
				return err
			}
			defer done()
			defer reopenOnHangup(m)()
			return m.Serve(cmd.Context())
		},
	}
	f.register(cmd)
	f.registerLock(cmd)
	fs := cmd.Flags()
	fs.StringVar(&grpcAddr, "grpc-addr", "127.0.0.1:7070", "address of the gRPC door, or off")
	fs.StringVar(&httpAddr, "http-addr", "127.0.0.1:8080", "address of the HTTP and MCP doors, or off")
	fs.StringVar(&admin, "admin-addr", "127.0.0.1:8081", "address of /healthz, /readyz and /metrics, loopback only, or off")
	fs.BoolVar(&anonymous, "allow-anonymous", false, "serve other machines without asking who calls: everybody may do everything")
	fs.BoolVar(&pprof, "admin-pprof", false, "serve /debug/pprof/ on the admin address")
	registerState(cmd, &data, &nats)
	return cmd
}

// registerState adds the flags that say where durable state is.
func registerState(cmd *cobra.Command, data, nats *string) {
	fs := cmd.Flags()
	fs.StringVar(data, "data", "", "`DIR` of durable state: idempotency keys, approvals, audit, tasks, large results, and the last contract of each backend; one process uses it")
	fs.StringVar(nats, "nats", "", "`URL` of a NATS cluster with JetStream for durable state, which several meshes share, instead of the directory")
}
