package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/interceptors/backendauth"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/provider"
	"github.com/toolway/toolway/tests/internal/run"
)

// toMesh sends a backend's requests for keys to the mesh, which starts after it.
type toMesh struct{ addr atomic.Pointer[string] }

func (m *toMesh) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = *m.addr.Load(), *m.addr.Load()
	return http.DefaultTransport.RoundTrip(r)
}

// hostile are headers that say who calls, in all the ways that have worked somewhere.
var hostile = map[string]string{
	"Grpc-Metadata-Authorization": "Bearer x", "Grpc-Metadata-X-User-Id": "admin", "Grpcgateway-Authorization": "Bearer y", "X-User-Id": "admin", "X-Tenant-Id": "evil",
	"X-Forwarded-User": "admin", "X-Auth-Request-Email": "admin@evil.test", "Remote-User": "admin", "X-Jwt-Payload": "e30", "Cookie": "session=admin", "X_user_id": "admin",
}

// TestMintedCredential pins that a backend learns the caller from the mesh alone, at each door: the caller's own token stops there, and no header
// says who calls.
func TestMintedCredential(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	var keys toMesh
	v, err := backendauth.New(backendauth.Config{Issuer: "toolway", Audience: "probe", JWKS: "http://mesh.test/.well-known/jwks.json", Client: &http.Client{Transport: &keys}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	s, addr := startProbe(t, grpc.ChainUnaryInterceptor(v.Unary), grpc.ChainStreamInterceptor(v.Stream))
	mesh := run.Start(t, "--config", config(t, p, addr, "    credentials: {mint: {}}\n"), "--data", t.TempDir())
	keys.addr.Store(&mesh.HTTP)
	ctx := patience(t)
	token := p.Token(t, provider.Want{Scopes: both})
	header := map[string]string{"Authorization": bearer(token)}
	pairs := []string{"authorization", bearer(token)}
	for k, v := range hostile {
		header[k] = v
		pairs = append(pairs, strings.ToLower(k), v)
	}
	for door, call := range map[string]func(id string) string{
		"grpc": func(string) string {
			_, st, _ := ask(ctx, t, mesh, pairs...) // its id is "grpc"
			if st.Code() != codes.OK {
				return st.String()
			}
			return ""
		},
		"http": func(id string) string { return bad(send(ctx, t, mesh.URL("/v1/probe/"+id+":ask"), `{}`, header)) },
		"mcp-old": func(id string) string {
			return bad(mcpCall(ctx, t, mesh, agent.V20251125, "probe_ask", `{"id":"`+id+`"}`, header))
		},
		"mcp-new": func(id string) string {
			return bad(mcpCall(ctx, t, mesh, agent.V20260728, "probe_ask", `{"id":"`+id+`"}`, header))
		},
	} {
		if problem := call(door); problem != "" {
			t.Errorf("%s: %s", door, problem)
			continue
		}
		seen, err := s.Call(ctx, door)
		if err != nil {
			t.Fatalf("%s: %v", door, err)
		}
		got := seen.Metadata.Get("authorization")
		if len(got) != 1 || strings.Contains(got[0], token) {
			t.Fatalf("%s: authorization %q, want one credential of the mesh", door, got)
		}
		claims := claimsOf(t, got[0])
		if claims["iss"] != "toolway" || claims["aud"] != "probe" || claims["sub"] != p.URL+"#alice" || claims["tenant"] != "acme" || claims["method"] != "/probe.v1.Probe/Ask" || claims["scope"] != "probe probe.ask" {
			t.Errorf("%s: claims %v", door, claims)
		}
		for key, values := range seen.Metadata {
			if key != "authorization" && (strings.Contains(strings.Join(values, " "), "admin") || strings.Contains(strings.Join(values, " "), "evil") || strings.Contains(strings.Join(values, " "), "Bearer")) {
				t.Errorf("%s: %s = %q has reached the backend", door, key, values)
			}
		}
	}
	// Nobody gets past the mesh.
	direct := &run.Mesh{GRPC: addr}
	if _, st, info := ask(ctx, t, direct, pairs...); st.Code() != codes.Unauthenticated {
		t.Errorf("the caller's token at the backend itself: %v %v, want UNAUTHENTICATED", st, info)
	}
}

// bad says what is wrong with an answer that should be good.
func bad(a answer) string {
	if a.code != http.StatusOK || strings.Contains(a.body, `"isError":true`) || strings.Contains(a.body, `"error"`) {
		return a.body + " " + a.challenge
	}
	return ""
}

func claimsOf(t *testing.T, authorization string) map[string]any {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", authorization)
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return asJSON(t, string(body))
}

// TestExchangedCredential pins RFC 8693 with a real provider: the backend gets a token that the provider made for it and for this caller.
func TestExchangedCredential(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	s, addr := startProbe(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	more := "    credentials: {exchange: {endpoint: " + p.URL + "/oauth/token, audience: probe-backend, scope: probe, client_id: mesh, secret_file: " + secret + "}}\n"
	mesh := run.Start(t, "--config", config(t, p, addr, more))
	ctx := patience(t)
	token := p.Token(t, provider.Want{Scopes: both})
	if a := send(ctx, t, mesh.URL("/v1/probe/x:ask"), `{"text":"hello"}`, map[string]string{"Authorization": bearer(token)}); a.code != http.StatusOK {
		t.Fatalf("%d %s\n%s", a.code, a.body, mesh.Log())
	}
	seen, err := s.Call(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	got := seen.Metadata.Get("authorization")
	if len(got) != 1 || got[0] == bearer(token) {
		t.Fatalf("authorization %q", got)
	}
	claims := claimsOf(t, got[0])
	if claims["iss"] != p.URL || claims["sub"] != "alice" || claims["exchanged_by"] != provider.Mesh {
		t.Errorf("claims %v", claims)
	}
}

// TestStaticCredential pins a key that is the same for all callers, from a file.
func TestStaticCredential(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	s, addr := startProbe(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("backend-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--config", config(t, p, addr, "    credentials: {static: [{key: x-api-key, file: "+file+"}, {key: authorization, prefix: 'Basic ', file: "+file+"}]}\n"))
	ctx := patience(t)
	a := send(ctx, t, mesh.URL("/v1/probe/x:ask"), `{}`, map[string]string{"Authorization": bearer(p.Token(t, provider.Want{Scopes: both}))})
	if a.code != http.StatusOK {
		t.Fatalf("%d %s", a.code, a.body)
	}
	seen, err := s.Call(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if key, auth := seen.Metadata.Get("x-api-key"), seen.Metadata.Get("authorization"); len(key) != 1 || key[0] != "backend-key" || len(auth) != 1 || auth[0] != "Basic backend-key" {
		t.Errorf("the backend got %q and %q", key, auth)
	}
	if strings.Contains(mesh.Log(), "backend-key") {
		t.Error("the log has the key in it")
	}
}

// TestPublishedKeys pins the keys' URL, and that it has public keys alone.
func TestPublishedKeys(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	_, addr := startProbe(t)
	data := t.TempDir()
	file := config(t, p, addr, "    credentials: {mint: {}}\n")
	ctx := patience(t)
	var first string
	for range 2 { // the second time after a restart
		mesh := run.Start(t, "--config", file, "--data", data)
		a := send(ctx, t, mesh.URL("/.well-known/jwks.json"), "", nil)
		var set struct{ Keys []map[string]any }
		if err := json.Unmarshal([]byte(a.body), &set); err != nil || len(set.Keys) != 1 || set.Keys[0]["d"] != nil || set.Keys[0]["kid"] == "" {
			t.Fatalf("keys %d %s, %v", a.code, a.body, err)
		}
		if first != "" && a.body != first {
			t.Errorf("a restart changed the keys: %s, then %s", first, a.body)
		}
		first = a.body
		if err := mesh.Stop(); err != nil {
			t.Error(err)
		}
	}
}
