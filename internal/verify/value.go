package verify

import (
	"encoding/json"
	"strconv"
)

// value is a JSON value that was made: an encoded leaf, a list or an object.
type value struct {
	leaf  string
	exact bool // what comes back must be the same value
	list  []value
	names []string // of an object, beside list
	shape kind     // leaf, array or object
}

func raw(s string) value   { return value{leaf: s} }
func exact(s string) value { return value{leaf: s, exact: true} }

// quoted encodes s as a JSON string, without escapes that JSON does not ask for.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(b)
}

func (v value) append(dst []byte) []byte {
	switch v.shape {
	case array:
		dst = append(dst, '[')
		for i, e := range v.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.append(dst)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		for i, e := range v.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, quoted(v.names[i])...)
			dst = append(dst, ':')
			dst = e.append(dst)
		}
		return append(dst, '}')
	}
	return append(dst, v.leaf...)
}

func (v value) String() string { return string(v.append(nil)) }

// get returns the member of an object.
func (v value) get(name string) (value, bool) {
	for i, n := range v.names {
		if n == name {
			return v.list[i], true
		}
	}
	return value{}, false
}
