package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
)

// corsHeaders are the request headers that a browser may send from an allowed origin, and exposedHeaders the answer's that it may read.
const (
	corsHeaders    = "Accept, Authorization, Content-Type, Grpc-Timeout, Idempotency-Key, Last-Event-ID, Traceparent, Tracestate, X-Request-Id"
	exposedHeaders = "Retry-After, Toolway-Call-Id, X-Request-Id"
)

// origins decides from where a browser may call.
type origins struct {
	hosts   map[string]bool // lower case, with or without port
	origins map[string]bool
}

func newOrigins(hosts, allowed []string) *origins {
	o := &origins{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		o.hosts[strings.ToLower(h)] = true
	}
	for _, a := range allowed {
		o.origins[strings.ToLower(strings.TrimSuffix(a, "/"))] = true
	}
	return o
}

// check refuses a request whose Host or Origin a web page could not legitimately cause. It returns the origin if it is an allowed foreign one.
func (o *origins) check(r *http.Request) (cors string, err error) {
	if !o.hostAllowed(r) {
		return "", refuse(http.StatusForbidden, codes.PermissionDenied, fmt.Sprintf("host %q: not a name of this server; add it to the allowed hosts", r.Host))
	}
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		// Subresources of another site (images, scripts) come without Origin; a browser says so here.
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "no-cors" {
			return "", refuse(http.StatusForbidden, codes.PermissionDenied, "request from another site: not allowed")
		}
		return "", nil
	case o.origins[strings.ToLower(origin)]:
		return origin, nil
	case sameOrigin(origin, r.Host):
		return "", nil
	}
	return "", refuse(http.StatusForbidden, codes.PermissionDenied, fmt.Sprintf("origin %q: not allowed; add it to the allowed origins", origin))
}

// hostAllowed guards against DNS rebinding: on a loopback listener only loopback names are ours, whatever a resolver says.
func (o *origins) hostAllowed(r *http.Request) bool {
	host := strings.ToLower(r.Host)
	name := hostname(host)
	if o.hosts[host] || o.hosts[name] {
		return true
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && loopbackAddr(local) {
		return loopbackName(name)
	}
	return len(o.hosts) == 0
}

func loopbackAddr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func loopbackName(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return ip != nil && ip.IsLoopback()
}

// hostname cuts the port off.
func hostname(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return hostport
}

// sameOrigin compares names and ports alone: behind a proxy that ends TLS the schemes differ.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	return strings.EqualFold(withoutDefaultPort(u.Host), withoutDefaultPort(host))
}

func withoutDefaultPort(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" && r.Header.Get("Origin") != ""
}

// preflight answers a CORS preflight from an allowed origin.
func preflight(w http.ResponseWriter, methods []string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
