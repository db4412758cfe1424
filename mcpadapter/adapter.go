// Package mcpadapter is the MCP door: it shows the methods of a catalog as MCP tools, over stdio and Streamable HTTP, to clients of
// protocol versions 2025-06-18, 2025-11-25 and 2026-07-28.
package mcpadapter

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// The protocol versions that this door speaks.
const (
	version20250618 = "2025-06-18"
	version20251125 = "2025-11-25"
	version20260728 = "2026-07-28"
)

// versions are all of them, newest first.
var versions = []string{version20260728, version20251125, version20250618}

// newestLegacy is the newest version that has initialize.
const newestLegacy = version20251125

// Catalog says what there is to call. *catalog.Catalog is one.
type Catalog interface {
	// Snapshot returns the current snapshot; it never blocks and is never nil.
	Snapshot() *catalog.Snapshot
}

// Config says what an Adapter serves and how. Catalog and Handler are required; the zero value of everything else works.
type Config struct {
	// Catalog holds the methods that become tools.
	Catalog Catalog
	// Handler runs a call: the chain, then the backend.
	Handler call.Handler
	// Rules say which metadata of a caller crosses to a backend. Default: call.NewRules(nil).
	Rules *call.Rules
	// Logger gets what callers are not told. Default: slog.Default().
	Logger *slog.Logger

	// Authenticator says who calls: each HTTP request must then bring credentials, and is answered 401 without. Nil: nobody is asked.
	Authenticator call.Authenticator
	// Resource is how clients are told where to get credentials.
	Resource *identity.Resource

	// Name and Version are how the server introduces itself. Default: "toolway" and "dev".
	Name, Version string
	// Profile is the subset of JSON Schema that tools are listed with. The zero value is toolschema.Portable.
	Profile toolschema.Profile
	// View chooses the tools, resources and prompts. The zero value is all of them.
	View View
	// Visibility says which methods a caller may know of: what others give is not listed, and answers as unknown. Nil shows everybody everything.
	Visibility call.Visibility
	// Instructions are shown to the model by hosts that do so. Default: none.
	Instructions string

	// JSON says how replies are written. The zero value is canonical ProtoJSON, as the other doors write it by default.
	JSON transcode.WriteOptions

	// AllowedOrigins are exact browser origins, such as "https://console.example.com", whose pages may use the endpoint; see package origin.
	AllowedOrigins []string
	// AllowedHosts are the host names by which the endpoint may be addressed. Default: any on an address that is not loopback; loopback names
	// only on one that is, against DNS rebinding.
	AllowedHosts []string

	// Sessions keeps server-side state for clients of 2025-06-18 and 2025-11-25 over HTTP: list_changed on a GET stream and replay
	// after Last-Event-ID. All requests of a client must then reach this process. Clients of 2026-07-28 never have a session.
	Sessions bool
	// SessionTimeout ends a session that is not used. Default 30 minutes.
	SessionTimeout time.Duration

	// StreamAge is how long the stream of a call in a session stays open before it is ended: the client then takes up the rest with
	// Last-Event-ID, as 2025-11-25 wants it to. Default: until the call has ended.
	StreamAge time.Duration

	// MaxRequestBytes bounds one JSON-RPC message of a client. Default 4 MiB.
	MaxRequestBytes int
	// MaxResultBytes bounds the JSON of one reply, MaxResultItems the elements of each list and map in it, MaxResultDepth its nesting. What is
	// beyond is left out, and the result says where and how much; what cannot be cut becomes a tool error. A contract's own limits on items
	// and depth come before these. Default 8 MiB, and no bound on items and depth.
	MaxResultBytes, MaxResultItems, MaxResultDepth int
	// KeepInvisible shows results as they are. Default: characters that people do not see but models read, such as tag characters,
	// bidirectional controls and characters without width, are taken out, and the result says how many.
	KeepInvisible bool
	// MaxStreamBytes bounds the JSON that is kept of a server stream, MaxStreamItems the number of messages. What is beyond is left
	// out, the stream is ended, and the result says so. Default 1 MiB and 1,000.
	MaxStreamBytes, MaxStreamItems int
	// PageTools and PageBytes bound one page of tools/list, whichever is reached first. Default 1,000 tools and 4 MiB: below both there
	// is one page.
	PageTools, PageBytes int
	// CacheTTL is the time for which clients of 2026-07-28 may reuse a list. Default 5 seconds; what they are told is always "private".
	CacheTTL time.Duration
	// DrainTimeout bounds how long ServeStdio waits for calls in flight once its input has ended. Default 5 seconds.
	DrainTimeout time.Duration

	// Objects keep results that are too large for an answer; what was left out of one can be read there by a resource link. Nil: nothing
	// is kept, and the result says only what was left out.
	Objects Objects

	// Tasks are the calls that run as tasks. With them the extension io.modelcontextprotocol/tasks is offered to clients of 2026-07-28; Handler must
	// then make tasks of calls that want to be one (call.Call.Async). Nil: the extension is not offered.
	Tasks Tasks

	// ServeStale runs calls of cacheable tools whose backend is down too, since the chain may have an old answer. Default: they are refused at
	// once.
	ServeStale bool

	// StateKey seals what clients of 2026-07-28 carry from one round of a call to the next (MCP's requestState). Instances that share clients
	// need the same one, of 32 random bytes or more. Default: a random one, so that only this process can read what it gave.
	StateKey []byte

	// watchAnswer is how long a subscription waits for a refusal: servers commonly say nothing before the first change.
	watchAnswer time.Duration
	// sdkOnly turns the fast path off, so that tests can compare both.
	sdkOnly bool
}

func (c *Config) setDefaults() {
	if c.Rules == nil {
		c.Rules = call.NewRules(nil)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Name = or(c.Name, "toolway")
	c.Version = or(c.Version, "dev")
	c.SessionTimeout = or(c.SessionTimeout, 30*time.Minute)
	c.MaxRequestBytes = or(c.MaxRequestBytes, 4<<20)
	c.MaxResultBytes = or(c.MaxResultBytes, 8<<20)
	c.MaxStreamBytes = or(c.MaxStreamBytes, 1<<20)
	c.MaxStreamItems = or(c.MaxStreamItems, 1000)
	c.PageTools = or(c.PageTools, 1000)
	c.PageBytes = or(c.PageBytes, 4<<20)
	c.CacheTTL = or(c.CacheTTL, 5*time.Second)
	c.DrainTimeout = or(c.DrainTimeout, 5*time.Second)
	c.watchAnswer = or(c.watchAnswer, 500*time.Millisecond)
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// Adapter is the MCP door. It is safe for concurrent use. It runs nothing while nobody is connected, but sessions (Config.Sessions) last
// until their timeout or Close.
type Adapter struct {
	conf    Config
	server  *mcp.Server
	http    http.Handler
	listed  atomic.Pointer[listings]
	offered atomic.Pointer[offers]
	changes changes
	// subscriptions are those of sessions.
	subscriptions subscriptions
	// removed are the names of tools that were listed once and are no longer.
	removed recent
	sealer  *sealer
	// introduction is the _meta of each result of 2026-07-28, discovery the result of server/discover.
	introduction, discovery []byte
	// drained ends streams that carry no call.
	drained context.Context
	drain   context.CancelFunc

	// scratches are *scratch, of the fast path.
	scratches sync.Pool

	// replies are those to calls that ask for progress and that the SDK serves, by what replyHeader says.
	replies sync.Map

	// stdioCalls are those of the fast path; the SDK knows its own.
	stdioCalls sync.WaitGroup
	closingMu  sync.Mutex
	closing    bool
}

// New returns the door for conf. It panics if Catalog or Handler is missing.
func New(conf Config) *Adapter {
	if conf.Catalog == nil || conf.Handler == nil {
		panic("mcpadapter: Config.Catalog and Config.Handler are required")
	}
	conf.setDefaults()
	a := &Adapter{conf: conf}
	a.drained, a.drain = context.WithCancel(context.Background())
	a.changes.adapter, a.subscriptions.adapter = a, a
	var err error
	if a.sealer, err = newSealer(conf.StateKey); err != nil { // the system's random numbers or AES do not work
		panic("mcpadapter: " + err.Error())
	}
	a.server = a.newServer()
	if err := a.introduce(); err != nil { // it has nothing in it that cannot be encoded
		panic("mcpadapter: " + err.Error())
	}
	a.http = newEndpoint(a)
	return a
}

// HTTPHandler returns the Streamable HTTP endpoint, to be mounted at one path. It sets its own write deadlines, so that a server's
// WriteTimeout does not cut streams.
func (a *Adapter) HTTPHandler() http.Handler { return a.http }

// Drain ends the HTTP streams that wait for changes, subscriptions/listen and the GET stream of a session, which would otherwise keep a
// server from shutting down; later ones end at once. Calls go on. It suits http.Server.RegisterOnShutdown.
func (a *Adapter) Drain() { a.drain() }

// Close drains and ends all sessions, those of ServeStdio included, when their calls have ended. It is for when no more requests come in.
func (a *Adapter) Close() error {
	a.drain()
	a.closingMu.Lock()
	a.closing = true
	a.closingMu.Unlock()
	a.stdioCalls.Wait()
	var errs []error
	for s := range a.server.Sessions() {
		errs = append(errs, s.Close())
	}
	a.subscriptions.running.Wait()
	return errors.Join(errs...)
}

// untilDrained returns a context that also ends with Drain.
func (a *Adapter) untilDrained(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.drained, cancel)
	return ctx, func() { stop(); cancel() }
}

// implementation is how the server introduces itself.
func (a *Adapter) implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: a.conf.Name, Version: a.conf.Version}
}

// capabilities are what the server offers, whether or not the present catalog has something of each kind: clients cannot be told later.
func (a *Adapter) capabilities() *mcp.ServerCapabilities {
	c := &mcp.ServerCapabilities{
		Logging:     &mcp.LoggingCapabilities{},
		Tools:       &mcp.ToolCapabilities{ListChanged: true},
		Prompts:     &mcp.PromptCapabilities{ListChanged: true},
		Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
		Completions: &mcp.CompletionCapabilities{},
	}
	if a.conf.Tasks != nil {
		c.AddExtension(tasksExtension, nil)
	}
	return c
}

// newServer returns the SDK server behind both transports. Lists, calls, reads and prompts are answered by middleware, not by the SDK's
// registry: it would encode each tool's schema again at every call, and knows nothing of who asks.
func (a *Adapter) newServer() *mcp.Server {
	s := mcp.NewServer(a.implementation(), &mcp.ServerOptions{
		Instructions:              a.conf.Instructions,
		Logger:                    slog.New(quiet{a.conf.Logger.Handler()}),
		SupportedProtocolVersions: versions,
		Capabilities:              a.capabilities(),
		// Subscriptions are kept by this door: see subscriptions and listen.
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = int(a.conf.CacheTTL.Milliseconds()), "private"
		},
	})
	a.receiveTasks(s)
	s.AddReceivingMiddleware(a.receive)
	s.AddSendingMiddleware(plainUpdate)
	return s
}

// quiet hands the SDK's warnings and errors on as debug records: they are about clients' mistakes, which clients are told about.
type quiet struct{ slog.Handler }

// Enabled leaves out what is below a warning.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle passes the record on as a debug record.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

// WithAttrs keeps the levels.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps the levels.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
