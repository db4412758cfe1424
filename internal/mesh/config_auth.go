package mesh

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/jwks"
)

// Auth says which credentials of callers are taken. None of the ways means that nobody is asked, which only loopback listeners may do.
type Auth struct {
	// JWT are the authorization servers whose access tokens are taken.
	JWT []JWTIssuer `yaml:"jwt"`
	// APIKeys are the keys that are taken, by their hashes.
	APIKeys []APIKey `yaml:"api_keys"`
	// Certificates say which callers client certificates name; the first that fits does. They need client_ca at a listener.
	Certificates []Certificate `yaml:"certificates"`
	// Scopes are those that clients should ask for at first; more are asked for when a method needs them.
	Scopes []string `yaml:"scopes"`
	// AllowAnonymous serves other machines without asking who calls. Default: refused.
	AllowAnonymous bool `yaml:"allow_anonymous"`
	// MaxVerifying bounds the signature checks at a time. Default 256.
	MaxVerifying int `yaml:"max_verifying"`
}

// JWTIssuer is an authorization server.
type JWTIssuer struct {
	// Issuer is its URL, exactly as tokens have it.
	Issuer string `yaml:"issuer"`
	// Audiences are those of which a token must be for one, such as the mesh's public URL with /mcp. Required.
	Audiences []string `yaml:"audiences"`
	// Algorithms are those that tokens may be signed with. Default: all asymmetric ones.
	Algorithms []string `yaml:"algorithms"`
	// Types are the "typ" headers that are taken. Default: at+jwt, JWT and none.
	Types []string `yaml:"types"`
	// JWKS is the URL of the keys. Default: discovered.
	JWKS string `yaml:"jwks"`
	// ScopeClaims hold the scopes. Default: scope and scp.
	ScopeClaims []string `yaml:"scope_claims"`
	// TenantClaim names the tenant; tokens without it are refused.
	TenantClaim string `yaml:"tenant_claim"`
	// Tenant is the tenant of all its callers, in place of TenantClaim.
	Tenant string `yaml:"tenant"`
	// ClockSkew is by how much its clock may differ, at most 5m. Default 30s.
	ClockSkew Duration `yaml:"clock_skew"`
	// CA is a PEM file of roots for its certificate. Default: the system's.
	CA string `yaml:"ca"`
}

// APIKey is a key that is taken.
type APIKey struct {
	// Name is the caller's: its principal is "key:NAME".
	Name string `yaml:"name"`
	// SHA256 is the hash of the key in hex; toolway key new prints it.
	SHA256 string `yaml:"sha256"`
	// Tenant is whom the caller acts for.
	Tenant string `yaml:"tenant"`
	// Scopes are what the caller may do.
	Scopes []string `yaml:"scopes"`
	// Expires is a date, 2027-01-31, or a time, 2027-01-31T12:00:00Z. Default: never.
	Expires string `yaml:"expires"`

	expires time.Time
}

// Certificate says which caller a client certificate names.
type Certificate struct {
	// SAN is the URI or DNS name in it; "*" stands for one part.
	SAN string `yaml:"san"`
	// Tenant is whom the caller acts for.
	Tenant string `yaml:"tenant"`
	// Scopes are what the caller may do.
	Scopes []string `yaml:"scopes"`
}

// asks says whether callers have to say who they are.
func (a *Auth) asks() bool { return len(a.JWT)+len(a.APIKeys)+len(a.Certificates) > 0 }

func (c *Config) normaliseAuth() error {
	a := &c.Auth
	for i := range a.APIKeys {
		k := &a.APIKeys[i]
		var err error
		if k.expires, err = parseExpires(k.Expires); err != nil {
			return fmt.Errorf("auth.api_keys: %q: %w", k.Name, err)
		}
	}
	for _, s := range a.Scopes {
		if !identity.IsScope(s) {
			return fmt.Errorf("auth.scopes: %q is not a scope: want printable letters without spaces", s)
		}
	}
	verifies := c.GRPC.TLS != nil && c.GRPC.TLS.ClientCA != "" || c.HTTP.TLS != nil && c.HTTP.TLS.ClientCA != ""
	switch {
	case a.AllowAnonymous && a.asks():
		return errors.New("auth.allow_anonymous contradicts the ways to authenticate beside it: keep one or the other")
	case len(a.Certificates) > 0 && !verifies:
		return errors.New("auth.certificates: no listener verifies client certificates: set grpc.tls.client_ca or http.tls.client_ca")
	case a.MaxVerifying < 0:
		return errors.New("auth.max_verifying: a limit cannot be negative; leave it out for the default")
	}
	if err := c.GRPC.TLS.check("grpc"); err != nil {
		return err
	}
	if err := c.HTTP.TLS.check("http"); err != nil {
		return err
	}
	if err := c.HTTP.checkPublicURL(); err != nil {
		return err
	}
	return c.normaliseCredentials()
}

// checkAnonymous refuses to serve other machines without asking who calls, unless the operator says so.
func (c *Config) checkAnonymous() error {
	if c.Auth.asks() || c.Auth.AllowAnonymous {
		return nil
	}
	for _, l := range []struct{ name, addr string }{{"grpc", c.GRPC.Addr}, {"http", c.HTTP.Addr}} {
		if l.addr != Off && !loopback(l.addr) {
			return fmt.Errorf("%s address %q is open to other machines, and nobody is asked who calls: configure auth (toolway key new makes an API key and its entry), "+
				"or listen on 127.0.0.1, or say that everybody may do everything with --allow-anonymous", l.name, l.addr)
		}
	}
	return nil
}

func parseExpires(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("expires %q is no date: write it as 2027-01-31 or 2027-01-31T12:00:00Z", s)
}

// ServerTLS is how a listener serves with TLS. Files that change are read again.
type ServerTLS struct {
	// Cert and Key are PEM files of the listener's certificate. Required.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ClientCA is a PEM file of roots of client certificates. Default: none are asked for.
	ClientCA string `yaml:"client_ca"`
	// RequireClientCert refuses connections without one.
	RequireClientCert bool `yaml:"require_client_cert"`
}

func (t *ServerTLS) check(listener string) error {
	switch {
	case t == nil:
		return nil
	case t.Cert == "" || t.Key == "":
		return fmt.Errorf("%s.tls: cert and key are required: name the listener's PEM files", listener)
	case t.RequireClientCert && t.ClientCA == "":
		return fmt.Errorf("%s.tls: require_client_cert needs client_ca, the roots of the certificates that are taken", listener)
	}
	return nil
}

func (h *HTTP) checkPublicURL() error {
	if h.PublicURL == "" {
		return nil
	}
	h.PublicURL = strings.TrimSuffix(h.PublicURL, "/")
	u, err := url.Parse(h.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("http.public_url: %q: want scheme and host by which clients know the mesh, such as https://tools.example.com", h.PublicURL)
	}
	return nil
}

// resource is how the HTTP doors tell clients where to get credentials.
func (c *Config) resource() *identity.Resource {
	r := &identity.Resource{PublicURL: c.HTTP.PublicURL, Scopes: c.Auth.Scopes}
	for _, j := range c.Auth.JWT {
		r.Issuers = append(r.Issuers, j.Issuer)
	}
	return r
}

// open returns what the identity package needs of it.
func (a *Auth) open() (identity.Config, error) {
	out := identity.Config{MaxVerifying: a.MaxVerifying}
	for _, j := range a.JWT {
		issuer := identity.Issuer{
			URL: j.Issuer, Audiences: j.Audiences, Algorithms: j.Algorithms, Types: j.Types, JWKS: j.JWKS,
			ScopeClaims: j.ScopeClaims, TenantClaim: j.TenantClaim, Tenant: j.Tenant, ClockSkew: time.Duration(j.ClockSkew),
		}
		if j.CA != "" {
			t, err := transportWithRoots(j.CA)
			if err != nil {
				return out, fmt.Errorf("auth.jwt: issuer %q: ca: %w", j.Issuer, err)
			}
			issuer.Client = jwks.NewClient(t)
		}
		out.Issuers = append(out.Issuers, issuer)
	}
	for _, k := range a.APIKeys {
		out.APIKeys = append(out.APIKeys, identity.APIKey{Name: k.Name, SHA256: k.SHA256, Tenant: k.Tenant, Scopes: k.Scopes, Expires: k.expires})
	}
	for _, cert := range a.Certificates {
		out.Certificates = append(out.Certificates, identity.Certificate{SAN: cert.SAN, Tenant: cert.Tenant, Scopes: cert.Scopes})
	}
	return out, nil
}

// relative makes the paths in the configuration relative to a file's directory.
func (c *Config) relativeAuth(dir string) {
	for i := range c.Auth.JWT {
		c.Auth.JWT[i].CA = relativeTo(dir, c.Auth.JWT[i].CA)
	}
	for _, t := range []*ServerTLS{c.GRPC.TLS, c.HTTP.TLS} {
		if t != nil {
			t.Cert, t.Key, t.ClientCA = relativeTo(dir, t.Cert), relativeTo(dir, t.Key), relativeTo(dir, t.ClientCA)
		}
	}
	for i := range c.Credentials.Keys {
		c.Credentials.Keys[i] = relativeTo(dir, c.Credentials.Keys[i])
	}
	for _, b := range c.Backends {
		if b.Credentials == nil {
			continue
		}
		if e := b.Credentials.Exchange; e != nil {
			e.SecretFile, e.KeyFile, e.CA = relativeTo(dir, e.SecretFile), relativeTo(dir, e.KeyFile), relativeTo(dir, e.CA)
		}
		for i := range b.Credentials.Static {
			s := &b.Credentials.Static[i]
			s.File = relativeTo(dir, s.File)
		}
	}
}

// Credentials say how the credentials are minted by which backends know on whose behalf the mesh calls.
type Credentials struct {
	// Issuer is the mesh's name, as backends are told. Default: http.public_url, else "toolway".
	Issuer string `yaml:"issuer"`
	// TTL is how long one holds, at most 1m. Default 30s.
	TTL Duration `yaml:"ttl"`
	// Algorithm is ES256 or EdDSA. Default ES256.
	Algorithm string `yaml:"algorithm"`
	// Rotate is how often a new key takes over. Default 24h.
	Rotate Duration `yaml:"rotate"`
	// Keys are PEM files of private keys that several instances share: the first signs, all are published. Default: own ones, kept under data.
	Keys []string `yaml:"keys"`
}

// BackendCredentials say what a backend is told of who calls: one of the three, or nothing.
type BackendCredentials struct {
	// Mint gives a short-lived JWT of the mesh's own for each call.
	Mint *MintCredential `yaml:"mint"`
	// Exchange gives a token from an authorization server, in exchange for the caller's.
	Exchange *ExchangeCredential `yaml:"exchange"`
	// Static gives metadata that is the same for all callers.
	Static []StaticCredential `yaml:"static"`
}

// MintCredential is a backend's minted credential.
type MintCredential struct {
	// Audience is the backend's name as it knows itself. Default: its name here.
	Audience string `yaml:"audience"`
}

// ExchangeCredential is where a backend's token comes from (RFC 8693).
type ExchangeCredential struct {
	// Endpoint is the URL of the token endpoint.
	Endpoint string `yaml:"endpoint"`
	// Audience, Resource and Scope are asked for; one of the first two is required.
	Audience string `yaml:"audience"`
	Resource string `yaml:"resource"`
	Scope    string `yaml:"scope"`
	// ClientID is how the mesh is known there; SecretFile or KeyFile, a PEM file, proves it.
	ClientID   string `yaml:"client_id"`
	SecretFile string `yaml:"secret_file"`
	KeyFile    string `yaml:"key_file"`
	// CA is a PEM file of roots for its certificate. Default: the system's.
	CA string `yaml:"ca"`
}

// StaticCredential is metadata for a backend. The value comes from a file or the environment, never from the configuration itself.
type StaticCredential struct {
	// Key is the metadata key, such as x-api-key or authorization.
	Key string `yaml:"key"`
	// Prefix is put before the value, such as "Bearer ".
	Prefix string `yaml:"prefix"`
	// File or Env holds the value.
	File string `yaml:"file"`
	Env  string `yaml:"env"`
}

func (c *Config) normaliseCredentials() error {
	if c.Credentials.Issuer == "" {
		c.Credentials.Issuer = "toolway"
		if c.HTTP.PublicURL != "" {
			c.Credentials.Issuer = c.HTTP.PublicURL
		}
	}
	for i := range c.Backends {
		b := &c.Backends[i]
		if b.Credentials == nil {
			continue
		}
		if err := b.Credentials.normalise(b.Name); err != nil {
			return fmt.Errorf("backend %q: credentials: %w", b.Name, err)
		}
	}
	return nil
}

func (b *BackendCredentials) normalise(name string) error {
	ways := 0
	for _, there := range []bool{b.Mint != nil, b.Exchange != nil, len(b.Static) > 0} {
		if there {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("want one of mint, exchange and static; for mint with all defaults write mint: {}")
	}
	if b.Mint != nil && b.Mint.Audience == "" {
		b.Mint.Audience = name
	}
	for _, s := range b.Static {
		switch {
		case s.Key == "" || s.Key != strings.ToLower(s.Key) || strings.ContainsAny(s.Key, ": \t") || strings.HasPrefix(s.Key, "grpc-") || strings.HasSuffix(s.Key, "-bin"):
			return fmt.Errorf("static: key %q: want a metadata key in lower case, such as x-api-key", s.Key)
		case (s.File == "") == (s.Env == ""):
			return fmt.Errorf("static: key %q: give one of file and env, which holds the value", s.Key)
		case s.Env != "" && os.Getenv(s.Env) == "":
			return fmt.Errorf("static: key %q: the environment has no %s", s.Key, s.Env)
		}
	}
	return nil
}

// mints says whether any backend gets minted credentials.
func (c *Config) mints() bool {
	return slices.ContainsFunc(c.Backends, func(b Backend) bool { return b.Credentials != nil && b.Credentials.Mint != nil })
}
