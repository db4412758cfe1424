package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
)

// Config says which credentials are taken. It needs at least one way.
type Config struct {
	// Issuers are those whose JWT access tokens are taken.
	Issuers []Issuer
	// APIKeys are the keys that are taken.
	APIKeys []APIKey
	// Certificates say which callers verified client certificates name; the first that matches does.
	Certificates []Certificate
	// MaxVerifying bounds the signature checks at a time; further ones are refused as UNAVAILABLE at once. Credentials that were verified a
	// moment ago need none. Default 256.
	MaxVerifying int
	// Logger gets what callers are not told. Default slog.Default().
	Logger *slog.Logger
}

// Authenticator says who brings credentials. It is safe for concurrent use; Close ends it.
type Authenticator struct {
	issuers map[string]*issuer
	keys    apiKeys
	certs   []Certificate
	cache   *tokenCache // tokens that were found good
	seen    *tokenCache // certificates, also of nobody
	slots   chan struct{}
	logger  *slog.Logger
}

// New returns an authenticator. It reaches for no issuer yet. The error says which entry is wrong, and how to mend it.
func New(c Config) (*Authenticator, error) {
	if len(c.Issuers)+len(c.APIKeys)+len(c.Certificates) == 0 {
		return nil, errors.New("no way to authenticate: configure an issuer, an API key or a certificate")
	}
	if c.MaxVerifying <= 0 {
		c.MaxVerifying = 256
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	a := &Authenticator{issuers: map[string]*issuer{}, cache: newTokenCache(), seen: newTokenCache(), slots: make(chan struct{}, max(c.MaxVerifying, runtime.GOMAXPROCS(0))), logger: c.Logger}
	var err error
	if a.keys, err = newAPIKeys(c.APIKeys); err != nil {
		return nil, err
	}
	if a.certs, err = checkCertificates(c.Certificates); err != nil {
		return nil, err
	}
	for _, i := range c.Issuers {
		made, err := newIssuer(i)
		if err == nil && a.issuers[i.URL] != nil {
			err = errors.New("it is configured twice: join the entries")
		}
		if err != nil {
			a.Close()
			return nil, &ConfigError{Issuer: i.URL, Err: err}
		}
		a.issuers[i.URL] = made
	}
	return a, nil
}

// ConfigError is what is wrong with an issuer's entry.
type ConfigError struct {
	Issuer string
	Err    error
}

// Error names the issuer.
func (e *ConfigError) Error() string { return fmt.Sprintf("issuer %q: %v", e.Issuer, e.Err) }

// Unwrap returns what is wrong with it.
func (e *ConfigError) Unwrap() error { return e.Err }

// Close ends what runs in the background, and waits for it.
func (a *Authenticator) Close() {
	for _, i := range a.issuers {
		i.keys.Close()
	}
}

// Authenticate returns who brings c. Of several credentials all must be good and name the same caller; a client certificate that names no
// caller counts only if there is nothing else. The error is UNAUTHENTICATED, or UNAVAILABLE if nothing is known of the credentials yet.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (*Principal, error) {
	if c.Malformed {
		return nil, errMalformed
	}
	var found *Principal
	agree := func(p *Principal) bool {
		if found == nil {
			found = p
		}
		return found.ID == p.ID && found.Tenant == p.Tenant
	}
	if c.Bearer != "" {
		p, err := a.bearer(ctx, c)
		if err != nil {
			return nil, err
		}
		found = p
	}
	if c.APIKey != "" {
		p, err := a.keys.find(c.APIKey)
		if err != nil {
			return nil, err
		}
		if !agree(p) {
			return nil, errAmbiguous
		}
	}
	switch p := a.certificate(c.TLS); {
	case p != nil && !agree(p):
		return nil, errAmbiguous
	case found != nil:
		return found, nil
	case p == nil && !c.None() && len(a.certs) > 0:
		return nil, errCertificate
	}
	if c.Environment {
		return nil, errMissingEnvironment
	}
	return nil, errMissing
}

// bearer authenticates a bearer token: an access token, or an API key for clients that can only send that header.
func (a *Authenticator) bearer(ctx context.Context, c Credentials) (*Principal, error) {
	if strings.HasPrefix(c.Bearer, KeyPrefix) && len(a.keys) > 0 {
		return a.keys.find(c.Bearer)
	}
	if len(a.issuers) == 0 {
		return nil, errNoTokens
	}
	return a.token(ctx, c)
}

// normaliseScopes sorts them, without duplicates.
func normaliseScopes(scopes []string) []string {
	out := slices.Clone(scopes)
	slices.Sort(out)
	return slices.Compact(out)
}
