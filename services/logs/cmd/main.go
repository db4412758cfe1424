// Command logs serves agentops.logs.v1.LogService: search, follow and store log entries.
//
// Entries live in an embedded VictoriaLogs store, in a temporary directory unless --data names one, or in a VictoriaLogs server
// (--victorialogs-url). Lines written by a program come in on standard input (--ingest-stdin) or from a file that it writes
// (--ingest-file).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

const (
	// grace is how long calls may go on after a signal.
	grace = 10 * time.Second
	// maxConcurrentCalls is per connection; more wait at the caller.
	maxConcurrentCalls = 256
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "logs: %v\n", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	addr          string
	data          string
	url           string
	retention     time.Duration
	streamFields  string
	ingestStdin   bool
	ingestFile    string
	ingestService string
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	set := flag.NewFlagSet("logs", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&c.addr, "addr", "127.0.0.1:7171", "address to serve gRPC on")
	set.StringVar(&c.data, "data", "", "directory of the embedded store; default: a temporary one, removed at exit")
	set.StringVar(&c.url, "victorialogs-url", "", "use the VictoriaLogs server at this URL instead of the embedded store")
	set.DurationVar(&c.retention, "retention", logs.DefaultRetention, "how long entries are kept, at least 24h; with --victorialogs-url, what that server is set to")
	set.StringVar(&c.streamFields, "stream-fields", "service", "comma-separated fields with few values that group entries in the store")
	set.BoolVar(&c.ingestStdin, "ingest-stdin", false, "store the log lines that come on standard input")
	set.StringVar(&c.ingestFile, "ingest-file", "", "store the log lines of this file as they are written; it may be rotated")
	set.StringVar(&c.ingestService, "ingest-service", "", "value of the field service for lines that have none")
	if err := set.Parse(args); err != nil {
		return c, err
	}
	switch {
	case set.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	case c.url != "" && c.data != "":
		return c, errors.New("--data and --victorialogs-url exclude each other: the server has its own data; leave one out")
	case c.retention < 24*time.Hour:
		return c, fmt.Errorf("--retention %s is less than 24h, the least that the store keeps", c.retention)
	}
	return c, nil
}

func run(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	// The embedded engine is set up by flags of its own. Unless told, its caches may grow to most of the machine's memory.
	for name, value := range map[string]string{"loggerLevel": "WARN", "memory.allowedBytes": "256MiB"} {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("set up the engine: %w", err)
		}
	}
	// It refuses to work before the program's own flags are parsed, which this command does not use.
	if err := flag.CommandLine.Parse(nil); err != nil {
		return fmt.Errorf("set up the engine: %w", err)
	}
	engine, cleanup, err := open(c)
	if err != nil {
		return err
	}
	defer cleanup()
	defer func() { err = errors.Join(err, engine.Close()) }()

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("listen on %q: %w; choose another address with --addr", c.addr, err)
	}
	service := logs.New(engine, logs.Options{Logger: logger})
	server := grpc.NewServer(
		grpc.MaxConcurrentStreams(maxConcurrentCalls),
		// A tail may be silent for long; let its caller ask whether the connection is alive.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	service.Register(server)
	checks := health.NewServer()
	checks.SetServingStatus(logsv1.LogService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, checks)
	reflection.Register(server)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	feed(ctx, c, engine, logger, stdin, &running, cancel)
	running.Go(func() {
		<-ctx.Done()
		checks.Shutdown()
		service.Drain()
		hard := time.AfterFunc(grace, server.Stop)
		defer hard.Stop()
		server.GracefulStop()
	})
	logger.Info("serving", "addr", listener.Addr().String())
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// open opens the engine that the command line asks for; cleanup runs after it is closed.
func open(c config) (engine logs.Engine, cleanup func(), err error) {
	streamFields := strings.Split(c.streamFields, ",")
	if c.url != "" {
		engine, err := logs.NewVictoriaLogs(c.url, logs.VictoriaLogsOptions{Retention: c.retention, StreamFields: streamFields})
		return engine, func() {}, err
	}
	dir, cleanup := c.data, func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "logs-"); err != nil {
			return nil, nil, fmt.Errorf("create temporary data directory: %w; name one with --data", err)
		}
		cleanup = func() { _ = os.RemoveAll(dir) }
	}
	engine, err = logs.OpenEmbedded(dir, logs.EmbeddedOptions{Retention: c.retention, StreamFields: streamFields})
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return engine, cleanup, nil
}

// feed starts what brings lines in. Only the file's follower is waited for: a read of standard input cannot be interrupted, and
// ends at the next line because the engine is closed by then.
func feed(ctx context.Context, c config, engine logs.Engine, logger *slog.Logger, stdin io.Reader, running *sync.WaitGroup, fail context.CancelCauseFunc) {
	feeder := &logs.Feeder{Engine: engine, Logger: logger}
	if c.ingestService != "" {
		feeder.Fields = map[string]string{"service": c.ingestService}
	}
	if c.ingestFile != "" {
		state := ""
		if c.data != "" {
			state = filepath.Join(c.data, "ingest-file.json")
		}
		running.Go(func() {
			if err := feeder.Follow(ctx, c.ingestFile, state); err != nil {
				fail(err)
			}
		})
	}
	if c.ingestStdin {
		go func() {
			if err := feeder.Read(ctx, stdin); err != nil && ctx.Err() == nil {
				logger.Error("standard input is no longer read", "error", err)
			}
		}()
	}
}
