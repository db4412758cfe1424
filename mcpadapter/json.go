package mcpadapter

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/toolway/toolway/internal/call"
)

// marshal is json.Marshal without escaping <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// plainJSON is call.PlainText for all strings of a JSON value, names included.
func plainJSON(value json.RawMessage) json.RawMessage {
	s := scanner{data: value}
	out := make([]byte, 0, len(value))
	for s.pos < len(value) {
		if value[s.pos] != '"' {
			out = append(out, value[s.pos])
			s.pos++
			continue
		}
		start := s.pos
		var text string
		if _, _, ok := s.text(); !ok || json.Unmarshal(value[start:s.pos], &text) != nil {
			return nil // not JSON
		}
		out = appendString(out, call.PlainText(text))
	}
	return out
}

const hex = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0 // s[done:i] goes out as it is
	for i := 0; i < len(s); {
		c := s[i]
		if inText[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := decodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[done:i]...), "\ufffd"...)
				done = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[done:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		i++
		done = i
	}
	return append(append(dst, s[done:]...), '"')
}

func decodeRune[T ~string | ~[]byte](s T) (rune, int) {
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}

// cut shortens s to at most n bytes, between runes, and marks that it did.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
