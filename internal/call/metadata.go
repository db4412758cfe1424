package call

import (
	"encoding/base64"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
)

// DefaultForward is the metadata that crosses to a backend unless the operator says otherwise: W3C trace context, the caller's
// idempotency key and request id, answers to what a backend asked, and the two keys of the gRPC interoperability tests, so that a standard interop client can probe a mesh.
var DefaultForward = []string{
	"traceparent", "tracestate", "baggage",
	"idempotency-key", "x-request-id", InputResponsesKey,
	"x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin",
}

// Rules say which metadata crosses the mesh. The zero value lets nothing in. Rules are immutable and safe for concurrent use.
type Rules struct {
	names    []string // in lower case
	lengths  uint64   // of names: bit n is set if one has n bytes, or one has more than 63
	patterns []string
}

// NewRules returns rules that let the named keys in, besides DefaultForward. A name may be a pattern with "*", as "x-acme-*".
// What must never cross (see Forbidden) does not, whatever allow says; neither do keys that gRPC cannot carry. A pattern does not cover
// keys with a word that says who is calling, such as "user" or "tenant"; a name does. CheckAllow says what has no effect.
func NewRules(allow []string) *Rules {
	r := &Rules{}
	for _, a := range append(append([]string{}, DefaultForward...), allow...) {
		a = strings.ToLower(a)
		switch {
		case strings.ContainsAny(a, "*?["):
			r.patterns = append(r.patterns, a)
		case !slices.Contains(r.names, a) && legalKey(a) && !Forbidden(a):
			r.names = append(r.names, a)
			r.lengths |= bit(a)
		}
	}
	return r
}

func bit(key string) uint64 { return 1 << min(len(key), 63) }

// Allowed says whether the key, in any case, may cross from a caller to a backend.
func (r *Rules) Allowed(key string) bool {
	_, ok := r.allowed(key)
	return ok
}

// allowed is Allowed, and the key in lower case. It is asked for every header of every request: most are told apart by their length from what may cross,
// and for names nothing is allocated.
func (r *Rules) allowed(key string) (lower string, ok bool) {
	if r.lengths&bit(key) != 0 {
		for _, name := range r.names {
			if len(name) == len(key) && strings.EqualFold(name, key) {
				return name, true
			}
		}
	}
	if len(r.patterns) == 0 {
		return "", false
	}
	key = strings.ToLower(key)
	for _, p := range r.patterns {
		if ok, _ := path.Match(p, key); ok {
			return key, legalKey(key) && !Forbidden(key) && !identifies(words(key))
		}
	}
	return "", false
}

// Filter returns a new MD with what may cross of in, which is gRPC metadata: values of "-bin" keys are raw bytes. Keys come out in lower
// case. Other values with bytes that gRPC metadata cannot carry are dropped, and so are what a "Connection" header names and a trace context
// that is none. Only an idempotency key stays whatever it is: the chain refuses the call, which without it would count as one without a key.
// Lists of values of which nothing is dropped are shared with in: they must not be changed in place.
func (r *Rules) Filter(in metadata.MD) metadata.MD {
	out, hop := metadata.MD{}, named(in)
	for k, vs := range in {
		if k, ok := r.allowed(k); ok && !hop[k] {
			add(out, k, carried(k, vs))
		}
	}
	return sanitize(out)
}

// FilterText is Filter for headers as text, such as an http.Header: values of "-bin" keys are base64, padded or not, with any number of
// values separated by commas; what does not decode is dropped. White space around values is removed.
func (r *Rules) FilterText(in map[string][]string) metadata.MD {
	out, hop := metadata.MD{}, named(in)
	for k, vs := range in {
		k, ok := r.allowed(k)
		switch {
		case !ok || hop[k]:
		case strings.HasSuffix(k, "-bin"):
			add(out, k, decoded(vs))
		default:
			add(out, k, carried(k, trimmed(vs)))
		}
	}
	return sanitize(out)
}

// add adds values to those of a key, which may have come in another spelling too.
func add(md metadata.MD, key string, vs []string) {
	if len(vs) == 0 {
		return
	}
	if have := md[key]; have != nil {
		vs = append(have, vs...)
	}
	md[key] = slices.Clip(vs)
}

// carried are the values of a key in lower case that cross.
func carried(key string, vs []string) []string {
	if key == KeyHeader || strings.HasSuffix(key, "-bin") {
		return vs
	}
	return printables(vs)
}

// trimmed are the values without white space around them.
func trimmed(vs []string) []string {
	for i, v := range vs {
		if len(strings.Trim(v, " \t")) == len(v) {
			continue
		}
		out := slices.Clone(vs)
		for ; i < len(out); i++ {
			out[i] = strings.Trim(out[i], " \t")
		}
		return out
	}
	return vs
}

// decoded are the values of a "-bin" key in text.
func decoded(vs []string) []string {
	var out []string
	for _, v := range vs {
		for part := range strings.SplitSeq(v, ",") {
			raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.Trim(part, " \t"), "="))
			if err == nil {
				out = append(out, string(raw))
			}
		}
	}
	return out
}

// forbidden never crosses from a caller to a backend: credentials, cookies, hop-by-hop fields, and headers by which proxies and
// applications tell a backend who is calling. Only the mesh says that.
var forbidden = set(
	"authorization", "proxy-authorization", "proxy-authenticate", "proxy-authentication-info", "www-authenticate", "authentication-info",
	"cookie", "set-cookie", "host", "forwarded", "via", "x-forwarded", "origin", "referer",
	"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect",
	"content-type", "content-length", "content-encoding", "accept-encoding", "user-agent",
	"x-api-key", "api-key", "apikey", "x-apikey", "x-auth", "x-token", "x-access-token", "x-id-token", "x-refresh-token", "x-session", "x-session-id",
	"x-csrf-token", "x-xsrf-token", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "fastly-client-ip", "cf-connecting-ip",
	"x-user", "x-username", "x-userid", "x-uid", "user", "user-id", "userid", "username", "x-original-user", "x-tenant", "x-tenant-id", "x-tenantid", "x-tenant-name", "x-anonymous-consumer", "session", "session-id", "sessionid", "x-account", "x-account-id", "x-org-id", "x-scope-orgid", "x-organization-id",
	"remote-user", "x-principal", "x-subject", "x-sub", "x-email", "x-role", "x-roles", "x-group", "x-groups", "x-scope", "x-scopes", "x-permissions",
	"x-identity", "x-caller", "x-caller-id", "x-actor", "x-on-behalf-of", "x-service-account", "x-amz-security-token", "x-vault-token",
	"x-http-method-override", "x-original-url", "x-rewrite-url", "x-original-uri", "x-original-method",
)

// forbiddenPrefixes are families of such keys.
var forbiddenPrefixes = []string{
	":", "grpc-", "grpcgateway-", "toolway-", "x-toolway-", "mcp-",
	"proxy-", "sec-", "x-forwarded-", "x-envoy-", "x-auth-", "x-authenticated-", "x-authorization-", "x-webauth-", "x-user-", "x-remote-",
	"x-client-", "x-ssl-", "ssl-client-", "x-jwt-", "x-oidc-", "x-spiffe-", "x-identity-", "x-principal-", "x-token-", "x-impersonate-", "impersonate-",
	"x-ms-client-principal", "x-ms-token-", "x-amzn-oidc-", "x-goog-iap-", "x-goog-authenticated-", "x-apigateway-", "cf-access-", "tailscale-",
	"x-consumer-", "x-credential-", "x-authentik-", "x-authelia-", "x-pomerium-", "x-hasura-", "x-vouch-", "x-endpoint-api-", "x-wso2-",
}

func set(keys ...string) map[string]bool {
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}

// Forbidden says whether the lower-case key never crosses, whatever the operator allows. An underscore counts as a hyphen, since many
// servers do not tell them apart, and a "-bin" at the end does not count. Besides names and families that are known, every key with a
// credential's word in it is forbidden, such as "private-token".
func Forbidden(key string) bool {
	key = strings.TrimSuffix(strings.ReplaceAll(key, "_", "-"), "-bin")
	return forbidden[key] || hasForbiddenPrefix(key) || credential(words(key))
}

// legalKey is gRPC's rule for lower-case header names.
func legalKey(key string) bool {
	for i := range len(key) {
		c := key[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return key != ""
}

// Sendable returns md without an idempotency key that gRPC cannot carry: Filter keeps it for the chain, which refuses no read-only call for it.
func Sendable(md metadata.MD) metadata.MD {
	for _, v := range md[KeyHeader] {
		if !printable(v) {
			md = md.Copy()
			delete(md, KeyHeader)
			return md
		}
	}
	return md
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

// Reply returns what of a backend's header or trailer crosses to the caller: all but what belongs to the hop between mesh and backend,
// and what gRPC metadata cannot carry, which would make a good reply fail. Nil if nothing is left.
func Reply(md metadata.MD) metadata.MD {
	var out metadata.MD
	for k, vs := range md {
		if hop(k) || !legalKey(k) {
			continue
		}
		if !strings.HasSuffix(k, "-bin") {
			vs = printables(vs)
		}
		if len(vs) == 0 {
			continue
		}
		if out == nil {
			out = make(metadata.MD, len(md))
		}
		out[k] = vs
	}
	return out
}

// hop says whether a reply's key is about one connection only. Of gRPC's own, status details and retry pushback are for the caller.
func hop(key string) bool {
	switch key {
	case "content-type", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	case "toolway-call-id": // that of another mesh's call; this one's has its own
		return true
	}
	return strings.HasPrefix(key, "grpc-") && key != "grpc-status-details-bin" && key != "grpc-retry-pushback-ms"
}

func printables(vs []string) []string {
	for i, v := range vs {
		if printable(v) {
			continue
		}
		kept := append([]string(nil), vs[:i]...)
		for _, v := range vs[i+1:] {
			if printable(v) {
				kept = append(kept, v)
			}
		}
		return kept
	}
	return vs
}
