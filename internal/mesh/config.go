package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/toolschema"
)

// Config is everything an operator can say. The zero value, after Normalise, serves on loopback with embedded defaults.
type Config struct {
	// Backends in order: the first one that brings a service, route or tool name keeps it.
	Backends []Backend `yaml:"backends"`
	GRPC     GRPC      `yaml:"grpc"`
	HTTP     HTTP      `yaml:"http"`
	MCP      MCP       `yaml:"mcp"`
	Admin    Admin     `yaml:"admin"`
	// Auth says who may call.
	Auth Auth `yaml:"auth"`
	// Credentials say how the mesh tells backends on whose behalf it calls.
	Credentials Credentials `yaml:"credentials"`
	Metadata    Metadata    `yaml:"metadata"`
	// Policy is the operator's word about methods, laid over what contracts say: later rules win.
	Policy []PolicyRule `yaml:"policy"`
	// Lock is the file that toolway lock has written: tools whose definition is not the one in it are quarantined. Default: none is.
	Lock string `yaml:"lock"`
	// Expose says which methods each door shows and serves.
	Expose   Expose   `yaml:"expose"`
	Deadline Deadline `yaml:"deadline"`
	Log      Log      `yaml:"log"`
	Trace    Trace    `yaml:"trace"`
	// Rules are the operator's rules about calls.
	Rules Rules `yaml:"rules"`
	// Audit says where records of calls go.
	Audit Audit `yaml:"audit"`
	Store Store `yaml:"store"`
	// Tasks says how calls run as tasks.
	Tasks Tasks `yaml:"tasks"`
	// Cache is the cache of replies.
	Cache Cache `yaml:"cache"`
	// DataFlow says which backend's data must not go to which.
	DataFlow DataFlow `yaml:"data_flow"`
	// Results bounds what agents are shown.
	Results Results `yaml:"results"`
	// Idempotency says how idempotency keys are kept, Approvals how calls are held.
	Idempotency Idempotency `yaml:"idempotency"`
	Approvals   Approvals   `yaml:"approvals"`
	// Attempts say how often and how backends are tried.
	Attempts Attempts `yaml:"attempts"`
	// Limits protect the mesh and its backends from too many calls.
	Limits Limits `yaml:"limits"`
	// Data is the directory of durable state: what Store keeps, unless that names a cluster, and the last contract of each backend, so that a
	// mesh that starts while a backend is away still knows its methods. One process uses it. Default: state is in memory.
	Data string `yaml:"data"`
	// Drain bounds how long calls in flight may go on after SIGTERM. Default 25s.
	Drain Duration `yaml:"drain"`
}

// Backend is one gRPC server, or several that serve the same contract.
type Backend struct {
	// Name is unique: [a-z0-9][a-z0-9-]*, at most 63 characters. Default: made from the first target.
	Name string `yaml:"name"`
	// Targets are gRPC targets: host:port, dns:///host:port, unix:/path, or one xds:///service; calls go round robin over those that are healthy.
	Targets []string `yaml:"targets"`
	// Descriptors are files with descriptor sets or buf images. They supply comments, and the contract where the server has no reflection.
	Descriptors []string `yaml:"descriptors"`
	// TLS is how to reach the targets; none means plaintext.
	TLS *TLS `yaml:"tls"`
	// Services, if not empty, are the full names of the services that this backend may bring.
	Services []string `yaml:"services"`
	// ToolPrefix is put before the backend's tool names, with an underscore between.
	ToolPrefix string `yaml:"tool_prefix"`
	// Failover is the name of a second backend with the same contract, which takes the calls that this one provably has not executed.
	Failover string `yaml:"failover"`
	// Tenants, if not empty, are whose the backend is: no other tenant knows of its methods.
	Tenants Strings `yaml:"tenants"`
	// MaxMessageBytes bounds one message from the backend. Default 64 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// MaxConnections bounds the connections to each target, those for unary calls and those for streams together. Default 32, at least 2.
	MaxConnections int `yaml:"max_connections"`
	// Credentials are what the backend is told of who calls. Default: nothing.
	Credentials *BackendCredentials `yaml:"credentials"`
}

// TLS is how to reach a backend with TLS.
type TLS struct {
	// CA is a PEM file of roots. Default: the system's.
	CA string `yaml:"ca"`
	// Cert and Key are PEM files of the mesh's own certificate, for mTLS.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is what the backend's certificate must be for. Default: the target's host.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate. Only for tests.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
	// AllowNoALPN accepts servers and balancers that do not negotiate h2 by ALPN.
	AllowNoALPN bool `yaml:"allow_no_alpn"`
}

// GRPC is the gRPC door.
type GRPC struct {
	// Addr is host:port, or "off". Default 127.0.0.1:7070.
	Addr string `yaml:"addr"`
	// MaxMessageBytes bounds one request message, after decompression. Default 16 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// TLS is how to serve with TLS; none means plaintext.
	TLS *ServerTLS `yaml:"tls"`
}

// HTTP is the listener of the HTTP and MCP doors.
type HTTP struct {
	// Addr is host:port, or "off". Default 127.0.0.1:8080.
	Addr string `yaml:"addr"`
	// AllowedHosts are further Host names that a loopback listener accepts, or, on another listener, all that it accepts (none: any).
	AllowedHosts []string `yaml:"allowed_hosts"`
	// AllowedOrigins are the origins of browser pages, besides the mesh's own, that may call: "https://console.example.com".
	AllowedOrigins []string `yaml:"allowed_origins"`
	// MaxBodyBytes bounds one request body. Default 4 MiB.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
	// Heartbeat is how often a silent event stream gets a comment. Default 15s.
	Heartbeat Duration `yaml:"heartbeat"`
	// Reconnect is what event streams tell their readers to wait before they come back, each up to twice as long. Default 2s.
	Reconnect Duration `yaml:"reconnect"`
	// TLS is how to serve with TLS; none means plaintext.
	TLS *ServerTLS `yaml:"tls"`
	// PublicURL is scheme and host by which clients know the mesh: "https://tools.example.com". Default: as each request has it.
	PublicURL string `yaml:"public_url"`
}

// MCP is the MCP door.
type MCP struct {
	// Sessions keeps a session per client for protocol versions before 2026-07-28. Default: none is needed.
	Sessions bool `yaml:"sessions"`
	// Profile is the subset of JSON Schema that tools are listed with: "portable", "full" or "strict". Default portable.
	Profile string `yaml:"profile"`
	// StreamAge is how long the stream of a call in a session stays open before the client is asked to come back for the rest, for proxies
	// that cut long streams; only with sessions, and for 2025-11-25. Default: until the call has ended.
	StreamAge Duration `yaml:"stream_age"`
	// StateKeyFile is a file of 32 random bytes or more that seals what clients of 2026-07-28 carry between the rounds of a call that asks
	// for input. Instances that share clients need the same one. Default: a random key that ends with the process.
	StateKeyFile string `yaml:"state_key_file"`
	// View is the view that /mcp and stdio show. Default: every tool.
	View string `yaml:"view"`
	// Views are further endpoints, /mcp/{name}, with some of the tools each. The view "search" is always there.
	Views []View `yaml:"views"`
}

// Admin is the operator's listener.
type Admin struct {
	// Addr is host:port on a loopback address, or "off". Default 127.0.0.1:8081.
	Addr string `yaml:"addr"`
	// Pprof serves /debug/pprof/ too.
	Pprof bool `yaml:"pprof"`
}

// Metadata says what crosses from callers to backends.
type Metadata struct {
	// Allow are further metadata keys, or patterns with "*", that may cross. Credentials and identity never do.
	Allow []string `yaml:"allow"`
}

// Deadline bounds calls.
type Deadline struct {
	// Default is the deadline of a unary call that brings none. Default 60s.
	Default Duration `yaml:"default"`
	// Max caps the deadline of every unary call. Default 10m.
	Max Duration `yaml:"max"`
	// StreamMax caps streaming calls. Default: no cap.
	StreamMax Duration `yaml:"stream_max"`
	// Reserve is kept back for the way home: the backend gets what remains less this. Default 5ms.
	Reserve Duration `yaml:"reserve"`
}

// Log is the log on standard error.
type Log struct {
	// Format is "text" or "json". Default: text on a terminal, else json.
	Format string `yaml:"format"`
	// Level is "debug", "info", "warn" or "error". Default info.
	Level string `yaml:"level"`
}

// Trace is where spans go.
type Trace struct {
	// OTLP is the host:port or URL of an OTLP/gRPC collector. Default: no spans are made; trace ids are passed on all the same.
	OTLP string `yaml:"otlp"`
	// SampleRatio is the share of new traces that are recorded, 0 to 1. A caller's decision stands. Default 1.
	SampleRatio *float64 `yaml:"sample_ratio"`
}

var backendName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Normalise fills in defaults and refuses contradictions.
func (c *Config) Normalise() error {
	or := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
	}
	or(&c.GRPC.Addr, "127.0.0.1:7070")
	or(&c.HTTP.Addr, "127.0.0.1:8080")
	or(&c.Admin.Addr, "127.0.0.1:8081")
	or(&c.Log.Level, "info")
	or(&c.MCP.Profile, toolschema.Portable.String())
	orDuration := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	orDuration(&c.Drain, 25*time.Second)
	orDuration(&c.Deadline.Default, time.Minute)
	orDuration(&c.Deadline.Max, 10*time.Minute)
	orDuration(&c.Deadline.Reserve, 5*time.Millisecond)
	if c.Deadline.Default > c.Deadline.Max {
		return fmt.Errorf("deadline.default %s is above deadline.max %s: lower the one or raise the other", time.Duration(c.Deadline.Default), time.Duration(c.Deadline.Max))
	}
	if c.GRPC.MaxMessageBytes == 0 {
		c.GRPC.MaxMessageBytes = 16 << 20
	}
	if err := c.Cache.normalise(); err != nil {
		return err
	}
	if err := c.Results.normalise(); err != nil {
		return err
	}
	if err := c.Tasks.normalise(); err != nil {
		return err
	}
	if err := c.Idempotency.normalise(); err != nil {
		return err
	}
	if err := c.Approvals.normalise(c.HTTP.Addr); err != nil {
		return err
	}
	if r := c.Trace.SampleRatio; r != nil && (*r < 0 || *r > 1) {
		return fmt.Errorf("trace.sample_ratio %v is not between 0 and 1", *r)
	}
	seen := map[string]bool{}
	for i := range c.Backends {
		b := &c.Backends[i]
		if b.Name == "" && len(b.Targets) > 0 {
			b.Name = NameOf(b.Targets[0])
		}
		if !backendName.MatchString(b.Name) {
			return fmt.Errorf("backend name %q: want lower-case letters, digits and dashes, at most 63", b.Name)
		}
		if b.Name == own {
			return fmt.Errorf("backend name %q is the mesh's own: choose another", own)
		}
		if seen[b.Name] {
			return fmt.Errorf("two backends are named %q: rename one, or list its address under targets of the other", b.Name)
		}
		seen[b.Name] = true
		if b.MaxConnections < 0 || b.MaxConnections == 1 {
			return fmt.Errorf("backend %q: max_connections %d: want at least 2, one for unary calls and one for streams; leave it out for 32", b.Name, b.MaxConnections)
		}
		if len(b.Targets) == 0 && len(b.Descriptors) == 0 {
			return fmt.Errorf("backend %q has no targets: say where it is, as host:port", b.Name)
		}
		for _, t := range b.Targets {
			if err := checkTarget(t); err != nil {
				return fmt.Errorf("backend %q: %w", b.Name, err)
			}
		}
	}
	if err := c.DataFlow.normalise(c.Backends); err != nil {
		return err
	}
	for _, l := range []struct{ name, addr string }{{"grpc", c.GRPC.Addr}, {"http", c.HTTP.Addr}, {"admin", c.Admin.Addr}} {
		if l.addr == Off {
			continue
		}
		if err := checkListen(l.addr); err != nil {
			return fmt.Errorf("%s address %q: %w", l.name, l.addr, err)
		}
	}
	switch {
	case c.Admin.Addr != Off && !loopback(c.Admin.Addr):
		return fmt.Errorf("admin address %q is not a loopback address, and the admin listener has no authentication: use 127.0.0.1:8081, or \"off\"", c.Admin.Addr)
	case c.Admin.Addr == Off && c.Admin.Pprof:
		return errors.New("pprof is served on the admin address, which is off: give it one, or drop pprof")
	case c.GRPC.MaxMessageBytes < 0, c.HTTP.MaxBodyBytes < 0:
		return errors.New("grpc.max_message_bytes and http.max_body_bytes: a limit cannot be negative; leave it out for the default")
	}
	if _, err := toolschema.ParseProfile(c.MCP.Profile); err != nil {
		return fmt.Errorf("mcp.profile: %w", err)
	}
	if err := c.MCP.normaliseViews(); err != nil {
		return err
	}
	if err := c.MCP.normalise(); err != nil {
		return err
	}
	if err := c.normalisePolicy(); err != nil {
		return err
	}
	if err := c.Attempts.normalise(c.Backends); err != nil {
		return err
	}
	if _, err := c.Rules.set(c.Backends); err != nil {
		return err
	}
	if err := c.Store.normalise(c.Data); err != nil {
		return err
	}
	if err := c.Audit.normalise(c.Data != "" || c.Store.NATS != ""); err != nil {
		return err
	}
	if err := c.normaliseAuth(); err != nil {
		return err
	}
	if err := c.Limits.normalise(); err != nil {
		return err
	}
	return c.checkLists()
}

// checkLists refuses entries that would never match anything.
func (c *Config) checkLists() error {
	for _, o := range c.HTTP.AllowedOrigins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || strings.Contains(o, "*") || strings.Trim(u.Path, "/") != "" {
			return fmt.Errorf("http.allowed_origins: %q is not an origin: write scheme and host, such as https://console.example.com; there are no wildcards", o)
		}
	}
	for _, k := range c.Metadata.Allow {
		if err := call.CheckAllow(k); err != nil {
			return fmt.Errorf("metadata.allow: %w", err)
		}
	}
	for _, h := range c.HTTP.AllowedHosts {
		if h == "" || strings.ContainsAny(h, "/*@ ") {
			return fmt.Errorf("http.allowed_hosts: %q is not a host name: write it as in tools.example.com, without scheme or path; there are no wildcards", h)
		}
	}
	return nil
}

// checkListen wants host:port with a number as port; an empty host means all addresses.
func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New(`want host:port, such as 127.0.0.1:8080, or "off"`)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0, which takes a free one, to 65535", port)
	}
	return nil
}

// Off is the address of a listener that is not wanted.
const Off = "off"

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// checkTarget refuses what gRPC would only complain about much later.
func checkTarget(t string) error {
	const want = "want host:port, dns:///host:port or unix:/path"
	if t == "" {
		return errors.New("empty target: " + want)
	}
	if strings.ContainsAny(t, " \t\n=") && !strings.HasPrefix(t, "unix") {
		return fmt.Errorf("target %q: %s; a backend's name is lower-case letters, digits and dashes", t, want)
	}
	scheme, rest, ok := strings.Cut(t, ":")
	switch {
	case !ok:
	case scheme == "unix", scheme == "unix-abstract":
		if strings.Trim(rest, "/") == "" {
			return fmt.Errorf("target %q has no path: %s", t, want)
		}
		return nil
	case scheme == "dns", scheme == "passthrough":
		_, rest, _ = strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		if rest == "" {
			return fmt.Errorf("target %q has no host: write %s:///host:port", t, scheme)
		}
		return nil
	case scheme == "xds":
		if _, name, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/"); name == "" {
			return fmt.Errorf("target %q has no service: write xds:///service, as the control plane calls it", t)
		}
		return nil
	case strings.HasPrefix(rest, "//"):
		return fmt.Errorf("target %q: scheme %q is not served: %s", t, scheme, want)
	}
	host, port, err := net.SplitHostPort(t)
	if err != nil || port == "" {
		return fmt.Errorf("target %q has no port: %s", t, want)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("target %q: port %q is not a number from 1 to 65535", t, port)
	}
	if host == "" {
		return fmt.Errorf("target %q has no host: for this machine write 127.0.0.1%s", t, t)
	}
	return nil
}

var unsafeInName = regexp.MustCompile(`[^a-z0-9]+`)

// NameOf makes a backend name from a target: "dns:///orders.internal:50051" becomes "orders-internal-50051".
func NameOf(target string) string {
	t := target
	if _, rest, ok := strings.Cut(t, "://"); ok {
		t = strings.TrimLeft(rest, "/")
		if i := strings.LastIndex(t, "/"); i >= 0 {
			t = t[i+1:]
		}
	}
	t = strings.Trim(unsafeInName.ReplaceAllString(strings.ToLower(t), "-"), "-")
	if len(t) > 63 {
		t = strings.Trim(t[len(t)-63:], "-")
	}
	if t == "" {
		return "backend"
	}
	return t
}

// ParseBackend reads a --backend value: TARGET or NAME=TARGET. A target that begins with grpcs:// or https:// is reached by TLS with the
// system's roots.
func ParseBackend(v string) (Backend, error) {
	var b Backend
	target := v
	if name, rest, ok := strings.Cut(v, "="); ok && backendName.MatchString(name) {
		b.Name, target = name, rest
	}
	for _, p := range []string{"grpcs://", "https://"} {
		if rest, ok := strings.CutPrefix(target, p); ok {
			target, b.TLS = strings.TrimSuffix(rest, "/"), &TLS{}
		}
	}
	for _, p := range []string{"grpc://", "http://"} {
		if rest, ok := strings.CutPrefix(target, p); ok {
			target = strings.TrimSuffix(rest, "/")
		}
	}
	if err := checkTarget(target); err != nil {
		return b, err
	}
	b.Targets = []string{target}
	if b.Name == "" {
		b.Name = NameOf(target)
	}
	return b, nil
}

// AddBackend adds b, or its targets to the backend that has its name.
func (c *Config) AddBackend(b Backend) error {
	for i := range c.Backends {
		if have := &c.Backends[i]; have.Name == b.Name {
			if (have.TLS == nil) != (b.TLS == nil) && len(have.Targets) > 0 {
				return fmt.Errorf("backend %q has targets with and without TLS: name them as two backends", b.Name)
			}
			have.Targets = append(have.Targets, b.Targets...)
			return nil
		}
	}
	c.Backends = append(c.Backends, b)
	return nil
}

// AddDescriptors adds a --descriptors value: NAME=FILE, or FILE, which belongs to the one backend that has targets, or is a backend of its
// own, named after the file, where none has.
func (c *Config) AddDescriptors(v string) error {
	name, file, ok := strings.Cut(v, "=")
	if !ok || !backendName.MatchString(name) {
		file = v
		var servers []string
		for _, b := range c.Backends {
			if len(b.Targets) > 0 {
				servers = append(servers, b.Name)
			}
		}
		switch len(servers) {
		case 0:
			name = NameOf(strings.TrimSuffix(filepath.Base(v), filepath.Ext(v)))
		case 1:
			name = servers[0]
		default:
			return fmt.Errorf("--descriptors %q: there are %d backends; say whose it is, as NAME=FILE", v, len(servers))
		}
	}
	for i := range c.Backends {
		if c.Backends[i].Name == name {
			c.Backends[i].Descriptors = append(c.Backends[i].Descriptors, file)
			return nil
		}
	}
	c.Backends = append(c.Backends, Backend{Name: name, Descriptors: []string{file}})
	return nil
}
