package dial

import (
	"regexp"
	"strconv"
	"strings"
)

// symptom is a text in a connection error, and what it means.
type symptom struct{ text, meaning string }

const closedAtOnce = "the backend closed the connection at once: it may want a client certificate (mutual TLS), or TLS where none is configured for it"

// symptoms are what grpc-go, crypto/tls and the operating system say, most telling first.
var symptoms = []symptom{
	{"bootstrap config", "targets with xds: need a control plane: name its bootstrap file in the environment variable GRPC_XDS_BOOTSTRAP"},
	{"first record does not look like a TLS handshake", "the backend speaks plaintext, but TLS is configured for it: remove tls, or use the port that serves TLS"},
	{"missing selected ALPN property", `the backend (or a load balancer before it) speaks TLS but does not negotiate "h2" by ALPN: turn ALPN on there, or set allow_no_alpn for this backend`},
	{"no application protocol", `the backend speaks TLS but refuses "h2" by ALPN: it is no gRPC server, or HTTP/2 is turned off there`},
	{"frame header looked like an HTTP/1.1 header", "the backend speaks HTTP/1, not gRPC: check the port, and whether a proxy stands before it"},
	{"http2: frame too large", "what answers is no plaintext HTTP/2: the backend may want TLS, or the port may be another protocol's"},
	{"certificate signed by unknown authority", "the backend's certificate descends from no certificate known here: give its CA file"},
	{"certificate has expired", "the backend's certificate has expired, or the clock here is wrong"},
	{"not yet valid", "the backend's certificate is not valid yet, or the clock here is wrong"},
	{"certificate is valid for", "the backend's certificate is for another name: set the server name to one that it holds"},
	{"doesn't contain any IP SANs", "the backend's certificate holds no IP address: address it by name, or set the server name"},
	{"certificate is not valid for any names", "the backend's certificate holds no usable name: set the server name, or renew the certificate with a DNS name"},
	{"certificate required", "the backend wants a client certificate (mutual TLS): give a certificate and a key"},
	{"bad certificate", "the backend refuses the client certificate: check that it descends from the CA that the backend trusts"},
	{"connection refused", "nothing listens at the address: start the backend, or check host and port"},
	{"no such host", "the name does not resolve: check the host name"},
	{"produced zero addresses", "the name resolves to no address: check the DNS record, or whether the service has ready endpoints"},
	{"resolves to no address", "check the host name and the DNS server, or whether the service has ready endpoints"},
	{"name resolver error", "the name does not resolve: check the host name and the DNS server"},
	{"no such file or directory", "the socket does not exist: start the backend, or check the path"},
	{"permission denied", "the socket may not be opened by this user: check its mode and owner"},
	{"network is unreachable", "there is no route to the address: check the network"},
	{"no route to host", "there is no route to the address: check the network and firewall"},
	{"broken pipe", closedAtOnce},
	{"connection reset by peer", closedAtOnce},
	{"error reading server preface", "the connection was closed before HTTP/2 began: the backend most likely wants TLS (configure tls), or the port is another protocol's"},
	{"i/o timeout", "the address does not answer: check that the backend runs and that no firewall is in between"},
	{"context deadline exceeded", "the address does not answer in time: check that the backend runs and that no firewall is in between"},
	{ErrConnecting.Error(), "the first connection is still being made; if this stays so, the address does not answer: check that the backend runs and that no firewall is in between"},
	{errNotServing.Error(), "the backend is up but reports that it takes no calls: see its own log"},
	{"too_many_pings", "the backend finds the keepalive too eager; the interval doubles by itself"},
}

// Explain says what the text of a connection error means and what to do about it, or "" if it is none that is known.
func Explain(text string) string {
	for _, s := range symptoms {
		if strings.Contains(text, s.text) {
			return s.meaning
		}
	}
	return ""
}

// wrappings are what grpc-go puts around what went wrong.
var wrappings = regexp.MustCompile(`^(last connection error: |last resolver error: |connection error: |rpc error: code = \w+ |transport: |Error while dialing: |authentication handshake failed: |error reading from server: |closing transport due to: |name resolver error: |produced zero addresses: )+`)

// dialing is an address in an error of Go's net package.
var dialing = regexp.MustCompile(`^(dial|read|write) \w+ \S+: (connect: |read: |write: )?`)

// Cause returns what a connection error says once the words that grpc-go puts around it and the backend's address are taken off, such as
// "connection refused": fit for callers, whom the address does not concern. The text is returned as it is if nothing would be left.
func Cause(text string) string {
	out := text
	for range 8 {
		before := out
		out = wrappings.ReplaceAllString(out, "")
		if rest, ok := strings.CutPrefix(out, "desc = "); ok {
			out = rest
			if quoted, err := strconv.QuotedPrefix(rest); err == nil {
				out, _ = strconv.Unquote(quoted) // what follows is about the connection, not the failure
			}
		}
		out = dialing.ReplaceAllString(out, "")
		if out == before {
			break
		}
	}
	if code, ok := strings.CutPrefix(out, "stream terminated by RST_STREAM with error code: "); ok {
		return "the stream was reset with " + code
	}
	switch out {
	case "":
		return text
	case "EOF":
		return "the connection was closed"
	}
	return out
}

// lost are the beginnings of what grpc-go says for a call whose connection has gone.
var lost = []string{"error reading from server: ", "closing transport due to: ", "stream terminated by RST_STREAM with error code: ", "transport is closing", "keepalive ping failed", "connection error: "}

// Lost says whether text, of a status with code UNAVAILABLE or CANCELLED, is grpc-go's own about a connection that broke during a call.
func Lost(text string) bool {
	for _, l := range lost {
		if strings.HasPrefix(text, l) {
			return true
		}
	}
	return false
}
