package mcpadapter

import (
	"encoding/base64"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
)

// crossing are the members of a request's _meta that become metadata, and the person's word that the host passes on. Nothing else in _meta does: it is the client's own word, and must
// not be able to say who is calling.
type crossing struct {
	traceparent, tracestate, baggage, idempotencyKey, confirm string
	// otherKeys are idempotency keys besides the first, and values that are no key: the chain refuses a call with two, or with what is none.
	otherKeys []string
}

// noKey stands for an idempotency key that is no string. No key can have this character.
const noKey = "\x00"

// crossingOf returns what crosses of a decoded _meta. An idempotency key may stand under this door's own name or the plain one.
func crossingOf(meta map[string]any) crossing {
	text := func(name string) string {
		v, _ := meta[name].(string)
		return v
	}
	c := crossing{traceparent: text("traceparent"), tracestate: text("tracestate"), baggage: text("baggage"), confirm: text(metaConfirm)}
	for _, name := range [...]string{metaIdempotencyKey, "idempotency-key"} {
		v, sent := meta[name]
		key, isText := v.(string)
		switch {
		case !sent:
		case !isText:
			c.otherKeys = append(c.otherKeys, noKey)
		case key == "" || c.idempotencyKey != "":
			c.otherKeys = append(c.otherKeys, key)
		default:
			c.idempotencyKey = key
		}
	}
	return c
}

// forward returns the metadata of a call that may cross to the backend. What _meta says replaces a header of the same name, but
// an idempotency key, of which there may be only one. A header that ends in -bin is base64, as in gRPC over HTTP/2.
func forward(rules *call.Rules, header http.Header, meta crossing) metadata.MD {
	in := metadata.MD{}
	for name, values := range header {
		if !rules.Allowed(name) || name == tokenHeader || name == replyHeader {
			continue
		}
		key := strings.ToLower(name)
		if key == call.InputResponsesKey {
			continue // answers come by the protocol's own way
		}
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
	for _, m := range [...]struct{ key, value string }{
		{"traceparent", meta.traceparent}, {"tracestate", meta.tracestate}, {"baggage", meta.baggage},
	} {
		if m.value != "" {
			in.Set(m.key, m.value)
		}
	}
	if meta.idempotencyKey != "" {
		in[call.KeyHeader] = append(in[call.KeyHeader], meta.idempotencyKey)
	}
	if len(meta.otherKeys) > 0 {
		in[call.KeyHeader] = append(in[call.KeyHeader], meta.otherKeys...)
	}
	if len(in) == 0 {
		return in
	}
	return rules.Filter(in)
}
