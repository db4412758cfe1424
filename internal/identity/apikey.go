package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// KeyPrefix begins each API key, so that scanners for leaked secrets find it, and a bearer token that is one is known.
const KeyPrefix = "tw_"

// APIKey is a key that is taken, as the operator keeps it: not the key itself.
type APIKey struct {
	// Name is the caller's: its principal is "key:NAME".
	Name string
	// SHA256 is the hash of the key in hex. A plain hash is enough for keys from NewAPIKey: they are too long to be guessed.
	SHA256 string
	// Tenant is whom the caller acts for.
	Tenant string
	// Scopes are what the caller may do.
	Scopes []string
	// Expires is when the key ends; zero means never.
	Expires time.Time
}

// NewAPIKey returns a new key with 256 random bits, and the hash to be configured.
func NewAPIKey() (key, hash string) {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// 43 letters of 62 have 256 bits. Bytes beyond a multiple of 62 are drawn again, so that each letter is as likely.
	text := []byte(KeyPrefix)
	for b := make([]byte, 64); len(text) < len(KeyPrefix)+43; {
		_, _ = rand.Read(b) // never fails
		for _, c := range b {
			if c < 248 && len(text) < len(KeyPrefix)+43 {
				text = append(text, letters[c%62])
			}
		}
	}
	sum := sha256.Sum256(text)
	return string(text), hex.EncodeToString(sum[:])
}

// apiKeys are the keys by their hash. Where a lookup ends depends on the hash alone, of which nobody can choose a part.
type apiKeys map[[sha256.Size]byte]*apiKey

type apiKey struct {
	hash      [sha256.Size]byte
	principal *Principal
}

func newAPIKeys(configured []APIKey) (apiKeys, error) {
	out, names := apiKeys{}, map[string]bool{}
	for _, c := range configured {
		var k apiKey
		switch raw, err := hex.DecodeString(c.SHA256); {
		case c.Name == "" || len(c.Name) > maxSubject || strings.ContainsFunc(c.Name, unprintable):
			return nil, fmt.Errorf("api key %q: want a name of at most %d printable letters", c.Name, maxSubject)
		case names[c.Name]:
			return nil, fmt.Errorf("api key %q is configured twice: rename one", c.Name)
		case err != nil || len(raw) != sha256.Size:
			return nil, fmt.Errorf("api key %q: sha256 wants 64 hex digits; toolway key new makes a key and its entry", c.Name)
		default:
			copy(k.hash[:], raw)
		}
		if out[k.hash] != nil {
			return nil, fmt.Errorf("api key %q has the hash of another one: each needs a key of its own", c.Name)
		}
		for _, s := range c.Scopes {
			if !IsScope(s) {
				return nil, fmt.Errorf("api key %q: %q is not a scope: want printable letters without spaces", c.Name, s)
			}
		}
		k.principal = &Principal{ID: "key:" + c.Name, Tenant: c.Tenant, Scopes: normaliseScopes(c.Scopes), How: "api-key", Expires: c.Expires}
		out[k.hash], names[c.Name] = &k, true
	}
	return out, nil
}

// find returns whose key it is.
func (a apiKeys) find(key string) (*Principal, error) {
	if len(key) > maxToken {
		return nil, errUnknownAPIKey
	}
	hash := sha256.Sum256([]byte(key))
	k := a[hash]
	if k == nil || subtle.ConstantTimeCompare(k.hash[:], hash[:]) != 1 {
		return nil, errUnknownAPIKey
	}
	if e := k.principal.Expires; !e.IsZero() && !time.Now().Before(e) {
		return nil, errAPIKeyExpired
	}
	return k.principal, nil
}
