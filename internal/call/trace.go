package call

import (
	"strings"

	"google.golang.org/grpc/metadata"
)

// sanitize drops a trace context that is none, in place: a backend would take it for a caller's fault, or restart the trace without a word.
func sanitize(md metadata.MD) metadata.MD {
	if vs := md["traceparent"]; len(vs) > 0 && (len(vs) != 1 || !validTraceparent(vs[0])) {
		delete(md, "traceparent")
		delete(md, "tracestate")
	}
	return md
}

// validTraceparent is section 3.2 of W3C Trace Context: version, trace id, parent id and flags in lower-case hex; later versions may add more.
func validTraceparent(v string) bool {
	const length = 55
	if len(v) < length || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return false
	}
	version, trace, parent := v[:2], v[3:35], v[36:52]
	if len(v) > length && (version == "00" || v[length] != '-') {
		return false
	}
	return lowerHex(version) && version != "ff" && lowerHex(trace) && strings.Trim(trace, "0") != "" && lowerHex(parent) && strings.Trim(parent, "0") != "" && lowerHex(v[53:length])
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// named are the keys that a header "Connection" declares to be about the hop alone (RFC 9110, section 7.6.1), in lower case. The header is
// found as net/http and as gRPC write it.
func named(header map[string][]string) map[string]bool {
	var out map[string]bool
	for _, spelling := range [...]string{"Connection", "connection"} {
		for _, v := range header[spelling] {
			for part := range strings.SplitSeq(v, ",") {
				if out == nil {
					out = map[string]bool{}
				}
				out[strings.ToLower(strings.Trim(part, " \t"))] = true
			}
		}
	}
	return out
}
