// Package token writes the page tokens and cursors of all services: opaque to callers, safe in URLs.
package token

import (
	"encoding/base64"
	"errors"
)

var errText = errors.New("not a token of this kind")

// Encode returns bytes as a token. layout is told apart when it is read, so that a cursor is never taken for a page token, nor a layout for a later one.
func Encode(layout byte, b []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{layout}, b...))
}

// Decode returns the bytes of a token of a layout. It takes a token only as it was given; base64 by itself skips ends of lines.
func Decode(layout byte, s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != layout || len(s) != base64.RawURLEncoding.EncodedLen(len(b)) {
		return nil, errText
	}
	return b[1:], nil
}
