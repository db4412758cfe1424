package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/toolway/toolway/internal/jwks"
)

const (
	// maxToken bounds a token, maxSubject the parts of an id, maxScopes and maxScope its scopes.
	maxToken   = 16 << 10
	maxSubject = 255
	maxScopes  = 256
	maxScope   = 256
	// DefaultClockSkew is by how much the clocks of issuer and mesh may differ.
	DefaultClockSkew = 30 * time.Second
	maxClockSkew     = 5 * time.Minute
)

// Issuer is an authorization server whose JWT access tokens are taken (RFC 9068, and what providers made before it).
type Issuer struct {
	// URL is the issuer, exactly as tokens and the discovery document have it.
	URL string
	// Audiences are those of which a token must be for one. Required: a token for somebody else proves nothing here.
	Audiences []string
	// Algorithms are those that a token may be signed with. Default: all asymmetric ones.
	Algorithms []string
	// Types are the "typ" headers that are taken, in any case, with or without "application/". Default: at+jwt, JWT and none.
	Types []string
	// JWKS is the URL of the keys. Default: the discovery document names it.
	JWKS string
	// ScopeClaims are the claims that hold scopes, as text with spaces or as a list. Default: scope and scp.
	ScopeClaims []string
	// TenantClaim is the claim that names the tenant; a token without it is refused. Default: Tenant stands.
	TenantClaim string
	// Tenant is the tenant of all callers, if there is no TenantClaim.
	Tenant string
	// ClockSkew is by how much the issuer's clock may differ, at most 5 minutes. Default DefaultClockSkew; negative means none.
	ClockSkew time.Duration
	// Client fetches documents of the issuer. Default: jwks.NewClient(nil).
	Client *http.Client
}

// issuer is an Issuer that is ready.
type issuer struct {
	Issuer
	algorithms []string
	types      []string
	keys       *jwks.Set
}

func newIssuer(c Issuer) (*issuer, error) {
	if err := jwks.CheckURL(c.URL); err != nil {
		return nil, err
	}
	if strings.ContainsAny(c.URL, "?#") {
		return nil, errors.New("an issuer has no query and no fragment")
	}
	if c.JWKS != "" {
		if err := jwks.CheckURL(c.JWKS); err != nil {
			return nil, fmt.Errorf("jwks: %w", err)
		}
	}
	if len(c.Audiences) == 0 || slices.Contains(c.Audiences, "") {
		return nil, errors.New("audiences are missing: name what tokens for this mesh are for, such as its public URL")
	}
	if c.TenantClaim != "" && c.Tenant != "" {
		return nil, errors.New("tenant and tenant_claim contradict each other: keep one")
	}
	switch {
	case c.ClockSkew == 0:
		c.ClockSkew = DefaultClockSkew
	case c.ClockSkew < 0:
		c.ClockSkew = 0
	case c.ClockSkew > maxClockSkew:
		return nil, fmt.Errorf("clock_skew %s is above %s: mend the clocks", c.ClockSkew, maxClockSkew)
	}
	if len(c.ScopeClaims) == 0 {
		c.ScopeClaims = []string{"scope", "scp"}
	}
	i := &issuer{Issuer: c}
	for _, alg := range jwks.Algorithms {
		if len(c.Algorithms) == 0 || slices.Contains(c.Algorithms, string(alg)) {
			i.algorithms = append(i.algorithms, string(alg))
		}
	}
	for _, alg := range c.Algorithms {
		if !slices.Contains(i.algorithms, alg) {
			return nil, fmt.Errorf("algorithm %q is not taken: want some of %v", alg, jwks.Algorithms)
		}
	}
	for _, t := range c.Types {
		i.types = append(i.types, plainType(t))
	}
	if len(i.types) == 0 {
		i.types = []string{"", "jwt", "at+jwt"}
	}
	i.keys = jwks.New(jwks.Config{URL: c.JWKS, Issuer: c.URL, Client: c.Client})
	return i, nil
}

// plainType returns a "typ" in the form in which they are compared (RFC 7515, section 4.1.9).
func plainType(t string) string { return strings.TrimPrefix(strings.ToLower(t), "application/") }

// token authenticates an access token.
func (a *Authenticator) token(ctx context.Context, c Credentials) (*Principal, error) {
	if len(c.Bearer) > maxToken {
		return nil, errInvalid
	}
	hash := sha256.Sum256([]byte(c.Bearer))
	now := time.Now()
	known, ok := a.cache.get(hash, now)
	if !ok {
		select {
		case a.slots <- struct{}{}:
		default:
			return nil, errBusy
		}
		verified, err := a.verify(ctx, c.Bearer, now)
		<-a.slots
		if err != nil {
			return nil, err
		}
		known = *verified
		a.cache.put(hash, known, now)
	}
	if known.thumbprint != "" && known.thumbprint != thumbprint(c) {
		return nil, errConstrained
	}
	return known.principal, nil
}

// thumbprint returns that of the caller's certificate (RFC 8705, section 3.1), or "".
func thumbprint(c Credentials) string {
	leaf := leafOf(c.TLS)
	if leaf == nil {
		return ""
	}
	return Thumbprint(leaf)
}

// Thumbprint returns that of a certificate as the claim cnf.x5t#S256 has it.
func Thumbprint(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.Raw)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// verify checks a token: first what costs nothing, then the signature, then what the token says.
func (a *Authenticator) verify(ctx context.Context, token string, now time.Time) (*verified, error) {
	sig, err := jose.ParseSignedCompact(token, jwks.Algorithms)
	if err != nil {
		var algorithm *jose.ErrUnexpectedSignatureAlgorithm
		if errors.As(err, &algorithm) {
			return nil, errAlgorithm
		}
		return nil, errInvalid
	}
	unverified, err := parseClaims(sig.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, errInvalid
	}
	i := a.issuers[unverified.Issuer]
	if i == nil {
		return nil, errUnknownIssuer
	}
	header := sig.Signatures[0].Protected
	if !slices.Contains(i.algorithms, header.Algorithm) {
		return nil, errAlgorithm
	}
	typ, _ := header.ExtraHeaders[jose.HeaderType].(string)
	if !slices.Contains(i.types, plainType(typ)) {
		return nil, errType
	}
	// A token that is no good anyway is not worth a signature check.
	if err := i.check(unverified, now); err != nil {
		return nil, err
	}
	if _, err := i.keys.Verify(ctx, sig); err != nil { // the payload is the one that was parsed
		return nil, a.signatureError(ctx, i, err)
	}
	return i.principal(unverified)
}

func (a *Authenticator) signatureError(ctx context.Context, i *issuer, err error) error {
	switch {
	case errors.Is(err, jwks.ErrUnavailable):
		a.logger.LogAttrs(ctx, slog.LevelWarn, "cannot read the keys of an issuer", slog.String("issuer", i.URL), slog.Any("error", err))
		return errProvider
	case errors.Is(err, jwks.ErrUnknownKey):
		return errUnknownKey
	case errors.Is(err, jwks.ErrSignature):
		return errInvalid
	}
	return errProvider // the caller has gone, or its time is over
}

// claims are those that are checked here.
type claims struct {
	Issuer    string
	Subject   string
	Audience  []string
	Expiry    time.Time
	NotBefore time.Time
	IssuedAt  time.Time
	all       map[string]any
}

// parseClaims reads a payload. A claim of the wrong kind, or one that occurs twice, makes it bad.
func parseClaims(payload []byte) (*claims, error) {
	all, err := uniqueMembers(json.NewDecoder(bytes.NewReader(payload)))
	if err != nil {
		return nil, err
	}
	c := &claims{all: all}
	ok := text(all, "iss", &c.Issuer) && text(all, "sub", &c.Subject) && list(all["aud"], &c.Audience) &&
		instant(all, "exp", &c.Expiry) && instant(all, "nbf", &c.NotBefore) && instant(all, "iat", &c.IssuedAt)
	if !ok {
		return nil, errors.New("a claim has the wrong kind")
	}
	return c, nil
}

// uniqueMembers reads one object, and refuses a member that occurs twice: parsers do not agree on which one counts.
func uniqueMembers(d *json.Decoder) (map[string]any, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the claims are not an object")
	}
	out := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if _, twice := out[key]; twice {
			return nil, errors.New("a claim occurs twice")
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		out[key] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("there is something after the claims")
	}
	return out, nil
}

// text reads a claim that is text, or missing.
func text(all map[string]any, name string, to *string) bool {
	v, there := all[name]
	s, ok := v.(string)
	*to = s
	return ok || !there
}

// list reads a claim that is text or a list of it, or missing.
func list(v any, to *[]string) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		*to = []string{v}
		return true
	case []any:
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return false
			}
			*to = append(*to, s)
		}
		return true
	}
	return false
}

// instant reads a NumericDate (RFC 7519, section 2), or nothing.
func instant(all map[string]any, name string, to *time.Time) bool {
	v, there := all[name]
	if !there {
		return true
	}
	const last = 1 << 40 // far away, and no trouble for arithmetic with times
	seconds, ok := v.(float64)
	if !ok || seconds < 0 || seconds > last {
		return false
	}
	*to = time.Unix(int64(seconds), 0)
	return true
}

// check checks what a token says, but for its signature.
func (i *issuer) check(c *claims, now time.Time) error {
	switch {
	case !slices.ContainsFunc(c.Audience, func(aud string) bool { return slices.Contains(i.Audiences, aud) }):
		return errAudience
	case c.Expiry.IsZero():
		return errInvalid
	case !now.Before(c.Expiry.Add(i.ClockSkew)):
		return errExpired
	case now.Add(i.ClockSkew).Before(c.NotBefore), now.Add(i.ClockSkew).Before(c.IssuedAt):
		return errNotYet
	case c.Subject == "", len(c.Subject) > maxSubject, strings.ContainsFunc(c.Subject, unprintable):
		return errInvalid
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }

// verified is a token that was found good.
type verified struct {
	principal *Principal
	// thumbprint is that of the certificate that the token is bound to (RFC 8705), or "".
	thumbprint string
	// until is when the token ends here, clock skew included.
	until time.Time
}

// principal returns whom the claims of a verified token name.
func (i *issuer) principal(c *claims) (*verified, error) {
	v := &verified{until: c.Expiry.Add(i.ClockSkew)}
	tenant := i.Tenant
	if i.TenantClaim != "" {
		tenant, _ = c.all[i.TenantClaim].(string)
		if tenant == "" || len(tenant) > maxSubject || strings.ContainsFunc(tenant, unprintable) {
			return nil, errNoTenant
		}
	}
	var scopes []string
	for _, name := range i.ScopeClaims {
		scopes = append(scopes, scopesOf(c.all[name])...)
	}
	if len(scopes) > maxScopes {
		return nil, errInvalid
	}
	if confirmation, bound := c.all["cnf"]; bound {
		members, _ := confirmation.(map[string]any)
		v.thumbprint, _ = members["x5t#S256"].(string)
		if v.thumbprint == "" || len(members) > 1 {
			return nil, errConstrained
		}
	}
	v.principal = &Principal{ID: i.URL + "#" + c.Subject, Tenant: tenant, Scopes: normaliseScopes(scopes), Claims: c.all, How: "jwt", Expires: v.until}
	return v, nil
}

// scopesOf reads a claim with scopes, as text with spaces between, or as a list. What is no scope (RFC 6749, section 3.3) is left out.
func scopesOf(claim any) []string {
	var raw []string
	switch v := claim.(type) {
	case string:
		raw = strings.Fields(v)
	case []any:
		for _, item := range v {
			if s, ok := item.(string); ok {
				raw = append(raw, s)
			}
		}
	}
	return slices.DeleteFunc(raw, func(s string) bool { return !IsScope(s) })
}

// IsScope says whether s can be a scope: printable ASCII without spaces, quotes and backslashes.
func IsScope(s string) bool {
	if s == "" || len(s) > maxScope {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
