package dial

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// scheme is the resolver's that combines several targets.
const scheme = "toolway-several"

// checkTargets returns the targets in full form, with their scheme.
func checkTargets(cfg Config) ([]string, error) {
	if len(cfg.Targets) == 0 {
		return nil, fmt.Errorf("backend %q has no target; give one as host:port, dns:///host:port or unix:/path", cfg.Name)
	}
	out := make([]string, len(cfg.Targets))
	for i, t := range cfg.Targets {
		full, err := fullTarget(t)
		if err != nil {
			return nil, fmt.Errorf("backend %q: %w", cfg.Name, err)
		}
		out[i] = full
	}
	if err := checkAlone(out); err != nil {
		return nil, fmt.Errorf("backend %q: %w", cfg.Name, err)
	}
	return out, nil
}

func fullTarget(target string) (string, error) {
	if u, err := url.Parse(target); err == nil && u.Scheme != "" {
		if resolver.Get(u.Scheme) != nil {
			return target, nil
		}
		switch u.Scheme {
		case "http", "https", "grpc", "grpcs":
			return "", fmt.Errorf("target %q: a gRPC target has no %q scheme; write %q, and ask for TLS separately", target, u.Scheme, u.Host)
		}
		if strings.Contains(target, "://") {
			return "", fmt.Errorf("target %q: unknown scheme %q; use host:port, dns:///host:port or unix:/path", target, u.Scheme)
		}
	}
	if strings.HasPrefix(target, "/") {
		return "", fmt.Errorf("target %q is a path; write unix:%s for a socket", target, target)
	}
	if _, _, err := net.SplitHostPort(target); err != nil {
		return "", fmt.Errorf("target %q: want host:port: %w", target, err)
	}
	return "dns:///" + target, nil
}

// several resolves a fixed list of targets, each by its own scheme's resolver, and reports all their endpoints together.
type several struct {
	targets   []resolver.Target
	builders  []resolver.Builder
	authority string
}

func newSeveral(targets []string) *several {
	s := &several{}
	for _, t := range targets {
		u, err := url.Parse(t)
		if err != nil {
			continue // fullTarget has parsed it
		}
		s.targets = append(s.targets, resolver.Target{URL: *u})
		s.builders = append(s.builders, resolver.Get(u.Scheme))
	}
	s.authority = authorityOf(s.targets[0], s.builders[0])
	return s
}

func (s *several) target() string { return scheme + ":///" + url.PathEscape(s.authority) }

// Scheme returns the scheme under which grpc-go finds this builder.
func (s *several) Scheme() string { return scheme }

// OverrideAuthority returns the first target's.
func (s *several) OverrideAuthority(resolver.Target) string { return s.authority }

func authorityOf(t resolver.Target, b resolver.Builder) string {
	if o, ok := b.(resolver.AuthorityOverrider); ok {
		return o.OverrideAuthority(t)
	}
	return t.Endpoint()
}

// Build starts the resolver of every target.
func (s *several) Build(_ resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	m := &merged{cc: cc, parts: make([]*part, len(s.targets))}
	for i, t := range s.targets {
		m.parts[i] = &part{merged: m, serverName: authorityOf(t, s.builders[i]), name: t.Endpoint()}
	}
	for i, t := range s.targets {
		r, err := s.builders[i].Build(t, m.parts[i], opts)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("target %q: %w", t.String(), err)
		}
		m.mu.Lock()
		m.parts[i].resolver = r
		m.mu.Unlock()
	}
	return m, nil
}

// merged is the resolver of several targets.
type merged struct {
	cc resolver.ClientConn

	mu    sync.Mutex
	parts []*part
}

// part is one target's share; it is the resolver.ClientConn of that target's resolver.
type part struct {
	merged     *merged
	serverName string
	name       string // as configured, for messages

	// guarded by merged.mu
	resolver resolver.Resolver
	state    resolver.State
	err      error
	known    bool
}

// ResolveNow asks all targets' resolvers.
func (m *merged) ResolveNow(o resolver.ResolveNowOptions) {
	for _, r := range m.resolvers() {
		r.ResolveNow(o)
	}
}

// Close ends all targets' resolvers.
func (m *merged) Close() {
	for _, r := range m.resolvers() {
		r.Close()
	}
}

func (m *merged) resolvers() []resolver.Resolver {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []resolver.Resolver
	for _, p := range m.parts {
		if p.resolver != nil {
			out = append(out, p.resolver)
		}
	}
	return out
}

// report hands the endpoints of all targets on, as soon as one target has some: a name that does not resolve keeps the others from
// nothing. Only when none resolves is the error reported.
func (m *merged) report() error {
	m.mu.Lock()
	var state resolver.State
	var errs []error
	pending := false
	for _, p := range m.parts {
		state.Endpoints = append(state.Endpoints, p.state.Endpoints...)
		if p.err != nil {
			errs = append(errs, p.err)
		}
		pending = pending || !p.known
	}
	m.mu.Unlock()
	if len(state.Endpoints) > 0 {
		return m.cc.UpdateState(state)
	}
	if !pending {
		m.cc.ReportError(errors.Join(errs...))
	}
	return nil
}

// UpdateState takes the endpoints of this target; their certificates must be for this target's name.
func (p *part) UpdateState(state resolver.State) error {
	endpoints := state.Endpoints
	if len(endpoints) == 0 {
		for _, a := range state.Addresses {
			endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
		}
	}
	named := make([]resolver.Endpoint, len(endpoints))
	for i, e := range endpoints {
		e.Addresses = append([]resolver.Address(nil), e.Addresses...)
		for j := range e.Addresses {
			if e.Addresses[j].ServerName == "" {
				e.Addresses[j].ServerName = p.serverName
			}
		}
		named[i] = e
	}
	var err error
	if len(named) == 0 {
		err = noAddress(p.name)
	}
	p.merged.mu.Lock()
	p.state, p.err, p.known = resolver.State{Endpoints: named}, err, true
	p.merged.mu.Unlock()
	return p.merged.report()
}

// ReportError takes the failure to resolve this target.
func (p *part) ReportError(err error) {
	p.merged.mu.Lock()
	p.err, p.known = err, true // what was resolved before stays in use
	p.merged.mu.Unlock()
	_ = p.merged.report()
}

// NewAddress is what old resolvers call.
func (p *part) NewAddress(addrs []resolver.Address) {
	_ = p.UpdateState(resolver.State{Addresses: addrs})
}

// ParseServiceConfig is the connection's; service configs are switched off there.
func (p *part) ParseServiceConfig(json string) *serviceconfig.ParseResult {
	return p.merged.cc.ParseServiceConfig(json)
}
