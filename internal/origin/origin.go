// Package origin decides which web pages may make a browser call a server: it checks Host, against DNS rebinding, and Origin, against
// requests forged across sites.
package origin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
)

// Policy says by which names a server may be addressed and which foreign pages may call it. The zero value, and nil, allow a loopback
// listener's loopback names, any name elsewhere, and no foreign page. It is safe for concurrent use.
type Policy struct {
	hosts   map[string]bool // host names in lower case, without port
	origins map[string]bool // scheme://host[:port] in lower case
	// lately is the Host of a request that was found to be one of the server's names. Most requests have the same.
	lately atomic.Pointer[string]
}

// New returns a policy. hosts are names, with or without port, by which the server may be addressed besides loopback names; if there are any,
// no others are. origins are exact origins of foreign pages, such as "https://console.example.com"; there are no wildcards.
func New(hosts, origins []string) *Policy {
	p := &Policy{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		p.hosts[hostname(h)] = true
	}
	for _, o := range origins {
		p.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	return p
}

// Foreign says whether any foreign page may call, so that answers depend on Origin.
func (p *Policy) Foreign() bool { return p != nil && len(p.origins) > 0 }

// Check returns an error, meant for the caller, if a page that the policy does not allow may have caused the request. It returns the origin if it
// is an allowed foreign one, for Access-Control-Allow-Origin. A request without Origin does not come from a page's script and passes.
func (p *Policy) Check(r *http.Request) (foreign string, err error) {
	if p == nil {
		p = &Policy{}
	}
	if !p.hostAllowed(r) {
		return "", fmt.Errorf("host %q is not a name of this server; add it to the allowed hosts", bounded(r.Host))
	}
	origin := first(r.Header, "Origin")
	switch {
	case origin == "":
		// Images and scripts of another site come without Origin; a browser says so here.
		if first(r.Header, "Sec-Fetch-Site") == "cross-site" && first(r.Header, "Sec-Fetch-Mode") == "no-cors" {
			return "", fmt.Errorf("requests from pages of another site are not allowed")
		}
		return "", nil
	case p.origins[strings.ToLower(origin)]:
		return origin, nil
	case p.own(origin, r.Host):
		return "", nil
	}
	return "", fmt.Errorf("origin %q is not allowed; add it to the allowed origins", bounded(origin))
}

// hostAllowed guards against DNS rebinding: on a loopback listener only loopback names are the server's, whatever a resolver says.
func (p *Policy) hostAllowed(r *http.Request) bool {
	if known := p.lately.Load(); known != nil && *known == r.Host {
		return true
	}
	if len(p.hosts) == 0 && !atLoopback(r) {
		return true
	}
	if name := hostname(r.Host); !p.hosts[name] && !loopback(name) {
		return false
	}
	known := strings.Clone(r.Host) // not all of its request
	p.lately.Store(&known)
	return true
}

// atLoopback says whether the request came in by a loopback address; false if that is not known.
func atLoopback(r *http.Request) bool {
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return local.IP.IsLoopback()
	case net.Addr:
		return loopback(hostname(local.String()))
	}
	return false
}

// first returns the first value of a header field under its canonical name, or "". It is Header.Get without the making of that name.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// own says whether the origin is the server itself. That counts only for names that no stranger can have, or a rebound name would be its
// own origin. Schemes are not compared: behind a proxy that ends TLS they differ.
func (p *Policy) own(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(withoutDefaultPort(u.Host), withoutDefaultPort(host)) {
		return false
	}
	name := hostname(host)
	return loopback(name) || p.hosts[name]
}

func withoutDefaultPort(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
}

// hostname returns the name or address of "host", "host:port" or "[v6]:port", in lower case.
func hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// bounded keeps what a stranger sent short.
func bounded(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
