package identity_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/toolway/toolway/interceptors/backendauth"
	"github.com/toolway/toolway/internal/identity"
)

var alice = &identity.Principal{ID: `https://id.example#alice "é"`, Tenant: "acme", Scopes: []string{"logs:read", "x"}}

// verifier is a backend named orders with the keys as they are now.
func verifier(t testing.TB, m *identity.Minter) *backendauth.Verifier {
	t.Helper()
	keys, err := m.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	v, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "orders", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func mint(t testing.TB, m *identity.Minter) string {
	t.Helper()
	token, err := m.Mint(identity.Grant{Audience: "orders", Method: "/shop.v1.Orders/Get", Principal: alice, Scopes: []string{"logs:read"}, Call: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestMint(t *testing.T) {
	for _, algorithm := range []string{"ES256", "EdDSA"} {
		m, err := identity.NewMinter(identity.MinterConfig{Issuer: "mesh", Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		token := mint(t, m)
		p, err := verifier(t, m).Verify(t.Context(), token, "/shop.v1.Orders/Get")
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		if p.ID != alice.ID || p.Tenant != "acme" || len(p.Scopes) != 1 || p.Scopes[0] != "logs:read" || p.Call != "c1" || p.Token == "" {
			t.Errorf("%s: principal %+v", algorithm, p)
		}
		if again := mint(t, m); again == token {
			t.Errorf("%s: two calls have one credential", algorithm)
		}
		sig, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
		if err != nil {
			t.Fatal(err)
		}
		var claims struct{ Iat, Exp int64 }
		if err := json.Unmarshal(sig.UnsafePayloadWithoutVerification(), &claims); err != nil || claims.Exp-claims.Iat != 30 {
			t.Errorf("%s: holds %d s, %v, want 30", algorithm, claims.Exp-claims.Iat, err)
		}
		// What the mesh mints for a backend is no access token for the mesh.
		p2 := newProvider(t)
		a := newAuthenticator(t, identity.Config{Issuers: []identity.Issuer{p2.issuer()}})
		if _, err := a.Authenticate(t.Context(), identity.Credentials{Bearer: token}); err == nil {
			t.Errorf("%s: a minted credential is an access token", algorithm)
		}
	}
	for _, bad := range []identity.MinterConfig{{}, {Issuer: "m", TTL: time.Hour}, {Issuer: "m", Algorithm: "HS256"}, {Issuer: "m", Rotate: time.Second}, {Issuer: "m", Keys: []string{"/nowhere"}}, {Issuer: "m", Keys: []string{"x"}, Rotate: time.Hour}} {
		if _, err := identity.NewMinter(bad); err == nil {
			t.Errorf("NewMinter(%+v) = nil, want an error", bad)
		}
	}
}

// TestMintRotates pins that a backend which reads the keys now and then never meets one that it could not know, and that keys go in the end.
func TestMintRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys", "mint.json")
		conf := identity.MinterConfig{Issuer: "mesh", Rotate: 2 * time.Hour, File: file}
		m, err := identity.NewMinter(conf)
		if err != nil {
			t.Fatal(err)
		}
		keysAt := func() (kids []string) {
			body, err := m.JWKS()
			if err != nil {
				t.Fatal(err)
			}
			var set jose.JSONWebKeySet
			if err := json.Unmarshal(body, &set); err != nil {
				t.Fatal(err)
			}
			for _, k := range set.Keys {
				if !k.IsPublic() || k.Algorithm != "ES256" {
					t.Errorf("published %+v", k)
				}
				kids = append(kids, k.KeyID)
			}
			return kids
		}
		kidOf := func(token string) string {
			sig, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
			if err != nil {
				t.Fatal(err)
			}
			return sig.Signatures[0].Protected.KeyID
		}
		used := map[string]bool{}
		var known []string // what a backend knows: keys that it read 10 minutes ago
		for minute := range 24 * 60 {
			if minute%10 == 0 {
				known = keysAt()
			}
			if minute == 300 { // a restart changes nothing
				before := kidOf(mint(t, m))
				if m, err = identity.NewMinter(conf); err != nil {
					t.Fatal(err)
				}
				if after := kidOf(mint(t, m)); after != before {
					t.Errorf("a restart changed the key")
				}
			}
			kid := kidOf(mint(t, m))
			used[kid] = true
			if !contains(known, kid) {
				t.Fatalf("after %d minutes: key %s signs, a backend knows %v", minute, kid, known)
			}
			if n := len(known); n > 3 {
				t.Fatalf("%d keys are published", n)
			}
			time.Sleep(time.Minute)
		}
		if len(used) < 11 || len(used) > 14 {
			t.Errorf("%d keys in a day, want one every two hours", len(used))
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("key file: %v, %v, want mode 0600", info, err)
		}
	})
}

func contains(all []string, s string) bool {
	for _, have := range all {
		if have == s {
			return true
		}
	}
	return false
}

func TestMintDamagedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mint.json")
	for _, text := range []string{"{", `[{"made":"2026-01-01T00:00:00Z","key":{"kty":"oct","k":"AAAA"}}]`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.NewMinter(identity.MinterConfig{Issuer: "mesh", File: file}); err == nil {
			t.Errorf("keys %q were taken", text)
		}
	}
}

func BenchmarkMint(b *testing.B) {
	for _, algorithm := range []string{"ES256", "EdDSA"} {
		m, err := identity.NewMinter(identity.MinterConfig{Issuer: "mesh", Algorithm: algorithm})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(algorithm, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mint(b, m)
			}
		})
		b.Run(algorithm+" verify", func(b *testing.B) {
			token, v := mint(b, m), verifier(b, m)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(context.Background(), token, "/shop.v1.Orders/Get"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
