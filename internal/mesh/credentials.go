package mesh

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/jwks"
)

// backendCredentials tell each backend on whose behalf the mesh calls it, by the backend's name.
type backendCredentials map[string]credential

// credential makes the metadata for one backend.
type credential func(ctx context.Context, c *call.Call) ([]string, error)

// Credential returns metadata for one attempt, as the router asks for it.
func (b backendCredentials) Credential(ctx context.Context, c *call.Call) ([]string, error) {
	made := b[call.Target(ctx, c)]
	if made == nil {
		return nil, nil
	}
	return made(ctx, c)
}

// openCredentials reads keys and secrets. The minter is nil if no backend needs it.
func (m *Mesh) openCredentials() (backendCredentials, error) {
	out := backendCredentials{}
	if c := m.config.Credentials; m.config.mints() {
		file := ""
		if m.config.Data != "" && len(c.Keys) == 0 {
			file = filepath.Join(m.config.Data, "keys", "mint.json")
		}
		var err error
		m.minter, err = identity.NewMinter(identity.MinterConfig{
			Issuer: c.Issuer, TTL: time.Duration(c.TTL), Algorithm: c.Algorithm, Rotate: time.Duration(c.Rotate), File: file, Keys: c.Keys, Logger: m.log,
		})
		if err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
	}
	for _, b := range m.config.Backends {
		if b.Credentials == nil {
			continue
		}
		made, err := m.credential(b.Credentials)
		if err != nil {
			return nil, fmt.Errorf("backend %q: credentials: %w", b.Name, err)
		}
		out[b.Name] = made
		if b.TLS == nil && !b.local() {
			m.log.Warn("credentials go to a backend without TLS: whoever can listen on the way can use them", "backend", b.Name)
		}
	}
	return out, nil
}

// local says whether all targets are on this machine.
func (b *Backend) local() bool {
	for _, t := range b.Targets {
		_, rest, _ := strings.Cut(t, ":///")
		if !strings.HasPrefix(t, "unix") && !loopback(t) && !loopback(rest) {
			return false
		}
	}
	return true
}

func (m *Mesh) credential(b *BackendCredentials) (credential, error) {
	switch {
	case b.Mint != nil:
		return m.minted(b.Mint.Audience), nil
	case b.Exchange != nil:
		return m.exchanged(b.Exchange)
	}
	return static(b.Static)
}

// minted is a JWT for the one call: it names the method and the scopes that the method needs, which the caller has.
func (m *Mesh) minted(audience string) credential {
	return func(_ context.Context, c *call.Call) ([]string, error) {
		token, err := m.minter.Mint(identity.Grant{Audience: audience, Method: c.Method.FullMethod, Principal: c.Principal, Scopes: c.Method.Policy.Scopes, Call: c.ID})
		if err != nil {
			return nil, err
		}
		return []string{"authorization", "Bearer " + token}, nil
	}
}

func (m *Mesh) exchanged(e *ExchangeCredential) (credential, error) {
	conf := identity.ExchangerConfig{
		Endpoint: e.Endpoint, Audience: e.Audience, Resource: e.Resource, Scope: e.Scope, ClientID: e.ClientID, SecretFile: e.SecretFile, KeyFile: e.KeyFile, Logger: m.log,
	}
	if e.CA != "" {
		t, err := transportWithRoots(e.CA)
		if err != nil {
			return nil, fmt.Errorf("exchange: ca: %w", err)
		}
		conf.Client = jwks.NewClient(t)
	}
	x, err := identity.NewExchanger(conf)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return func(ctx context.Context, c *call.Call) ([]string, error) {
		token, err := x.Exchange(ctx, c.Credentials.Bearer)
		if err != nil {
			return nil, err
		}
		return []string{"authorization", "Bearer " + token}, nil
	}, nil
}

// static is the same for all callers. Files are read again, so that a secret can be changed without a restart.
func static(all []StaticCredential) (credential, error) {
	s := &staticValues{all: all}
	if err := s.read(); err != nil {
		return nil, err
	}
	return func(context.Context, *call.Call) ([]string, error) { return s.pairs(), nil }, nil
}

type staticValues struct {
	all []StaticCredential

	mu   sync.Mutex
	now  []string
	when time.Time
}

func (s *staticValues) pairs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.when) > filesEvery {
		s.when = time.Now()
		_ = s.read() // what was read before stands
	}
	return s.now
}

func (s *staticValues) read() error {
	var pairs []string
	for _, c := range s.all {
		value := os.Getenv(c.Env)
		if c.File != "" {
			text, err := os.ReadFile(c.File)
			if err != nil {
				return fmt.Errorf("static: key %q: %w", c.Key, err)
			}
			value = strings.TrimSpace(string(text))
		}
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("static: key %q: the value is empty, or has more than printable letters", c.Key)
		}
		pairs = append(pairs, c.Key, c.Prefix+value)
	}
	s.now, s.when = pairs, time.Now()
	return nil
}
