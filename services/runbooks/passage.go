package runbooks

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxPassages     = 3
	maxPassageBytes = 300
)

// place is where a word that was looked for stands in a content: bytes from start to end.
type place struct {
	term       string
	start, end int
}

// passages are the lines of content in which most of the words stand, in the order of the content, as plain text.
func passages(content string, places []place) []string {
	type line struct {
		start, end int
		first      place
		terms      map[string]bool
	}
	var lines []*line
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.start, b.start) })
	for _, p := range places {
		if p.start < 0 || p.end < p.start || p.end > len(content) {
			continue
		}
		if n := len(lines); n > 0 && p.start < lines[n-1].end {
			lines[n-1].terms[p.term] = true
			continue
		}
		l := &line{start: strings.LastIndexByte(content[:p.start], '\n') + 1, end: len(content), first: p, terms: map[string]bool{p.term: true}}
		if n := strings.IndexByte(content[p.end:], '\n'); n >= 0 {
			l.end = p.end + n
		}
		lines = append(lines, l)
	}
	best := slices.Clone(lines)
	slices.SortStableFunc(best, func(a, b *line) int { return cmp.Compare(len(b.terms), len(a.terms)) })
	best = best[:min(len(best), maxPassages)]
	slices.SortFunc(best, func(a, b *line) int { return cmp.Compare(a.start, b.start) })
	var out []string
	for _, l := range best {
		text := content[l.start:l.end]
		// A long line is cut so that its first word that fits is seen.
		if from := l.first.start - l.start; len(text) > maxPassageBytes && from > maxPassageBytes/3 {
			text = "…" + afterSpace(text[from-maxPassageBytes/3:])
		}
		if text = cut(plain(text), maxPassageBytes); text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// afterSpace begins a text that was cut at the next word.
func afterSpace(s string) string {
	if i := strings.IndexByte(s, ' '); i >= 0 && i < maxPassageBytes/3 {
		return s[i+1:]
	}
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// cut shortens a text to at most limit bytes, at a space if there is one near.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const more = "…"
	s = s[:limit-len(more)]
	if i := strings.LastIndexByte(s, ' '); i > len(s)/2 {
		s = s[:i]
	}
	for s != "" && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + more
}

// What Markdown adds to a line of text.
var (
	lineMark = regexp.MustCompile(`^\s*(#{1,6}\s+|>\s?|[-*+]\s+(\[[ xX]\]\s+)?|\d+[.)]\s+)*`)
	link     = regexp.MustCompile(`!?\[([^\[\]]*)\]\([^()\s]*\)`)
	emphasis = regexp.MustCompile("\\*\\*|__|`")
)

// plain is a line of Markdown as plain text, near enough to be read.
func plain(line string) string {
	line = lineMark.ReplaceAllString(line, "")
	line = link.ReplaceAllString(line, "$1")
	line = emphasis.ReplaceAllString(line, "")
	return strings.Join(strings.Fields(line), " ")
}
