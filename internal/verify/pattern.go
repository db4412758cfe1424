package verify

import (
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// matching returns up to three texts of low to high characters that the pattern accepts; high below 0 is no bound. They are the same for
// the same pattern.
func matching(pattern string, low, high int) []string {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil
	}
	w := texter{rng: rand.New(rand.NewPCG(uint64(len(pattern)), 11))}
	var out []string
	for try := range 60 {
		w.b.Reset()
		w.most = try / 4 // longer repetitions with every failure
		if try%4 == 3 {
			w.most = max(low, try)
		}
		w.regexp(tree)
		s := w.b.String()
		n := utf8.RuneCountInString(s)
		if n >= low && (high < 0 || n <= high) && re.MatchString(s) && !slices.Contains(out, s) {
			if out = append(out, s); len(out) == 3 {
				break
			}
		}
	}
	return out
}

// texter writes a text that an expression matches. Word boundaries are left to luck.
type texter struct {
	b    strings.Builder
	rng  *rand.Rand
	most int // repetitions above the least
}

func (w *texter) regexp(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		w.b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		w.class(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		w.b.WriteByte(byte('a' + w.rng.IntN(26)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			w.regexp(sub)
		}
	case syntax.OpAlternate:
		w.regexp(re.Sub[w.rng.IntN(len(re.Sub))])
	case syntax.OpStar:
		w.repeat(re.Sub[0], 0, -1)
	case syntax.OpPlus:
		w.repeat(re.Sub[0], 1, -1)
	case syntax.OpQuest:
		w.repeat(re.Sub[0], 0, 1)
	case syntax.OpRepeat:
		w.repeat(re.Sub[0], re.Min, re.Max)
	}
}

func (w *texter) repeat(re *syntax.Regexp, low, high int) {
	const longest = 1 << 12
	n := low
	if w.most > 0 {
		n += w.rng.IntN(w.most + 1)
	}
	if high >= 0 {
		n = min(n, high)
	}
	for range n {
		if w.b.Len() > longest {
			return
		}
		w.regexp(re)
	}
}

// class writes a character of the class, one that can be seen if there is one.
func (w *texter) class(ranges []rune) {
	for range 20 {
		i := 2 * w.rng.IntN(len(ranges)/2)
		r := ranges[i] + w.rng.Int32N(min(ranges[i+1]-ranges[i], 200)+1)
		if unicode.IsPrint(r) {
			w.b.WriteRune(r)
			return
		}
	}
	w.b.WriteRune(ranges[0])
}
