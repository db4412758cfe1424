package jwks

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// CheckURL refuses URLs that keys, tokens or secrets must not go to: only https, and http on this machine.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL", s)
	}
	switch {
	case u.Host == "" || u.User != nil:
		return fmt.Errorf("%q: want a URL with a host and without credentials, such as https://id.example.com", s)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && Loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%q: want https; http is for loopback addresses alone", s)
}

// Loopback says whether a host name or address is this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// DiscoveryURLs are where the discovery document of an issuer may be: as OpenID Connect Discovery has it, and as RFC 8414 has it.
func DiscoveryURLs(issuer string) []string {
	trimmed := strings.TrimSuffix(issuer, "/")
	out := []string{trimmed + "/.well-known/openid-configuration"}
	u, err := url.Parse(trimmed)
	if err != nil {
		return out
	}
	path := u.Path
	u.Path = "/.well-known/oauth-authorization-server" + path
	return append(out, u.String())
}
