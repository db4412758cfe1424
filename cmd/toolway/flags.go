package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/mesh"
	"github.com/toolway/toolway/internal/nearmiss"
)

// sourceFlags are the flags of every command that needs a catalog.
type sourceFlags struct {
	config      string
	backends    []string
	descriptors []string
	allow       []string
	logFormat   string
	logLevel    string
	lock        string             // of commands with --lock
	change      func(*mesh.Config) // of commands that need another configuration than the operator's
	mesh        string             // a running mesh in place of backends, of commands with --mesh
	tokenFile   string
	// calls is set by commands that call: only their calls belong into the audit.
	calls bool
}

func (f *sourceFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", "", "YAML configuration `FILE`; flags override it")
	fs.StringArrayVarP(&f.backends, "backend", "b", nil, "gRPC server as `[NAME=]TARGET`, e.g. 127.0.0.1:50051, orders=dns:///orders:443, grpcs://host:443, unix:/run/x.sock; repeatable, a NAME given again adds a target")
	fs.StringArrayVarP(&f.descriptors, "descriptors", "d", nil, "descriptor set or buf image of a backend as `[NAME=]FILE`: comments, and the contract where the server has no reflection; repeatable")
	fs.StringArrayVar(&f.allow, "allow-metadata", nil, "metadata `KEY` (or pattern x-acme-*) that may cross to backends; repeatable")
	fs.StringVar(&f.logFormat, "log-format", "", "`FORMAT` of the log on standard error: text or json (default: text on a terminal, else json)")
	fs.StringVar(&f.logLevel, "log-level", "", "`LEVEL` of the log: debug, info, warn or error (default info)")
}

// registerMesh adds --mesh and --token-file, for commands that can stand before a running mesh.
func (f *sourceFlags) registerMesh(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.mesh, "mesh", "", "`TARGET` of the gRPC door of a running mesh, in place of backends; it alone is told who calls (default 127.0.0.1:7070 where nothing else is named)")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "`FILE` with the bearer token that says who calls the mesh; default TOOLWAY_TOKEN, or an API key in TOOLWAY_API_KEY")
}

// registerLock adds --lock, for commands that serve.
func (f *sourceFlags) registerLock(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.lock, "lock", "", "lock `FILE` of toolway lock: tools whose definition is another one are quarantined")
}

// load reads the configuration file and lays the flags over it.
func (f *sourceFlags) load() (mesh.Config, error) {
	var c mesh.Config
	if f.config != "" {
		var err error
		if c, err = mesh.Load(f.config); err != nil {
			return c, err
		}
	}
	for _, v := range f.backends {
		b, err := mesh.ParseBackend(v)
		if err != nil {
			return c, fmt.Errorf("--backend %q: %w", v, err)
		}
		if err := c.AddBackend(b); err != nil {
			return c, err
		}
	}
	for _, v := range f.descriptors {
		if err := c.AddDescriptors(v); err != nil {
			return c, err
		}
	}
	c.Metadata.Allow = append(c.Metadata.Allow, f.allow...)
	if f.logFormat != "" {
		c.Log.Format = f.logFormat
	}
	if f.logLevel != "" {
		c.Log.Level = f.logLevel
	}
	if f.lock != "" {
		c.Lock = f.lock
	}
	if f.change != nil {
		f.change(&c)
	}
	return c, nil
}

// loadServing is load for commands that serve: there must be something to serve.
func (f *sourceFlags) loadServing() (mesh.Config, error) {
	c, err := f.load()
	if err == nil && len(c.Backends) == 0 {
		err = errors.New("nothing to serve: say where a gRPC server is, as in --backend 127.0.0.1:50051, or list backends in --config FILE")
	}
	return c, err
}

// openServing opens the mesh of c with the log that c wants, and returns what closes both. stdio is what the caller on standard input brings.
func openServing(ctx context.Context, c mesh.Config, stdio call.Credentials) (m *mesh.Mesh, done func(), err error) {
	queue := &logQueue{w: os.Stderr}
	log, err := logger(c.Log, &queue.lines)
	if err != nil {
		return nil, nil, err
	}
	log = slog.New(queued{log.Handler(), queue})
	tuneMemory(c.Admin.Pprof)
	flush := func() { _ = queue.flush() } // there is nowhere to tell that the log cannot be written
	if m, err = mesh.Open(ctx, c, mesh.Options{Logger: log, Version: currentVersion(), Stdio: stdio}); err != nil {
		flush()
		return nil, nil, err
	}
	return m, func() {
		m.Close()
		flush()
	}, nil
}

// logger returns the log of c, which is written to w; how it looks depends on whether standard error is a terminal, unless c says.
func logger(c mesh.Log, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if c.Level != "" {
		if err := level.UnmarshalText([]byte(c.Level)); err != nil {
			return nil, fmt.Errorf("log level %q: want debug, info, warn or error", c.Level)
		}
	}
	opts := &slog.HandlerOptions{Level: level}
	format := c.Format
	if format == "" {
		format = "json"
		if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			format = "text"
		}
	}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}

// explainFlag adds the flag that was probably meant to cobra's complaint about an unknown one.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := nearmiss.Find(unknown.GetSpecifiedName(), slices.Values(names))
	if near == "" {
		return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; did you mean --%s?", err, near)
}
