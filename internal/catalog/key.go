package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/nearmiss"
)

// KeyTemplate makes an idempotency key of a request, as "{incident}:{action}:{target.name}". It is safe for concurrent use.
type KeyTemplate struct {
	literals []string // one more than paths
	paths    [][]protoreflect.FieldDescriptor
	escape   string // the characters of the literals, which values must not look like
}

// MaxKeyBytes bounds an idempotency key.
const MaxKeyBytes = 255

// ParseKeyTemplate reads a template over the fields of md. Each field is named by its path in braces, as in the .proto file; it holds one
// text, bytes, whole number, bool or enum value, and lies in no list or map.
func ParseKeyTemplate(md protoreflect.MessageDescriptor, text string) (*KeyTemplate, error) {
	t, rest := &KeyTemplate{}, text
	for {
		literal, after, open := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf(`key template %q: "}" without "{"`, text)
		}
		if !visible(literal) {
			return nil, fmt.Errorf("key template %q: only visible ASCII characters may stand between fields", text)
		}
		t.literals = append(t.literals, literal)
		t.escape += literal
		if !open {
			break
		}
		path, then, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf(`key template %q: "{" without "}"`, text)
		}
		fields, err := keyPath(md, path)
		if err != nil {
			return nil, fmt.Errorf("key template %q: %w", text, err)
		}
		t.paths, rest = append(t.paths, fields), then
	}
	if len(t.paths) == 0 {
		return nil, fmt.Errorf("key template %q names no field in braces: all calls would have one key", text)
	}
	return t, nil
}

// ParseKeyField returns the template that is the value of the one field at path.
func ParseKeyField(md protoreflect.MessageDescriptor, path string) (*KeyTemplate, error) {
	fields, err := keyPath(md, path)
	if err != nil {
		return nil, fmt.Errorf("key field: %w", err)
	}
	return &KeyTemplate{literals: []string{"", ""}, paths: [][]protoreflect.FieldDescriptor{fields}}, nil
}

// keyPath resolves a dotted path of field names.
func keyPath(md protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	var out []protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if md == nil {
			return nil, fmt.Errorf("field %q: %s is no message", path, out[len(out)-1].FullName())
		}
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			near := nearmiss.Find(name, fieldNames(md))
			if near != "" {
				near = fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, fmt.Errorf("field %q: %s has no field %q%s", path, md.FullName(), name, near)
		}
		if fd.IsList() || fd.IsMap() {
			return nil, fmt.Errorf("field %q: %s is repeated", path, fd.FullName())
		}
		out, md = append(out, fd), fd.Message()
	}
	switch last := out[len(out)-1]; last.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind, protoreflect.FloatKind, protoreflect.DoubleKind:
		return nil, fmt.Errorf("field %q: %s is a %v: want text, bytes, a whole number, a bool or an enum", path, last.FullName(), last.Kind())
	}
	return out, nil
}

// Fields returns the paths of the fields that the key is made of, in order.
func (t *KeyTemplate) Fields() []string {
	var out []string
	for _, path := range t.paths {
		var names []string
		for _, fd := range path {
			names = append(names, string(fd.Name()))
		}
		out = append(out, strings.Join(names, "."))
	}
	return out
}

// Key returns the key of a request, or "" if one of the fields is unset. Characters of a value that headers cannot carry, or that stand
// between fields, are percent-encoded: two requests have the same key only if all fields are the same. A key that would be too long
// becomes its SHA-256, as "sha256:…".
func (t *KeyTemplate) Key(request protoreflect.Message) string {
	key := make([]byte, 0, 64)
	key = append(key, t.literals[0]...)
	for i, path := range t.paths {
		m := request
		for _, fd := range path {
			if !m.Has(fd) {
				return ""
			}
			if fd.Message() != nil {
				m = m.Get(fd).Message()
				continue
			}
			key = t.appendValue(key, fd, m.Get(fd))
		}
		key = append(key, t.literals[i+1]...)
	}
	if len(key) > MaxKeyBytes {
		sum := sha256.Sum256(key)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return string(key)
}

func (t *KeyTemplate) appendValue(dst []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if ev := fd.Enum().Values().ByNumber(v.Enum()); ev != nil {
			return t.appendText(dst, string(ev.Name()))
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10)
	case protoreflect.BytesKind:
		return t.appendText(dst, base64.RawURLEncoding.EncodeToString(v.Bytes()))
	}
	return t.appendText(dst, v.String())
}

func (t *KeyTemplate) appendText(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '%' || c == '"' || strings.IndexByte(t.escape, c) >= 0 {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })
}

// DeclaresKey says whether the contract itself tells calls apart by an idempotency key: its backend knows the key, and executes a call
// with the same key once, however often it comes. A key that only the operator's configuration makes says nothing about the backend.
func (m *Method) DeclaresKey() bool {
	opt, _ := proto.GetExtension(methodOptions(m.Desc), toolwayv1.E_Method).(*toolwayv1.MethodOptions)
	k := opt.GetIdempotency()
	return k.GetKeyTemplate() != "" || k.GetKeyField() != "" || k.GetRequired()
}

// KeyTemplate returns what makes an idempotency key of the method's requests: the policy's field, else its template; nil if it has neither,
// or the request cannot have one, which is a finding.
func (m *Method) KeyTemplate() *KeyTemplate {
	t, _ := m.Policy.keyTemplate(m.Desc)
	return t
}

func (p *Policy) keyTemplate(md protoreflect.MethodDescriptor) (*KeyTemplate, error) {
	if p.KeyField == "" && p.KeyTemplate == "" {
		return nil, nil
	}
	if md.IsStreamingClient() {
		return nil, fmt.Errorf("a method that streams requests has no request to make a key of")
	}
	if p.KeyField != "" {
		return ParseKeyField(md.Input(), p.KeyField)
	}
	return ParseKeyTemplate(md.Input(), p.KeyTemplate)
}
