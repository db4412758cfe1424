package identity_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/identity"
)

func TestTokenNamesPrincipal(t *testing.T) {
	p := newProvider(t)
	i := p.issuer()
	i.TenantClaim, i.ScopeClaims = "org", []string{"scope", "scp", "roles"}
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{i}})
	token := p.token(map[string]any{"org": "acme", "scope": "b a  b", "scp": []string{"c", "not a scope"}, "roles": "d", "aud": []string{"other", "https://mesh.example"}})
	for range 2 { // the second time it is remembered
		got, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != p.url+"#alice" || got.Tenant != "acme" || got.How != "jwt" || !slices.Equal(got.Scopes, []string{"a", "b", "c", "d"}) || got.Claims["org"] != "acme" {
			t.Errorf("principal = %+v", got)
		}
		if left := time.Until(got.Expires); left < 55*time.Minute || left > 62*time.Minute {
			t.Errorf("expires in %v, want about an hour", left)
		}
	}
}

// TestRefusedTokens pins what is wrong with each bad token, and that no text gives away more than the reason.
func TestRefusedTokens(t *testing.T) {
	p, stranger := newProvider(t), newProvider(t)
	i := p.issuer()
	i.TenantClaim = "org"
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{i}})
	good := func(changes map[string]any) string {
		all := map[string]any{"org": "acme"}
		for k, v := range changes {
			all[k] = v
		}
		return p.token(all)
	}
	public, err := x509.MarshalPKIXPublicKey(p.publish[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	claims := p.claims(map[string]any{"org": "acme"})
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	parts := strings.Split(good(nil), ".")
	own := jose.JSONWebKey{Key: newKey(t), KeyID: "one"}
	now := time.Now()
	for name, c := range map[string]struct{ token, reason string }{
		"no JWT":                 {"abc", identity.InvalidToken},
		"too long":               {good(map[string]any{"pad": strings.Repeat("x", 20_000)}), identity.InvalidToken},
		"alg none":               {enc([]byte(`{"alg":"none"}`)) + "." + enc(body) + ".", identity.UnsupportedAlgorithm},
		"alg None":               {enc([]byte(`{"alg":"NoNe","kid":"one"}`)) + "." + enc(body) + ".AA", identity.UnsupportedAlgorithm},
		"HS256 with public key":  {sign(t, jose.HS256, public, "at+jwt", claims, map[jose.HeaderKey]any{"kid": "one"}), identity.UnsupportedAlgorithm},
		"another issuer":         {stranger.token(map[string]any{"org": "acme"}), identity.UnknownIssuer},
		"issuer claimed":         {sign(t, jose.ES256, stranger.key, "at+jwt", claims, nil), identity.InvalidToken},
		"issuer with slash":      {good(map[string]any{"iss": p.url + "/"}), identity.UnknownIssuer},
		"no issuer":              {good(map[string]any{"iss": nil}), identity.UnknownIssuer},
		"unknown key":            {sign(t, jose.ES256, jose.JSONWebKey{Key: newKey(t), KeyID: "zwei"}, "at+jwt", claims, nil), identity.UnknownKey},
		"another key":            {sign(t, jose.ES256, own, "at+jwt", claims, nil), identity.InvalidToken},
		"key in token":           {sign(t, jose.ES256, own, "at+jwt", claims, map[jose.HeaderKey]any{"jwk": own.Public()}), identity.InvalidToken},
		"key URL in token":       {sign(t, jose.ES256, own, "at+jwt", claims, map[jose.HeaderKey]any{"jku": stranger.url + "/keys", "x5u": stranger.url + "/keys"}), identity.InvalidToken},
		"unknown critical":       {sign(t, jose.ES256, p.key, "at+jwt", claims, map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}), identity.InvalidToken},
		"tampered claims":        {parts[0] + "." + enc([]byte(strings.Replace(string(body), "alice", "admin", 1))) + "." + parts[2], identity.InvalidToken},
		"tampered signature":     {parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])), identity.InvalidToken},
		"no signature":           {parts[0] + "." + parts[1] + ".", identity.InvalidToken},
		"other audience":         {good(map[string]any{"aud": "https://other.example"}), identity.WrongAudience},
		"audience with more":     {good(map[string]any{"aud": "https://mesh.example/"}), identity.WrongAudience},
		"no audience":            {good(map[string]any{"aud": nil}), identity.WrongAudience},
		"expired":                {good(map[string]any{"exp": now.Add(-31 * time.Second).Unix()}), identity.TokenExpired},
		"no expiry":              {good(map[string]any{"exp": nil}), identity.InvalidToken},
		"expiry of another kind": {good(map[string]any{"exp": "tomorrow"}), identity.InvalidToken},
		"not yet":                {good(map[string]any{"nbf": now.Add(time.Hour).Unix()}), identity.TokenNotYetValid},
		"from the future":        {good(map[string]any{"iat": now.Add(time.Hour).Unix()}), identity.TokenNotYetValid},
		"no subject":             {good(map[string]any{"sub": nil}), identity.InvalidToken},
		"subject with a control": {good(map[string]any{"sub": "a\x01b"}), identity.InvalidToken},
		"no tenant":              {good(map[string]any{"org": nil}), identity.NoTenant},
		"tenant of another kind": {good(map[string]any{"org": []string{"acme"}}), identity.NoTenant},
		"a logout token":         {sign(t, jose.ES256, p.key, "logout+jwt", claims, nil), identity.WrongTokenType},
		"DPoP":                   {good(map[string]any{"cnf": map[string]any{"jkt": "x"}}), identity.SenderConstrained},
		"bound to a certificate": {good(map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}), identity.SenderConstrained},
		"a claim twice":          {sign(t, jose.ES256, p.key, "at+jwt", json.RawMessage(`{"sub":"admin",`+string(body[1:])), nil), identity.InvalidToken},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: c.token})
			if err == nil {
				t.Fatalf("principal %+v, want %s", got, c.reason)
			}
			reason, _ := identity.Reason(err)
			st := status.Convert(err)
			if reason != c.reason || st.Code() != codes.Unauthenticated {
				t.Errorf("refused with %s %q, want %s", st.Code(), reason, c.reason)
			}
			if strings.Contains(st.Message(), p.url) || strings.Contains(st.Message(), "jose") {
				t.Errorf("message %q tells internals", st.Message())
			}
		})
	}
	if n := stranger.fetches.Load(); n != 0 {
		t.Errorf("an issuer that is not configured was asked %d times", n)
	}
}

func TestTokenTypes(t *testing.T) {
	p := newProvider(t)
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	strict := p.issuer()
	strict.Types = []string{"at+jwt"}
	b := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{strict}})
	for typ, want := range map[string][2]bool{"": {true, false}, "JWT": {true, false}, "at+jwt": {true, true}, "application/AT+JWT": {true, true}} {
		token := sign(t, jose.ES256, p.key, typ, p.claims(nil), nil)
		for i, auth := range []*identity.Authenticator{a, b} {
			if _, err := auth.Authenticate(t.Context(), identity.Credentials{Bearer: token}); (err == nil) != want[i] {
				t.Errorf("typ %q, authenticator %d: %v, want accepted %v", typ, i, err, want[i])
			}
		}
	}
}

// TestRotation pins that a new key is found without a restart, and that an old one is not taken for good once it is gone.
func TestRotation(t *testing.T) {
	p := newProvider(t)
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	auth := func(token string) error {
		_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
		return err
	}
	first := p.token(nil)
	if err := auth(first); err != nil {
		t.Fatal(err)
	}
	unused := p.token(map[string]any{"sub": "bob"})
	p.rotate("two")
	if err := auth(p.token(nil)); err != nil {
		t.Errorf("token of a new key: %v", err)
	}
	if reason, _ := identity.Reason(auth(unused)); reason != identity.UnknownKey {
		t.Errorf("token of a key that is gone: reason %q, want %s", reason, identity.UnknownKey)
	}
	if err := auth(first); err != nil {
		t.Errorf("a token that was verified a moment ago: %v", err)
	}
	// The provider goes away: what it said stands.
	p.down.Store(true)
	if err := auth(p.token(map[string]any{"sub": "carol"})); err != nil {
		t.Errorf("a token while the provider is down: %v", err)
	}
}

// TestFetchesAreBounded pins that tokens with made-up keys do not turn the mesh into a weapon against the issuer.
func TestFetchesAreBounded(t *testing.T) {
	p := newProvider(t)
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	for n := range 50 {
		token := sign(t, jose.ES256, jose.JSONWebKey{Key: newKey(t), KeyID: fmt.Sprint("made up ", n)}, "", p.claims(nil), nil)
		if reason, _ := identity.Reason(ignore(a.Authenticate(t.Context(), identity.Credentials{Bearer: token}))); reason != identity.UnknownKey {
			t.Fatalf("reason %q, want %s", reason, identity.UnknownKey)
		}
	}
	if n := p.fetches.Load(); n > 20 {
		t.Errorf("the issuer was asked %d times", n)
	}
	if _, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: p.token(nil)}); err != nil {
		t.Errorf("a good token afterwards: %v", err)
	}
}

func ignore(_ *identity.Principal, err error) error { return err }

// TestProviderDown pins that a caller is not blamed for an issuer that cannot be reached, and that many callers at once ask it once.
func TestProviderDown(t *testing.T) {
	p := newProvider(t)
	p.down.Store(true)
	a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	token := p.token(nil)
	_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
	if reason, _ := identity.Reason(err); status.Code(err) != codes.Unavailable || reason != identity.ProviderUnavailable {
		t.Errorf("while the issuer is down: %v, want UNAVAILABLE %s", err, identity.ProviderUnavailable)
	}
	p.down.Store(false)
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for range 20 {
		all.Go(func() {
			_, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token})
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n := p.fetches.Load(); n > 5 {
		t.Errorf("20 callers asked the issuer %d times", n)
	}
}

func TestConfigRefused(t *testing.T) {
	p := newProvider(t)
	key, hash := identity.NewAPIKey()
	if !strings.HasPrefix(key, identity.KeyPrefix) || len(hash) != 64 {
		t.Fatalf("NewAPIKey = %q, %q", key, hash)
	}
	for name, c := range map[string]struct {
		change func(*identity.Issuer)
		want   string
	}{
		"no audience":      {func(i *identity.Issuer) { i.Audiences = nil }, "audiences"},
		"plain http":       {func(i *identity.Issuer) { i.URL = "http://id.example.com" }, "https"},
		"keys by http":     {func(i *identity.Issuer) { i.JWKS = "http://id.example.com/keys" }, "https"},
		"a query":          {func(i *identity.Issuer) { i.URL += "?a=b" }, "query"},
		"symmetric":        {func(i *identity.Issuer) { i.Algorithms = []string{"HS256"} }, "HS256"},
		"none":             {func(i *identity.Issuer) { i.Algorithms = []string{"none"} }, "none"},
		"two tenants":      {func(i *identity.Issuer) { i.Tenant, i.TenantClaim = "a", "b" }, "contradict"},
		"clocks far apart": {func(i *identity.Issuer) { i.ClockSkew = time.Hour }, "clock_skew"},
	} {
		i := p.issuer()
		c.change(&i)
		_, err := identity.New(identity.Config{Issuers: []identity.Issuer{i}})
		var bad *identity.ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a ConfigError about %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		config identity.Config
		want   string
	}{
		"nothing":       {identity.Config{}, "no way"},
		"issuer twice":  {identity.Config{Issuers: []identity.Issuer{p.issuer(), p.issuer()}}, "twice"},
		"key as it is":  {identity.Config{APIKeys: []identity.APIKey{{Name: "a", SHA256: key}}}, "64 hex"},
		"key twice":     {identity.Config{APIKeys: []identity.APIKey{{Name: "a", SHA256: hash}, {Name: "b", SHA256: hash}}}, "hash of another"},
		"name twice":    {identity.Config{APIKeys: []identity.APIKey{{Name: "a", SHA256: hash}, {Name: "a", SHA256: strings.Repeat("0", 64)}}}, "twice"},
		"bad scope":     {identity.Config{APIKeys: []identity.APIKey{{Name: "a", SHA256: hash, Scopes: []string{"a b"}}}}, "not a scope"},
		"open domain":   {identity.Config{Certificates: []identity.Certificate{{SAN: "spiffe://*/a"}}}, "trust domain"},
		"empty pattern": {identity.Config{Certificates: []identity.Certificate{{}}}, "DNS name"},
	} {
		if _, err := identity.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.want)
		}
	}
}

// FuzzCredentials pins that whatever callers bring is refused without a panic, and that nothing is accepted that was not signed.
func FuzzCredentials(f *testing.F) {
	p := newProvider(f)
	a := newAuthenticator(f, identity.Config{Issuers: []identity.Issuer{p.issuer()}, APIKeys: []identity.APIKey{{Name: "a", SHA256: strings.Repeat("0", 64)}}})
	stranger := sign(f, jose.ES256, jose.JSONWebKey{Key: newKey(f), KeyID: "one"}, "at+jwt", p.claims(nil), nil)
	for _, s := range []string{"", "Bearer", "Bearer x", "bearer a.b.c", "Bearer " + stranger, "Basic YTpi", "Bearer tw_x", "Bearer  a, Bearer b"} {
		f.Add(s, "")
		f.Add(s, "tw_x")
	}
	f.Fuzz(func(t *testing.T, authorization, key string) {
		for _, c := range []identity.Credentials{
			identity.ReadCredentials([]string{authorization}, nil), identity.ReadCredentials(nil, []string{key}), identity.ReadCredentials([]string{authorization}, []string{key}),
			{Bearer: authorization, APIKey: key},
		} {
			if got, err := a.Authenticate(t.Context(), c); err == nil {
				t.Errorf("%q %q is %+v", authorization, key, got)
			} else if reason, _ := identity.Reason(err); reason == "" {
				t.Errorf("%q %q: %v has no reason", authorization, key, err)
			}
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	p := newProvider(b)
	a := newAuthenticator(b, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
	b.Run("remembered", func(b *testing.B) {
		c := identity.Credentials{Bearer: p.token(nil)}
		for b.Loop() {
			if _, err := a.Authenticate(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		var tokens []string
		for n := range 512 {
			tokens = append(tokens, p.token(map[string]any{"jti": n}))
		}
		n := 0
		fresh := newAuthenticator(b, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
		for b.Loop() {
			if n++; n%len(tokens) == 0 {
				b.StopTimer()
				fresh = newAuthenticator(b, identity.Config{Issuers: []identity.Issuer{p.issuer()}})
				_, _ = fresh.Authenticate(b.Context(), identity.Credentials{Bearer: tokens[0]})
				b.StartTimer()
			}
			if _, err := fresh.Authenticate(b.Context(), identity.Credentials{Bearer: tokens[n%len(tokens)]}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("api key", func(b *testing.B) {
		key, hash := identity.NewAPIKey()
		keys := newAuthenticator(b, identity.Config{APIKeys: []identity.APIKey{{Name: "a", SHA256: hash}}})
		for b.Loop() {
			if _, err := keys.Authenticate(b.Context(), identity.Credentials{APIKey: key}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
