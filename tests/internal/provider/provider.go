// Package provider runs a real OpenID provider, zitadel/oidc's, that gives out JWT access tokens by client credentials and token exchange.
package provider

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Audience is what tokens are for unless the test wants another.
const Audience = "https://mesh.test/mcp"

// Provider is a running provider.
type Provider struct {
	// URL is the issuer.
	URL string

	store *store
}

// New starts a provider for one test.
func New(t testing.TB) *Provider {
	t.Helper()
	var handler http.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	clients := map[string]*storage.Client{Mesh: storage.WebClient(Mesh, Secret)}
	p := &Provider{URL: srv.URL, store: &store{Storage: storage.NewStorageWithClients(storage.NewUserStore(srv.URL), clients), wants: map[string]Want{}}}
	if err := p.Rotate("first"); err != nil {
		t.Fatal(err)
	}
	made, err := op.NewProvider(&op.Config{CodeMethodS256: true}, p.store, op.StaticIssuer(srv.URL), op.WithAllowInsecure())
	if err != nil {
		t.Fatal(err)
	}
	handler = made
	return p
}

// Mesh and Secret are a client that may exchange tokens.
const (
	Mesh   = "mesh"
	Secret = "mesh-secret"
)

// Want is the token that a test wants.
type Want struct {
	Subject  string
	Audience string
	Scopes   []string
	// Lifetime is negative for a token that has expired.
	Lifetime time.Duration
}

// Token gets an access token from the token endpoint.
func (p *Provider) Token(t testing.TB, w Want) string {
	t.Helper()
	if w.Audience == "" {
		w.Audience = Audience
	}
	if w.Subject == "" {
		w.Subject = "alice"
	}
	if w.Lifetime == 0 {
		w.Lifetime = time.Hour
	}
	client := p.store.add(w)
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {strings.Join(w.Scopes, " ")}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(client, "secret")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.AccessToken == "" {
		t.Fatalf("token endpoint: %s %+v %v", res.Status, answer, err)
	}
	return answer.AccessToken
}

// Rotate makes the provider sign with a new key, and publish that alone.
func (p *Provider) Rotate(id string) error {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.key = &key{id, private}
	return nil
}

// PublicKey is the key that the provider publishes.
func (p *Provider) PublicKey() *rsa.PublicKey {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return &p.store.key.private.PublicKey
}

// KeyID is its id.
func (p *Provider) KeyID() string {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.store.key.id
}

// store is the example's storage, with keys that change and tokens as tests want them.
type store struct {
	*storage.Storage

	mu    sync.Mutex
	key   *key
	wants map[string]Want
}

func (s *store) add(w Want) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprintf("client-%d", len(s.wants))
	s.wants[id] = w
	return id
}

func (s *store) want(id string) (Want, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.wants[id]
	return w, ok
}

type key struct {
	id      string
	private *rsa.PrivateKey
}

// SignatureAlgorithm is how the key signs.
func (k *key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

// Key is the private key.
func (k *key) Key() any { return k.private }

// ID is the key's "kid".
func (k *key) ID() string { return k.id }

type publicKey struct{ *key }

// Algorithm is how the key verifies.
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }

// Use is that of signatures.
func (k publicKey) Use() string { return "sig" }

// Key is the public key.
func (k publicKey) Key() any { return &k.private.PublicKey }

// SigningKey returns the key of now.
func (s *store) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, nil
}

// KeySet returns it for publication.
func (s *store) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []op.Key{publicKey{s.key}}, nil
}

// client is one that gets JWTs by its credentials.
type client struct {
	*storage.Client
	id string
}

// GetID is the client's id.
func (c *client) GetID() string { return c.id }

// AccessTokenType makes all tokens JWTs.
func (c *client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

// GrantTypes are what the tests use.
func (c *client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeClientCredentials, oidc.GrantTypeTokenExchange}
}

// RestrictAdditionalAccessTokenScopes leaves all scopes in.
func (c *client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

// ClientCredentials knows the clients that Token has added.
func (s *store) ClientCredentials(_ context.Context, id, _ string) (op.Client, error) {
	if _, ok := s.want(id); !ok {
		return nil, errors.New("no such client")
	}
	return &client{storage.WebClient(id, "secret"), id}, nil
}

// GetClientByClientID makes the mesh's tokens JWTs too.
func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	if id == Mesh {
		return &client{storage.WebClient(id, Secret), id}, nil
	}
	return s.Storage.GetClientByClientID(ctx, id)
}

// ClientCredentialsTokenRequest says whom the token names.
func (s *store) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	w, ok := s.want(id)
	if !ok {
		return nil, errors.New("no such client")
	}
	return &request{oidc.JWTTokenRequest{Subject: w.Subject, Audience: []string{w.Audience}, Scopes: scopes}, w.Lifetime}, nil
}

type request struct {
	oidc.JWTTokenRequest
	lifetime time.Duration
}

// CreateAccessToken gives the token the lifetime that the test wants.
func (s *store) CreateAccessToken(ctx context.Context, r op.TokenRequest) (string, time.Time, error) {
	if own, ok := r.(*request); ok {
		return "id", time.Now().Add(own.lifetime), nil
	}
	return s.Storage.CreateAccessToken(ctx, r)
}

// GetPrivateClaimsFromRequest adds scopes and tenant.
func (s *store) GetPrivateClaimsFromRequest(_ context.Context, r op.TokenRequest, _ []string) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(r.GetScopes(), " "), "org": "acme"}, nil
}

// ValidateTokenExchangeRequest lets the mesh have a token for any audience, for the one who brings a token.
func (s *store) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	if len(r.GetAudience()) == 0 || r.GetAudience()[0] == "forbidden" {
		return oidc.ErrInvalidRequest().WithDescription("not for that audience")
	}
	return nil
}

// GetPrivateClaimsFromTokenExchangeRequest says by whom the token was exchanged.
func (s *store) GetPrivateClaimsFromTokenExchangeRequest(context.Context, op.TokenExchangeRequest) (map[string]any, error) {
	return map[string]any{"exchanged_by": Mesh}, nil
}
