package call

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// PlainText returns text for people and agents to read, without what cannot be seen but changes how it reads: control characters other than
// newline and tab, terminal sequences, direction marks and overrides, invisible characters and tags. Joiners inside a word stay, since scripts and
// emoji need them. Bytes that are no UTF-8 become U+FFFD.
func PlainText(s string) string {
	clean := utf8.ValidString(s)
	if clean {
		for _, r := range s {
			if hidden(r) {
				clean = false
				break
			}
		}
	}
	if clean {
		return s
	}
	s = strings.ToValidUTF8(s, "\ufffd")
	var b strings.Builder
	b.Grow(len(s))
	before := ' ' // the last rune that was kept
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b:
			n = escape(s[i:])
		case joiner(r):
			if after, _ := utf8.DecodeRuneInString(s[i+n:]); joins(before) && joins(after) {
				b.WriteRune(r)
				before = ' ' // never two
			}
		case !hidden(r):
			b.WriteRune(r)
			before = r
		}
		i += n
	}
	return b.String()
}

func joiner(r rune) bool { return r == 0x200c || r == 0x200d }

// joins says whether a joiner beside r has a meaning: a letter, a mark, a variation selector or a symbol beyond ASCII.
func joins(r rune) bool {
	return r > unicode.MaxASCII && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsSymbol(r))
}

func hidden(r rune) bool {
	switch {
	case r < ' ':
		return r != '\n' && r != '\t'
	case r < 0x7f:
		return false
	case r <= 0x9f, r == 0xad, r == 0x61c, r == 0x180e, r == 0xfeff:
		return true
	}
	return r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r >= 0xfff9 && r <= 0xfffb || r >= 0xe0000 && r <= 0xe007f
}

// escape is the length of the terminal sequence at the start of s, which is an escape character.
func escape(s string) int {
	if len(s) < 2 || s[1] != '[' {
		return 1
	}
	for i := 2; i < len(s); i++ {
		if s[i] >= 0x40 && s[i] <= 0x7e {
			return i + 1
		}
		if s[i] < 0x20 || s[i] > 0x7e {
			break
		}
	}
	return 1
}
