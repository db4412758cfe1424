package backendauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/toolway/toolway/interceptors/backendauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signer signs credentials as a mesh does.
type signer struct {
	key jose.JSONWebKey
	set []byte
}

func newSigner(t testing.TB, kid string) *signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{key: jose.JSONWebKey{Key: private, KeyID: kid, Algorithm: "ES256"}}
	if s.set, err = json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{s.key.Public()}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// sign returns a good credential for UnaryCall with changes; a nil value leaves a claim out.
func (s *signer) sign(t testing.TB, typ string, changes map[string]any) string {
	t.Helper()
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": "mesh", "aud": "orders", "sub": "alice", "tenant": "acme", "scope": "a b", "method": "/grpc.testing.TestService/UnaryCall",
		"call": "c1", "jti": "t1", "iat": now, "exp": now + 30,
	}
	for k, v := range changes {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		t.Fatal(err)
	}
	sig, err := js.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	token, err := sig.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

const typ = "toolway+jwt"

func TestVerify(t *testing.T) {
	s, stranger := newSigner(t, "one"), newSigner(t, "one")
	v, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "orders", Keys: s.set})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	now := time.Now().Unix()
	for name, c := range map[string]struct{ token, want string }{
		"good":              {s.sign(t, typ, nil), ""},
		"a list of names":   {s.sign(t, typ, map[string]any{"aud": []string{"x", "orders"}}), ""},
		"another backend's": {s.sign(t, typ, map[string]any{"aud": "billing"}), "WRONG_AUDIENCE"},
		"another method's":  {s.sign(t, typ, map[string]any{"method": "/grpc.testing.TestService/EmptyCall"}), "WRONG_METHOD"},
		"no method":         {s.sign(t, typ, map[string]any{"method": nil}), "WRONG_METHOD"},
		"another mesh's":    {s.sign(t, typ, map[string]any{"iss": "other"}), "INVALID_TOKEN"},
		"expired":           {s.sign(t, typ, map[string]any{"iat": now - 60, "exp": now - 10}), "TOKEN_EXPIRED"},
		"no expiry":         {s.sign(t, typ, map[string]any{"exp": nil}), "TOKEN_EXPIRED"},
		"from the future":   {s.sign(t, typ, map[string]any{"iat": now + 60, "exp": now + 90}), "TOKEN_NOT_YET_VALID"},
		"for a year":        {s.sign(t, typ, map[string]any{"exp": now + 365*24*3600}), "INVALID_TOKEN"},
		"an access token":   {s.sign(t, "at+jwt", nil), "INVALID_TOKEN"},
		"a stranger's key":  {stranger.sign(t, typ, nil), "INVALID_TOKEN"},
		"no JWT":            {"x", "INVALID_TOKEN"},
		"alg none":          {"eyJhbGciOiJub25lIiwidHlwIjoidG9vbHdheStqd3QifQ.e30.", "INVALID_TOKEN"},
	} {
		p, err := v.Verify(t.Context(), c.token, "/grpc.testing.TestService/UnaryCall")
		if got := reason(err); got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == "" && (p == nil || p.ID != "alice" || p.Tenant != "acme" || len(p.Scopes) != 2 || p.Call != "c1" || p.Token != "t1") {
			t.Errorf("%s: principal %+v", name, p)
		}
	}
	for name, c := range map[string]backendauth.Config{
		"nothing": {}, "no keys": {Issuer: "m", Audience: "a"}, "both": {Issuer: "m", Audience: "a", JWKS: "http://127.0.0.1/", Keys: s.set}, "no key set": {Issuer: "m", Audience: "a", Keys: []byte("{}")},
	} {
		if v, err := backendauth.New(c); err == nil {
			v.Close()
			t.Errorf("%s: New = nil, want an error", name)
		}
	}
}

func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == backendauth.Domain {
			return info.GetReason()
		}
	}
	if err != nil {
		return "no reason"
	}
	return ""
}

// server is a backend that says on whose behalf it is called.
type server struct {
	testpb.UnimplementedTestServiceServer
}

func (server) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	p, ok := backendauth.FromContext(ctx)
	return &testpb.SimpleResponse{Username: p.ID, Hostname: fmt.Sprint(ok)}, nil
}

func (server) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	p, _ := backendauth.FromContext(s.Context())
	return s.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte(p.ID)}})
}

// serve runs a backend, and returns a connection to it.
func serve(t testing.TB, v *backendauth.Verifier) *grpc.ClientConn {
	t.Helper()
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(v.Unary), grpc.ChainStreamInterceptor(v.Stream))
	testpb.RegisterTestServiceServer(s, server{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	l := bufconn.Listen(1 << 20)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	cc, err := grpc.NewClient("passthrough:///bufconn", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// TestInterceptors reads the keys from where the mesh publishes them, and follows it to a new one.
func TestInterceptors(t *testing.T) {
	var s atomic.Pointer[signer]
	s.Store(newSigner(t, "one"))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.Load().set) }))
	defer keys.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	v, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "orders", JWKS: keys.URL, Client: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	cc := serve(t, v)
	c := testpb.NewTestServiceClient(cc)
	with := func(values ...string) context.Context {
		md := metadata.MD{}
		for _, v := range values {
			md.Append("authorization", v)
		}
		return metadata.NewOutgoingContext(t.Context(), md)
	}
	for _, kid := range []string{"one", "two"} {
		s.Store(newSigner(t, kid))
		reply, err := c.UnaryCall(with("Bearer "+s.Load().sign(t, typ, nil)), &testpb.SimpleRequest{})
		if err != nil || reply.GetUsername() != "alice" || reply.GetHostname() != "true" {
			t.Errorf("key %s: %v, %v", kid, reply, err)
		}
		stream, err := c.StreamingOutputCall(with("bearer "+s.Load().sign(t, typ, map[string]any{"method": "/grpc.testing.TestService/StreamingOutputCall"})), &testpb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil || string(got.GetPayload().GetBody()) != "alice" {
			t.Errorf("key %s: stream: %v, %v", kid, got, err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("key %s: stream ends with %v", kid, err)
		}
	}
	good := "Bearer " + s.Load().sign(t, typ, nil)
	for name, c2 := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"none": {t.Context(), "MISSING_CREDENTIALS"}, "two": {with(good, good), "MISSING_CREDENTIALS"}, "basic": {with("Basic YTpi"), "MALFORMED_CREDENTIALS"},
	} {
		if _, err := c.UnaryCall(c2.ctx, &testpb.SimpleRequest{}); status.Code(err) != codes.Unauthenticated || reason(err) != c2.want {
			t.Errorf("%s: %v, want %s", name, err, c2.want)
		}
		stream, err := c.StreamingOutputCall(c2.ctx, &testpb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: stream: %v", name, err)
		}
	}
	if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v, want it open", err)
	}
}

func TestKeysUnavailable(t *testing.T) {
	v, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "orders", JWKS: "http://127.0.0.1:1/keys"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, err = v.Verify(t.Context(), newSigner(t, "one").sign(t, typ, nil), "/grpc.testing.TestService/UnaryCall")
	if status.Code(err) != codes.Unavailable || reason(err) != "KEYS_UNAVAILABLE" {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
}

func FuzzVerify(f *testing.F) {
	s := newSigner(f, "one")
	v, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "orders", Keys: s.set})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(v.Close)
	good := s.sign(f, typ, nil)
	f.Add(good[:len(good)-2])
	f.Add("")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if p, err := v.Verify(t.Context(), token, "/x/Y"); err == nil || status.Code(err) != codes.Unauthenticated {
			t.Errorf("Verify(%q) = %+v, %v", token, p, err)
		}
	})
}
