package transcode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// space steps over white space.
func (r *reader) space() {
	for r.pos < len(r.in) {
		switch r.in[r.pos] {
		case ' ', '\n', '\r', '\t':
			r.pos++
		default:
			return
		}
	}
}

// at returns the byte at r.pos, or 0 at the end.
func (r *reader) at() byte {
	if r.pos < len(r.in) {
		return r.in[r.pos]
	}
	return 0
}

// colon steps over the colon behind a name, and space.
func (r *reader) colon() bool {
	if r.at() != ':' {
		r.space()
	}
	if r.at() != ':' {
		return r.syntax("where a colon should be")
	}
	r.pos++
	if r.at() <= ' ' {
		r.space()
	}
	return true
}

// more steps over a comma, and reports whether a further member follows, or over the closing bracket.
func (r *reader) more(closing byte) (bool, bool) {
	c := r.at()
	if c <= ' ' {
		r.space()
		c = r.at()
	}
	switch c {
	case ',':
		r.pos++
		if r.at() <= ' ' {
			r.space()
		}
		return true, true
	case closing:
		r.pos++
		return false, true
	}
	return false, r.syntax(fmt.Sprintf("where a comma or %q should be", closing))
}

// literal steps over true, false or null.
func (r *reader) literal(s string) bool {
	if end := r.pos + len(s); end <= len(r.in) && string(r.in[r.pos:end]) == s && (end == len(r.in) || !isWord(r.in[end])) {
		r.pos = end
		return true
	}
	return r.syntax("where a value should be")
}

func isWord(c byte) bool {
	return c == '-' || c == '+' || c == '.' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// syntax fails because the text at r.pos is no JSON.
func (r *reader) syntax(where string) bool {
	if r.err != nil {
		return false
	}
	if r.pos >= len(r.in) {
		return r.fail(&Error{Problem: "invalid JSON: it ends too early"})
	}
	before := r.in[:r.pos]
	line, start := bytes.Count(before, []byte{'\n'})+1, bytes.LastIndexByte(before, '\n')+1
	c, size := utf8.DecodeRune(r.in[r.pos:])
	found := fmt.Sprintf("%q", c)
	if c == utf8.RuneError && size == 1 {
		found = fmt.Sprintf("byte 0x%02x", r.in[r.pos])
	}
	return r.fail(&Error{Problem: fmt.Sprintf("invalid JSON at line %d, column %d: %s %s", line, utf8.RuneCount(before[start:])+1, found, where)})
}

func (r *reader) fail(e *Error) bool {
	if r.err == nil {
		r.err = e
	}
	return false
}

func (r *reader) tooDeep() bool {
	return r.fail(&Error{Problem: fmt.Sprintf("nested deeper than %d levels", r.maxDepth)})
}

// stringEnd finds the closing quote of the string whose content begins at r.pos, and tells whether it holds escapes. Its bytes are
// checked to be UTF-8 without controls.
func (r *reader) stringEnd() (end int, escaped, ok bool) {
	in, pos := r.in, r.pos
	for ; pos+8 <= len(in); pos += 8 {
		if m := notPlain(binary.LittleEndian.Uint64(in[pos:])); m != 0 {
			if pos += bits.TrailingZeros64(m) / 8; in[pos] == '"' {
				return pos, false, true
			}
			break
		}
	}
	return r.richEnd(pos)
}

// richEnd is stringEnd for what has escapes or is not ASCII; up to pos it has and is neither.
func (r *reader) richEnd(pos int) (end int, escaped, ok bool) {
	in := r.in
	high := false
	for {
		if pos+8 <= len(in) {
			x := binary.LittleEndian.Uint64(in[pos:])
			m := special(x)
			if m == 0 {
				high = high || x&highs != 0
				pos += 8
				continue
			}
			n := bits.TrailingZeros64(m) / 8
			high = high || x&(1<<(8*n)-1)&highs != 0
			pos += n
		}
		if pos >= len(in) {
			r.pos = pos
			return 0, false, r.syntax("")
		}
		switch c := in[pos]; {
		case c == '"':
			if high && !utf8.Valid(in[r.pos:pos]) {
				return 0, false, r.fail(&Error{Problem: "invalid JSON: a string is not valid UTF-8"})
			}
			return pos, escaped, true
		case c == '\\':
			escaped = true
			pos += 2
		case c < 0x20:
			r.pos = pos
			return 0, false, r.syntax("in a string; control characters must be escaped")
		default:
			high = high || c >= 0x80
			pos++
		}
	}
}

// string reads the string at r.pos. The result is good until the next one.
func (r *reader) string() ([]byte, bool) {
	r.pos++
	end, escaped, ok := r.stringEnd()
	if !ok {
		return nil, false
	}
	s := r.in[r.pos:end]
	if escaped {
		if r.text, ok = r.unescape(r.text[:0], s); !ok {
			return nil, false
		}
		s = r.text
	}
	r.pos = end + 1
	return s, true
}

// appendText appends the length and the bytes of the string at r.pos.
func (r *reader) appendText(out []byte) ([]byte, bool) {
	r.pos++
	if out, ok := r.appendShort(out); ok {
		return out, true
	}
	end, escaped, ok := r.stringEnd()
	if !ok {
		return out, false
	}
	s := r.in[r.pos:end]
	if !escaped {
		out = binary.AppendUvarint(out, uint64(len(s)))
		r.pos = end + 1
		return append(out, s...), true
	}
	at := len(out)
	if out, ok = r.unescape(append(out, 0), s); !ok {
		return out, false
	}
	r.pos = end + 1
	return fixLength(out, at), true
}

// appendShort is appendText for a short string that stands for itself, if there is room to copy it, eight bytes a time, while its end is
// looked for.
func (r *reader) appendShort(out []byte) ([]byte, bool) {
	const most = 127 // for which one byte of length is enough
	at := len(out)
	if len(r.in)-r.pos <= most || cap(out)-at <= most+1 {
		return out, false
	}
	in, to := r.in[r.pos:r.pos+most+1], out[at+1:at+most+2]
	for i := 0; i < most; i += 8 {
		x := binary.LittleEndian.Uint64(in[i:])
		binary.LittleEndian.PutUint64(to[i:], x)
		if m := notPlain(x); m != 0 {
			n := i + bits.TrailingZeros64(m)/8
			if in[n] != '"' {
				return out, false
			}
			out = out[:at+1+n]
			out[at] = byte(n)
			r.pos += n + 1
			return out, true
		}
	}
	return out, false
}

// unescape appends the text that s, the content of a JSON string, means.
func (r *reader) unescape(out, s []byte) ([]byte, bool) {
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(out, s...), true
		}
		out = append(out, s[:n]...)
		s = s[n+1:]
		c := s[0]
		s = s[1:]
		switch c {
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			u, ok := hex4(s)
			if !ok {
				return out, r.fail(&Error{Problem: `invalid JSON: \u in a string needs four hexadecimal digits`})
			}
			s = s[4:]
			if u >= 0xd800 && u < 0xe000 {
				var low rune
				if len(s) > 2 && s[0] == '\\' && s[1] == 'u' {
					low, ok = hex4(s[2:])
				} else {
					ok = false
				}
				if !ok || u >= 0xdc00 || low < 0xdc00 || low >= 0xe000 {
					return out, r.fail(&Error{Problem: fmt.Sprintf(`invalid JSON: \u%04x in a string is half of a surrogate pair`, u)})
				}
				u = 0x10000 + (u-0xd800)<<10 + (low - 0xdc00)
				s = s[6:]
			}
			out = utf8.AppendRune(out, u)
			continue
		default:
			return out, r.fail(&Error{Problem: fmt.Sprintf("invalid JSON: unknown escape %q in a string", []byte{'\\', c})})
		}
		out = append(out, c)
	}
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var u rune
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		u = u<<4 | rune(c)
	}
	return u, true
}

// numberEnd returns how long the JSON number at the start of b is, or 0 when there is none.
func numberEnd(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	if i < len(b) && isWord(b[i]) {
		return 0
	}
	return i
}

// number reads the number at r.pos.
func (r *reader) number() ([]byte, bool) {
	n := numberEnd(r.in[r.pos:])
	if n == 0 {
		return nil, r.syntax("where a value should be")
	}
	s := r.in[r.pos : r.pos+n]
	r.pos += n
	return s, true
}

// skip steps over any JSON value.
func (r *reader) skip(depth int) bool {
	switch c := r.at(); {
	case c == '"':
		_, ok := r.string()
		return ok
	case c == 't':
		return r.literal("true")
	case c == 'f':
		return r.literal("false")
	case c == 'n':
		return r.literal("null")
	case c == '-' || c >= '0' && c <= '9':
		_, ok := r.number()
		return ok
	case c == '{' || c == '[':
		if depth <= 0 {
			return r.tooDeep()
		}
		return r.skipMembers(c, depth-1)
	}
	return r.syntax("where a value should be")
}

func (r *reader) skipMembers(opening byte, depth int) bool {
	closing := opening + 2 // '{' and '}', '[' and ']' lie two apart
	r.pos++
	r.space()
	if r.at() == closing {
		r.pos++
		return true
	}
	for {
		if opening == '{' {
			if r.at() != '"' {
				return r.syntax("where a name in quotes should be")
			}
			if _, ok := r.string(); !ok || !r.colon() {
				return false
			}
		}
		if !r.skip(depth) {
			return false
		}
		if more, ok := r.more(closing); !ok || !more {
			return ok
		}
	}
}
