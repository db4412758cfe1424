// Command incidents serves agentops.incidents.v1.IncidentService: it diagnoses incidents with the tools of a mesh.
//
// It calls logs, metrics, runbooks and workloads through the gRPC door of the mesh at --mesh, as the caller whose token or API key is in --mesh-token-file.
// Diagnoses and their events are in --data; they go on after the process was killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/toolway/toolway/services/incidents"
	"github.com/toolway/toolway/services/internal/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "incidents: %v\n", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	serve   serve.Flags
	data    string
	mesh    mesh
	rules   incidents.Rules
	options incidents.Options
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	set := flag.NewFlagSet("incidents", flag.ContinueOnError)
	set.SetOutput(stderr)
	c.serve.Add(set, "127.0.0.1:7175")
	set.StringVar(&c.data, "data", "", "directory of diagnoses and events; default: a temporary one, removed at exit")
	set.StringVar(&c.mesh.addr, "mesh", "", "address of the mesh's gRPC door, as host:port; required")
	set.StringVar(&c.mesh.tokenFile, "mesh-token-file", "", "file with the access token or API key to call the mesh with; read again for every call, so it may be replaced")
	set.BoolVar(&c.mesh.tls, "mesh-tls", false, "TLS to the mesh, with the system's roots unless --mesh-ca names others")
	set.StringVar(&c.mesh.ca, "mesh-ca", "", "file with the roots that the mesh's certificate is checked against; implies --mesh-tls")
	set.StringVar(&c.mesh.cert, "mesh-cert", "", "file with a client certificate for the mesh; implies --mesh-tls")
	set.StringVar(&c.mesh.key, "mesh-key", "", "file with its key")
	set.StringVar(&c.mesh.serverName, "mesh-server-name", "", "name in the mesh's certificate; default: the host of --mesh")
	set.DurationVar(&c.rules.Window, "window", 5*time.Minute, "how far back logs and rates are looked at, at least 1s")
	set.Float64Var(&c.rules.Threshold, "threshold", 0.7, "confidence from which on a restart is proposed, above 0, at most 1")
	set.IntVar(&c.options.MaxRunning, "max-running", 64, "how many diagnoses run at a time, those that wait for approval included")
	set.DurationVar(&c.options.CallTimeout, "call-timeout", 30*time.Second, "bound on one reading step, its repetitions included")
	set.DurationVar(&c.options.Poll, "poll", time.Second, "pause before an action that is held or goes on is asked about again; it grows to ten times that")
	set.DurationVar(&c.options.Retention, "retention", 30*24*time.Hour, "how long diagnoses are kept after their end")
	if err := set.Parse(args); err != nil {
		return c, err
	}
	switch {
	case set.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	case c.mesh.addr == "":
		return c, errors.New("--mesh is required: the gRPC door of the mesh that logs, metrics, runbooks and workloads are called through, such as 127.0.0.1:7070")
	case c.rules.Window < time.Second:
		return c, fmt.Errorf("--window %s is less than 1s", c.rules.Window)
	case !(c.rules.Threshold > 0 && c.rules.Threshold <= 1):
		return c, fmt.Errorf("--threshold %v is not above 0 and at most 1", c.rules.Threshold)
	case c.options.MaxRunning < 1:
		return c, fmt.Errorf("--max-running %d is less than 1", c.options.MaxRunning)
	case min(c.options.CallTimeout, c.options.Poll, c.options.Retention) <= 0:
		return c, errors.New("--call-timeout, --poll and --retention must be more than 0")
	}
	return c, c.serve.Check()
}

func run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	dir := c.data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "incidents-"); err != nil {
			return fmt.Errorf("create temporary data directory: %w; name one with --data", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	conn, err := c.mesh.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	c.options.Planner, c.options.Logger = c.rules, logger
	service, err := incidents.Open(dir, conn, c.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return serve.Run(ctx, c.serve, service.Register, serve.Options{Logger: logger, Drain: service.Drain})
}
