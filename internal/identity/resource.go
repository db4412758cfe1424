package identity

import (
	"encoding/json"
	"net/http"
	"strings"
)

// MetadataPath is where OAuth clients look for the metadata of a protected resource; the resource's own path follows (RFC 9728, section 3.1).
const MetadataPath = "/.well-known/oauth-protected-resource"

// Resource is how an HTTP door tells clients where to get credentials: RFC 9728, RFC 6750, and MCP's authorization rules. Nil tells only that a
// bearer token is wanted.
type Resource struct {
	// PublicURL is scheme, host and port by which clients know the mesh, without a slash at the end. Default: those of each request.
	PublicURL string
	// Issuers are the authorization servers whose tokens are taken.
	Issuers []string
	// Scopes are those that a client should ask for at first; more are asked for when a method needs them.
	Scopes []string
}

// base returns scheme, host and port by which the client knows the mesh.
func (r *Resource) base(req *http.Request) string {
	if r.PublicURL != "" {
		return r.PublicURL
	}
	scheme := "http://"
	if req.TLS != nil {
		scheme = "https://"
	}
	return scheme + req.Host
}

// Metadata returns the metadata document of the resource at a path, or nil if there is no authorization server to name.
func (r *Resource) Metadata(req *http.Request, path string) []byte {
	if r == nil || len(r.Issuers) == 0 {
		return nil
	}
	body, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{r.base(req) + path, r.Issuers, r.Scopes, []string{"header"}, "Toolway"})
	if err != nil { // texts can always be encoded
		return nil
	}
	return body
}

// Challenge returns the WWW-Authenticate header for a call at path that failed with err, or "" if err is not about credentials. p is the caller as far
// as it is known: scopes that it has are asked for again, since a new token would not have them otherwise.
func (r *Resource) Challenge(req *http.Request, path string, err error, p *Principal) string {
	reason, metadata := Reason(err)
	var params []string
	add := func(name, value string) {
		if value != "" {
			params = append(params, name+`="`+quotable(value)+`"`)
		}
	}
	var scopes []string
	switch reason {
	case "", ProviderUnavailable, AuthenticationBusy:
		return ""
	case InsufficientScope:
		add("error", "insufficient_scope")
		scopes = strings.Fields(metadata["scopes"])
		if p != nil {
			scopes = append(scopes, p.Scopes...)
		}
	case MissingCredentials: // RFC 6750, section 3.1: no error code
		if r != nil {
			scopes = r.Scopes
		}
	default:
		if !refusals[reason] {
			return ""
		}
		add("error", "invalid_token")
		add("error_description", strings.ToLower(strings.ReplaceAll(reason, "_", " ")))
		if r != nil {
			scopes = r.Scopes
		}
	}
	add("scope", strings.Join(normaliseScopes(scopes), " "))
	if r != nil && len(r.Issuers) > 0 {
		add("resource_metadata", r.base(req)+MetadataPath+strings.TrimSuffix(path, "/"))
	}
	return strings.TrimSuffix("Bearer "+strings.Join(params, ", "), " ")
}

// refusals are the reasons of credentials that are no good.
var refusals = map[string]bool{
	MalformedCredentials: true, AmbiguousCredentials: true, InvalidToken: true, UnsupportedAlgorithm: true, UnknownIssuer: true, UnknownKey: true,
	WrongAudience: true, WrongTokenType: true, TokenExpired: true, TokenNotYetValid: true, SenderConstrained: true, NoTenant: true,
	UnknownAPIKey: true, APIKeyExpired: true, UnknownCertificate: true,
}

// quotable leaves out what cannot stand in a quoted string of a header.
func quotable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s)
}
