package call

import (
	"path"
	"strings"

	"google.golang.org/grpc/metadata"
)

// DefaultForward is the metadata that crosses to a backend unless the operator says otherwise: W3C trace context, the caller's
// idempotency key and request id, and the two keys of the gRPC interoperability tests, so that a standard interop client can probe a mesh.
var DefaultForward = []string{
	"traceparent", "tracestate", "baggage",
	"idempotency-key", "x-request-id",
	"x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin",
}

// Rules say which metadata crosses the mesh. The zero value lets nothing in.
type Rules struct {
	exact    map[string]bool
	patterns []string
}

// NewRules returns rules that let the named keys in, besides DefaultForward. A name may be a pattern with "*", as "x-acme-*".
// What must never cross (see Forbidden) does not, whatever allow says.
func NewRules(allow []string) *Rules {
	r := &Rules{exact: map[string]bool{}}
	for _, a := range append(append([]string{}, DefaultForward...), allow...) {
		a = strings.ToLower(a)
		if strings.ContainsAny(a, "*?[") {
			r.patterns = append(r.patterns, a)
			continue
		}
		r.exact[a] = true
	}
	return r
}

// Allowed says whether the key, in any case, may cross from a caller to a backend.
func (r *Rules) Allowed(key string) bool {
	key = strings.ToLower(key)
	if Forbidden(key) {
		return false
	}
	if r.exact[key] {
		return true
	}
	for _, p := range r.patterns {
		if ok, _ := path.Match(p, key); ok {
			return true
		}
	}
	return false
}

// Filter returns a new MD with what may cross of in. Values with bytes that gRPC metadata cannot carry are dropped.
func (r *Rules) Filter(in metadata.MD) metadata.MD {
	out := metadata.MD{}
	for k, vs := range in {
		if !r.Allowed(k) {
			continue
		}
		for _, v := range vs {
			if strings.HasSuffix(strings.ToLower(k), "-bin") || printable(v) {
				out.Append(k, v)
			}
		}
	}
	return out
}

// forbidden never crosses from a caller to a backend: credentials, cookies, hop-by-hop fields, and headers by which proxies and
// applications tell a backend who is calling. Only the mesh says that.
var forbidden = map[string]bool{
	"authorization": true, "proxy-authorization": true, "proxy-authenticate": true, "www-authenticate": true,
	"cookie": true, "set-cookie": true, "host": true, "forwarded": true, "via": true,
	"connection": true, "proxy-connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"content-type": true, "content-length": true, "content-encoding": true, "user-agent": true,
	"x-api-key": true, "x-user": true, "x-user-id": true, "x-tenant": true, "x-tenant-id": true, "x-real-ip": true,
	"x-client-cert": true, "x-goog-iap-jwt-assertion": true, "x-goog-authenticated-user-email": true, "x-goog-authenticated-user-id": true,
	"x-remote-user": true, "remote-user": true, "x-principal": true, "x-subject": true, "x-email": true, "x-roles": true, "x-groups": true, "x-scopes": true,
}

// Forbidden says whether the lower-case key never crosses, whatever the operator allows.
func Forbidden(key string) bool {
	return forbidden[key] || strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || strings.HasPrefix(key, "grpcgateway-") ||
		strings.HasPrefix(key, "toolway-") || strings.HasPrefix(key, "x-toolway-") || strings.HasPrefix(key, "x-forwarded-") || strings.HasPrefix(key, "x-auth-") || strings.HasPrefix(key, "x-authenticated-") ||
		strings.HasPrefix(key, "x-ms-client-principal") || strings.HasPrefix(key, "x-amzn-oidc-") || strings.HasPrefix(key, "mcp-")
}

// printable is gRPC's rule for ASCII header values.
func printable(v string) bool {
	for i := range len(v) {
		if v[i] < 0x20 || v[i] > 0x7e {
			return false
		}
	}
	return true
}
