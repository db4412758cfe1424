package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/origin"
)

// Serve opens the listeners and serves until ctx is done, then drains: no new calls, streams are told, calls in flight go on for at most
// the configured time. It returns when everything has ended; the error is that of a listener.
func (m *Mesh) Serve(ctx context.Context) error {
	if err := m.checkServable(); err != nil {
		return err
	}
	listeners, err := m.listen(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	// Requests outlive ctx while the mesh drains; base ends when draining is over.
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	requests := base
	if m.auth == nil {
		requests = call.WithPrincipal(base, identity.Anonymous)
	}

	start := func(l listener, handler http.Handler) *http.Server {
		srv := &http.Server{
			Handler:           handler,
			BaseContext:       func(net.Listener) context.Context { return requests },
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
			Protocols:         new(http.Protocols),
		}
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
		serve := srv.Serve
		if l.door == "http" && m.httpTLS != nil {
			srv.Protocols.SetHTTP2(true)
			srv.TLSConfig = m.httpTLS
			serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
		}
		serving.Go(func() {
			if err := serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s listener: %w", l.door, err)
			}
		})
		return srv
	}
	var doors, admin *http.Server
	for _, l := range listeners {
		switch l.door {
		case "grpc":
			serving.Go(func() {
				if err := m.proxy.Serve(l.Listener); err != nil {
					failed <- fmt.Errorf("grpc listener: %w", err)
				}
			})
		case "http":
			doors = start(l, m.httpHandler())
			m.warnAudiences(l.Addr().String())
		case "admin":
			admin = start(l, m.adminHandler())
		}
		m.log.Info("listening", "door", l.door, "addr", l.Addr().String())
		switch open := !loopback(l.Addr().String()); {
		case l.door == "admin" || m.auth != nil:
		case open:
			m.log.Warn("THIS DOOR IS OPEN TO OTHER MACHINES AND NOBODY IS ASKED WHO CALLS: everybody may do everything", "door", l.door, "addr", l.Addr().String())
		default:
			m.log.Warn("nobody is asked who calls: every process on this machine may do everything; configure auth to change that", "door", l.door)
		}
	}
	m.running.Go(func() {
		if m.catalog.Ready(base) == nil {
			s := m.catalog.Snapshot()
			m.warnUnexposed(s)
			m.log.Info("ready", "backends", len(s.Backends())-1, "tools", len(s.Tools()), "findings", len(s.Findings()), "version", s.Version())
			m.reportViews()
		}
	})

	select {
	case <-ctx.Done():
		m.log.Info("draining", "bound", time.Duration(m.config.Drain).String())
	case err = <-failed:
	}
	m.drain(doors, func() {
		cause := call.Error(codes.Unavailable, "SHUTTING_DOWN", "the mesh is shutting down", "hint", "call again: another instance, or the next one, takes it; whether it took effect is not known")
		cancel(cause)
		m.gateway.Cut(cause)
		m.proxy.Cut(cause)
	})
	if admin != nil { // last, so that probes see the mesh drain
		if err := admin.Close(); err != nil {
			m.log.Warn("close the admin listener", "error", err)
		}
	}
	serving.Wait()
	m.log.Info("stopped")
	return err
}

// parkAfter is how long an event stream of the HTTP door is silent before it holds less memory.
const parkAfter = time.Second

// cutGrace is what is left of the drain time for calls that are cut to tell their callers.
const cutGrace = time.Second

// drain lets calls in flight finish within the bound. Then it cancels what is left, so that callers are told, and closes.
func (m *Mesh) drain(doors *http.Server, cut func()) {
	m.draining.Store(true)
	m.health.Shutdown()
	m.gateway.Drain()
	m.mcp.drain()
	bound := time.Duration(m.config.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cutting := time.AfterFunc(max(bound-cutGrace, bound/2), func() {
		m.log.Warn("calls still in flight are cut")
		cut()
	})
	defer cutting.Stop()
	var stopping sync.WaitGroup
	stopping.Go(func() { m.proxy.Stop(ctx) })
	stopping.Go(func() { m.drainTasks(ctx) })
	if doors != nil {
		stopping.Go(func() {
			if err := errors.Join(doors.Shutdown(ctx), m.gateway.Shutdown(ctx)); err != nil {
				m.log.Warn("connections were closed after the drain time", "error", err)
				if err := doors.Close(); err != nil {
					m.log.Warn("close connections", "error", err)
				}
			}
		})
	}
	stopping.Wait()
}

// httpHandler is the HTTP and MCP doors on one listener. It is no http.ServeMux, which would answer odd paths with redirects of its own.
func (m *Mesh) httpHandler() http.Handler {
	mcp := m.mcp.handlers()
	wellKnown := m.wellKnown(m.config.resource(), origin.New(m.config.HTTP.AllowedHosts, m.config.HTTP.AllowedOrigins))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wellKnown(w, r) {
			return
		}
		if strings.HasPrefix(r.URL.Path, "/mcp") {
			if h := mcp[r.URL.Path]; h != nil {
				h.ServeHTTP(w, r)
				return
			}
			if name, ok := strings.CutPrefix(r.URL.Path, "/mcp/"); ok {
				writeJSON(w, http.StatusNotFound, m.mcp.unknown(name))
				return
			}
		}
		m.gateway.ServeHTTP(w, r)
	})
}

type listener struct {
	net.Listener
	door string
}

// listen opens all listeners or none.
func (m *Mesh) listen(ctx context.Context) ([]listener, error) {
	var out []listener
	for _, want := range []struct{ door, addr, flag string }{
		{"grpc", m.config.GRPC.Addr, "--grpc-addr"}, {"http", m.config.HTTP.Addr, "--http-addr"}, {"admin", m.config.Admin.Addr, "--admin-addr"},
	} {
		if want.addr == Off {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", want.addr)
		if err != nil {
			for _, open := range out {
				open.Close()
			}
			return nil, fmt.Errorf("listen for %s on %q: %w; choose another with %s", want.door, want.addr, err, want.flag)
		}
		out = append(out, listener{l, want.door})
	}
	if len(out) == 0 {
		return nil, errors.New("every listener is off: there is nothing to serve")
	}
	return out, nil
}
