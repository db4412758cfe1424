package identity_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolway/toolway/internal/identity"
)

func TestReadCredentials(t *testing.T) {
	for _, c := range []struct {
		authorization, key []string
		want               identity.Credentials
	}{
		{nil, nil, identity.Credentials{}},
		{[]string{"Bearer a.b-c~d/e+f="}, nil, identity.Credentials{Bearer: "a.b-c~d/e+f="}},
		{[]string{"bEARER   a"}, []string{"k"}, identity.Credentials{Bearer: "a", APIKey: "k"}},
		{[]string{"Basic YTpi"}, nil, identity.Credentials{Malformed: true}},
		{[]string{"Bearer"}, nil, identity.Credentials{Malformed: true}},
		{[]string{"Bearer "}, nil, identity.Credentials{Malformed: true}},
		{[]string{""}, nil, identity.Credentials{Malformed: true}},
		{[]string{"Bearer a, Bearer b"}, nil, identity.Credentials{Malformed: true}},
		{[]string{"Bearer a\x01b"}, nil, identity.Credentials{Malformed: true}},
		{[]string{"Bearer a", "Bearer b"}, nil, identity.Credentials{Malformed: true}},
		{nil, []string{""}, identity.Credentials{Malformed: true}},
		{nil, []string{"a", "b"}, identity.Credentials{Malformed: true}},
	} {
		if got := identity.ReadCredentials(c.authorization, c.key); got != c.want {
			t.Errorf("ReadCredentials(%q, %q) = %+v, want %+v", c.authorization, c.key, got, c.want)
		}
	}
}

func TestAPIKeys(t *testing.T) {
	key, hash := identity.NewAPIKey()
	old, oldHash := identity.NewAPIKey()
	if key == old || len(key) != len(identity.KeyPrefix)+43 {
		t.Fatalf("keys %q and %q", key, old)
	}
	a := newAuthenticator(t, identity.Config{APIKeys: []identity.APIKey{
		{Name: "ci", SHA256: hash, Tenant: "acme", Scopes: []string{"b", "a", "b"}},
		{Name: "old", SHA256: strings.ToUpper(oldHash), Expires: time.Now().Add(-time.Second)},
	}})
	for _, c := range []struct {
		name        string
		credentials identity.Credentials
		reason      string
	}{
		{"header", identity.Credentials{APIKey: key}, ""},
		{"bearer", identity.Credentials{Bearer: key}, ""},
		{"both the same", identity.Credentials{Bearer: key, APIKey: key}, ""},
		{"unknown", identity.Credentials{APIKey: key + "x"}, identity.UnknownAPIKey},
		{"the hash itself", identity.Credentials{APIKey: hash}, identity.UnknownAPIKey},
		{"expired", identity.Credentials{APIKey: old}, identity.APIKeyExpired},
		{"good and expired", identity.Credentials{Bearer: key, APIKey: old}, identity.APIKeyExpired},
		{"a token where there are none", identity.Credentials{Bearer: "a.b.c"}, identity.UnknownIssuer},
		{"nothing", identity.Credentials{}, identity.MissingCredentials},
		{"nothing in the environment", identity.Credentials{Environment: true}, identity.MissingCredentials},
		{"in the environment", identity.Credentials{APIKey: key, Environment: true}, ""},
		{"nothing over TLS", identity.Credentials{TLS: &tls.ConnectionState{}}, identity.MissingCredentials},
		{"malformed", identity.Credentials{APIKey: key, Malformed: true}, identity.MalformedCredentials},
	} {
		p, err := a.Authenticate(t.Context(), c.credentials)
		if reason, _ := identity.Reason(err); reason != c.reason {
			t.Errorf("%s: reason %q (%v), want %q", c.name, reason, err, c.reason)
		}
		if _, metadata := identity.Reason(err); c.reason == identity.MissingCredentials && strings.Contains(metadata["hint"], "TOOLWAY_TOKEN") != c.credentials.Environment {
			t.Errorf("%s: the hint %q is another door's", c.name, metadata["hint"])
		}
		if c.reason == "" && (p == nil || p.ID != "key:ci" || p.Tenant != "acme" || fmt.Sprint(p.Scopes) != "[a b]" || p.How != "api-key") {
			t.Errorf("%s: principal %+v", c.name, p)
		}
	}
}

// certificate returns a connection on which a client has shown a certificate with the names, and the listener has verified it.
func certificate(t *testing.T, verified bool, uris []string, dns ...string) *tls.ConnectionState {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "spiffe://example.org/admin"}, NotAfter: time.Now().Add(time.Hour), DNSNames: dns}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{{leaf}}
	}
	return state
}

func TestCertificates(t *testing.T) {
	a := newAuthenticator(t, identity.Config{Certificates: []identity.Certificate{
		{SAN: "spiffe://example.org/ns/tools/sa/*", Tenant: "acme", Scopes: []string{"a"}},
		{SAN: "*.agents.example.org", Scopes: []string{"b"}},
	}})
	for _, c := range []struct {
		name     string
		verified bool
		uris     []string
		dns      []string
		id       string
		reason   string
	}{
		{"SPIFFE", true, []string{"spiffe://example.org/ns/tools/sa/agent"}, nil, "spiffe://example.org/ns/tools/sa/agent", ""},
		{"a part more", true, []string{"spiffe://example.org/ns/tools/sa/agent/x"}, nil, "", identity.UnknownCertificate},
		{"another trust domain", true, []string{"spiffe://example.com/ns/tools/sa/agent"}, nil, "", identity.UnknownCertificate},
		{"two SPIFFE ids", true, []string{"spiffe://example.org/ns/tools/sa/a", "spiffe://example.org/ns/tools/sa/b"}, nil, "", identity.UnknownCertificate},
		{"DNS", true, nil, []string{"other.example.org", "One.Agents.example.org"}, "dns:one.agents.example.org", ""},
		{"DNS with a part more", true, nil, []string{"a.b.agents.example.org"}, "", identity.UnknownCertificate},
		{"DNS with a wildcard", true, nil, []string{"*.agents.example.org"}, "", identity.UnknownCertificate},
		{"common name alone", true, nil, nil, "", identity.UnknownCertificate},
		{"not verified", false, []string{"spiffe://example.org/ns/tools/sa/agent"}, nil, "", identity.MissingCredentials},
	} {
		p, err := a.Authenticate(t.Context(), identity.Credentials{TLS: certificate(t, c.verified, c.uris, c.dns...)})
		if reason, _ := identity.Reason(err); reason != c.reason {
			t.Errorf("%s: reason %q (%v), want %q", c.name, reason, err, c.reason)
		}
		if c.reason == "" && (p == nil || p.ID != c.id || p.How != "mtls") {
			t.Errorf("%s: principal %+v, want %q", c.name, p, c.id)
		}
	}
}

// TestSeveralCredentials pins that they must agree, and that a certificate which names nobody only protects the connection.
func TestSeveralCredentials(t *testing.T) {
	p := newProvider(t)
	key, hash := identity.NewAPIKey()
	a := newAuthenticator(t, identity.Config{
		Issuers: []identity.Issuer{p.issuer()}, APIKeys: []identity.APIKey{{Name: "ci", SHA256: hash}},
		Certificates: []identity.Certificate{{SAN: "spiffe://example.org/agent"}},
	})
	token := p.token(nil)
	known, stranger := certificate(t, true, []string{"spiffe://example.org/agent"}), certificate(t, true, nil, "sidecar.example.org")
	for _, c := range []struct {
		name        string
		credentials identity.Credentials
		want        string // the id, or the reason
	}{
		{"token and key", identity.Credentials{Bearer: token, APIKey: key}, identity.AmbiguousCredentials},
		{"token and certificate", identity.Credentials{Bearer: token, TLS: known}, identity.AmbiguousCredentials},
		{"key and certificate", identity.Credentials{APIKey: key, TLS: known}, identity.AmbiguousCredentials},
		{"token over a sidecar", identity.Credentials{Bearer: token, TLS: stranger}, p.url + "#alice"},
		{"key over a sidecar", identity.Credentials{APIKey: key, TLS: stranger}, "key:ci"},
		{"sidecar alone", identity.Credentials{TLS: stranger}, identity.UnknownCertificate},
		{"certificate alone", identity.Credentials{TLS: known}, "spiffe://example.org/agent"},
		{"bad token and certificate", identity.Credentials{Bearer: token + "x", TLS: known}, identity.InvalidToken},
	} {
		got, err := a.Authenticate(t.Context(), c.credentials)
		reason, _ := identity.Reason(err)
		if err == nil && got.ID != c.want || err != nil && reason != c.want {
			t.Errorf("%s: %+v, %v, want %q", c.name, got, err, c.want)
		}
	}
}

// TestCertificateBoundToken pins RFC 8705: a stolen token is no good without the certificate, also when it was verified a moment ago.
func TestCertificateBoundToken(t *testing.T) {
	p := newProvider(t)
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	own, other := certificate(t, true, nil, "a.example.org"), certificate(t, true, nil, "b.example.org")
	token := p.token(map[string]any{"cnf": map[string]any{"x5t#S256": identity.Thumbprint(own.PeerCertificates[0])}})
	for _, c := range []struct {
		state *tls.ConnectionState
		want  string
	}{{own, ""}, {other, identity.SenderConstrained}, {nil, identity.SenderConstrained}, {own, ""}} {
		_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token, TLS: c.state})
		if reason, _ := identity.Reason(err); reason != c.want {
			t.Errorf("reason %q, want %q", reason, c.want)
		}
	}
}

// TestTokenEnds pins that a token which was verified before ends when it says, clock skew included.
func TestTokenEnds(t *testing.T) {
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		i := p.issuer()
		i.Client = p.inMemory()
		a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{i}})
		token := p.token(map[string]any{"exp": time.Now().Add(time.Minute).Unix()})
		auth := func() string {
			_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
			reason, _ := identity.Reason(err)
			return reason
		}
		if got := auth(); got != "" {
			t.Fatalf("a good token: %q", got)
		}
		time.Sleep(time.Minute + 29*time.Second)
		if got := auth(); got != "" {
			t.Errorf("within the clock skew: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := auth(); got != identity.TokenExpired {
			t.Errorf("afterwards: %q, want %s", got, identity.TokenExpired)
		}
	})
}

// TestKeyTakenBack pins that a key which an issuer takes back counts for minutes, not for as long as a token says.
func TestKeyTakenBack(t *testing.T) {
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		i := p.issuer()
		i.Client = p.inMemory()
		a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{i}})
		token := p.token(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
		var reason string
		for began := time.Now(); reason == "" && time.Since(began) < time.Hour; time.Sleep(time.Minute) {
			_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
			reason, _ = identity.Reason(err)
			if time.Since(began) == 0 {
				p.rotate("two")
			}
			synctest.Wait() // keys are read in the background
			if since := time.Since(began); reason != "" && since > 20*time.Minute {
				t.Errorf("refused after %v", since)
			}
		}
		if reason != identity.UnknownKey {
			t.Errorf("reason %q, want %s within the hour", reason, identity.UnknownKey)
		}
	})
}
