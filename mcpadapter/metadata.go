package mcpadapter

import (
	"encoding/base64"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
)

// metaForwarded are the keys of a request's _meta that become metadata. Nothing else in _meta does: it is the client's own word, and
// must not be able to say who is calling.
var metaForwarded = map[string]string{
	"traceparent":      "traceparent",
	"tracestate":       "tracestate",
	"baggage":          "baggage",
	"idempotency-key":  "idempotency-key",
	metaIdempotencyKey: "idempotency-key",
}

// forward returns the metadata of a call that may cross to the backend. What _meta says replaces a header of the same name. A header
// that ends in -bin is base64, as in gRPC over HTTP/2.
func forward(rules *call.Rules, header http.Header, meta map[string]any) metadata.MD {
	in := metadata.MD{}
	for name, values := range header {
		key := strings.ToLower(name)
		for _, v := range values {
			if strings.HasSuffix(key, "-bin") {
				raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
				if err != nil {
					continue // gRPC would refuse the whole call
				}
				v = string(raw)
			}
			in[key] = append(in[key], v)
		}
	}
	for name, key := range metaForwarded {
		if v, ok := meta[name].(string); ok && v != "" {
			in.Set(key, v)
		}
	}
	return rules.Filter(in)
}
