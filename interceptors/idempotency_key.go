package interceptors

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// keyOf returns the call's idempotency key. What the contract makes of the request says which calls are the same, so it stands before
// what the caller sends.
func keyOf(c *call.Call, stream grpc.ServerStream, template *catalog.KeyTemplate) (string, error) {
	if template != nil {
		f, err := call.Request(stream)
		if err != nil {
			return "", err
		}
		m, err := f.Message()
		if err != nil {
			return "", call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
		}
		if key := template.Key(m.ProtoReflect()); key != "" {
			c.KeyMade = true
			return key, nil
		}
	}
	sent := c.Forward[call.KeyHeader]
	if len(sent) == 0 {
		return "", nil
	}
	key, ok := unquote(sent[0])
	for _, other := range sent[1:] {
		if same, _ := unquote(other); same != key {
			return "", badKey("the call brings several keys")
		}
	}
	switch {
	case !ok:
		return "", badKey("it begins as a structured string and is none (RFC 9651, section 4.2.5)")
	case key == "" || len(key) > catalog.MaxKeyBytes:
		return "", badKey("it has to have 1 to 255 characters")
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", badKey("it has to be a string of printable ASCII characters")
		}
	}
	return key, nil
}

func badKey(why string) error {
	return call.Error(codes.InvalidArgument, "IDEMPOTENCY_KEY_INVALID", "idempotency key: "+why, "hint", "send one key of 1 to 255 printable ASCII characters, such as a UUID; nothing was done")
}

// unquote returns the value of a structured string, the form that the draft has for the header, its parameters ignored. A key without
// quotes is taken as it is.
func unquote(v string) (string, bool) {
	v = strings.Trim(v, " ")
	if !strings.HasPrefix(v, `"`) {
		return v, true
	}
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			if i++; i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", false
			}
		case '"':
			rest := strings.TrimLeft(v[i+1:], " ")
			return b.String(), rest == "" || rest[0] == ';'
		}
		b.WriteByte(v[i])
	}
	return "", false
}

// carry makes the key the call's, and what the backend sees.
func carry(c *call.Call, key string) {
	c.Key = key
	if c.Forward == nil {
		c.Forward = metadata.MD{}
	}
	c.Forward[call.KeyHeader] = []string{key}
}

// keyFields names the fields that the call's key is made of.
func keyFields(c *call.Call) string {
	if t := c.Method.KeyTemplate(); t != nil {
		return strings.Join(t.Fields(), ", ")
	}
	return "the request"
}

// keyMissing refuses a call without a key where the policy wants one.
func keyMissing(m *catalog.Method, template *catalog.KeyTemplate) error {
	hint := "send one: HTTP header Idempotency-Key, gRPC metadata idempotency-key, or _meta io.toolway/idempotency-key over MCP"
	if template != nil {
		hint = "set the fields that the key is made of: " + strings.Join(template.Fields(), ", ")
	}
	return call.Error(codes.InvalidArgument, "IDEMPOTENCY_KEY_REQUIRED", "calls of "+strings.TrimPrefix(m.FullMethod, "/")+" need an idempotency key, and this one has none", "hint", hint+"; nothing was done")
}
