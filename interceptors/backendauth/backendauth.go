// Package backendauth is for gRPC servers behind a mesh: its interceptors verify the credential that the mesh mints for each call, and say on
// whose behalf the call is made.
//
// A credential is a JWT in the metadata "authorization". It is for one backend and one method, and holds for at most a minute. It is not
// remembered which ones were used: whoever reads one on the way can repeat that call of that method until it ends, so connections between mesh and
// backend need TLS wherever others could listen.
package backendauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/jwks"
)

const (
	// tokenType is the "typ" of credentials, maxToken bounds one, and maxLifetime is the longest that one may hold.
	tokenType   = "toolway+jwt"
	maxToken    = 16 << 10
	maxLifetime = time.Minute
	// DefaultClockSkew is by how much the clocks of mesh and backend may differ.
	DefaultClockSkew = 5 * time.Second
)

// Config says which credentials are good. Issuer, Audience and one of JWKS and Keys are required.
type Config struct {
	// Issuer is the mesh's name: credentials.issuer in its configuration.
	Issuer string
	// Audience is this backend's name: the one it has in the mesh's configuration, unless credentials.audience says otherwise.
	Audience string
	// JWKS is the URL of the mesh's keys: /.well-known/jwks.json at its HTTP door. They are read at the first call, and again when the mesh
	// signs with a new key.
	JWKS string
	// Keys is a JWK set, for backends that cannot reach the mesh.
	Keys []byte
	// ClockSkew is by how much the mesh's clock may differ. Default DefaultClockSkew; negative means none.
	ClockSkew time.Duration
	// Open are full methods, "/pkg.Service/Method", or services, "/pkg.Service/", that need no credential. Default: grpc.health.v1.Health and
	// server reflection, which the mesh itself calls without one.
	Open []string
	// Client reads the keys. Default: one with a timeout, that follows no redirects.
	Client *http.Client
}

// Principal is the caller on whose behalf the mesh calls.
type Principal struct {
	// ID names the caller; "" if nobody has said who it is.
	ID string
	// Tenant is whom the caller acts for; "" where there are no tenants.
	Tenant string
	// Scopes are those that the method needs; the caller has them.
	Scopes []string
	// Call is the mesh's id of the call, the same in its logs and audit.
	Call string
	// Token is the id of the credential, different for each attempt.
	Token string
}

// Verifier verifies credentials. It is safe for concurrent use; Close ends it.
type Verifier struct {
	conf Config
	keys *jwks.Set
}

// DefaultOpen are the services that need no credential unless Config.Open says otherwise.
var DefaultOpen = []string{"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"}

// New returns a verifier. It does not reach for the mesh yet, so backends may start first.
func New(c Config) (*Verifier, error) {
	var keys jwks.Config
	switch {
	case c.Issuer == "" || c.Audience == "":
		return nil, errors.New("backendauth: Issuer and Audience are required")
	case (c.JWKS == "") == (len(c.Keys) == 0):
		return nil, errors.New("backendauth: give one of JWKS and Keys")
	case c.JWKS != "":
		keys = jwks.Config{URL: c.JWKS, Client: c.Client}
	default:
		parsed, err := jwks.Parse(c.Keys)
		if err != nil {
			return nil, fmt.Errorf("backendauth: Keys: %w", err)
		}
		keys.Keys = parsed
	}
	switch {
	case c.ClockSkew == 0:
		c.ClockSkew = DefaultClockSkew
	case c.ClockSkew < 0:
		c.ClockSkew = 0
	}
	if c.Open == nil {
		c.Open = DefaultOpen
	}
	return &Verifier{conf: c, keys: jwks.New(keys)}, nil
}

// Close ends what runs in the background, and waits for it.
func (v *Verifier) Close() { v.keys.Close() }

// Unary is the interceptor of unary calls.
func (v *Verifier) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := v.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// Stream is the interceptor of all other calls. A stream may outlive its credential: that is checked when it begins.
func (v *Verifier) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := v.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &withContext{stream, ctx})
}

type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context has the principal in it.
func (s *withContext) Context() context.Context { return s.ctx }

type principalKey struct{}

// FromContext returns the caller on whose behalf a call is made; false for methods that need no credential.
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// admit returns ctx with the principal in it, or UNAUTHENTICATED.
func (v *Verifier) admit(ctx context.Context, method string) (context.Context, error) {
	for _, open := range v.conf.Open {
		if method == open || strings.HasSuffix(open, "/") && strings.HasPrefix(method, open) {
			return ctx, nil
		}
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return nil, refuse(codes.Unauthenticated, "MISSING_CREDENTIALS", "the call brings no credential of the mesh; call through the mesh")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, refuse(codes.Unauthenticated, "MALFORMED_CREDENTIALS", "authorization has no bearer token")
	}
	p, err := v.Verify(ctx, token, method)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, principalKey{}, *p), nil
}

// Verify checks a credential for a full method, for servers that have no use for interceptors. The error is a status: UNAUTHENTICATED, or
// UNAVAILABLE if the mesh's keys cannot be read.
func (v *Verifier) Verify(ctx context.Context, token, method string) (*Principal, error) {
	if len(token) > maxToken {
		return nil, invalid("the credential is too long")
	}
	sig, err := jose.ParseSignedCompact(token, jwks.Algorithms)
	if err != nil {
		return nil, invalid("the credential is no signed JWT of an algorithm that is taken")
	}
	if typ, _ := sig.Signatures[0].Protected.ExtraHeaders[jose.HeaderType].(string); typ != tokenType {
		return nil, invalid("the token is not a credential of the mesh")
	}
	payload, err := v.keys.Verify(ctx, sig)
	switch {
	case errors.Is(err, jwks.ErrUnavailable):
		return nil, refuse(codes.Unavailable, "KEYS_UNAVAILABLE", "the mesh's keys cannot be read now")
	case errors.Is(err, jwks.ErrUnknownKey), errors.Is(err, jwks.ErrSignature):
		return nil, invalid("the credential is not signed by the mesh")
	case err != nil:
		return nil, status.FromContextError(err).Err()
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, invalid("the credential's claims cannot be read")
	}
	if err := v.check(&c, method); err != nil {
		return nil, err
	}
	return &Principal{ID: c.Subject, Tenant: c.Tenant, Scopes: strings.Fields(c.Scope), Call: c.Call, Token: c.ID}, nil
}

type claims struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
	Subject  string   `json:"sub"`
	Tenant   string   `json:"tenant"`
	Scope    string   `json:"scope"`
	Method   string   `json:"method"`
	Call     string   `json:"call"`
	ID       string   `json:"jti"`
	Issued   int64    `json:"iat"`
	Expires  int64    `json:"exp"`
}

// audience is one name, or a list.
type audience []string

// UnmarshalJSON reads either.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

func (v *Verifier) check(c *claims, method string) error {
	now, issued, expires := time.Now(), time.Unix(c.Issued, 0), time.Unix(c.Expires, 0)
	switch {
	case c.Issuer != v.conf.Issuer:
		return invalid("the credential is of another mesh")
	case !slices.Contains(c.Audience, v.conf.Audience):
		return refuse(codes.Unauthenticated, "WRONG_AUDIENCE", "the credential is for another backend")
	case c.Method != method:
		return refuse(codes.Unauthenticated, "WRONG_METHOD", "the credential is for another method")
	case expires.Sub(issued) > maxLifetime:
		return invalid("the credential holds for longer than the mesh would have it")
	case !now.Before(expires.Add(v.conf.ClockSkew)):
		return refuse(codes.Unauthenticated, "TOKEN_EXPIRED", "the credential has expired")
	case now.Add(v.conf.ClockSkew).Before(issued):
		return refuse(codes.Unauthenticated, "TOKEN_NOT_YET_VALID", "the credential is not valid yet; check the clocks of mesh and backend")
	}
	return nil
}

func invalid(message string) error { return refuse(codes.Unauthenticated, "INVALID_TOKEN", message) }

// Domain is the google.rpc.ErrorInfo domain of refusals.
const Domain = "backendauth.toolway"

func refuse(code codes.Code, reason, message string) error {
	st := status.New(code, message)
	if with, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain}); err == nil {
		st = with
	}
	return st.Err()
}
