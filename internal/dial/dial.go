// Package dial opens connections to backends: name resolution, TLS, balancing, keepalive, reconnection, and a diagnosis when they fail.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// DefaultMaxRecvBytes is the largest message taken from a backend. It is far above gRPC's 4 MiB, since a mesh that refuses what the
	// caller and the backend have agreed on is in the way; it is there to bound memory, decompression included.
	DefaultMaxRecvBytes = 64 << 20

	// maxBackoff caps the wait between attempts to reconnect, so that a backend that is back is used within seconds.
	maxBackoff = 5 * time.Second

	// connectTimeout bounds one attempt to connect, TLS included.
	connectTimeout = 5 * time.Second

	// keepaliveTime is above the five minutes that servers enforce by default, with room for their clocks and for a ping that went out
	// early; pings are sent only while there are calls, so a server with the default policy never answers too_many_pings. grpc-go doubles
	// the time by itself if one does.
	keepaliveTime    = 6 * time.Minute
	keepaliveTimeout = 20 * time.Second

	// streamWindow is what a stream holds of a backend's messages that its caller does not take: grpc-go's own estimate would let it grow to
	// 16 MiB each. At a round trip of 1 ms it is 250 MB a second for one stream. A message that is larger still comes in one piece.
	streamWindow = 256 << 10
	// connWindow bounds what is on the way for all streams of a connection. grpc-go gives it back as bytes come in, not as they are taken:
	// streams that nobody reads starve no other.
	connWindow = 16 << 20

	// connectWait is how long a call waits for a backend that is being connected to for the first time.
	connectWait = time.Second
	// noBound has nothing but the call's own deadline bound a wait. An attempt to connect ends within connectTimeout, and what is known of an
	// endpoint's health within healthPatience.
	noBound time.Duration = 0
)

// Config says how to reach one backend.
type Config struct {
	// Name is the backend's, for messages.
	Name string
	// Targets are one or more gRPC targets: "host:port" and "dns:///host:port" are resolved by DNS and again when connections fail,
	// "unix:/path" and "unix-abstract:name" are sockets, "passthrough:///address" is taken as it is. The addresses of all targets are
	// used in turn (round robin). "xds:///service" asks a control plane, which the environment variable GRPC_XDS_BOOTSTRAP names, for the
	// endpoints and how to use them; it is the only target then, and what is said here of balancing, health and bounds on connections does not hold.
	Targets []string
	// TLS says how to encrypt. Nil means plaintext.
	TLS *TLS
	// Authority is sent as ":authority" and is the server name that TLS checks unless TLS.ServerName is set. Default: from the target;
	// with several targets each connection checks the name of its own target, and ":authority" is the first one's.
	Authority string
	// IgnoreHealth uses all endpoints that can be connected to. Otherwise an endpoint that says NOT_SERVING through grpc.health.v1 for the
	// service "" is left out while it says so; one that has no health service, or that does not let us ask, counts as healthy.
	IgnoreHealth bool
	// UseProxy lets HTTPS_PROXY and NO_PROXY of the environment decide how DNS targets are reached. Default: they are ignored.
	UseProxy bool
	// UserAgent precedes grpc-go's own. Default "toolway".
	UserAgent string
	// MaxRecvBytes is the largest message taken from the backend, after decompression. Default DefaultMaxRecvBytes. Requests to it are
	// not limited here: the doors limit what they take.
	MaxRecvBytes int
	// MaxConnections bounds the connections to each endpoint, those for unary calls and those for streams together. More than one of each kind are
	// made only where the server's bound on streams is reached. Default DefaultMaxConnections; at least 2.
	MaxConnections int
	// IdleAfter is how long a further connection is kept unused, twice that at most. Default DefaultIdleAfter.
	IdleAfter time.Duration
	// Dialer replaces the operating system's connect; address is what the resolver returned.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Options are added last.
	Options []grpc.DialOption
}

// Conn is the way to one backend, over one or more endpoints and as many connections to each as are needed. It is safe for concurrent use; Close
// ends it. As a grpc.ClientConn it is the first connection, which is there all the time: its state is the backend's. Invoke and OpenStream use
// the others too.
type Conn struct {
	*grpc.ClientConn
	cfg     Config
	targets []string
	pool    *pool
}

// Open returns a connection and starts to connect at once, without waiting for it. The error is about the configuration.
// The first connection is kept when idle. There is no retry below the mesh's own, and no service config from resolvers.
func Open(cfg Config) (*Conn, error) {
	targets, err := checkTargets(cfg)
	if err != nil {
		return nil, err
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConnections)
	if cfg.MaxConnections < 2 {
		return nil, fmt.Errorf("backend %q: at most %d connections are too few: one is for unary calls and one for streams, so allow at least 2", cfg.Name, cfg.MaxConnections)
	}
	creds, opts, err := options(cfg)
	if err != nil {
		return nil, err
	}
	target := targets[0]
	if len(targets) > 1 {
		several := newSeveral(targets)
		target = several.target()
		opts = append(opts, grpc.WithResolvers(several))
	}
	p := &pool{controlled: controlled(target), most: cfg.MaxConnections, idle: cmp.Or(cfg.IdleAfter, DefaultIdleAfter), stop: make(chan struct{})}
	p.dial = func(m *member) (*grpc.ClientConn, error) {
		own := append(slices.Clone(opts), grpc.WithTransportCredentials(&counting{creds, m}))
		return grpc.NewClient(target, append(own, cfg.Options...)...)
	}
	if p.first, err = p.open(); err != nil {
		return nil, fmt.Errorf("backend %q: target %q: %w", cfg.Name, target, err)
	}
	return &Conn{ClientConn: p.first.cc, cfg: cfg, targets: targets, pool: p}, nil
}

// options returns what all connections to a backend have in common.
func options(cfg Config) (credentials.TransportCredentials, []grpc.DialOption, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		var err error
		if creds, err = cfg.TLS.credentials(); err != nil {
			return nil, nil, fmt.Errorf("backend %q: %w", cfg.Name, err)
		}
	}
	userAgent := cfg.UserAgent
	if userAgent == "" {
		userAgent = "toolway"
	}
	recv := cfg.MaxRecvBytes
	if recv <= 0 {
		recv = DefaultMaxRecvBytes
	}
	policy := policyName
	if cfg.IgnoreHealth {
		policy = blindPolicyName
	}
	opts := []grpc.DialOption{
		grpc.WithUserAgent(userAgent),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(recv), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: connectTimeout,
		}),
	}
	if !controlled(cfg.Targets[0]) {
		opts = append(opts, grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, policy)))
	}
	if cfg.Authority != "" {
		opts = append(opts, grpc.WithAuthority(cfg.Authority))
	}
	if !cfg.UseProxy {
		opts = append(opts, grpc.WithNoProxy())
	}
	if cfg.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(cfg.Dialer))
	}
	return creds, opts, nil
}

// Name returns the backend's name.
func (c *Conn) Name() string { return c.cfg.Name }

// Targets returns the targets as configured.
func (c *Conn) Targets() []string { return c.cfg.Targets }

// Why says, in words for the operator, why the connection is not ready: the targets, what the last attempt ran into, and what to do about it. It
// is "" when the connection is ready. It takes a tenth of a second at most.
func (c *Conn) Why() string {
	if c.GetState() == connectivity.Ready {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	where := strings.Join(c.targets, ", ")
	// A call that fails fast is told what the last attempt to connect ran into; grpc-go says it nowhere else.
	err := c.Invoke(ctx, "/grpc.health.v1.Health/Check", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	st := status.Convert(err)
	if st.Code() != codes.Unavailable || st.Message() == "" {
		return where
	}
	text := where + ": " + st.Message()
	if len(c.targets) == 1 {
		text = where + ": " + Cause(st.Message()) // the address is the target's
	}
	if meaning := Explain(st.Message()); meaning != "" {
		text += "; " + meaning
	}
	return text
}

// ErrConnecting says that there was no connection within the time that a call waits for the first one.
var ErrConnecting = errors.New("still connecting")

// Ready returns when a call would not wait: at once if an endpoint is connected or the last attempt has failed (the call itself then
// says why), else when the attempt that is under way has ended, but after a second at most, with ErrConnecting. The error is the context's
// if that ends first.
func (c *Conn) Ready(ctx context.Context) error { return ready(ctx, c.ClientConn, connectWait) }

func ready(ctx context.Context, cc *grpc.ClientConn, bound time.Duration) error {
	state := cc.GetState()
	if state == connectivity.Ready || state == connectivity.TransientFailure || state == connectivity.Shutdown {
		return nil
	}
	wait := ctx
	if bound != noBound {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	for {
		if state == connectivity.Idle {
			cc.Connect()
		}
		if !cc.WaitForStateChange(wait, state) {
			if err := ctx.Err(); err != nil {
				return err
			}
			return ErrConnecting
		}
		if state = cc.GetState(); state != connectivity.Idle && state != connectivity.Connecting {
			return nil
		}
	}
}
