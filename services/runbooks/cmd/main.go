// Command runbooks serves agentops.runbooks.v1.RunbookService: the Markdown files of a folder or git checkout (--dir), found by what they say.
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

	"github.com/toolway/toolway/services/internal/serve"
	"github.com/toolway/toolway/services/runbooks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "runbooks: %v\n", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	serve serve.Flags
	dir   string
	poll  time.Duration
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	set := flag.NewFlagSet("runbooks", flag.ContinueOnError)
	set.SetOutput(stderr)
	c.serve.Add(set, "127.0.0.1:7174")
	set.StringVar(&c.dir, "dir", "", "folder of Markdown files, best in a git checkout; required")
	set.DurationVar(&c.poll, "poll", time.Second, "how often to look for changes, at least 10ms")
	if err := set.Parse(args); err != nil {
		return c, err
	}
	switch {
	case set.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	case c.dir == "":
		return c, errors.New("--dir is missing; name the folder of runbooks")
	case c.poll < 10*time.Millisecond:
		return c, fmt.Errorf("--poll %s is less than 10ms", c.poll)
	}
	return c, c.serve.Check()
}

func run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	library, err := runbooks.Open(c.dir, runbooks.Options{Poll: c.poll, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w; name another folder with --dir", err)
	}
	defer func() { err = errors.Join(err, library.Close()) }()
	service := runbooks.NewServer(library, logger)
	return serve.Run(ctx, c.serve, service.Register, serve.Options{Logger: logger, Drain: service.Drain})
}
