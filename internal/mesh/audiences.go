package mesh

import (
	"net/url"
	"slices"
	"strings"
)

// unaccepted returns the resources that the HTTP door advertises (RFC 9728) and that no issuer's audiences have: a client asks for a token for the
// resource that it has read of, and that token is refused. Without http.public_url a resource has the scheme and host of each request, so that addr, which is
// the listener's, only stands for the host: any will do.
func (c *Config) unaccepted(addr string) []string {
	if len(c.Auth.JWT) == 0 {
		return nil
	}
	scheme := "http://"
	if c.HTTP.TLS != nil {
		scheme = "https://"
	}
	accepted := func(path string) bool {
		return slices.ContainsFunc(c.Auth.JWT, func(j JWTIssuer) bool {
			return slices.ContainsFunc(j.Audiences, func(aud string) bool {
				if c.HTTP.PublicURL != "" {
					return aud == c.HTTP.PublicURL+path
				}
				u, err := url.Parse(aud)
				return err == nil && u.Host != "" && aud == scheme+u.Host+path
			})
		})
	}
	base := c.HTTP.PublicURL
	if base == "" {
		base = scheme + addr
	}
	paths := []string{"", "/mcp"}
	for _, v := range c.MCP.Views {
		paths = append(paths, "/mcp/"+v.Name)
	}
	var out []string
	for _, path := range paths {
		if !accepted(path) {
			out = append(out, base+path)
		}
	}
	return out
}

// warnAudiences tells at the start for which resources clients would get tokens in vain.
func (m *Mesh) warnAudiences(addr string) {
	missing := m.config.unaccepted(addr)
	if len(missing) == 0 {
		return
	}
	mend := "add them to the audiences of their issuer under auth.jwt"
	if m.config.HTTP.PublicURL == "" {
		mend = "set http.public_url to the URL by which clients know the mesh, and " + mend
	}
	m.log.Warn("clients are told of resources whose tokens are refused, since no issuer has them in its audiences; "+mend, "resources", strings.Join(missing, " "))
}
