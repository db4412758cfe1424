package jwks_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/toolway/toolway/internal/jwks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signed is a JWS of an empty object by a key.
func signed(t *testing.T, alg jose.SignatureAlgorithm, key any) *jose.JSONWebSignature {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := s.Sign([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := sig.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	out, err := jose.ParseSignedCompact(text, jwks.Algorithms)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestKeysAndAlgorithms(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &r.PublicKey, KeyID: "r"}, {Key: &small.PublicKey, KeyID: "small"}, {Key: &e.PublicKey, KeyID: "e"}, {Key: public, KeyID: "ed"},
		{Key: &r.PublicKey, KeyID: "enc", Use: "enc"}, {Key: &r.PublicKey, KeyID: "ps", Algorithm: "PS256"}, {Key: []byte("shared"), KeyID: "oct"}, {Key: e, KeyID: "private"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	set = []byte(strings.Replace(string(set), `{"keys":[`, `{"keys":[{"kty":"of the future"},`, 1))
	keys, err := jwks.Parse(set)
	if err != nil || len(keys) != 4 {
		t.Fatalf("Parse = %d keys, %v, want r, e, ed and ps", len(keys), err)
	}
	s := jwks.New(jwks.Config{Keys: keys})
	defer s.Close()
	for _, c := range []struct {
		name string
		alg  jose.SignatureAlgorithm
		key  any
		want error
	}{
		{"RS256", jose.RS256, jose.JSONWebKey{Key: r, KeyID: "r"}, nil},
		{"PS512 by a key for any", jose.PS512, jose.JSONWebKey{Key: r, KeyID: "r"}, nil},
		{"ES384", jose.ES384, jose.JSONWebKey{Key: e, KeyID: "e"}, nil},
		{"EdDSA", jose.EdDSA, jose.JSONWebKey{Key: ed, KeyID: "ed"}, nil},
		{"without an id", jose.EdDSA, ed, nil},
		{"RS256 by a key for PS256", jose.RS256, jose.JSONWebKey{Key: r, KeyID: "ps"}, jwks.ErrUnknownKey},
		{"a key to encrypt", jose.RS256, jose.JSONWebKey{Key: r, KeyID: "enc"}, jwks.ErrUnknownKey},
		{"a small key", jose.RS256, jose.JSONWebKey{Key: small, KeyID: "small"}, jwks.ErrUnknownKey},
		{"another key's id", jose.RS256, jose.JSONWebKey{Key: small, KeyID: "r"}, jwks.ErrSignature},
	} {
		if _, err := s.Verify(t.Context(), signed(t, c.alg, c.key)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for _, bad := range []string{"", "[]", `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"AA"}]}`, `{"keys":[` + strings.Repeat(`{},`, 200) + `{}]}`} {
		if _, err := jwks.Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%.40q) = nil, want an error", bad)
		}
	}
}

// TestDocuments pins what is not believed of an issuer's documents.
func TestDocuments(t *testing.T) {
	var body atomic.Pointer[string]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/redirect/.well-known/openid-configuration":
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server") && !strings.HasSuffix(r.URL.Path, "/redirect"):
			_, _ = w.Write([]byte(*body.Load()))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	client := jwks.NewClient(&http.Transport{DisableKeepAlives: true})
	for name, c := range map[string]struct{ issuer, body, want string }{
		"RFC 8414":       {"/tenant", `{"issuer":"URL/tenant","jwks_uri":"URL/keys"}`, ""},
		"another issuer": {"", `{"issuer":"https://other.test","jwks_uri":"URL/keys"}`, "not"},
		"no keys":        {"", `{"issuer":"URL"}`, "jwks_uri"},
		"keys by http":   {"", `{"issuer":"URL","jwks_uri":"http://internal.test/keys"}`, "https"},
		"keys in a file": {"", `{"issuer":"URL","jwks_uri":"file:///etc/passwd"}`, "want a URL"},
		"no JSON":        {"", `<html>`, "discovery document"},
		"without an end": {"", strings.Repeat(" ", 600<<10), "longer than"},
		"somewhere else": {"/redirect", `x`, "not followed"},
	} {
		text := strings.ReplaceAll(c.body, "URL", srv.URL)
		body.Store(&text)
		_, err := jwks.Discover(t.Context(), client, srv.URL+c.issuer)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://id.test": true, "http://127.0.0.1:8080/x": true, "http://localhost": true, "http://[::1]:1": true,
		"http://id.test": false, "ftp://id.test": false, "https://": false, "https://user:pw@id.test": false, "id.test": false, "": false, "http://localhost.evil.test": false, "%": false,
	} {
		if err := jwks.CheckURL(url); (err == nil) != ok {
			t.Errorf("CheckURL(%q) = %v, want accepted %v", url, err, ok)
		}
	}
}

// TestOldKeys pins when keys are read again, in bubble time: in the background when they are a little old, before use when they are much too old, and
// without waiting while the issuer is down.
func TestOldKeys(t *testing.T) {
	one, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var reads, down atomic.Int32
		var kid atomic.Pointer[string]
		publish := func(id string) { kid.Store(&id) }
		publish("one")
		client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			reads.Add(1)
			if down.Load() > 0 {
				time.Sleep(9 * time.Second)
				return nil, errors.New("no answer")
			}
			rec := httptest.NewRecorder()
			err := json.NewEncoder(rec).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &one.PublicKey, KeyID: *kid.Load()}}})
			return rec.Result(), err
		})}
		s := jwks.New(jwks.Config{URL: "https://id.test/keys", Client: client})
		defer s.Close()
		sig := signed(t, jose.ES256, jose.JSONWebKey{Key: one, KeyID: "one"})
		verify := func() error {
			_, err := s.Verify(t.Context(), sig)
			return err
		}
		step := func(after time.Duration, wantReads int32, wantErr error) {
			t.Helper()
			time.Sleep(after)
			began := time.Now()
			err := verify()
			waited := time.Since(began)
			time.Sleep(11 * time.Second) // what goes on in the background ends
			if !errors.Is(err, wantErr) || reads.Load() != wantReads || down.Load() > 1 && waited > 0 {
				t.Errorf("%v, %d readings, waited %v; want %v, %d", err, reads.Load(), waited, wantErr, wantReads)
			}
		}
		step(0, 1, nil)
		step(5*time.Minute, 1, nil)
		step(6*time.Minute, 2, nil) // in the background
		down.Store(1)
		step(11*time.Minute, 3, nil)
		down.Store(2) // known to be down: nobody waits
		step(time.Hour, 4, nil)
		step(time.Hour, 5, nil)
		down.Store(0)
		step(time.Minute, 6, nil)
		publish("two")
		step(time.Hour, 8, jwks.ErrUnknownKey) // read before use, and again for the unknown key
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
