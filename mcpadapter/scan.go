package mcpadapter

import (
	"unicode/utf8"
)

// scanner reads JSON by the letter of RFC 8259, without building anything. Every method says whether what it read is JSON; after false
// the scanner is of no more use.
type scanner struct {
	data  []byte
	pos   int
	depth int
	// odd is set by what is JSON, but which decoders take differently: half a surrogate pair, bytes that are not UTF-8, and numbers
	// that may not fit a float64.
	odd bool
}

// space skips white space and returns the byte after it, or 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// end says whether only white space is left.
func (s *scanner) end() bool {
	s.space()
	return s.pos == len(s.data)
}

// value skips one value and returns its bytes.
func (s *scanner) value() ([]byte, bool) {
	first := s.space()
	start := s.pos
	var ok bool
	switch first {
	case '{':
		ok = s.object(func([]byte) bool { _, ok := s.value(); return ok })
	case '[':
		ok = s.array(func() bool { _, ok := s.value(); return ok })
	case '"':
		_, _, ok = s.text()
	case 't':
		ok = s.word("true")
	case 'f':
		ok = s.word("false")
	case 'n':
		ok = s.word("null")
	default:
		ok = s.number()
	}
	return s.data[start:s.pos], ok
}

// object reads an object. member is called for each name, without its quotes, and reads the value. A name that is written with escapes
// counts as odd, since it may be another name than it seems.
func (s *scanner) object(member func(name []byte) bool) bool {
	if s.space() != '{' || !s.enter() {
		return false
	}
	for more := s.space() != '}'; more; {
		if s.space() != '"' {
			return false
		}
		name, plain, ok := s.text()
		s.odd = s.odd || !plain
		if !ok || s.space() != ':' {
			return false
		}
		s.pos++
		if !member(name) {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			more = false
		default:
			return false
		}
	}
	return s.leave()
}

// array reads an array, of which element reads each one.
func (s *scanner) array(element func() bool) bool {
	if s.space() != '[' || !s.enter() {
		return false
	}
	for more := s.space() != ']'; more; {
		if !element() {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case ']':
			more = false
		default:
			return false
		}
	}
	return s.leave()
}

func (s *scanner) enter() bool {
	s.pos++
	s.depth++
	return s.depth <= maxNesting
}

func (s *scanner) leave() bool {
	s.pos++
	s.depth--
	return true
}

func (s *scanner) word(w string) bool {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

// inText are the bytes that stand for themselves in a string, ASCII only.
var inText = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// text reads a string and returns what is between its quotes. It is plain if that is also what it means.
func (s *scanner) text() (inner []byte, plain, ok bool) {
	s.pos++
	start, plain := s.pos, true
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case inText[c]:
			s.pos++
		case c == '"':
			s.pos++
			return s.data[start : s.pos-1], plain, true
		case c == '\\':
			plain = false
			if !s.escape() {
				return nil, false, false
			}
		case c < utf8.RuneSelf:
			return nil, false, false
		default:
			r, n := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && n == 1 {
				plain, s.odd = false, true
			}
			s.pos += n
		}
	}
	return nil, false, false
}

func (s *scanner) escape() bool {
	if s.pos+1 >= len(s.data) {
		return false
	}
	switch s.data[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return true
	case 'u':
	default:
		return false
	}
	unit := s.unit()
	if unit < 0 {
		return false
	}
	s.pos += 6
	if unit < 0xd800 || unit > 0xdfff {
		return true
	}
	if low := s.unit(); unit < 0xdc00 && low >= 0xdc00 && low <= 0xdfff {
		s.pos += 6
		return true
	}
	s.odd = true
	return true
}

// unit returns the value of the \uXXXX that begins here, or -1.
func (s *scanner) unit() int {
	if len(s.data)-s.pos < 6 || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return -1
	}
	unit := 0
	for _, c := range s.data[s.pos+2 : s.pos+6] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			unit = unit<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			unit = unit<<4 | int(c-'A'+10)
		default:
			return -1
		}
	}
	return unit
}

func (s *scanner) number() bool {
	start := s.pos
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	mantissa := s.pos - start
	exponent := 0
	if s.skip('e') || s.skip('E') {
		if !s.skip('-') {
			s.skip('+')
		}
		from := s.pos
		if !s.digits() {
			return false
		}
		exponent = s.pos - from
	}
	if mantissa > 200 || exponent > 2 {
		s.odd = true
	}
	return true
}

func (s *scanner) skip(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}
