package toolschema

import (
	"regexp/syntax"
	"strconv"
	"strings"
)

// ecma rewrites a pattern of RE2 as one that ECMAScript reads the same way, with or without its "u" flag.
// It reports false when there is none, or when it is too long to be worth its bytes.
func ecma(re2 string) (string, bool) {
	const maxBytes = 500
	if len(re2) > maxBytes {
		return "", false
	}
	tree, err := syntax.Parse(re2, syntax.Perl)
	if err != nil {
		return "", false
	}
	var w patternWriter
	w.regexp(tree)
	if w.bad || w.b.Len() > maxBytes {
		return "", false
	}
	return w.b.String(), true
}

type patternWriter struct {
	b   strings.Builder
	bad bool
}

func (w *patternWriter) regexp(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		w.b.WriteString("(?:)")
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if re.Flags&syntax.FoldCase != 0 {
				w.folded(r)
			} else {
				w.literal(r, `^$\.*+?()[]{}|`)
			}
		}
	case syntax.OpCharClass:
		w.class(re.Rune)
	case syntax.OpAnyCharNotNL:
		w.b.WriteString(`[^\n]`)
	case syntax.OpAnyChar:
		w.b.WriteString(`[\s\S]`)
	case syntax.OpBeginText:
		w.b.WriteByte('^')
	case syntax.OpEndText:
		w.b.WriteByte('$')
	case syntax.OpWordBoundary:
		w.b.WriteString(`\b`)
	case syntax.OpNoWordBoundary:
		w.b.WriteString(`\B`)
	case syntax.OpCapture:
		w.group(re.Sub[0])
	case syntax.OpStar:
		w.repeat(re.Sub[0], "*")
	case syntax.OpPlus:
		w.repeat(re.Sub[0], "+")
	case syntax.OpQuest:
		w.repeat(re.Sub[0], "?")
	case syntax.OpRepeat:
		count := strconv.Itoa(re.Min)
		switch {
		case re.Max < 0:
			count += ","
		case re.Max != re.Min:
			count += "," + strconv.Itoa(re.Max)
		}
		w.repeat(re.Sub[0], "{"+count+"}")
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if sub.Op == syntax.OpAlternate {
				w.group(sub)
			} else {
				w.regexp(sub)
			}
		}
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			if i > 0 {
				w.b.WriteByte('|')
			}
			w.regexp(sub)
		}
	default: // line anchors, no match
		w.bad = true
	}
}

func (w *patternWriter) group(re *syntax.Regexp) {
	w.b.WriteString("(?:")
	w.regexp(re)
	w.b.WriteByte(')')
}

func (w *patternWriter) repeat(re *syntax.Regexp, suffix string) {
	switch re.Op {
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpCapture:
		w.regexp(re)
	case syntax.OpLiteral:
		if len(re.Rune) == 1 {
			w.regexp(re)
			break
		}
		w.group(re)
	default:
		w.group(re)
	}
	w.b.WriteString(suffix)
}

// literal writes r so that it means itself; special are the characters that need a backslash here.
func (w *patternWriter) literal(r rune, special string) {
	switch {
	case r > 0xFFFF:
		w.bad = true
	case r < 0x80 && strings.ContainsRune(special, r):
		w.b.WriteByte('\\')
		w.b.WriteRune(r)
	case r < ' ' || r >= 0x7f && r <= 0xff:
		w.b.WriteString(`\x` + string(hexDigits[r>>4]) + string(hexDigits[r&15]))
	default:
		w.b.WriteRune(r)
	}
}

func (w *patternWriter) folded(r rune) {
	re, err := syntax.Parse("(?i)["+`\x{`+strconv.FormatInt(int64(r), 16)+"}]", syntax.Perl)
	if err != nil {
		w.bad = true
		return
	}
	if re.Op == syntax.OpLiteral {
		// The parser folds a two-letter class back into one literal.
		lower, upper := strings.ToLower(string(re.Rune)), strings.ToUpper(string(re.Rune))
		if lower == upper {
			w.literal(r, `^$\.*+?()[]{}|`)
			return
		}
		w.b.WriteString("[" + upper + lower + "]")
		return
	}
	w.class(re.Rune)
}

func (w *patternWriter) class(ranges []rune) {
	const last = 0x10FFFF
	w.b.WriteByte('[')
	if n := len(ranges); n > 0 && ranges[n-1] == last {
		w.b.WriteByte('^')
		var rest []rune
		next := rune(0)
		for i := 0; i < n; i += 2 {
			if ranges[i] > next {
				rest = append(rest, next, ranges[i]-1)
			}
			next = ranges[i+1] + 1
		}
		ranges = rest
	}
	if len(ranges) == 0 {
		w.bad = true
	}
	for i := 0; i+1 < len(ranges); i += 2 {
		w.literal(ranges[i], `^\]-[`)
		if ranges[i+1] > ranges[i] {
			if ranges[i+1] > ranges[i]+1 {
				w.b.WriteByte('-')
			}
			w.literal(ranges[i+1], `^\]-[`)
		}
	}
	w.b.WriteByte(']')
}
