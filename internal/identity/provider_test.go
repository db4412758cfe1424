package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/toolway/toolway/internal/identity"
)

// provider is an OpenID provider: discovery and keys over real HTTP, and tokens signed with them.
type provider struct {
	t       testing.TB
	url     string
	handler http.HandlerFunc
	fetches atomic.Int32
	down    atomic.Bool

	mu      sync.Mutex
	key     jose.JSONWebKey
	publish []jose.JSONWebKey
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{t: t}
	p.handler = func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.url, "jwks_uri": p.url + "/keys"})
		case "/keys":
			p.fetches.Add(1)
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: p.publish})
		default:
			http.NotFound(w, r)
		}
	}
	srv := httptest.NewServer(p.handler)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	p.rotate("one")
	return p
}

// inMemory is a client for tests in bubble time, where a socket would stop the clock.
func (p *provider) inMemory() *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		p.handler(rec, r)
		return rec.Result(), nil
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// rotate signs with a new key, and publishes it alone.
func (p *provider) rotate(kid string) {
	key := newKey(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = jose.JSONWebKey{Key: key, KeyID: kid, Algorithm: "ES256"}
	p.publish = []jose.JSONWebKey{p.key.Public()}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// claims are those of a good token, with changes; a nil value leaves one out.
func (p *provider) claims(changes map[string]any) map[string]any {
	now := time.Now()
	out := map[string]any{
		"iss": p.url, "sub": "alice", "aud": "https://mesh.example", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "scope": "logs:read orders:write",
	}
	for k, v := range changes {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// token returns a token of the provider.
func (p *provider) token(changes map[string]any) string {
	p.mu.Lock()
	key := p.key
	p.mu.Unlock()
	return sign(p.t, jose.ES256, key, "at+jwt", p.claims(changes), nil)
}

// sign returns a token with any key and header.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, typ string, claims any, header map[jose.HeaderKey]any) string {
	t.Helper()
	o := &jose.SignerOptions{}
	if typ != "" {
		o = o.WithType(jose.ContentType(typ))
	}
	for k, v := range header {
		o = o.WithHeader(k, v)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	body, ok := claims.(json.RawMessage) // to be signed as it is
	if !ok {
		if body, err = json.Marshal(claims); err != nil {
			t.Fatal(err)
		}
	}
	sig, err := s.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	token, err := sig.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func newAuthenticator(t testing.TB, c identity.Config) *identity.Authenticator {
	t.Helper()
	a, err := identity.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func (p *provider) issuer() identity.Issuer {
	return identity.Issuer{URL: p.url, Audiences: []string{"https://mesh.example"}}
}
