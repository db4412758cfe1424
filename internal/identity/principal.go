// Package identity says who callers are, and tells backends: it verifies credentials that callers bring and mints those that backends get.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Principal is an authenticated caller. It is immutable and safe for concurrent use.
type Principal struct {
	// ID names the caller, uniquely among all ways to authenticate: "issuer#subject", "key:name", a SPIFFE id, or "anonymous".
	ID string
	// Tenant is whom the caller acts for; "" where there are no tenants.
	Tenant string
	// Scopes are what the caller may do, sorted, without duplicates.
	Scopes []string
	// Claims are what the credential says besides, for rules. They must not be changed.
	Claims map[string]any
	// How is the way of authentication: "jwt", "api-key", "mtls", or "none".
	How string
	// Expires is when the credential ends; zero means never.
	Expires time.Time
}

// Anonymous is the caller of a mesh that asks for no credentials. It has every scope: such a mesh listens on loopback only.
var Anonymous = &Principal{ID: "anonymous", Scopes: []string{AllScopes}, How: "none"}

// Operator is who runs the toolway command: it has the configuration, and so everything.
var Operator = &Principal{ID: "operator", Scopes: []string{AllScopes}, How: "none"}

// AllScopes is the scope that includes every other.
const AllScopes = "*"

// Has says whether the principal has a scope: by itself, by AllScopes, or by a scope that ends in ":*" and includes it, such as "logs:*"
// for "logs:read". A nil principal has none.
func (p *Principal) Has(scope string) bool {
	if p == nil {
		return false
	}
	return slices.ContainsFunc(p.Scopes, func(have string) bool {
		if have == scope || have == AllScopes {
			return true
		}
		family, all := strings.CutSuffix(have, "*")
		return all && strings.HasSuffix(family, ":") && strings.HasPrefix(scope, family)
	})
}

// Missing returns those of the wanted scopes that the principal lacks, in their order.
func (p *Principal) Missing(want []string) []string {
	var out []string
	for _, s := range want {
		if !p.Has(s) {
			out = append(out, s)
		}
	}
	return out
}

// Permissions identifies what the principal may see: callers with the same value get the same lists and may share cached results. It is a
// hash of tenant and scopes.
func (p *Principal) Permissions() string {
	if p == nil {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q", p.Tenant)
	for _, s := range p.Scopes {
		fmt.Fprintf(h, " %q", s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
