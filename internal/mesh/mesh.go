// Package mesh assembles the doors, the chain, the catalog and the backends from a configuration, runs them, and drains them.
package mesh

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/proxy"
	"github.com/toolway/toolway/internal/rules"
	"github.com/toolway/toolway/internal/task"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/mcpadapter"
)

// own is the backend of the services that are compiled into the mesh.
const own = "toolway"

// Options are what does not come from the configuration.
type Options struct {
	// Logger gets everything. Required.
	Logger *slog.Logger
	// Version is the binary's, shown to clients.
	Version string
	// Stdio are the credentials of the caller on standard input and output, from its environment.
	Stdio call.Credentials
	// NoStore leaves durable state alone, which a mesh that serves may hold: for commands that only look, or make one call.
	NoStore bool
	// Login says who calls towards the backend named LoginTo, which is a mesh itself: for the command line before a running mesh. No other
	// backend is ever given it. Nil: nobody.
	Login   func(http.Header) error
	LoginTo string
}

// Mesh is an assembled mesh. Its methods may be used concurrently; Close ends it.
type Mesh struct {
	config    Config
	log       *slog.Logger
	telemetry *telemetry
	conns     map[string]*dial.Conn
	catalog   *catalog.Catalog
	breakers  *interceptors.Breakers
	handler   call.Handler
	proxy     *proxy.Server
	health    *proxy.Health
	mcp       views
	gateway   *gateway.Gateway
	rules     *rules.Set // nil: none
	state     state
	tasks     *task.Tasks // nil: there are none
	audit     auditing
	auth      *identity.Authenticator // nil: nobody is asked who calls
	minter    *identity.Minter        // nil: no backend gets minted credentials
	httpTLS   *tls.Config             // nil: the HTTP doors are plaintext
	stdio     call.Credentials
	login     func(http.Header) error // nil: none
	loginTo   string
	endSearch func() error // frees the index of the mesh's own catalog service

	complete atomic.Bool // every backend has been read once
	draining atomic.Bool
	stop     context.CancelFunc
	running  sync.WaitGroup

	leaving chan struct{} // closed when the mesh drains
	worked  chan struct{} // closed when no task runs any more
}

// Open assembles a mesh: it starts to connect to the backends and to read their contracts, but opens no listener. It does not wait for
// backends; see Ready. Errors are the configuration's or a file's. ctx bounds only the assembly.
func Open(ctx context.Context, c Config, o Options) (_ *Mesh, err error) {
	if err := c.Normalise(); err != nil {
		return nil, err
	}
	m := &Mesh{config: c, log: o.Logger, conns: map[string]*dial.Conn{}, stop: func() {}, endSearch: func() error { return nil }, stdio: o.Stdio, login: o.Login, loginTo: o.LoginTo, leaving: make(chan struct{}), worked: make(chan struct{})}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if c.Data != "" {
		if err := os.MkdirAll(filepath.Join(c.Data, "contracts"), 0o700); err != nil {
			return nil, fmt.Errorf("data directory: %w; choose another with --data", err)
		}
	}
	if err := m.openAuth(); err != nil {
		return nil, err
	}
	if m.telemetry, err = openTelemetry(ctx, c.Trace, o.Version); err != nil {
		return nil, err
	}
	if err := m.openCatalog(ctx); err != nil {
		return nil, err
	}
	if m.rules, err = c.Rules.set(c.Backends); err != nil {
		return nil, err
	}
	if err := m.openState(ctx, o.NoStore); err != nil {
		return nil, err
	}
	if err := m.openTasks(ctx); err != nil {
		return nil, err
	}
	visible := interceptors.Visibility(m.rules, m.authenticator())
	runs, err := m.openChain(visible)
	if err != nil {
		return nil, err
	}
	if err := m.openDoors(o.Version, visible); err != nil {
		return nil, err
	}
	m.start(ctx, runs)
	return m, nil
}

// attempts returns what guards the attempts of a method's calls.
func (m *Mesh) attempts() func(*catalog.Method, grpc.Streamer) grpc.Streamer {
	o := m.config.attemptOptions()
	o.Logger, o.Meter = m.log, m.telemetry.meterProvider()
	policies, breakers := interceptors.DefaultAttempts(o)
	m.breakers = breakers
	return interceptors.Attempts(policies...)
}

// sources connects to b and returns where its contract comes from: the server itself, the operator's files, then the contract that
// was kept when the mesh last ran.
func (m *Mesh) sources(b Backend) ([]catalog.Source, error) {
	var out []catalog.Source
	if len(b.Targets) > 0 {
		conf := dial.Config{Name: b.Name, Targets: b.Targets, TLS: b.TLS.dial(), MaxRecvBytes: b.MaxMessageBytes, MaxConnections: b.MaxConnections}
		if m.login != nil && b.Name == m.loginTo {
			conf.Options = append(conf.Options, grpc.WithPerRPCCredentials(login{m.login, b.TLS != nil || onlyLoopback(b.Targets)}))
		}
		conn, err := dial.Open(conf)
		if err != nil {
			return nil, err
		}
		m.conns[b.Name] = conn
		out = append(out, catalog.Reflection(conn, catalog.ReflectionOptions{}))
	}
	for _, file := range b.Descriptors {
		out = append(out, catalog.File(file))
	}
	if m.config.Data != "" && len(b.Targets) > 0 {
		out = append(out, catalog.Kept(m.contractFile(b.Name)))
	}
	return out, nil
}

// login are the credentials of whoever runs a command, for one mesh.
type login struct {
	headers func(http.Header) error
	safe    bool
}

// GetRequestMetadata returns the headers that say who calls.
func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	h := http.Header{}
	if err := l.headers(h); err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if len(h) > 0 && !l.safe {
		return nil, status.Error(codes.Unauthenticated, "a credential is not sent in the clear to another machine: reach the mesh by TLS, as grpcs://host:port")
	}
	out := map[string]string{}
	for k, vs := range h {
		out[strings.ToLower(k)] = vs[0]
	}
	return out, nil
}

// RequireTransportSecurity is false: a mesh on this machine needs none, and others are refused above.
func (l login) RequireTransportSecurity() bool { return false }

// onlyLoopback says whether all targets are on this machine.
func onlyLoopback(targets []string) bool {
	return !slices.ContainsFunc(targets, func(t string) bool {
		return !strings.HasPrefix(t, "unix") && !loopback(strings.TrimPrefix(t, "dns:///"))
	})
}

func (t *TLS) dial() *dial.TLS {
	if t == nil {
		return nil
	}
	return &dial.TLS{CAFile: t.CA, CertFile: t.Cert, KeyFile: t.Key, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, AllowNoALPN: t.AllowNoALPN}
}

// Catalog returns the mesh's catalog.
func (m *Mesh) Catalog() *catalog.Catalog { return m.catalog }

// Ready waits until every backend has been read once, or has failed to be, or ctx ends.
func (m *Mesh) Ready(ctx context.Context) error { return m.catalog.Ready(ctx) }

// Invoke calls a method with a tool's arguments, through the whole chain, and gives each reply as JSON, borrowed, as it comes.
func (m *Mesh) Invoke(ctx context.Context, method *catalog.Method, arguments json.RawMessage, reply func([]byte) error) error {
	if name := method.Backend.Name; name != own && m.conns[name] == nil {
		return status.Errorf(codes.FailedPrecondition, "nothing to call: backend %q has descriptors but no target; add --backend %s=HOST:PORT", name, name)
	}
	requests, err := mcpadapter.Requests(method, arguments)
	if err != nil {
		var bad *transcode.Error
		if errors.As(err, &bad) {
			return status.Error(codes.InvalidArgument, bad.Error())
		}
		return err
	}
	var buf []byte
	c := call.New(method, call.CLI)
	c.Principal = identity.Operator
	stream := call.NewStream(ctx, c, requests, func(f *call.Frame) error {
		if buf, err = method.Response().AppendJSON(buf[:0], f.Bytes(), transcode.WriteOptions{}); err != nil {
			return status.Errorf(codes.Internal, "reply of %s: %v", method.FullMethod, err)
		}
		return reply(buf)
	}, nil)
	return m.handler(stream)
}

// ServeStdio serves MCP on in and out until in ends or ctx does. out carries nothing but the protocol.
func (m *Mesh) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// A host lists tools at once; an empty list would make it believe that there are none.
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := m.catalog.Ready(wait); err != nil && ctx.Err() == nil {
		m.log.Warn("serving before every backend has answered; clients are told when tools come", "error", err)
	}
	m.reportViews()
	return m.mcp[""].ServeStdio(m.stdioContext(ctx), in, out)
}

// Close ends everything that Open started and waits for it. It does not drain; Serve does.
func (m *Mesh) Close() {
	m.stop()
	m.running.Wait()
	if err := m.mcp.close(); err != nil {
		m.log.Error("close the MCP door", "error", err)
	}
	if err := m.endSearch(); err != nil {
		m.log.Error("close the search index", "error", err)
	}
	if m.catalog != nil {
		if err := m.catalog.Close(); err != nil {
			m.log.Error("close the catalog", "error", err)
		}
	}
	if err := m.audit.close(); err != nil {
		m.log.Error("close the audit", "error", err)
	}
	m.state.close(m.log)
	if m.auth != nil {
		m.auth.Close()
	}
	for name, conn := range m.conns {
		if err := conn.Close(); err != nil {
			m.log.Error("close the connection", "backend", name, "error", err)
		}
	}
	if m.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := m.telemetry.close(ctx); err != nil {
			m.log.Warn("flush telemetry", "error", err)
		}
	}
}

// checkServable refuses backends that nothing can call, which are fine for listing and checking, and doors open to strangers.
func (m *Mesh) checkServable() error {
	for _, b := range m.config.Backends {
		if len(b.Targets) == 0 {
			return fmt.Errorf("backend %q has descriptors but no target: add --backend %s=HOST:PORT", b.Name, b.Name)
		}
	}
	return m.config.checkAnonymous()
}
