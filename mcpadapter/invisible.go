package mcpadapter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// strip takes from a result what people do not see but models read: tag characters, bidirectional controls and characters without width,
// which carry hidden instructions into a model. The result says how many there were.
func (r *result) strip() {
	removed := 0
	clean := func(b []byte) []byte {
		out, n := stripInvisible(b)
		removed += n
		return out
	}
	r.structured = clean(r.structured)
	for i, block := range r.content {
		r.content[i] = clean(block)
	}
	if r.echo {
		removed *= 2 // the text that repeats the structured content
	}
	if removed == 0 {
		return
	}
	if r.meta == nil {
		r.meta = map[string]any{}
	}
	r.meta[metaInvisible] = map[string]any{"removed": removed}
}

// stripInvisible returns the JSON text without the characters that nobody sees, and how many there were. In the names of members they are
// written out as "<U+200B>" instead, so that no two names become one. Text without any is returned as it is, after one quick look.
func stripInvisible(text []byte) (_ []byte, removed int) {
	first := findInvisible(text, 0)
	if first < 0 {
		return text, 0
	}
	out := append(make([]byte, 0, len(text)), text[:first]...)
	end, name := 0, false // of the string that was looked at last
	for at := first; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		removed++
		if at >= end {
			end, name = inString(text, at)
		}
		if name {
			out = fmt.Appendf(out, "<U+%04X>", r)
		}
		next := findInvisible(text, at+n)
		if next < 0 {
			next = len(text)
		}
		out = append(out, text[at+n:next]...)
		at = next
	}
	return out, removed
}

// inString returns where the string around text[at] ends, and whether it is the name of a member: a colon follows it.
func inString(text []byte, at int) (end int, name bool) {
	for ; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			rest := bytes.TrimLeft(text[at+1:], " \t\r\n")
			return at, len(rest) > 0 && rest[0] == ':'
		}
	}
	return len(text), false
}

// findInvisible returns where the next character from the position on stands that is to go, or -1.
func findInvisible(text []byte, from int) int {
	for i := from; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			for i += 1; i+8 <= len(text) && binary.LittleEndian.Uint64(text[i:])&0x8080808080808080 == 0; {
				i += 8
			}
			continue
		}
		if c := text[i]; c >= 0xe3 && c <= 0xee { // U+3000 to U+EFFF: nothing of the kind
			i += 3
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if invisible(r) && !meant(text, i, n, r) {
			return i
		}
		i += n
	}
	return -1
}

// invisible says whether a character is one of those that take no place.
func invisible(r rune) bool {
	switch {
	case r < 0x200b:
		return r == 0x61c || r == 0x180e
	case r <= 0x206f:
		return r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2060
	case r < 0xfe00:
		return false
	}
	return r <= 0xfe0f || r == 0xfeff || r >= 0xe0000 && r <= 0xe01ef
}

// meant says whether an invisible character changes how what is before it looks: a joiner between letters or symbols that join, one
// variation selector behind a character that has variants. It depends only on what is seen and on what is meant itself, so that it does not
// change when the rest is taken out.
func meant(text []byte, at, size int, r rune) bool {
	before, back := utf8.DecodeLastRune(text[:at])
	switch {
	case r == 0x200c || r == 0x200d:
		after, _ := utf8.DecodeRune(text[at+size:])
		return joins(before) && (!invisible(before) || meant(text, at-back, back, before)) && joins(after) && !invisible(after)
	case r >= 0xfe00 && r <= 0xfe0f:
		return before >= '#' && before <= '9' || before > unicode.MaxASCII && !invisible(before) && !unicode.IsSpace(before)
	case r >= 0xe0100 && r <= 0xe01ef:
		return unicode.Is(unicode.Han, before)
	}
	return false
}

// joins says whether a joiner beside r has a meaning; variation selectors are marks.
func joins(r rune) bool {
	return r > unicode.MaxASCII && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsSymbol(r))
}
