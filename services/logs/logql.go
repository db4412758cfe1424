package logs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file turns a part of LogsQL into LogQL, Loki's language. The two differ, so what has no equal is refused, with its place.
//
// Taken: words, "phrases", prefixes (word*), name:value, name:"phrase", name:prefix*, name:=exact, name:~"regular expression",
// ~"regular expression" of the message, name:* and name:"", not (- and ! too), and, or, parentheses, and * for everything. Words of the message
// can be alternatives of each other, and so can fields; a word and a field cannot, since LogQL has no such filter.

// term is one condition, or several.
type term struct {
	op    string // "and", "or", "not"; "" for a leaf
	parts []*term
	at    int // byte in the query

	field string // "" for the message
	kind  termKind
	value string
}

type termKind int

const (
	matchWord termKind = iota // the value's ends are ends of words
	matchPrefix
	matchExact
	matchRegexp
	matchAny // everything, or a field that is there
)

// maxTermDepth bounds how deep parentheses and "not" go.
const maxTermDepth = 32

// toLogQL translates a query. selector are matchers that choose the streams, such as {service_name=~".+"} without its braces; of the fields in
// labels, conditions that must hold go there too, where Loki has an index for them.
func toLogQL(query, selector string, labels []string) (string, error) {
	if len(query) > maxQueryBytes {
		return "", &QueryError{Text: fmt.Sprintf("query has %d bytes; at most %d are served", len(query), maxQueryBytes), Position: -1}
	}
	p := &termParser{query: query}
	var all []*term
	if p.skip(); p.at < len(query) {
		t, err := p.or(0)
		if err != nil {
			return "", err
		}
		if p.at < len(query) {
			return "", p.refuse(p.at, fmt.Sprintf("%q is not expected here", p.rune()))
		}
		all = conjuncts(positive(t, false))
	}
	matchers := []string{selector}
	var filters strings.Builder
	for _, t := range all {
		text, matcher, err := filterOf(t, labels)
		if err != nil {
			return "", err
		}
		if matcher != "" {
			matchers = append(matchers, matcher)
		}
		filters.WriteString(text)
	}
	return "{" + strings.Join(matchers, ", ") + "}" + filters.String(), nil
}

// conjuncts takes nested "and"s apart.
func conjuncts(t *term) []*term {
	if t.op != "and" {
		return []*term{t}
	}
	var out []*term
	for _, part := range t.parts {
		out = append(out, conjuncts(part)...)
	}
	return out
}

// positive moves "not" down to the leaves, whose op becomes "not"; LogQL has it only there.
func positive(t *term, negated bool) *term {
	switch t.op {
	case "not":
		return positive(t.parts[0], !negated)
	case "":
		if negated {
			return &term{op: "not", parts: []*term{t}, at: t.at}
		}
		return t
	}
	out := &term{op: t.op, at: t.at}
	if negated {
		out.op = map[string]string{"and": "or", "or": "and"}[t.op]
	}
	for _, part := range t.parts {
		out.parts = append(out.parts, positive(part, negated))
	}
	return out
}

// filterOf is the LogQL of one condition that must hold: a filter, or a matcher of streams.
func filterOf(t *term, labels []string) (filter, matcher string, err error) {
	leaf, negated := leafOf(t)
	switch {
	case leaf != nil && leaf.field == "" && leaf.kind == matchAny:
		if negated {
			return "", "", &QueryError{Text: "nothing but what is not everything cannot be asked of Loki; leave it out", Position: t.at}
		}
		return "", "", nil
	case leaf != nil && leaf.field == "":
		if negated {
			return ` !~ ` + strconv.Quote(leaf.line()), "", nil
		}
		return ` |~ ` + strconv.Quote(leaf.line()), "", nil
	case leaf != nil && !negated && slices.Contains(labels, label(leaf.field)):
		return "", leaf.label(false), nil
	case onlyFields(t):
		return " | " + labelFilter(t), "", nil
	case t.op == "or" && !slices.ContainsFunc(t.parts, func(p *term) bool { return p.op != "" || p.field != "" || p.kind == matchAny }):
		alternatives := make([]string, len(t.parts))
		for i, p := range t.parts {
			alternatives[i] = p.line()
		}
		return ` |~ ` + strconv.Quote("(?:"+strings.Join(alternatives, ")|(?:")+")"), "", nil
	}
	return "", "", &QueryError{Text: "Loki takes alternatives only of words, or only of fields; ask in two searches", Position: t.at}
}

func leafOf(t *term) (leaf *term, negated bool) {
	switch t.op {
	case "":
		return t, false
	case "not":
		return t.parts[0], true
	}
	return nil, false
}

// onlyFields says whether no condition is about the message.
func onlyFields(t *term) bool {
	if t.op == "" {
		return t.field != ""
	}
	return !slices.ContainsFunc(t.parts, func(p *term) bool { return !onlyFields(p) })
}

func labelFilter(t *term) string {
	if leaf, negated := leafOf(t); leaf != nil {
		return leaf.label(negated)
	}
	parts := make([]string, len(t.parts))
	for i, p := range t.parts {
		parts[i] = labelFilter(p)
	}
	return "(" + strings.Join(parts, " "+t.op+" ") + ")"
}

// What LogsQL takes for a part of a word, and for something between two.
const (
	inWord  = `[\p{L}\p{N}_]`
	offWord = `[^\p{L}\p{N}_]`
)

// line is the regular expression for the message; Loki looks for it anywhere in the line.
func (t *term) line() string {
	if t.kind == matchRegexp {
		return t.value
	}
	return "(?s)" + bounded(t.value, t.kind, "(?:^|"+offWord+")", "(?:"+offWord+"|$)")
}

// bounded is value with what has to be at its ends: nothing where the value itself ends in no word.
func bounded(value string, kind termKind, left, right string) string {
	text := regexp.QuoteMeta(value)
	if first, _ := utf8.DecodeRuneInString(value); wordRune(first) {
		text = left + text
	}
	if last, _ := utf8.DecodeLastRuneInString(value); kind == matchWord && wordRune(last) {
		text += right
	}
	return text
}

func wordRune(r rune) bool { return r == '_' || unicode.In(r, unicode.L, unicode.N) }

// label is the condition on a label, whose regular expressions Loki holds against the whole value.
func (t *term) label(negated bool) string {
	name, value, op := label(t.field), t.value, "="
	switch t.kind {
	case matchAny:
		value, negated = "", !negated
	case matchExact:
	case matchRegexp:
		op, value = "=~", "(?s).*(?:"+value+").*"
	default:
		op, value = "=~", "(?s).*"+bounded(value, t.kind, "(?:^|"+offWord+")", "(?:"+offWord+"|$)")+".*"
	}
	if negated {
		op = map[string]string{"=": "!=", "=~": "!~"}[op]
	}
	return name + op + strconv.Quote(value)
}

// label is a field's name as Loki can have it: letters, digits and _.
func label(field string) string {
	var b strings.Builder
	for i, r := range field {
		switch {
		case r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// termParser reads a query from left to right.
type termParser struct {
	query string
	at    int
}

func (p *termParser) refuse(at int, text string) error { return &QueryError{Text: text, Position: at} }

func (p *termParser) skip() {
	for p.at < len(p.query) && strings.IndexByte(" \t\r\n", p.query[p.at]) >= 0 {
		p.at++
	}
}

// rune is the character that comes next.
func (p *termParser) rune() rune {
	r, _ := utf8.DecodeRuneInString(p.query[p.at:])
	return r
}

// keyword reads a word of the language if it comes next.
func (p *termParser) keyword(word string) bool {
	rest := p.query[p.at:]
	if len(rest) < len(word) || !strings.EqualFold(rest[:len(word)], word) {
		return false
	}
	if next := rest[len(word):]; next != "" && strings.IndexByte(" \t\r\n(\"", next[0]) < 0 {
		return false
	}
	p.at += len(word)
	p.skip()
	return true
}

func (p *termParser) or(depth int) (*term, error) {
	t, err := p.and(depth)
	for err == nil && p.keyword("or") {
		var right *term
		if right, err = p.and(depth); err == nil {
			if t.op != "or" {
				t = &term{op: "or", parts: []*term{t}, at: t.at}
			}
			t.parts = append(t.parts, right)
		}
	}
	return t, err
}

func (p *termParser) and(depth int) (*term, error) {
	t, err := p.not(depth)
	for err == nil {
		explicit := p.keyword("and")
		if !explicit && (p.at == len(p.query) || p.query[p.at] == ')' || p.peekOr()) {
			return t, nil
		}
		var right *term
		if right, err = p.not(depth); err == nil {
			t = &term{op: "and", parts: []*term{t, right}, at: t.at}
		}
	}
	return t, err
}

func (p *termParser) peekOr() bool {
	at := p.at
	defer func() { p.at = at }()
	return p.keyword("or")
}

func (p *termParser) not(depth int) (*term, error) {
	if depth > maxTermDepth {
		return nil, p.refuse(p.at, fmt.Sprintf("the query is over %d deep", maxTermDepth))
	}
	at := p.at
	if p.at < len(p.query) && (p.query[p.at] == '-' || p.query[p.at] == '!') {
		p.at++
		p.skip()
	} else if !p.keyword("not") {
		return p.primary(depth)
	}
	t, err := p.not(depth + 1)
	if err != nil {
		return nil, err
	}
	return &term{op: "not", parts: []*term{t}, at: at}, nil
}

func (p *termParser) primary(depth int) (*term, error) {
	at := p.at
	if p.at == len(p.query) {
		return nil, p.refuse(p.at, "the query ends where a condition is expected")
	}
	if p.query[p.at] == '(' {
		p.at++
		p.skip()
		t, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.at == len(p.query) || p.query[p.at] != ')' {
			return nil, p.refuse(p.at, "missing )")
		}
		p.at++
		p.skip()
		return t, nil
	}
	field := ""
	if p.query[p.at] != '~' && p.query[p.at] != '*' {
		text, quoted, err := p.text()
		if err != nil {
			return nil, err
		}
		if p.at == len(p.query) || p.query[p.at] != ':' {
			return p.leaf(at, "", text, quoted)
		}
		p.at++
		if field = text; field == fieldMessage {
			field = ""
		} else if strings.HasPrefix(field, "_") {
			return nil, p.refuse(at, fmt.Sprintf("%q cannot be asked of Loki; for times use start_time and end_time", field))
		}
	}
	return p.value(at, field)
}

// value reads what follows a field's colon.
func (p *termParser) value(at int, field string) (*term, error) {
	t := &term{at: at, field: field}
	switch {
	case p.at == len(p.query):
		return nil, p.refuse(p.at, "the query ends where a value is expected")
	case p.query[p.at] == '*':
		p.at++
		t.kind = matchAny
		p.skip()
		return t, nil
	case p.query[p.at] == '=' || p.query[p.at] == '~':
		t.kind = matchExact
		if p.query[p.at] == '~' {
			t.kind = matchRegexp
		}
		if p.at++; t.kind == matchExact && field == "" {
			return nil, p.refuse(at, "the whole message cannot be compared in Loki; use a phrase")
		}
		from := p.at
		text, _, err := p.text()
		if err != nil {
			return nil, err
		}
		if t.value = text; t.kind == matchRegexp {
			if _, err := regexp.Compile(text); err != nil {
				return nil, p.refuse(from, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			}
			// The driver puts it into others, and Loki those into its own.
			if _, err := regexp.Compile("^(?:(?s).*(?:" + text + ").*|)$"); err != nil {
				return nil, p.refuse(from, `it cannot be a part of another regular expression: end each \Q with \E, and do not nest so deep`)
			}
		}
		p.skip()
		return t, nil
	}
	text, quoted, err := p.text()
	if err != nil {
		return nil, err
	}
	return p.leaf(at, field, text, quoted)
}

// leaf is a condition on words; a * right after the text makes it a prefix.
func (p *termParser) leaf(at int, field, text string, quoted bool) (*term, error) {
	t := &term{at: at, field: field, value: text}
	switch {
	case p.at < len(p.query) && p.query[p.at] == '*':
		p.at++
		t.kind = matchPrefix
	case p.at < len(p.query) && p.query[p.at] == '(' && !quoted:
		return nil, p.refuse(at, fmt.Sprintf("%s(…) is not served on Loki; words, phrases, prefixes, name:value, name:=value and name:~\"…\" are", text))
	case text == "" && field == "":
		return nil, p.refuse(at, "an empty text fits nothing; leave it out")
	case text == "":
		t.kind = matchExact
	}
	p.skip()
	return t, nil
}

// text reads a quoted text or a bare word.
func (p *termParser) text() (text string, quoted bool, err error) {
	at := p.at
	if at == len(p.query) {
		return "", false, p.refuse(at, "the query ends where a word is expected")
	}
	if c := p.query[at]; c == '"' || c == '`' || c == '\'' {
		end := at + 1
		for end < len(p.query) && p.query[end] != c {
			if p.query[end] == '\\' && c != '`' {
				end++
			}
			end++
		}
		if end >= len(p.query) {
			return "", false, p.refuse(at, "the quotation has no end")
		}
		p.at = end + 1
		literal := p.query[at:p.at]
		if c == '\'' {
			literal = `"` + strings.ReplaceAll(strings.ReplaceAll(literal[1:len(literal)-1], `\'`, `'`), `"`, `\"`) + `"`
		}
		if text, err = strconv.Unquote(literal); err != nil {
			return "", false, p.refuse(at, "the quotation has an escape that is not known")
		}
		if !utf8.ValidString(text) {
			return "", false, p.refuse(at, "the quotation is not UTF-8, as all that Loki keeps is")
		}
		return text, true, nil
	}
	for p.at < len(p.query) && (wordRune(p.rune()) || strings.IndexByte("./-@$", p.query[p.at]) >= 0) {
		_, size := utf8.DecodeRuneInString(p.query[p.at:])
		p.at += size
	}
	if p.at == at {
		if p.query[at] == '|' {
			return "", false, p.refuse(at, "pipes are not served here, only filters")
		}
		return "", false, p.refuse(at, fmt.Sprintf("%q is not served on Loki here; put text with signs in quotation marks", p.rune()))
	}
	return p.query[at:p.at], false, nil
}
