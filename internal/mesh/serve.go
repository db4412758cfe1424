package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
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
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	var servers []*http.Server
	start := func(l listener, handler http.Handler) {
		srv := &http.Server{
			Handler:           handler,
			BaseContext:       func(net.Listener) context.Context { return base },
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
			Protocols:         new(http.Protocols),
		}
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
		servers = append(servers, srv)
		serving.Go(func() {
			if err := srv.Serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s listener: %w", l.door, err)
			}
		})
	}
	for _, l := range listeners {
		switch l.door {
		case "grpc":
			serving.Go(func() {
				if err := m.proxy.Serve(l.Listener); err != nil {
					failed <- fmt.Errorf("grpc listener: %w", err)
				}
			})
		case "http":
			start(l, m.httpHandler())
		case "admin":
			start(l, m.adminHandler())
		}
		m.log.Info("listening", "door", l.door, "addr", l.Addr().String())
		if l.door != "admin" && !loopback(l.Addr().String()) {
			m.log.Warn("this door is open to other machines and callers are not authenticated", "door", l.door, "addr", l.Addr().String())
		}
	}
	m.running.Go(func() {
		if m.catalog.Ready(base) == nil {
			s := m.catalog.Snapshot()
			m.log.Info("ready", "backends", len(s.Backends())-1, "tools", len(s.Tools()), "findings", len(s.Findings()), "version", s.Version())
		}
	})

	select {
	case <-ctx.Done():
		m.log.Info("draining", "bound", time.Duration(m.config.Drain))
	case err = <-failed:
	}
	m.drain(servers, cancel)
	serving.Wait()
	m.log.Info("stopped")
	return err
}

// drain lets calls in flight finish within the bound, then cuts them.
func (m *Mesh) drain(servers []*http.Server, cut context.CancelFunc) {
	m.draining.Store(true)
	m.health.Shutdown()
	m.gateway.Drain()
	m.mcp.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(m.config.Drain))
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() { m.proxy.Stop(ctx) })
	for _, srv := range servers {
		stopping.Go(func() {
			if err := srv.Shutdown(ctx); err != nil {
				m.log.Warn("calls were cut after the drain time", "error", err)
				cut()
				if err := srv.Close(); err != nil {
					m.log.Warn("close connections", "error", err)
				}
			}
		})
	}
	stopping.Wait()
}

// httpHandler is the HTTP and MCP doors on one listener. It is no http.ServeMux, which would answer odd paths with redirects of its own.
func (m *Mesh) httpHandler() http.Handler {
	mcp := m.mcp.HTTPHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			mcp.ServeHTTP(w, r)
			return
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
