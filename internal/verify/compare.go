package verify

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// lost compares what was sent with what came back, and returns where a value changed or is missing, and how; "" if all is there. md is the
// message of sent, or nil where names are what they are. Only exact values are compared; what is zero may be left out.
func lost(sent value, back any, md protoreflect.MessageDescriptor) string {
	switch sent.shape {
	case array:
		l, ok := back.([]any)
		if !ok {
			return ": is " + show(back) + ", was a list"
		}
		if len(l) != len(sent.list) {
			return ": has another number of items"
		}
		for i, v := range sent.list {
			if s := lost(v, l[i], md); s != "" {
				return "[]" + s
			}
		}
		return ""
	case object:
		return lostIn(sent, back, md)
	}
	if !sent.exact {
		return ""
	}
	var was any
	dec := json.NewDecoder(strings.NewReader(sent.leaf))
	dec.UseNumber()
	if dec.Decode(&was) != nil || same(was, back) {
		return ""
	}
	return ": is " + show(back) + ", was " + cut(sent.leaf, 100)
}

func lostIn(sent value, back any, md protoreflect.MessageDescriptor) string {
	m, ok := back.(map[string]any)
	if !ok {
		return ": is " + show(back) + ", was an object"
	}
	if md != nil && md.ParentFile().Package() == "google.protobuf" && !md.IsMapEntry() {
		return ""
	}
	for i, name := range sent.names {
		v, key, inner := sent.list[i], name, protoreflect.MessageDescriptor(nil)
		enum := false // whose numbers come back as names
		switch {
		case md != nil && md.IsMapEntry():
			inner, enum = md.Fields().ByNumber(2).Message(), md.Fields().ByNumber(2).Enum() != nil
		case md != nil:
			fd := fieldOf(md, name)
			if fd == nil {
				continue // two fields of one name
			}
			key, inner, enum = fd.JSONName(), fd.Message(), fd.Enum() != nil
		}
		got, ok := m[key]
		if !ok {
			if v.exact && !isZero(v.leaf) {
				return "." + key + ": is missing, was " + cut(v.leaf, 100)
			}
			continue
		}
		if enum || v.shape == leaf && !v.exact {
			continue
		}
		if s := lost(v, got, inner); s != "" {
			return "." + key + s
		}
	}
	return ""
}

// fieldOf returns the field of a property, or nil if its JSON name is not its own.
func fieldOf(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	fd := md.Fields().ByJSONName(name)
	if fd == nil {
		fd = md.Fields().ByTextName(name)
	}
	if fd == nil {
		return nil
	}
	for i := range md.Fields().Len() {
		if other := md.Fields().Get(i); other != fd && (other.JSONName() == fd.JSONName() || other.TextName() == name) {
			return nil
		}
	}
	return fd
}

func isZero(leaf string) bool {
	switch leaf {
	case "null", "false", `""`, "{}", "[]":
		return true
	}
	x, ok := number(leaf)
	return ok && x.Sign() == 0
}

// number reads a number, also one in quotes.
func number(s string) (*big.Rat, bool) {
	if s = strings.Trim(s, `"`); s == "" || len(s) > 400 || strings.Trim(s, "0123456789+-.eE") != "" || len(s) > 0 && strings.Count(s, "/") > 0 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// same says whether two JSON values are equal; numbers may be strings of digits on one side.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	if err != nil {
		return false
	}
	if bytes.Equal(x, y) {
		return true
	}
	p, ok := number(string(x))
	q, both := number(string(y))
	return ok && both && p.Cmp(q) == 0
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "nothing"
	}
	return cut(string(b), 100)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return s[:most] + "…"
}
