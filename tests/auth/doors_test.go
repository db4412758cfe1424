package auth_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/provider"
	"github.com/toolway/toolway/tests/internal/run"
)

var both = []string{"probe", "probe.ask"}

// ask calls Ask at the gRPC door.
func ask(ctx context.Context, t *testing.T, mesh *run.Mesh, pairs ...string) (*probev1.AskResponse, *status.Status, *errdetails.ErrorInfo) {
	t.Helper()
	reply, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC)).Ask(metadata.AppendToOutgoingContext(ctx, pairs...), &probev1.AskRequest{Id: "grpc", Text: "hello"})
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return reply, st, info
		}
	}
	return reply, st, &errdetails.ErrorInfo{}
}

// forge signs claims of a token again, by other means.
func forge(t *testing.T, token string, alg jose.SignatureAlgorithm, key any, kid string) string {
	t.Helper()
	body, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	sig, err := s.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	out, err := sig.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDoors brings good and bad tokens to each door.
func TestDoors(t *testing.T) {
	t.Parallel()
	p, stranger := provider.New(t), provider.New(t)
	_, addr := startProbe(t)
	mesh := run.Start(t, "--config", config(t, p, addr, ""))
	ctx := patience(t)

	good := p.Token(t, provider.Want{Scopes: both})
	parts := strings.Split(good, ".")
	public, err := x509.MarshalPKIXPublicKey(p.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	tampered, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, token, reason string }{
		{"good", good, ""},
		{"none", "", "MISSING_CREDENTIALS"},
		{"for another", p.Token(t, provider.Want{Scopes: both, Audience: "https://other.test"}), "WRONG_AUDIENCE"},
		{"expired", p.Token(t, provider.Want{Scopes: both, Lifetime: -time.Hour}), "TOKEN_EXPIRED"},
		{"alg none", enc([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", "UNSUPPORTED_ALGORITHM"},
		{"HS256 with the public key", forge(t, good, jose.HS256, public, p.KeyID()), "UNSUPPORTED_ALGORITHM"},
		{"of another issuer", stranger.Token(t, provider.Want{Scopes: both}), "UNKNOWN_ISSUER"},
		{"tampered", parts[0] + "." + enc([]byte(strings.Replace(string(tampered), "alice", "admin", 1))) + "." + parts[2], "INVALID_TOKEN"},
		{"no token", "rubbish", "INVALID_TOKEN"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { refusedEverywhere(ctx, t, mesh, c.token, c.reason) })
	}
	old := p.Token(t, provider.Want{Scopes: both, Subject: "old"})
	if err := p.Rotate("second"); err != nil {
		t.Fatal(err)
	}
	t.Run("new_key", func(t *testing.T) { refusedEverywhere(ctx, t, mesh, p.Token(t, provider.Want{Scopes: both}), "") })
	t.Run("key_that_is_gone", func(t *testing.T) { refusedEverywhere(ctx, t, mesh, old, "UNKNOWN_KEY") })
}

// refusedEverywhere wants each door to refuse a token with a reason, or to take it if there is none.
func refusedEverywhere(ctx context.Context, t *testing.T, mesh *run.Mesh, token, reason string) {
	t.Helper()
	var pairs []string
	if token != "" {
		pairs = []string{"authorization", bearer(token)}
	}
	reply, st, info := ask(ctx, t, mesh, pairs...)
	want := codes.Unauthenticated
	if reason == "" {
		want = codes.OK
	}
	if st.Code() != want || info.GetReason() != reason || reason == "" && reply.GetText() != "hello" {
		t.Errorf("gRPC: %v %v %v, want %s %q", reply, st, info, want, reason)
	}
	header := map[string]string{"Authorization": bearer(token)}
	http := send(ctx, t, mesh.URL("/v1/probe/x:ask"), `{"text":"hello"}`, header)
	check(t, "HTTP", http, reason, `resource_metadata="http://`+mesh.HTTP+`/.well-known/oauth-protected-resource"`)
	for _, version := range []string{agent.V20251125, agent.V20260728} {
		check(t, "MCP "+version, mcpCall(ctx, t, mesh, version, "probe_ask", `{"text":"hello"}`, header), reason, `resource_metadata="http://`+mesh.HTTP+`/.well-known/oauth-protected-resource/mcp"`)
	}
}

func check(t *testing.T, door string, a answer, reason, metadata string) {
	t.Helper()
	if reason == "" {
		if a.code != 200 || !strings.Contains(a.body, "hello") {
			t.Errorf("%s: %d %s, want the answer", door, a.code, a.body)
		}
		return
	}
	if a.code != 401 || !strings.Contains(a.body, reason) || !strings.HasPrefix(a.challenge, "Bearer ") || !strings.Contains(a.challenge, metadata) || !strings.Contains(a.challenge, `scope="probe"`) {
		t.Errorf("%s: %d %s\n%s\nwant 401 %s with %s", door, a.code, a.challenge, a.body, reason, metadata)
	}
	if invalid := strings.Contains(a.challenge, `error="invalid_token"`); invalid != (reason != "MISSING_CREDENTIALS") {
		t.Errorf("%s: %s: an error if and only if there was a token", door, a.challenge)
	}
}

// TestStepUp pins that a missing scope is 403 with all scopes, at each door, and that the same call gets the same answer.
func TestStepUp(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	_, addr := startProbe(t)
	mesh := run.Start(t, "--config", config(t, p, addr, ""))
	ctx := patience(t)
	token := p.Token(t, provider.Want{Scopes: []string{"probe", "other"}})
	_, st, info := ask(ctx, t, mesh, "authorization", bearer(token))
	if st.Code() != codes.PermissionDenied || info.GetReason() != "INSUFFICIENT_SCOPE" || info.GetMetadata()["scopes"] != "probe probe.ask" {
		t.Errorf("gRPC: %v %v", st, info)
	}
	header := map[string]string{"Authorization": bearer(token)}
	answers := map[string]func() answer{"HTTP": func() answer { return send(ctx, t, mesh.URL("/v1/probe/x:ask"), `{"text":"hello"}`, header) }}
	for _, version := range []string{agent.V20250618, agent.V20251125, agent.V20260728} {
		answers["MCP "+version] = func() answer { return mcpCall(ctx, t, mesh, version, "probe_ask", `{"text":"hello"}`, header) }
	}
	for door, get := range answers {
		first, again := get(), get()
		if first.code != 403 || !strings.Contains(first.challenge, `error="insufficient_scope"`) || !strings.Contains(first.challenge, `scope="other probe probe.ask"`) {
			t.Errorf("%s: %d %s\n%s", door, first.code, first.challenge, first.body)
		}
		if again.code != first.code || again.challenge != first.challenge {
			t.Errorf("%s: the same call was answered %d %s, then %d %s", door, first.code, first.challenge, again.code, again.challenge)
		}
	}
	// What needs no scope works with the same token.
	if a := mcpCall(ctx, t, mesh, agent.V20251125, "probe_label", `{}`, header); a.code != 200 || strings.Contains(a.body, `"isError":true`) {
		t.Errorf("a tool without scopes: %d %s", a.code, a.body)
	}
}

// TestOpenAndClosed pins what needs no credentials, what does, and that none are taken from a URL.
func TestOpenAndClosed(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	_, addr := startProbe(t)
	mesh := run.Start(t, "--config", config(t, p, addr, ""))
	ctx := patience(t)
	token := p.Token(t, provider.Want{Scopes: both})
	for _, path := range []string{"", "/mcp"} {
		a := send(ctx, t, mesh.URL("/.well-known/oauth-protected-resource"+path), "", nil)
		if a.code != 200 {
			t.Fatalf("metadata %q: %d %s", path, a.code, a.body)
		}
		m := asJSON(t, a.body)
		if servers, _ := m["authorization_servers"].([]any); m["resource"] != "http://"+mesh.HTTP+path || len(servers) != 1 || servers[0] != p.URL {
			t.Errorf("metadata %q: %s", path, a.body)
		}
	}
	cc := run.Dial(t, mesh.GRPC)
	if _, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health without credentials: %v", err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without credentials: %v, want UNAUTHENTICATED", err)
	}
	if a := send(ctx, t, mesh.URL("/openapi.json"), "", nil); a.code != 401 {
		t.Errorf("OpenAPI without credentials: %d", a.code)
	}
	if a := send(ctx, t, mesh.URL("/openapi.json"), "", map[string]string{"Authorization": bearer(token)}); a.code != 200 {
		t.Errorf("OpenAPI: %d %s", a.code, a.body)
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	accept := map[string]string{"Accept": "application/json, text/event-stream"}
	if a := send(ctx, t, mesh.URL("/mcp"), list, accept); a.code != 401 {
		t.Errorf("tools/list without credentials: %d %s", a.code, a.body)
	}
	for _, at := range []string{"/mcp?access_token=" + token, "/mcp?api_key=x"} {
		if a := send(ctx, t, mesh.URL(at), list, accept); a.code != 400 || strings.Contains(a.body, token) {
			t.Errorf("a token in the URL: %d %s, want 400", a.code, a.body)
		}
	}
	// Faults of the request are told to whoever is known: without credentials the token in the URL is none, and that is what is said.
	if a := send(ctx, t, mesh.URL("/v1/probe/x?access_token="+token), "", nil); a.code != 401 || strings.Contains(a.body, token) {
		t.Errorf("a token in the URL: %d %s, want 401", a.code, a.body)
	}
	if strings.Contains(mesh.Log(), strings.Split(token, ".")[2]) {
		t.Error("the log has a token in it")
	}
}
