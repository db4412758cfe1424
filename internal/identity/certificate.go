package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path"
	"strings"
	"time"
)

// Certificate says which caller a verified client certificate names.
type Certificate struct {
	// SAN is the certificate's URI name, such as "spiffe://example.org/ns/tools/sa/agent", or its DNS name, such as "agent.example.org". A
	// "*" stands for one part, or some of it: what is between slashes in a URI, and between dots in a DNS name.
	SAN string
	// Tenant is whom the caller acts for.
	Tenant string
	// Scopes are what the caller may do.
	Scopes []string
}

func checkCertificates(configured []Certificate) ([]Certificate, error) {
	var out []Certificate
	for _, c := range configured {
		if _, err := path.Match(c.SAN, ""); c.SAN == "" || err != nil {
			return nil, fmt.Errorf("certificate %q: want a URI or DNS name, such as spiffe://example.org/ns/tools/sa/agent; a * stands for one part", c.SAN)
		}
		scheme, rest, isURI := strings.Cut(c.SAN, "://")
		host, _, _ := strings.Cut(rest, "/")
		if isURI && strings.ContainsAny(scheme+host, "*?[") {
			return nil, fmt.Errorf("certificate %q: the scheme and the trust domain cannot have a *: name them", c.SAN)
		}
		for _, s := range c.Scopes {
			if !IsScope(s) {
				return nil, fmt.Errorf("certificate %q: %q is not a scope: want printable letters without spaces", c.SAN, s)
			}
		}
		c.Scopes = normaliseScopes(c.Scopes)
		out = append(out, c)
	}
	return out, nil
}

// leafOf returns the client's certificate if the listener has verified it.
func leafOf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// certificate returns the caller that a client certificate names, or nil. The first rule that fits one of its names counts; a SPIFFE certificate
// has exactly one URI name (X.509-SVID, section 2), and others of such a scheme are refused.
func (a *Authenticator) certificate(state *tls.ConnectionState) *Principal {
	leaf := leafOf(state)
	if leaf == nil || len(a.certs) == 0 {
		return nil
	}
	hash, now := sha256.Sum256(leaf.Raw), time.Now()
	known, ok := a.seen.get(hash, now)
	if !ok {
		known = verified{principal: a.named(leaf), until: leaf.NotAfter}
		a.seen.put(hash, known, now)
	}
	return known.principal
}

// named returns the caller that a certificate names, or nil.
func (a *Authenticator) named(leaf *x509.Certificate) *Principal {
	spiffe := 0
	for _, u := range leaf.URIs {
		if u.Scheme == "spiffe" {
			spiffe++
		}
	}
	if spiffe > 1 || spiffe == 1 && len(leaf.URIs) > 1 {
		return nil
	}
	for i := range a.certs {
		rule := &a.certs[i]
		if id, ok := rule.match(leaf); ok {
			return &Principal{ID: id, Tenant: rule.Tenant, Scopes: rule.Scopes, How: "mtls", Expires: leaf.NotAfter}
		}
	}
	return nil
}

// match returns the principal's id if one of the certificate's names fits.
func (c *Certificate) match(leaf *x509.Certificate) (id string, ok bool) {
	if strings.Contains(c.SAN, "://") {
		for _, u := range leaf.URIs {
			name := u.String()
			if ok, _ := path.Match(c.SAN, name); ok && len(name) <= 2048 {
				return name, true
			}
		}
		return "", false
	}
	parts := strings.NewReplacer(".", "/")
	for _, name := range leaf.DNSNames {
		name = strings.ToLower(name)
		if ok, _ := path.Match(parts.Replace(strings.ToLower(c.SAN)), parts.Replace(name)); ok && !strings.Contains(name, "*") {
			return "dns:" + name, true
		}
	}
	return "", false
}
