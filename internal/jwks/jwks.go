// Package jwks verifies signatures of JSON Web Signatures with the public keys that their issuer publishes, and follows the issuer when it
// changes its keys.
package jwks

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

// Algorithms are the algorithms that a Set can verify: asymmetric ones alone, since whoever can verify with a shared secret can sign with it.
var Algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// What can be wrong with a signature.
var (
	// ErrUnknownKey means that the issuer has no such key.
	ErrUnknownKey = errors.New("the issuer has no such key")
	// ErrSignature means that the signature is not the key's.
	ErrSignature = errors.New("the signature does not match")
	// ErrUnavailable means that the issuer's keys cannot be had now.
	ErrUnavailable = errors.New("the issuer's keys cannot be read now")
)

const (
	// DefaultRefresh is how old keys may be before they are read again, in the background.
	DefaultRefresh = 10 * time.Minute
	// fetchEvery and fetchBurst bound how often the issuer is asked, however many tokens name a key that it has not.
	fetchEvery = 10 * time.Second
	fetchBurst = 5
	// fetchTimeout bounds one reading, discovery included.
	fetchTimeout = 10 * time.Second
	// maxDocument bounds a document of the issuer, maxKeys its keys, maxTries those that are tried for a token which names none, and minRSA is
	// the smallest RSA key in bits.
	maxDocument = 512 << 10
	maxKeys     = 100
	maxTries    = 8
	minRSA      = 2048
)

// Config says where the keys of an issuer are: one of Keys, URL and Issuer is required.
type Config struct {
	// Keys are the keys themselves; nothing is ever fetched then.
	Keys []jose.JSONWebKey
	// URL is that of the issuer's JWK set.
	URL string
	// Issuer is a URL whose discovery document (OpenID Connect Discovery 1.0, or RFC 8414) names the URL of the JWK set.
	Issuer string
	// Client fetches. Default: NewClient(nil). Nothing but URL, Issuer's documents and what these name is ever fetched.
	Client *http.Client
	// Refresh is how old keys may be before they are read again. Default DefaultRefresh.
	Refresh time.Duration
}

// Set is the keys of one issuer. They are read at first use. Keys stay in use while the issuer cannot be reached. It is safe for concurrent
// use; Close ends it.
type Set struct {
	conf    Config
	limiter *rate.Limiter
	known   atomic.Pointer[known]
	failing atomic.Bool // the last reading failed: nobody waits for the next one who could do without

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	flight *flight
	closed bool
}

// known are the keys as last read.
type known struct {
	keys []jose.JSONWebKey
	at   time.Time
}

// flight is one reading, which many may wait for.
type flight struct {
	done chan struct{}
	err  error
}

// New returns the keys that c says. It fetches nothing yet.
func New(c Config) *Set {
	if c.Client == nil {
		c.Client = NewClient(nil)
	}
	if c.Refresh <= 0 {
		c.Refresh = DefaultRefresh
	}
	s := &Set{conf: c, limiter: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if len(c.Keys) > 0 {
		s.known.Store(&known{keys: usable(c.Keys)})
	}
	return s
}

// NewClient returns a client for documents of issuers: it follows no redirect, since what it would lead to is not configured. A nil
// transport is net/http's default.
func NewClient(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, Timeout: fetchTimeout, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		return fmt.Errorf("it redirects to %q, which is not followed: configure the final URL", r.URL.Redacted())
	}}
}

// Close ends what Set does in the background and waits for it.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// Verify checks the signature of sig, which was parsed with algorithms among Algorithms, and returns the payload. Keys and URLs in its header
// are ignored. The error is, or wraps, one of ErrUnknownKey, ErrSignature and ErrUnavailable, or ctx's.
func (s *Set) Verify(ctx context.Context, sig *jose.JSONWebSignature) ([]byte, error) {
	if len(sig.Signatures) != 1 {
		return nil, ErrSignature
	}
	header := sig.Signatures[0].Protected
	k := s.known.Load()
	if k != nil {
		if k = s.fresh(ctx, k); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		payload, err := k.verify(sig, header)
		if err == nil || header.KeyID != "" && !errors.Is(err, ErrUnknownKey) {
			return payload, err
		}
		if s.conf.Keys != nil {
			return nil, err
		}
	}
	// The issuer may have a new key. A token without a key id may be signed by one as well.
	f := s.refresh()
	if f == nil {
		if k == nil {
			return nil, fmt.Errorf("%w: it was asked a moment ago", ErrUnavailable)
		}
		return nil, ErrUnknownKey
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, f.err)
	}
	return s.known.Load().verify(sig, header)
}

// fresh returns the keys to verify with. Those that are a little old are read again in the background; those that are much too old, since nobody has
// called for a while, are read first, unless the issuer is down.
func (s *Set) fresh(ctx context.Context, k *known) *known {
	age := time.Since(k.at)
	if s.conf.Keys != nil || age <= s.conf.Refresh {
		return k
	}
	f := s.refresh()
	if f == nil || age <= 2*s.conf.Refresh || s.failing.Load() {
		return k
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	return s.known.Load()
}

// verify tries the keys that the header fits.
func (k *known) verify(sig *jose.JSONWebSignature, header jose.Header) ([]byte, error) {
	err, tries := ErrUnknownKey, 0
	for i := range k.keys {
		key := &k.keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || !fits(key, header.Algorithm) {
			continue
		}
		payload, bad := sig.Verify(key.Key)
		if bad == nil {
			return payload, nil
		}
		if err, tries = ErrSignature, tries+1; tries == maxTries {
			break
		}
	}
	return nil, err
}

// fits says whether a key is one for an algorithm.
func fits(key *jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return algorithm == string(jose.ES256)
		case elliptic.P384():
			return algorithm == string(jose.ES384)
		case elliptic.P521():
			return algorithm == string(jose.ES512)
		}
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// usable returns the keys that may verify.
func usable(keys []jose.JSONWebKey) []jose.JSONWebKey {
	var out []jose.JSONWebKey
	for _, k := range keys {
		if !k.Valid() || !k.IsPublic() || k.Use == "enc" {
			continue
		}
		if r, ok := k.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
			continue
		}
		out = append(out, k)
	}
	return out
}

// refresh begins to read the keys, unless that is under way, and returns the reading; nil if the issuer was asked often enough.
func (s *Set) refresh() *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight
	}
	if s.closed || !s.limiter.Allow() {
		return nil
	}
	f := &flight{done: make(chan struct{})}
	s.flight = f
	s.running.Go(func() {
		keys, err := s.fetch()
		if err == nil {
			s.known.Store(&known{keys: keys, at: time.Now()})
		}
		s.failing.Store(err != nil)
		f.err = err
		s.mu.Lock()
		s.flight = nil
		s.mu.Unlock()
		close(f.done)
	})
	return f
}

// fetch reads the keys from the issuer.
func (s *Set) fetch() ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTimeout)
	defer cancel()
	at := s.conf.URL
	if at == "" {
		m, err := Discover(ctx, s.conf.Client, s.conf.Issuer)
		if err != nil {
			return nil, err
		}
		at = m.JWKS
	}
	body, err := get(ctx, s.conf.Client, at)
	if err != nil {
		return nil, err
	}
	keys, err := Parse(body)
	if err != nil {
		return nil, fmt.Errorf("JWK set %q: %w", at, err)
	}
	return keys, nil
}

// Parse reads a JWK set. Keys that are not for verifying signatures, or of kinds that are not known here, are left out: an issuer may have them
// for others. At least one must be left.
func Parse(body []byte) ([]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, fmt.Errorf("not a JWK set: %w", err)
	}
	if len(raw.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are more than %d", len(raw.Keys), maxKeys)
	}
	var all []jose.JSONWebKey
	for _, r := range raw.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(r, &k) == nil {
			all = append(all, k)
		}
	}
	keys := usable(all)
	if len(keys) == 0 {
		return nil, errors.New("no public key that can verify a signature")
	}
	return keys, nil
}

// Metadata is what a discovery document says, as far as it is needed.
type Metadata struct {
	Issuer        string `json:"issuer"`
	JWKS          string `json:"jwks_uri"`
	TokenEndpoint string `json:"token_endpoint"`
}

// Discover reads the discovery document of an issuer: that of OpenID Connect, else that of RFC 8414. It must name the same issuer.
func Discover(ctx context.Context, client *http.Client, issuer string) (*Metadata, error) {
	var failed error
	for _, at := range DiscoveryURLs(issuer) {
		body, err := get(ctx, client, at)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		var m Metadata
		if err := json.Unmarshal(body, &m); err != nil {
			return nil, fmt.Errorf("discovery document %q: %w", at, err)
		}
		if m.Issuer != issuer {
			return nil, fmt.Errorf("discovery document %q is of issuer %q, not %q", at, m.Issuer, issuer)
		}
		if m.JWKS == "" {
			return nil, fmt.Errorf("discovery document %q has no jwks_uri", at)
		}
		if err := CheckURL(m.JWKS); err != nil {
			return nil, fmt.Errorf("discovery document %q: jwks_uri: %w", at, err)
		}
		return &m, nil
	}
	return nil, failed
}

// get reads one document.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %q: %s", url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("get %q: %w", url, err)
	}
	if len(body) > maxDocument {
		return nil, fmt.Errorf("get %q: longer than %d bytes", url, maxDocument)
	}
	return body, nil
}
