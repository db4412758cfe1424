// Package proxy is the gRPC door: one gRPC server for every method of the catalog, with the messages passed on as bytes.
package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/nearmiss"
)

// Defaults of Config.
const (
	DefaultMaxRecvBytes = 64 << 20
	DefaultMaxStreams   = 1024
)

// What a call holds of requests that its backend does not take, and what is on the way for all calls of a connection: grpc-go's own estimate
// would let each call hold 16 MiB. The connection's window is given back as bytes come in, so calls that stall starve no other.
const (
	streamWindow = 256 << 10
	connWindow   = 16 << 20
)

// streamWorkers are goroutines that serve one call after another. A call beyond them gets a goroutine of its own, whose stack has to grow, and be
// copied, several times on the way through the chain.
const streamWorkers = 32

// Snapshots is where the methods come from; *catalog.Catalog is one.
type Snapshots interface{ Snapshot() *catalog.Snapshot }

// Config says what a Server serves and within which bounds.
type Config struct {
	// Catalog has the methods. It is asked for each call. Required.
	Catalog Snapshots
	// Handler runs each call: the chain, then the backend. Required.
	Handler call.Handler
	// Rules say which metadata crosses. Default: call.NewRules(nil).
	Rules *call.Rules
	// Visibility says which methods a caller may know of. Nil shows everybody everything.
	Visibility call.Visibility
	// TLS encrypts the door. Nil means plaintext.
	TLS *tls.Config
	// MaxRecvBytes is the largest request message, after decompression. Default DefaultMaxRecvBytes.
	MaxRecvBytes int
	// MaxSendBytes is the largest reply message. Default: no limit here; dial.Config.MaxRecvBytes bounds what comes from backends.
	MaxSendBytes int
	// MaxStreams is the number of calls at a time on one connection; further ones wait at the client. Default DefaultMaxStreams.
	MaxStreams uint32
	// CompressReplies compresses replies with gzip for every client that accepts it. Otherwise only those clients get it that have
	// compressed their request. grpc-go clients accept it whenever the program has gzip linked, so this is not the default.
	CompressReplies bool
	// Logger gets a line for each call that ends before the chain: of a method that is not there, or in another encoding. Nil: none.
	Logger *slog.Logger
	// Options are added last.
	Options []grpc.ServerOption
}

// Server is the gRPC door. It is safe for concurrent use.
type Server struct {
	cfg     Config
	server  *grpc.Server
	readers sync.WaitGroup
	streams underWay
}

// New returns a server that serves when Serve is called. It panics if the catalog or the handler is missing.
func New(cfg Config) *Server {
	if cfg.Catalog == nil || cfg.Handler == nil {
		panic("proxy: catalog and handler are required")
	}
	if cfg.Rules == nil {
		cfg.Rules = call.NewRules(nil)
	}
	if cfg.MaxRecvBytes <= 0 {
		cfg.MaxRecvBytes = DefaultMaxRecvBytes
	}
	if cfg.MaxSendBytes <= 0 {
		cfg.MaxSendBytes = math.MaxInt32
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	s := &Server{cfg: cfg}
	opts := []grpc.ServerOption{
		grpc.UnknownServiceHandler(s.handle),
		grpc.ForceServerCodecV2(call.Codec{}),
		grpc.MaxRecvMsgSize(cfg.MaxRecvBytes),
		grpc.MaxSendMsgSize(cfg.MaxSendBytes),
		grpc.MaxConcurrentStreams(cfg.MaxStreams),
		grpc.MaxHeaderListSize(64 << 10),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.WaitForHandlers(true),
		// Clients may ping more often than gRPC's five minutes, with idle connections too, since many do so to get past load balancers.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s.server = grpc.NewServer(append(opts, cfg.Options...)...)
	return s
}

// Serve accepts connections until Stop is called, then returns nil. It closes the listener.
func (s *Server) Serve(l net.Listener) error { return s.server.Serve(l) }

// Stop ends the server: no new calls, and those under way may finish until ctx is done; then they are cancelled. It returns when all
// handlers have.
func (s *Server) Stop(ctx context.Context) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.server.GracefulStop()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		s.server.Stop()
		<-drained
	}
	s.readers.Wait()
}

// handle serves every call, since no service is registered with the server.
func (s *Server) handle(_ any, ss grpc.ServerStream) error {
	ctx := ss.Context()
	full, _ := grpc.MethodFromServerStream(ss)
	snap := s.cfg.Catalog.Snapshot()
	m := snap.Method(full)
	if m == nil || !m.Exposed(catalog.DoorGRPC) {
		return s.refuse(ctx, full, unknown(snap, full, s.shown(call.PrincipalFrom(ctx))))
	}
	if s.cfg.CompressReplies {
		compress(ctx)
	}
	c := call.New(m, call.GRPC)
	in := call.Incoming(ctx)
	c.Forward = s.cfg.Rules.Filter(in)
	c.Credentials = credentialsOf(ctx, in)
	if m.Policy.Approval == catalog.ApprovalConfirm {
		c.Confirm = strings.Join(in["toolway-confirm"], ",")
	}
	if m.Taskable() && call.WantsTask(in["prefer"]) {
		c.Async = &call.Async{}
	}
	if err := checkContentType(in["content-type"]); err != nil {
		c.Refuse(err)
	}
	if m.Kind() != (catalog.Kind{}) {
		var end func()
		ctx, end = s.streams.begin(ctx, c)
		defer end()
	}
	stream := call.Accept(ctx, c, ss, s.readers.Go)
	err := stream.End(s.cfg.Handler(stream))
	if err == nil {
		return nil
	}
	ss.SetTrailer(metadata.MD{callIDTrailer: {c.ID}})
	if c.Hidden {
		return unknown(snap, full, s.shown(c.Principal))
	}
	return err
}

// callIDTrailer is what logs and audit call a call that has failed.
const callIDTrailer = "toolway-call-id"

// shown says which methods a caller is told of.
func (s *Server) shown(p *identity.Principal) func(*catalog.Method) bool {
	return func(m *catalog.Method) bool {
		return m.Exposed(catalog.DoorGRPC) && call.Sees(s.cfg.Visibility, p, call.GRPC, m)
	}
}

// credentialsOf returns what a caller brings in metadata, and in its connection.
func credentialsOf(ctx context.Context, in metadata.MD) call.Credentials {
	c := identity.ReadCredentials(in["authorization"], in["x-api-key"])
	if p, ok := peer.FromContext(ctx); ok && p.AuthInfo != nil {
		c.TLS = tlsState(p.AuthInfo)
	}
	return c
}

// tlsState returns what TLS knows of a caller; nil without TLS. It stands apart since the copy costs an allocation even where it is not made.
func tlsState(info credentials.AuthInfo) *tls.ConnectionState {
	if info.AuthType() != "tls" {
		return nil
	}
	if info, ok := info.(credentials.TLSInfo); ok {
		return &info.State
	}
	return nil
}

// refuse logs what the chain will not see, and returns err.
func (s *Server) refuse(ctx context.Context, method string, err error) error {
	if s.cfg.Logger != nil {
		const longest = 200 // a caller may send any name
		st := status.Convert(err)
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "call refused", slog.String("door", string(call.GRPC)), slog.String("method", method[:min(len(method), longest)]),
			slog.String("code", code.Code(st.Code()).String()))
	}
	return err
}

// checkContentType refuses messages that are not protobuf: they would pass as bytes that no backend understands.
func checkContentType(types []string) error {
	for _, t := range types {
		if t == "application/grpc" { // nearly always
			continue
		}
		subtype := strings.TrimPrefix(strings.ToLower(t), "application/grpc")
		subtype, _, _ = strings.Cut(strings.TrimLeft(subtype, "+;"), ";")
		if subtype != "" && subtype != "proto" && strings.HasPrefix(strings.ToLower(t), "application/grpc+") {
			return call.Error(codes.Unimplemented, "CONTENT_SUBTYPE", fmt.Sprintf("messages as %q are not served", t),
				"hint", "send application/grpc or application/grpc+proto here; JSON is served over HTTP and MCP")
		}
	}
	return nil
}

// compress makes the reply gzip if the client accepts it.
func compress(ctx context.Context) {
	accepted, err := grpc.ClientSupportedCompressors(ctx)
	if err != nil {
		return
	}
	for _, name := range accepted {
		if name == gzip.Name {
			_ = grpc.SetSendCompressor(ctx, gzip.Name) // fails only after the header
			return
		}
	}
}

// unknown says what is wrong with the name of a method, and which one was probably meant.
func unknown(snap *catalog.Snapshot, full string, shown func(*catalog.Method) bool) error {
	service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok {
		return status.Errorf(codes.Unimplemented, "malformed method name %q", full)
	}
	s := snap.Service(service)
	if s == nil || !slices.ContainsFunc(s.Methods, shown) {
		return unknownName(fmt.Sprintf("unknown service %q", service), "grpcurl ADDRESS list", nearmiss.Find(service, serviceNames(snap, shown)))
	}
	return unknownName(fmt.Sprintf("unknown method %q of service %q", method, service), "grpcurl ADDRESS list "+service, nearmiss.Find(method, methodNames(s, shown)))
}

// unknownName puts the near miss into the message, since many clients show nothing else.
func unknownName(what, list, near string) error {
	hint := "list what there is with: " + list
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
		what += "; " + hint
	}
	return call.Error(codes.Unimplemented, "UNKNOWN_METHOD", what, "hint", hint)
}

func serviceNames(snap *catalog.Snapshot, shown func(*catalog.Method) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, s := range snap.Services() {
			if slices.ContainsFunc(s.Methods, shown) && !yield(string(s.Desc.FullName())) {
				return
			}
		}
	}
}

func methodNames(s *catalog.Service, shown func(*catalog.Method) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range s.Methods {
			if shown(m) && !yield(string(m.Desc.Name())) {
				return
			}
		}
	}
}
