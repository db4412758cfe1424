package interceptors

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// maxReproduce bounds the request in a log line.
const maxReproduce = 4 << 10

// reproduce returns a grpcurl line that makes the call again. A single request that is not large is in it, without the fields that the
// contract or the operator calls sensitive or whose names, or map keys, say that they hold a secret; otherwise "…" stands for it. Metadata is not in it.
func reproduce(c *call.Call, address string) string {
	data := "…"
	if f := c.Received(); f != nil && f.Len() <= maxReproduce {
		if m, err := f.Message(); err == nil {
			m = proto.Clone(m)
			redact(m.ProtoReflect(), c.Method.Sensitive(toolschema.Input))
			if b, err := (protojson.MarshalOptions{AllowPartial: true}).Marshal(m); err == nil && len(b) <= maxReproduce {
				data = string(b)
			}
		}
	}
	return "grpcurl -plaintext -d " + quote(data) + " " + quote(address) + " " + quote(strings.TrimPrefix(c.Method.FullMethod, "/"))
}

// quote makes one word of a POSIX shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// redact clears the fields that set marks sensitive and those whose names say so, wherever they are nested. What it does not know, unknown
// fields and Any values, goes too.
func redact(m protoreflect.Message, set *catalog.FieldSet) {
	m.SetUnknown(nil)
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			m.Clear(fd)
			return true
		})
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		mark := set.Mark(fd.Number())
		var within *catalog.FieldSet
		if mark != nil {
			within = mark.Within
		}
		switch {
		case mark != nil && mark.Sensitive, secret(fd):
			m.Clear(fd)
			if fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated {
				m.Set(fd, protoreflect.ValueOfString("REDACTED"))
			}
		case fd.IsMap():
			redactMap(fd, v.Map(), within)
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message(), within)
			}
		case fd.Message() != nil:
			redact(v.Message(), within)
		}
		return true
	})
}

// redactMap drops the entries whose keys say that they hold a secret, a Struct's among them, and looks into the others.
func redactMap(fd protoreflect.FieldDescriptor, m protoreflect.Map, within *catalog.FieldSet) {
	var drop []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		switch {
		case secretName(k.String()):
			drop = append(drop, k)
		case fd.MapValue().Message() != nil:
			redact(v.Message(), within)
		}
		return true
	})
	for _, k := range drop {
		m.Clear(k)
	}
}

var secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "credential", "authorization", "api_key", "apikey", "private_key", "cookie", "session"}

func secret(fd protoreflect.FieldDescriptor) bool {
	if o, ok := fd.Options().(*descriptorpb.FieldOptions); ok && o.GetDebugRedact() {
		return true
	}
	return secretName(string(fd.Name()))
}

func secretName(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}
