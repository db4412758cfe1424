package call

import (
	"fmt"
	"path"
	"strings"
)

// credentialWords never cross as a word of a key: "x-gitlab-token", "private-token", "x-pomerium-jwt-assertion".
var credentialWords = set("token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "credential", "credentials",
	"cookie", "cookies", "jwt", "jws", "bearer", "oauth", "oauth2", "oidc", "saml", "assertion", "apikey", "apikeys", "accesskey", "privatekey", "hmac", "otp", "mfa", "totp")

// identityWords say who is calling. They cross only under a name that the operator allows literally, never by a pattern.
var identityWords = set("identity", "identities", "principal", "principals", "role", "roles", "scope", "scopes", "group", "groups", "consumer", "consumers",
	"email", "emails", "subject", "sub", "actor", "caller", "account", "accounts", "accountid", "login", "uid", "claim", "claims", "permission", "permissions", "admin",
	"member", "customer", "org", "orgid", "organization", "session", "sessionid", "sid", "impersonate", "impersonated", "cert", "certificate", "spiffe")

func separator(c rune) bool { return c == '-' || c == '_' || c == '.' }

// words are the parts of a lower-case key, without the "bin" that says how its values are written.
func words(key string) []string {
	return strings.FieldsFunc(strings.TrimSuffix(key, "-bin"), separator)
}

// credential says whether one of the words is a credential's.
func credential(words []string) bool {
	for i, w := range words {
		switch {
		case credentialWords[w], strings.HasPrefix(w, "auth") && w != "author" && w != "authors",
			strings.HasSuffix(w, "token"), strings.HasSuffix(w, "secret"), strings.HasSuffix(w, "password"), strings.HasSuffix(w, "cookie"):
			return true
		case (w == "key" || w == "keys") && i > 0 && (words[i-1] == "api" || words[i-1] == "access" || words[i-1] == "private"):
			return true
		}
	}
	return false
}

// identifies says whether one of the words tells who is calling.
func identifies(words []string) bool {
	for _, w := range words {
		if identityWords[w] || strings.HasPrefix(w, "user") || strings.HasPrefix(w, "tenant") {
			return true
		}
	}
	return false
}

// CheckAllow says why NewRules can do nothing with a name or pattern: it is no key that gRPC can carry, or all that it covers is forbidden.
// Configuration refuses it with that text.
func CheckAllow(pattern string) error {
	key := strings.ToLower(pattern)
	wild := strings.ContainsAny(key, "*?[")
	literal := key
	if i := strings.IndexAny(key, `*?[\`); i >= 0 {
		literal = key[:i]
	}
	switch _, err := path.Match(key, ""); {
	case key == "":
		return fmt.Errorf(`metadata key "": want a name such as "x-acme-team" or a pattern such as "x-acme-*"`)
	case wild && err != nil:
		return fmt.Errorf("metadata pattern %q: %w; want a pattern such as \"x-acme-*\"", pattern, err)
	case !wild && !legalKey(key), wild && literal != "" && !legalKey(literal):
		return fmt.Errorf("metadata key %q: gRPC carries only letters, digits, hyphens, underscores and dots", pattern)
	case !wild && Forbidden(key), wild && (hasForbiddenPrefix(literal) || !strings.Contains(key, "[") && credential(words(key))):
		return fmt.Errorf("metadata key %q: credentials, cookies, identity and hop-by-hop fields never cross, whatever is allowed; remove it", pattern)
	case wild && !strings.Contains(key, "[") && identifies(whole(words(key))):
		return fmt.Errorf("metadata pattern %q: a pattern never covers what says who is calling; name each key itself if it does not", pattern)
	}
	return nil
}

// whole drops words that a pattern leaves open.
func whole(words []string) []string {
	var out []string
	for _, w := range words {
		if !strings.ContainsAny(w, `*?[\`) {
			out = append(out, w)
		}
	}
	return out
}

func hasForbiddenPrefix(key string) bool {
	for _, p := range forbiddenPrefixes {
		if strings.HasPrefix(strings.ReplaceAll(key, "_", "-"), p) {
			return true
		}
	}
	return false
}
