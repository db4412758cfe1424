// Command workloads serves agentops.workloads.v1.WorkloadService: what runs, restarted and scaled on demand.
//
// By default it supervises processes of this machine, named by --workload or --config. With --driver kubernetes it looks after the deployments of a namespace. What is
// wanted and what was done is kept in SQLite, in a temporary directory unless --data names one, or in PostgreSQL (--database-url).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/toolway/toolway/services/internal/serve"
	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "workloads: %v\n", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	serve       serve.Flags
	data        string
	databaseURL string
	driver      string
	list        []process.Workload
	file        string
	webhook     string
	kubernetes  kubernetesFlags
	options     workloads.Options
	maxReplicas int
}

const (
	driverProcess    = "process"
	driverKubernetes = "kubernetes"
)

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	set := flag.NewFlagSet("workloads", flag.ContinueOnError)
	set.SetOutput(stderr)
	c.serve.Add(set, "127.0.0.1:7173")
	set.StringVar(&c.data, "data", "", "directory of the SQLite database; default: a temporary one, removed at exit")
	set.StringVar(&c.databaseURL, "database-url", "", "use this PostgreSQL database, postgres://user@host:5432/name, instead of SQLite; default: the environment's WORKLOADS_DATABASE_URL")
	set.StringVar(&c.driver, "driver", driverProcess, "what runs the workloads: process or kubernetes")
	set.Func("workload", "`name=command` of a process to supervise; may be repeated", func(text string) error {
		w, err := process.Parse(text)
		c.list = append(c.list, w)
		return err
	})
	set.StringVar(&c.file, "config", "", "YAML file of processes to supervise")
	set.StringVar(&c.webhook, "webhook", "", "URL that events are posted to, each at least once and in order")
	set.IntVar(&c.maxReplicas, "max-replicas", workloads.DefaultMaxReplicas, "the most replicas that a workload may be scaled to")
	set.DurationVar(&c.options.ActionTimeout, "action-timeout", workloads.DefaultActionTimeout, "how long an action may take before it fails")
	set.DurationVar(&c.options.Retention, "retention", workloads.DefaultRetention, "how long events are kept")
	c.kubernetes.add(set)
	if err := set.Parse(args); err != nil {
		return c, err
	}
	c.options.MaxReplicas = int32(min(c.maxReplicas, 1<<30))
	if c.databaseURL == "" && c.data == "" {
		c.databaseURL = os.Getenv("WORKLOADS_DATABASE_URL")
	}
	if err := c.serve.Check(); err != nil {
		return c, err
	}
	processes := len(c.list) > 0 || c.file != ""
	switch {
	case set.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	case c.data != "" && c.databaseURL != "":
		return c, errors.New("--data and --database-url exclude each other; leave one out")
	case c.driver != driverProcess && c.driver != driverKubernetes:
		return c, fmt.Errorf("--driver %q is none; use process or kubernetes", c.driver)
	case c.driver == driverProcess && !processes:
		return c, errors.New("nothing to supervise; name processes with --workload 'name=command' or --config FILE")
	case c.driver == driverKubernetes && processes:
		return c, errors.New("--workload and --config are of --driver process; leave them out, or the other driver")
	case c.maxReplicas < 1:
		return c, fmt.Errorf("--max-replicas %d is less than 1", c.maxReplicas)
	case c.options.ActionTimeout <= 0 || c.options.Retention <= 0:
		return c, errors.New("--action-timeout and --retention must be more than 0")
	}
	if u, err := url.Parse(c.webhook); c.webhook != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return c, fmt.Errorf("--webhook %q is no URL; use one like https://events.example.com/workloads", c.webhook)
	}
	if c.file != "" {
		list, err := process.Load(c.file)
		if err != nil {
			return c, err
		}
		c.list = append(c.list, list...)
	}
	return c, nil
}

func run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	c.options.Logger = logger
	listener, err := serve.Listen(ctx, c.serve) // before a replica is started that nobody could ask about
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	dir, cleanup, err := c.dir()
	if err != nil {
		return err
	}
	defer cleanup()
	store, err := c.store(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if c.driver == driverProcess {
		var release func()
		if ctx, release, err = store.Own(ctx); err != nil {
			return err
		}
		defer release()
	}
	driver, closeDriver, err := c.open(ctx, dir, store, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDriver()) }()

	service := workloads.New(store, driver, c.options)
	// Calls are taken once what there is is known.
	if err := service.Sync(ctx); err != nil {
		return fmt.Errorf("look at the workloads: %w", err)
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // after the calls have ended: what they recorded until then is begun
	running.Go(func() { _ = service.Run(background) })
	if c.webhook != "" {
		running.Go(func() { _ = service.Publish(background, "webhook", &workloads.Webhook{URL: c.webhook}) })
	}
	if err := serve.Run(ctx, c.serve, service.Register, serve.Options{Logger: logger, Drain: service.Drain, Listener: listener}); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, workloads.ErrOwned) {
		return cause
	}
	return nil
}

// dir is where files live; cleanup removes what was made for this run alone.
func (c *config) dir() (dir string, cleanup func(), err error) {
	if c.data != "" {
		return c.data, func() {}, os.MkdirAll(c.data, 0o700)
	}
	if c.databaseURL != "" {
		return os.TempDir(), func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "workloads-"); err != nil {
		return "", nil, fmt.Errorf("create temporary data directory: %w; name one with --data", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

func (c *config) store(ctx context.Context, dir string) (*workloads.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.databaseURL != "" {
		return workloads.OpenPostgres(ctx, c.databaseURL)
	}
	return workloads.OpenSQLite(ctx, dir)
}

// open opens the driver that the command line asks for.
func (c *config) open(ctx context.Context, dir string, store *workloads.Store, logger *slog.Logger) (workloads.Driver, func() error, error) {
	if c.driver == driverKubernetes {
		return c.kubernetes.open(ctx, logger)
	}
	lock := filepath.Join(dir, "workloads.lock")
	if c.databaseURL != "" {
		lock = filepath.Join(dir, "workloads-"+store.ID()+".lock")
	}
	driver, err := process.Open(ctx, c.list, process.Options{Owner: store.ID(), Lock: lock, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	return driver, driver.Close, nil
}
