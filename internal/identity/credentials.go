package identity

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
)

// Credentials are what a caller brings to say who it is: whatever its door carries, as it came. They are never logged.
type Credentials struct {
	// Bearer is the token of "Authorization: Bearer", APIKey the value of "X-API-Key"; "" if there is none.
	Bearer, APIKey string
	// Malformed says that the caller sent credentials that are none of these, or several of one kind.
	Malformed bool
	// Environment says that they are those of a process, which its environment has instead of a header. It is for hints alone.
	Environment bool
	// TLS is the connection's state, with the client's verified certificate chains; nil without TLS.
	TLS *tls.ConnectionState
}

// None says whether the caller brought nothing at all.
func (c Credentials) None() bool {
	return c.Bearer == "" && c.APIKey == "" && !c.Malformed && (c.TLS == nil || len(c.TLS.VerifiedChains) == 0)
}

// ReadCredentials returns the credentials among the values of a request's "authorization" and "x-api-key" headers or metadata.
func ReadCredentials(authorization, apiKey []string) Credentials {
	var c Credentials
	switch len(authorization) {
	case 0:
	case 1:
		c.Bearer = bearer(authorization[0])
		c.Malformed = c.Bearer == ""
	default:
		c.Malformed = true
	}
	switch len(apiKey) {
	case 0:
	case 1:
		c.APIKey = apiKey[0]
		c.Malformed = c.Malformed || c.APIKey == ""
	default:
		c.Malformed = true
	}
	return c
}

// bearer returns the token of a value "Bearer TOKEN" (RFC 6750, section 2.1), or "" if it is none.
func bearer(v string) string {
	const scheme = "bearer "
	if len(v) <= len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return ""
	}
	token := strings.TrimLeft(v[len(scheme):], " ")
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' || c == ',' || c == '"' {
			return ""
		}
	}
	return token
}

// RequestCredentials returns what an HTTP request brings.
func RequestCredentials(r *http.Request) Credentials {
	c := ReadCredentials(r.Header["Authorization"], r.Header["X-Api-Key"])
	c.TLS = r.TLS
	return c
}

// InQuery says whether the query of a URL has credentials in it, by the names that they go by (RFC 6750, section 2.3).
func InQuery(rawQuery string) bool {
	if rawQuery == "" {
		return false
	}
	query, _ := url.ParseQuery(rawQuery) // what can be read of it
	for name := range query {
		if QueryNames[strings.ToLower(name)] {
			return true
		}
	}
	return false
}

// QueryNames are the names, in lower case, that credentials go by in a URL.
var QueryNames = map[string]bool{"access_token": true, "api_key": true, "apikey": true, "api-key": true, "x-api-key": true, "bearer_token": true}
