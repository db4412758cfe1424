package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// challenge returns the WWW-Authenticate header of an answer, or "": how to get credentials, or ones with more scopes. A backend's own UNAUTHENTICATED gets
// the bare one, which HTTP demands.
func (g *Gateway) challenge(x *exchange, code codes.Code, err error) string {
	if code != codes.Unauthenticated && code != codes.PermissionDenied {
		return ""
	}
	var p *identity.Principal
	if x.call != nil {
		p = x.call.Principal
	}
	if c := g.resource.Challenge(x.r, "", err, p); c != "" {
		return c
	}
	if code == codes.Unauthenticated {
		return "Bearer"
	}
	return ""
}

// identify finds out who sent a request that is no call, and notes it in the request's context. Without credentials only what is well known
// by its path is answered, as not found: clients look there for where to get some.
func (g *Gateway) identify(x *exchange) error {
	if g.auth == nil {
		return nil
	}
	if identity.InQuery(x.r.URL.RawQuery) {
		return errInURL
	}
	p, err := g.auth.Authenticate(x.r.Context(), identity.RequestCredentials(x.r))
	switch {
	case err == nil:
		x.r = x.r.WithContext(call.WithPrincipal(x.r.Context(), p))
	case !strings.HasPrefix(x.r.URL.Path, "/.well-known/"):
		return err
	}
	return nil
}

// errInURL is the answer to credentials in a URL.
var errInURL = refuse(http.StatusBadRequest, codes.InvalidArgument, "credentials are not taken from the URL, where logs and histories keep them: send them in a header")

// checkURL refuses credentials in a URL, where logs and histories keep them, unless the method has a field of that name.
func (g *Gateway) checkURL(r *http.Request, m *catalog.Method) error {
	if g.auth == nil || !identity.InQuery(r.URL.RawQuery) {
		return nil
	}
	query, _ := url.ParseQuery(r.URL.RawQuery) // what can be read of it
	fields := m.Desc.Input().Fields()
	for name := range query {
		if identity.QueryNames[strings.ToLower(name)] && fields.ByName(protoreflect.Name(name)) == nil && fields.ByJSONName(name) == nil {
			return errInURL
		}
	}
	return nil
}
