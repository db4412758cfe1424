package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The bounds of minted credentials.
const (
	DefaultMintTTL = 30 * time.Second
	MaxMintTTL     = time.Minute
)

// Minter mints the credentials by which backends know on whose behalf the mesh calls: JWTs that hold for one method of one backend, for
// seconds. Each call gets its own, since it names the call. It is safe for concurrent use.
type Minter struct {
	issuer string
	ttl    time.Duration
	ring   *keyRing
}

// MinterConfig says how credentials are minted. The zero value works, with an issuer.
type MinterConfig struct {
	// Issuer is the "iss" of credentials: the mesh's name, as backends are told. Required.
	Issuer string
	// TTL is how long a credential holds, at most MaxMintTTL. Default DefaultMintTTL.
	TTL time.Duration
	// Algorithm is "ES256" or "EdDSA". Default ES256, which every library verifies.
	Algorithm string
	// Rotate is how often a new key takes over. Default 24 hours.
	Rotate time.Duration
	// File keeps the keys, so that a restart does not change them. Default: they end with the process.
	File string
	// Keys are PEM files of private keys, for several instances that share them: the first signs, all are published. They exclude File and
	// Rotate.
	Keys []string
	// Logger is told when new keys cannot be kept. Default slog.Default().
	Logger *slog.Logger
}

// NewMinter returns a minter with its keys read or made.
func NewMinter(c MinterConfig) (*Minter, error) {
	switch {
	case c.Issuer == "":
		return nil, errors.New("issuer is missing: say by which name backends know the mesh")
	case c.TTL < 0 || c.TTL > MaxMintTTL:
		return nil, fmt.Errorf("ttl %s: want at most %s, since nothing takes a credential back", c.TTL, MaxMintTTL)
	case c.TTL == 0:
		c.TTL = DefaultMintTTL
	}
	ring, err := openKeyRing(c)
	if err != nil {
		return nil, err
	}
	return &Minter{issuer: c.Issuer, ttl: c.TTL, ring: ring}, nil
}

// Grant is what a credential says.
type Grant struct {
	// Audience is the backend that the credential is for, Method the full method that it is for: "/pkg.Service/Method".
	Audience, Method string
	// Principal is the caller; nil is nobody.
	Principal *Principal
	// Scopes are those that the method needs, and the caller has.
	Scopes []string
	// Call is the id of the call.
	Call string
}

// Mint returns a credential for g, as a compact JWS.
func (m *Minter) Mint(g Grant) (string, error) {
	now := time.Now()
	k, err := m.ring.signer(now)
	if err != nil {
		return "", err
	}
	claims := make([]byte, 0, 512)
	claims = appendClaim(append(claims, '{'), "iss", m.issuer)
	claims = appendClaim(append(claims, ','), "aud", g.Audience)
	if p := g.Principal; p != nil {
		claims = appendClaim(append(claims, ','), "sub", p.ID)
		if p.Tenant != "" {
			claims = appendClaim(append(claims, ','), "tenant", p.Tenant)
		}
	}
	claims = appendClaim(append(claims, ','), "method", g.Method)
	if len(g.Scopes) > 0 {
		claims = appendClaim(append(claims, ','), "scope", strings.Join(g.Scopes, " "))
	}
	if g.Call != "" {
		claims = appendClaim(append(claims, ','), "call", g.Call)
	}
	claims = appendClaim(append(claims, ','), "jti", rand.Text())
	claims = strconv.AppendInt(append(claims, `,"iat":`...), now.Unix(), 10)
	claims = strconv.AppendInt(append(claims, `,"exp":`...), now.Add(m.ttl).Unix(), 10)
	claims = append(claims, '}')

	token, err := k.compact(MintedType, claims)
	if err != nil {
		return "", fmt.Errorf("sign a credential for %q: %w", g.Audience, err)
	}
	return token, nil
}

// appendClaim appends a claim that is text.
func appendClaim(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, '"'), name...), `":`...)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(value)
			if err != nil { // text can always be encoded
				return append(dst, `""`...)
			}
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), value...), '"')
}

// JWKS returns the public keys as a JWK set: the one that signs, the one that will, and those whose credentials may still be in use.
func (m *Minter) JWKS() ([]byte, error) { return m.ring.public(time.Now()) }

// signingKey is one key.
type signingKey struct {
	private crypto.Signer
	kid     string
	alg     jose.SignatureAlgorithm
	headers map[string]string // the protected headers, encoded, by "typ"
	made    time.Time
}

func newSigningKey(private crypto.Signer, made time.Time) (*signingKey, error) {
	k := &signingKey{private: private, made: made}
	switch p := private.(type) {
	case *ecdsa.PrivateKey:
		if p.Curve != elliptic.P256() {
			return nil, errors.New("an ECDSA key: want one on P-256")
		}
		k.alg = jose.ES256
	case ed25519.PrivateKey:
		k.alg = jose.EdDSA
	default:
		return nil, fmt.Errorf("a key of type %T: want ECDSA on P-256, or Ed25519", private)
	}
	jwk := jose.JSONWebKey{Key: private.Public()}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("thumbprint of a key: %w", err)
	}
	k.kid = base64.RawURLEncoding.EncodeToString(sum[:16])
	k.headers = map[string]string{}
	for _, typ := range []string{MintedType, "JWT"} {
		header, err := json.Marshal(struct {
			Algorithm jose.SignatureAlgorithm `json:"alg"`
			Type      string                  `json:"typ"`
			KeyID     string                  `json:"kid"`
		}{k.alg, typ, k.kid})
		if err != nil {
			return nil, err
		}
		k.headers[typ] = base64.RawURLEncoding.EncodeToString(header)
	}
	return k, nil
}

// MintedType is the "typ" of minted credentials, so that none passes for an access token, nor the other way round.
const MintedType = "toolway+jwt"

// generate makes a key for an algorithm.
func generate(algorithm string, made time.Time) (*signingKey, error) {
	var private crypto.Signer
	var err error
	switch algorithm {
	case "", string(jose.ES256):
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case string(jose.EdDSA):
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, fmt.Errorf("algorithm %q: want ES256 or EdDSA", algorithm)
	}
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	return newSigningKey(private, made)
}

// compact returns a compact JWS of claims (RFC 7515, section 7.1). It is made here, not by a library, since it is made for each call: half the time
// and a tenth of the allocations.
func (k *signingKey) compact(typ string, claims []byte) (string, error) {
	header := k.headers[typ]
	const longestSignature = 90
	token := make([]byte, 0, len(header)+1+base64.RawURLEncoding.EncodedLen(len(claims))+longestSignature)
	token = append(append(token, header...), '.')
	token = base64.RawURLEncoding.AppendEncode(token, claims)
	signature, err := k.sign(token)
	if err != nil {
		return "", err
	}
	return string(base64.RawURLEncoding.AppendEncode(append(token, '.'), signature)), nil
}

// sign returns the signature of a JWS signing input (RFC 7518, section 3.4, and RFC 8037, section 3.1).
func (k *signingKey) sign(input []byte) ([]byte, error) {
	if k.alg == jose.EdDSA {
		return k.private.Sign(rand.Reader, input, crypto.Hash(0))
	}
	private, ok := k.private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not its algorithm's")
	}
	sum := sha256.Sum256(input)
	r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
	if err != nil {
		return nil, err
	}
	out := make([]byte, 64)
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out, nil
}

func (k *signingKey) publicJWK() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.kid, Algorithm: string(k.alg), Use: "sig"}
}
