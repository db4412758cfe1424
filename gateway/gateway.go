// Package gateway is the HTTP door: every method of the catalog as REST (google.api.http), server-sent events and newline-delimited
// JSON, with no generated code. Routes match as grpc-gateway's do, which the tests hold them against. See docs/http.md for what callers may rely on.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/origin"
	"github.com/toolway/toolway/internal/transcode"
)

// Catalog gives the snapshot that is served now. *catalog.Catalog is one.
type Catalog interface {
	Snapshot() *catalog.Snapshot
}

// Config says what a Gateway serves and how. Catalog and Handler are required.
type Config struct {
	// Catalog holds the methods. The gateway asks for the snapshot at every request and compiles its routes once per snapshot.
	Catalog Catalog
	// Handler runs a call: chain and backend.
	Handler call.Handler
	// Rules say which headers reach the backend. nil means call.NewRules(nil).
	Rules *call.Rules
	// Logger gets what callers must not see, and routes that cannot be served. nil discards.
	Logger *slog.Logger
	// AllowedOrigins are foreign origins, such as "https://console.example.com", whose pages may call; others get 403. Exact, no wildcards.
	AllowedOrigins []string
	// AllowedHosts are names by which callers may reach the gateway. Empty means any, but only loopback names on a loopback listener; see
	// package origin.
	AllowedHosts []string
	// MaxBodyBytes bounds a request body after decompression, and each message of a streamed one. Default 4 MiB.
	MaxBodyBytes int64
	// Heartbeat is the time after which a silent event stream gets a comment. Default 15 s.
	Heartbeat time.Duration
	// Reconnect is what event streams tell their readers to wait before they come back, each up to twice as long. Default 2 s.
	Reconnect time.Duration
	// Grace is how long a stream waits for the backend's header, first message or refusal before it answers 200. Default 500 ms.
	Grace time.Duration
	// ParkAfter is how long an event stream over HTTP/1 may be silent before its connection is taken over from the http.Server, to hold less memory: see
	// Gateway.Shutdown for what the server's owner has to do then. Every such stream, silent or not, is answered with "Connection: close", and its
	// connection closed when it has ended. Default 0: never.
	ParkAfter time.Duration
	// StallTimeout is how long one write, or the reading of a whole request body, may take before the caller is dropped; it replaces the
	// server's timeouts. Request streams may be read for as long as the call takes. Default 30 s.
	StallTimeout time.Duration
	// Visibility says which methods a caller may know of. Nil shows everybody everything.
	Visibility call.Visibility
	// JSON says how replies are written. The zero value is canonical ProtoJSON.
	JSON transcode.WriteOptions
	// Authenticator says who asks for what is no call, such as the OpenAPI document; calls are authenticated by the chain. Nil: nobody is asked.
	Authenticator call.Authenticator
	// Tasks says that calls can become tasks: Prefer: respond-async is heeded.
	Tasks bool
	// Resource is how callers are told where to get credentials.
	Resource *identity.Resource
}

// Gateway is an http.Handler. It is safe for concurrent use.
type Gateway struct {
	catalog   Catalog
	handler   call.Handler
	rules     *call.Rules
	logger    *slog.Logger
	origins   *origin.Policy
	maxBody   int64
	heartbeat time.Duration
	reconnect time.Duration
	grace     time.Duration
	parkAfter time.Duration
	stall     time.Duration
	json      transcode.WriteOptions
	auth      call.Authenticator
	tasks     bool
	resource  *identity.Resource
	// visibility says what is told of; nil shows everything.
	visibility call.Visibility

	drain     chan struct{}
	drainOnce sync.Once
	parking   parking

	table   atomic.Pointer[table]
	compile sync.Mutex // held while a table is made
}

// New returns a gateway. It panics if Catalog or Handler is missing.
func New(c Config) *Gateway {
	if c.Catalog == nil || c.Handler == nil {
		panic("gateway: Config needs Catalog and Handler")
	}
	if c.Rules == nil {
		c.Rules = call.NewRules(nil)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		catalog: c.Catalog, tasks: c.Tasks, handler: c.Handler, rules: c.Rules, logger: c.Logger,
		origins:    origin.New(c.AllowedHosts, c.AllowedOrigins),
		maxBody:    orDefault(c.MaxBodyBytes, 4<<20),
		heartbeat:  orDefault(c.Heartbeat, 15*time.Second),
		reconnect:  orDefault(c.Reconnect, 2*time.Second),
		grace:      orDefault(c.Grace, 500*time.Millisecond),
		parkAfter:  c.ParkAfter,
		stall:      orDefault(c.StallTimeout, 30*time.Second),
		json:       c.JSON,
		auth:       c.Authenticator,
		resource:   c.Resource,
		visibility: c.Visibility,
		drain:      make(chan struct{}),
	}
	return g
}

func orDefault[T int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Drain tells every open event stream, with an event "server_draining", that the server is about to stop. It does not end them: cancelling
// their requests' contexts does, and Cut for those that are parked. It may be called more than once.
func (g *Gateway) Drain() {
	g.drainOnce.Do(func() {
		close(g.drain)
		g.parking.each((*writer).draining)
	})
}

// Cut ends the calls of streams that are parked, and of those that are going to be, with a cause: their readers are told if it is a status. It is for
// a server that stops. See Config.ParkAfter.
func (g *Gateway) Cut(cause error) { g.parking.cut(cause) }

// Shutdown returns when no stream is parked any more. If ctx ends before, it closes their connections and returns its error. http.Server.Shutdown does
// not know of them: whoever shuts the server down calls this too once that has returned. See Config.ParkAfter.
func (g *Gateway) Shutdown(ctx context.Context) error {
	err := g.parking.wait(ctx)
	if err != nil {
		g.parking.each((*writer).hangUp)
	}
	return err
}

// table is what is compiled from one snapshot. It is immutable but for the OpenAPI document, which is made at first use.
type table struct {
	snapshot *catalog.Snapshot
	index    index
	routes   []*route
	openapi  document  // for those who may know of everything
	some     documents // for the others
}

// current returns the table of the snapshot that is served now.
func (g *Gateway) current() *table {
	s := g.catalog.Snapshot()
	if t := g.table.Load(); t != nil && t.snapshot == s {
		return t
	}
	if old := g.table.Load(); old == nil {
		g.compile.Lock()
	} else if !g.compile.TryLock() {
		return old // somebody else is at it; the last snapshot will do meanwhile
	}
	defer g.compile.Unlock()
	if t := g.table.Load(); t != nil && t.snapshot == s {
		return t
	}
	t := newTable(s, g.logger)
	g.table.Store(t)
	return t
}

func newTable(s *catalog.Snapshot, logger *slog.Logger) *table {
	t := &table{snapshot: s}
	add := func(r *route) {
		if owner := t.index.add(r); owner != nil {
			logger.Warn("route is taken: the earlier method keeps it", "route", r.verb+" "+r.source, "method", r.method.FullMethod, "owner", owner.method.FullMethod)
			return
		}
		t.routes = append(t.routes, r)
	}
	methods := make([]*catalog.Method, 0, len(s.Methods()))
	for _, m := range s.Methods() {
		if !m.Service.Infrastructure && m.Exposed(catalog.DoorHTTP) {
			methods = append(methods, m)
			add(rpc(m))
		}
	}
	for _, m := range methods {
		for _, b := range m.Bindings {
			r, err := compile(m, b)
			if err != nil {
				logger.Warn("route cannot be served", "method", m.FullMethod, "error", err)
				continue
			}
			add(r)
		}
	}
	return t
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, peer: call.Remote(r.RemoteAddr), id: newIDs(header(r, requestIDHeader))}
	x.ids = [...]string{x.id.request, x.id.call}
	h := w.Header()
	h[requestIDHeader] = x.ids[:1:1]
	if x.id.call != x.id.request {
		h[callIDHeader] = x.ids[1:]
	}
	h["X-Content-Type-Options"] = nosniff
	cors, err := g.origins.Check(r)
	if g.origins.Foreign() {
		h.Add("Vary", "Origin")
	}
	if err != nil {
		g.fail(x, nil, refuse(http.StatusForbidden, codes.PermissionDenied, err.Error()))
		return
	}
	if cors != "" {
		h.Set("Access-Control-Allow-Origin", cors)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
	if err := speaksGRPC(r); err != nil {
		g.fail(x, nil, err)
		return
	}
	t := g.current()
	if r.URL.Path == openAPIPath {
		g.serveOpenAPI(x, t)
		return
	}
	path := r.URL.EscapedPath()
	if isPreflight(r) {
		// Never a call, even where a route takes OPTIONS: a browser sends it without credentials.
		g.noRoute(x, t, path, cors != "")
		return
	}
	if m, ok := t.index.lookup(r.Method, path, x.room[:0]); ok {
		g.serve(x, m)
		return
	}
	g.noRoute(x, t, path, cors != "")
}

// noRoute answers what no route takes: OPTIONS, a wrong HTTP method, or a path that is not there. Nobody learns from it what is hidden.
func (g *Gateway) noRoute(x *exchange, t *table, path string, cors bool) {
	if path == "/" && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead) && len(t.index.allowed(path, nil)) == 0 {
		g.landing(x)
		return
	}
	if g.auth != nil && cors && isPreflight(x.r) { // it has no credentials, so it is answered alike for every path
		x.w.Header().Set("Allow", strings.Join(append(slices.Clone(allMethods), http.MethodOptions), ", "))
		preflight(x.w, allMethods)
		return
	}
	if err := g.identify(x); err != nil {
		g.fail(x, nil, err)
		return
	}
	r := x.r
	allowed := t.index.allowed(path, g.shows(r.Context()))
	if len(allowed) == 0 {
		g.fail(x, nil, refuse(http.StatusNotFound, codes.NotFound, g.notFound(r.Context(), t.snapshot, r.Method, r.URL.Path)))
		return
	}
	if r.Method == http.MethodOptions {
		x.w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
		if cors && isPreflight(r) {
			preflight(x.w, allowed)
			return
		}
		x.w.WriteHeader(http.StatusNoContent)
		return
	}
	list := strings.Join(allowed, ", ")
	g.fail(x, nil, refuse(http.StatusMethodNotAllowed, codes.Unimplemented,
		fmt.Sprintf("path %q: no method for %s; it takes %s", r.URL.Path, r.Method, list)).with("Allow", list))
}

// notFound says what there is in place of a path, of what the caller may know.
func (g *Gateway) notFound(ctx context.Context, s *catalog.Snapshot, verb, path string) string {
	shown := func(m *catalog.Method) bool {
		return m.Exposed(catalog.DoorHTTP) && call.Sees(g.visibility, call.PrincipalFrom(ctx), call.HTTP, m)
	}
	text := fmt.Sprintf("no route for %s %q", verb, path)
	service, method, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || !strings.Contains(service, ".") {
		return text + "; /openapi.json lists them all"
	}
	if svc := s.Service(service); svc != nil && !svc.Infrastructure && slices.ContainsFunc(svc.Methods, shown) {
		near := nearmiss.Find(method, func(yield func(string) bool) {
			for _, m := range svc.Methods {
				if shown(m) && !yield(string(m.Desc.Name())) {
					return
				}
			}
		})
		if near != "" {
			return text + fmt.Sprintf("; did you mean %q?", "/"+service+"/"+near)
		}
		return text + fmt.Sprintf("; the service %q has no such method", service)
	}
	near := nearmiss.Find(service, func(yield func(string) bool) {
		for _, svc := range s.Services() {
			if !svc.Infrastructure && slices.ContainsFunc(svc.Methods, shown) && !yield(string(svc.Desc.FullName())) {
				return
			}
		}
	})
	if near != "" {
		return text + fmt.Sprintf("; did you mean %q?", "/"+near+"/"+method)
	}
	return text + fmt.Sprintf("; there is no service %q", service)
}

func (g *Gateway) landing(x *exchange) {
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	g.write(x, http.StatusOK, []byte("Toolway, HTTP door.\n\nOpenAPI:  GET /openapi.json\nMethods:  POST /{package.Service}/{Method}, or as their google.api.http rules say\nStreams:  newline-delimited JSON, or server-sent events with Accept: text/event-stream\n"))
}

// write sends a whole answer, within the stall timeout.
func (g *Gateway) write(x *exchange, code int, body []byte) {
	// The server's write timeout counts from the request; a slow call must not eat it up. A writer without deadlines keeps it.
	rc := http.NewResponseController(x.w)
	_, timeout := timeouts(x.r.Context())
	lasting, large := x.r.ProtoMajor < 2 && timeout == 0, len(body) > bufferedBytes
	if !lasting || large {
		_ = rc.SetWriteDeadline(time.Now().Add(g.stall))
	}
	if large || len(body) == 0 { // of others net/http says the length itself, for less
		x.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.w.WriteHeader(code)
	_, err := x.w.Write(body)
	if err == nil && lasting && large {
		// The deadline would stay on the connection and hit a later request: all must be out before it is taken back.
		if err = rc.Flush(); err == nil {
			err = rc.SetWriteDeadline(time.Time{})
		}
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		g.logger.LogAttrs(x.r.Context(), slog.LevelDebug, "caller is gone", slog.String("call_id", x.id.call), slog.Any("error", err))
	}
}

// bufferedBytes is the size of an answer that net/http takes without writing to the connection.
const bufferedBytes = 2048
