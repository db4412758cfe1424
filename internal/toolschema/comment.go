package toolschema

import (
	"html"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// DefaultCommentRunes is the bound of [Comment] when none is given. It is what the strictest model API takes as a tool description.
const DefaultCommentRunes = 1024

// maxRawComment bounds the work on one comment; longer text is cut long before it is shown.
const maxRawComment = 64 << 10

// Comment returns the cleaned comment of d, bounded to maxRunes (0 means the default of 1,024), or "".
// Lint pragmas, markup, link targets, control and invisible characters are taken out; paragraphs and list items stand on their own lines.
// Text that is too long is cut behind a sentence where that keeps at least half of it, else behind a word.
func Comment(d protoreflect.Descriptor, maxRunes int) string {
	if maxRunes <= 0 {
		maxRunes = DefaultCommentRunes
	}
	return shorten(clean(rawComment(d)), maxRunes)
}

func rawComment(d protoreflect.Descriptor) string {
	if d == nil || d.IsPlaceholder() {
		return ""
	}
	file := d.ParentFile()
	if file == nil {
		return ""
	}
	loc := file.SourceLocations().ByDescriptor(d)
	raw := loc.LeadingComments
	if strings.TrimSpace(raw) == "" {
		raw = loc.TrailingComments
	}
	if len(raw) > maxRawComment {
		raw = raw[:maxRawComment]
	}
	return raw
}

var (
	linterSpan  = regexp.MustCompile(`(?s)\(--.*?--\)`)
	htmlComment = regexp.MustCompile(`(?s)<!--.*?(?:-->|$)`)
	hiddenBody  = regexp.MustCompile(`(?is)<(?:script|style)\b.*?(?:</(?:script|style)\s*>|$)`)
	htmlBreak   = regexp.MustCompile(`(?i)</?(?:p|br|li|ul|ol|tr|table|h[1-6]|div|dt|dd|dl|pre|blockquote|hr|section|aside)(?:\s[^<>]*)?/?>`)
	htmlTag     = regexp.MustCompile(`(?i)</?(?:a|abbr|b|big|button|caption|center|cite|code|col|colgroup|del|details|dfn|em|embed|font|form|header|footer|i|iframe|img|input|ins|kbd|label|link|main|mark|meta|nav|object|option|q|s|samp|select|small|span|strike|strong|sub|summary|sup|svg|tbody|td|textarea|tfoot|th|thead|tt|u|var|video|audio|wbr|devsite-[a-z-]+)(?:\s[^<>]*)?/?>`)
	envoyMark   = regexp.MustCompile(`\[#[^\[\]]*\]`)
	image       = regexp.MustCompile(`!\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])`)
	link        = regexp.MustCompile(`\[([^\[\]]+)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|(?:\n *)?\[(?:[A-Za-z_]\w*(?:[.#/: ]+\w+)*)?\])`)
	linkTarget  = regexp.MustCompile(`^\s*\[[^\[\]]+\]:\s*\S+.*$`)
	autolink    = regexp.MustCompile(`<((?:https?|mailto):[^<>\s]*)>`)
	emphasis    = regexp.MustCompile(`(\*\*|__)(\S(?:.*?\S)?)(\*\*|__)`)
	heading     = regexp.MustCompile(`^#{1,6}\s+`)
	ruler       = regexp.MustCompile(`^[\s\-=*_#~/+|:]+$`)
	listItem    = regexp.MustCompile(`^(?:[-*+•]|\d{1,3}[.)])\s+`)
	pragma      = regexp.MustCompile(`(?i)^(?://\s*)?(?:buf:(?:lint|breaking)|nolint\b|noinspection\b|lint:|lint\.(?:ifchange|thenchange)|protolint:|api-linter:|clang-format\b|prettier-ignore\b|copybara:|@gotags?:|@inject_tags?:|gotags:|go:[a-z]+|\+[a-z][a-z0-9]*(?:[:=].*)?$|swagger:|spellchecker:|cspell:|codespell:|checkstyle:|eslint-|tslint:|aip\.dev/not-precedent|todo\b|fixme\b|xxx\b|proto-lint|prototool)`)
)

// clean turns the raw text of a comment into plain text for a reader who is not to see the tools around it.
func clean(raw string) string {
	if raw == "" {
		return ""
	}
	if strings.Contains(raw, "(--") {
		raw = linterSpan.ReplaceAllString(raw, "")
	}
	if strings.IndexByte(raw, '<') >= 0 {
		raw = htmlComment.ReplaceAllString(raw, "")
		raw = hiddenBody.ReplaceAllString(raw, "")
		raw = autolink.ReplaceAllString(raw, "$1")
		raw = htmlBreak.ReplaceAllString(raw, "\n\n")
		raw = htmlTag.ReplaceAllString(raw, "")
	}
	if strings.IndexByte(raw, '&') >= 0 {
		raw = html.UnescapeString(raw)
	}
	raw = visible(raw)
	if strings.IndexByte(raw, '[') >= 0 {
		raw = envoyMark.ReplaceAllString(raw, "")
		raw = image.ReplaceAllString(raw, "$1")
		raw = link.ReplaceAllString(raw, "$1")
	}
	var c cleaner
	for line := range strings.SplitSeq(raw, "\n") {
		if !c.line(line) {
			return ""
		}
	}
	return c.out.String()
}

// cleaner joins the lines of a paragraph and drops those that speak to tools.
type cleaner struct {
	out   strings.Builder
	fresh bool // the next text begins a line
	skip  bool // inside a paragraph that speaks to tools
}

// line takes one line; false means that the comment asks to be hidden as a whole.
func (c *cleaner) line(line string) bool {
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		c.fresh, c.skip = true, false
		return true
	case strings.HasPrefix(line, "@exclude"):
		return c.out.Len() > 0
	case pragma.MatchString(line):
		c.skip = isNote(line)
		return true
	case c.skip:
		return true
	case strings.HasPrefix(line, "```"), linkTarget.MatchString(line):
		c.fresh = true
		return true
	case ruler.MatchString(line):
		return true
	}
	if line[0] == '#' {
		if at := heading.FindStringIndex(line); at != nil {
			line = line[at[1]:]
			c.fresh = true
		}
	}
	if strings.Contains(line, "**") || strings.Contains(line, "__") {
		line = emphasis.ReplaceAllString(line, "$2")
	}
	if listItem.MatchString(line) {
		c.fresh = true
	}
	if c.out.Len() > 0 {
		if c.fresh {
			c.out.WriteByte('\n')
		} else {
			c.out.WriteByte(' ')
		}
	}
	c.fresh = false
	space := false
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' {
			if space {
				continue
			}
			space = true
		} else {
			space = false
		}
		c.out.WriteByte(line[i])
	}
	return true
}

// isNote says whether a pragma is a note to maintainers, which runs on to the end of its paragraph.
func isNote(line string) bool {
	if len(line) < 3 {
		return false
	}
	line = strings.ToLower(strings.TrimLeft(line, "/ "))
	return strings.HasPrefix(line, "todo") || strings.HasPrefix(line, "fixme") || strings.HasPrefix(line, "xxx")
}

// visible keeps the characters that a reader sees: no controls, no direction marks, no tags, no variation selectors, no private use.
func visible(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' || c == 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return '\n'
		case r == '\t' || unicode.Is(unicode.Zs, r):
			return ' '
		case r == utf8.RuneError || blank(r) || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

// blank says whether r is a letter, mark or symbol that shows nothing.
func blank(r rune) bool {
	switch {
	case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r == 0x2800, r == 0x3164, r == 0xFFA0:
		return true
	case r >= 0x180B && r <= 0x180F, r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0000 && r <= 0xE0FFF:
		return true
	}
	return false
}

// shorten cuts s to at most limit runes.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end, count := len(s), 0
	for i := range s {
		if count == limit {
			end = i
			break
		}
		count++
	}
	if end == len(s) {
		return s
	}
	head := s[:end]
	if at := lastSentence(head); at >= len(head)/2 {
		return whole(head[:at])
	}
	for size := 0; size == 0 && head != ""; {
		_, size = utf8.DecodeLastRuneInString(head)
		head = head[:len(head)-size]
	}
	if at := strings.LastIndexAny(head, " \n"); at >= len(head)/2 {
		head = head[:at]
	}
	return strings.TrimRight(head, " \n,;:") + "…"
}

// whole drops a last sentence that only leads to what was cut off, such as "Example:".
func whole(s string) string {
	for strings.HasSuffix(s, ":") {
		at := lastSentence(s)
		if at == 0 {
			break
		}
		s = s[:at]
	}
	return s
}

// lastSentence returns the offset behind the last sentence that ends in s, or 0.
func lastSentence(s string) int {
	for i := len(s) - 1; i > 0; i-- {
		if s[i] == '\n' {
			return i
		}
		if s[i] == ' ' && sentenceEnd(s, i) {
			return i
		}
	}
	return 0
}

// firstSentence returns the first sentence of s, and the second where the first is but a tag, such as "Required.".
func firstSentence(s string) string {
	for i := 1; i < len(s); i++ {
		if s[i] == '\n' || s[i] == ' ' && sentenceEnd(s, i) && !isTag(s[:i]) {
			return s[:i]
		}
	}
	return s
}

func isTag(s string) bool {
	switch s {
	case "Required.", "Optional.", "Output only.", "Input only.", "Immutable.", "Deprecated.", "Note.", "Optional. Deprecated.":
		return true
	}
	return false
}

// sentenceEnd says whether a sentence ends before the blank at i.
func sentenceEnd(s string, i int) bool {
	switch s[i-1] {
	case '!', '?':
		return true
	case '.':
	default:
		return false
	}
	word := s[strings.LastIndexAny(s[:i-1], " \n(")+1 : i-1]
	if strings.IndexByte(word, '.') >= 0 && len(word) <= 4 {
		return false // e.g., i.e., a.k.a.
	}
	switch strings.ToLower(word) {
	case "etc", "vs", "cf", "resp", "approx", "incl", "excl", "ex", "eg", "ie", "no", "fig":
		return false
	}
	return true
}
