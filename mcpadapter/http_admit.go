package mcpadapter

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// admit refuses what a foreign web page could send through a browser: an Origin that is not allowed, or, by DNS rebinding, a Host that
// is not the endpoint's. It also answers the preflight of allowed origins. It says whether to go on.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) bool {
	if !e.hostAllowed(r) {
		refuse(w, http.StatusForbidden, nil, rpcError(jsonrpc.CodeInvalidRequest, "host %q is not allowed here; add its name to the allowed hosts", cut(r.Host, 100)))
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	if !e.originAllowed(origin, r.Host) {
		refuse(w, http.StatusForbidden, nil, rpcError(jsonrpc.CodeInvalidRequest, "origin %q is not allowed here; add it to the allowed origins", cut(origin, 100)))
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", sessionHeader)
	if r.Method != http.MethodOptions {
		return true
	}
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-Id, Idempotency-Key, Traceparent, Tracestate, Baggage")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return false
}

func (e *endpoint) hostAllowed(r *http.Request) bool {
	host := hostname(r.Host)
	if slices.Contains(e.adapter.conf.AllowedHosts, host) || isLoopback(host) {
		return true
	}
	if len(e.adapter.conf.AllowedHosts) > 0 {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return !ok || !isLoopback(hostname(local.String()))
}

// originAllowed says whether a page of the origin may call. The endpoint's own host counts only if it is one that no stranger can have:
// otherwise a rebound name would be its own origin.
func (e *endpoint) originAllowed(origin, host string) bool {
	allowed := e.adapter.conf.AllowedOrigins
	if slices.Contains(allowed, "*") || slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(strings.TrimSuffix(a, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, host) {
		return false
	}
	name := hostname(host)
	return isLoopback(name) || slices.Contains(e.adapter.conf.AllowedHosts, name)
}

// hostname returns the name or address of "host", "host:port" or "[v6]:port", in lower case.
func hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
