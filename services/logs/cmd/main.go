// Command logs serves agentops.logs.v1.LogService: search, follow and store log entries.
//
// Entries live in an embedded VictoriaLogs store, in a temporary directory unless --data names one, or in a VictoriaLogs
// (--victorialogs-url) or Grafana Loki server (--loki-url). Lines written by a program come in on standard input (--ingest-stdin) or from a file that it writes
// (--ingest-file).
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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolway/toolway/services/internal/serve"
	"github.com/toolway/toolway/services/logs"
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
	serve         serve.Flags
	data          string
	url           string
	loki          string
	lokiTenant    string
	retention     time.Duration
	streamFields  string
	ingestStdin   bool
	ingestFile    string
	ingestService string
	redact        string
	patterns      patterns
	redactor      *logs.Redactor
}

// patterns are NAME=REGEXP, as often as they are given.
type patterns map[string]string

// String implements flag.Value.
func (p patterns) String() string { return "" }

// Set implements flag.Value.
func (p patterns) Set(text string) error {
	name, expression, ok := strings.Cut(text, "=")
	if !ok || name == "" || expression == "" {
		return errors.New("want NAME=REGEXP, such as order=SHOP-[0-9]+")
	}
	p[name] = expression
	return nil
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{patterns: patterns{}}
	set := flag.NewFlagSet("logs", flag.ContinueOnError)
	set.SetOutput(stderr)
	c.serve.Add(set, "127.0.0.1:7171")
	set.StringVar(&c.data, "data", "", "directory of the embedded store; default: a temporary one, removed at exit")
	set.StringVar(&c.url, "victorialogs-url", "", "use the VictoriaLogs server at this URL instead of the embedded store")
	set.StringVar(&c.loki, "loki-url", "", "use the Grafana Loki server at this URL instead of the embedded store")
	set.StringVar(&c.lokiTenant, "loki-tenant", "", "tenant at the Loki server, where it has several")
	set.StringVar(&c.redact, "redact", logs.RedactSecrets+","+logs.RedactPII, "what to take out of results: comma-separated secrets, pii; or none")
	set.Var(c.patterns, "redact-pattern", "more to take out of results, as NAME=REGEXP; may be repeated")
	set.DurationVar(&c.retention, "retention", logs.DefaultRetention, "how long entries are kept, at least 24h; with a server, what that is set to")
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
	case c.loki != "" && (c.data != "" || c.url != ""):
		return c, errors.New("--loki-url excludes --data and --victorialogs-url: entries are in one store; leave the others out")
	case c.lokiTenant != "" && c.loki == "":
		return c, errors.New("--loki-tenant says nothing without --loki-url")
	case c.retention < 24*time.Hour:
		return c, fmt.Errorf("--retention %s is less than 24h, the least that the store keeps", c.retention)
	}
	var kinds []string
	if c.redact != "none" {
		kinds = strings.Split(c.redact, ",")
	}
	var err error
	if c.redactor, err = logs.NewRedactor(kinds, c.patterns); err != nil {
		return c, fmt.Errorf("--redact, --redact-pattern: %w", err)
	}
	return c, c.serve.Check()
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

	options := logs.Options{Logger: logger, Redact: c.redactor}
	if c.loki != "" {
		options.MaxRange = logs.LokiMaxRange
	}
	service := logs.New(engine, options)
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	feed(ctx, c, engine, logger, stdin, &running, cancel)
	if err := serve.Run(ctx, c.serve, service.Register, serve.Options{Logger: logger, Drain: service.Drain}); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause // what brings lines in has failed
	}
	return nil
}

// open opens the engine that the command line asks for; cleanup runs after it is closed.
func open(c config) (engine logs.Engine, cleanup func(), err error) {
	streamFields := strings.Split(c.streamFields, ",")
	if c.loki != "" {
		engine, err := logs.NewLoki(c.loki, logs.LokiOptions{Tenant: c.lokiTenant, Retention: c.retention, Labels: streamFields})
		return engine, func() {}, err
	}
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
