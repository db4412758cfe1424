// Command metrics serves agentops.metrics.v1.MetricService: PromQL over the metrics of running processes.
//
// Samples are scraped from the targets that --scrape names and kept in memory, or are asked of a server with Prometheus' HTTP API
// (--prometheus-url).
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/toolway/toolway/services/internal/serve"
	"github.com/toolway/toolway/services/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "metrics: %v\n", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	serve     serve.Flags
	embedded  metrics.EmbeddedOptions
	url       string
	remote    metrics.RemoteOptions
	retention time.Duration
	ca        string
	cert, key string
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{remote: metrics.RemoteOptions{Headers: http.Header{}}}
	set := flag.NewFlagSet("metrics", flag.ContinueOnError)
	set.SetOutput(stderr)
	c.serve.Add(set, "127.0.0.1:7172")
	set.Func("scrape", "`job=URL` of a page of metrics to scrape; may be given several times", func(s string) error {
		target, err := metrics.ParseTarget(s)
		c.embedded.Targets = append(c.embedded.Targets, target)
		return err
	})
	set.DurationVar(&c.embedded.Interval, "scrape-interval", metrics.DefaultInterval, "how often targets are scraped")
	set.DurationVar(&c.embedded.Timeout, "scrape-timeout", 0, "how long one scrape may take; default: the interval, at most 10s")
	set.IntVar(&c.embedded.TargetSamples, "target-samples", 0, "samples that one page may have; default 10000")
	set.IntVar(&c.embedded.TargetBytes, "target-bytes", 0, "bytes that one page may have; default 10485760")
	set.DurationVar(&c.retention, "retention", 0, "how long samples are kept; default 2h; with --prometheus-url, how long that server keeps them")
	set.IntVar(&c.embedded.MaxSamples, "max-samples", metrics.DefaultMaxSamples, "samples that are kept, 16 bytes each; the oldest go first")
	set.IntVar(&c.embedded.MaxSeries, "max-series", metrics.DefaultMaxSeries, "series that are kept")
	set.StringVar(&c.url, "prometheus-url", "", "ask the server with Prometheus' HTTP API at this URL instead of scraping")
	set.StringVar(&c.remote.TokenFile, "prometheus-token-file", "", "file with the bearer token for that server")
	set.StringVar(&c.ca, "prometheus-ca", "", "file with the certificates (PEM) that vouch for that server; default: the system's")
	set.StringVar(&c.cert, "prometheus-cert", "", "file with the certificate (PEM) to show that server, with --prometheus-key")
	set.StringVar(&c.key, "prometheus-key", "", "file with the key (PEM) of --prometheus-cert")
	set.Func("prometheus-header", "`name: value` to send to that server, such as X-Scope-OrgID: team; may be given several times", func(s string) error {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("%q is not name: value", s)
		}
		c.remote.Headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	if err := set.Parse(args); err != nil {
		return c, err
	}
	remoteOnly, embeddedOnly := "", ""
	set.Visit(func(f *flag.Flag) {
		switch name := f.Name; {
		case strings.HasPrefix(name, "prometheus-") && name != "prometheus-url":
			remoteOnly = name
		case strings.HasPrefix(name, "scrape"), strings.HasPrefix(name, "target-"), strings.HasPrefix(name, "max-"):
			embeddedOnly = name
		}
	})
	switch {
	case set.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	case c.url != "" && embeddedOnly != "":
		return c, fmt.Errorf("--%s and --prometheus-url exclude each other: that server scrapes by itself; leave one out", embeddedOnly)
	case c.url == "" && remoteOnly != "":
		return c, fmt.Errorf("--%s needs --prometheus-url", remoteOnly)
	case (c.cert == "") != (c.key == ""):
		return c, errors.New("--prometheus-cert and --prometheus-key belong together; give both or none")
	case c.retention < 0:
		return c, fmt.Errorf("--retention %s is negative", c.retention)
	}
	return c, c.serve.Check()
}

func run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	engine, err := open(c, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	service := metrics.New(engine, metrics.Options{Logger: logger})
	return serve.Run(ctx, c.serve, service.Register, serve.Options{Logger: logger, Drain: service.Drain})
}

// open opens the engine that the command line asks for.
func open(c config, logger *slog.Logger) (metrics.Engine, error) {
	if c.url == "" {
		c.embedded.Retention, c.embedded.Logger = c.retention, logger
		return metrics.OpenEmbedded(c.embedded)
	}
	c.remote.Retention = c.retention
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--prometheus-ca: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--prometheus-ca: %q has no certificate in PEM", c.ca)
		}
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("--prometheus-cert: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	c.remote.Transport = transport
	return metrics.NewRemote(c.url, c.remote)
}
