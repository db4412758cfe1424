package logs

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
)

// QueryError says why a query does not parse.
type QueryError struct {
	// Text is the parser's reason.
	Text string
	// Position is the byte after which the parser could not go on, or -1 where it does not say.
	Position int
}

func (e *QueryError) Error() string {
	if e.Position < 0 {
		return e.Text
	}
	return fmt.Sprintf("%s (at byte %d)", e.Text, e.Position)
}

// everything is the filter that an empty query stands for.
const everything = "*"

// maxQueryBytes bounds what one query can ask for: regular expressions are compiled while it is parsed, which no deadline ends.
const maxQueryBytes = 4 << 10

// parseFilter checks a LogsQL filter and returns it in canonical form, without query options: those could lift the time range, and are refused
// in subqueries for that.
func parseFilter(query string, now time.Time) (canonical string, err error) {
	if strings.TrimSpace(query) == "" {
		return everything, nil
	}
	if len(query) > maxQueryBytes {
		return "", &QueryError{Text: fmt.Sprintf("query has %d bytes; at most %d are served", len(query), maxQueryBytes), Position: -1}
	}
	// The parser panics where it finds a bug of its own; the query comes from outside.
	defer func() {
		if r := recover(); r != nil {
			canonical, err = "", &QueryError{Text: "query is not understood", Position: -1}
		}
	}()
	f, err := logstorage.ParseFilterAtTimestamp(query, now.UnixNano())
	if err != nil {
		return "", refusal(query, now, err)
	}
	canonical = f.String()
	if optionsCall.MatchString(blank(canonical)) {
		at := -1
		if place := optionsCall.FindStringIndex(blank(query)); place != nil {
			at = place[0]
		}
		return "", &QueryError{Text: "options of a subquery are not served: they could lift the time range; leave them out", Position: at}
	}
	return canonical, nil
}

var (
	// optionsCall is where a query, or one inside it, has options.
	optionsCall = regexp.MustCompile(`\boptions\s*\(`)
	quotation   = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`[^`]*`")
)

// blank puts spaces where a query has quotations, whose texts are not its language.
func blank(query string) string {
	return quotation.ReplaceAllStringFunc(query, func(q string) string { return strings.Repeat(" ", len(q)) })
}

// refusal says whether a query that is not a filter is one with pipes, or does not parse.
func refusal(query string, now time.Time, err error) *QueryError {
	q, queryErr := logstorage.ParseQueryAtTimestamp(query, now.UnixNano())
	if queryErr != nil {
		return newQueryError(query, err)
	}
	q.DropAllPipes()
	return &QueryError{Text: fmt.Sprintf("pipes are not served here, only filters; leave out what follows %q", q), Position: firstPipe(query)}
}

// firstPipe is where the pipes of a query that parses begin, or -1; those of subqueries are inside parentheses.
func firstPipe(query string) int {
	depth := 0
	for at, c := range []byte(blank(query)) {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				return at
			}
		}
	}
	return -1
}

// parserContext is how the parser quotes what it had read, at most 50 bytes, when it gave up.
var parserContext = regexp.MustCompile(`(?s); context: \[(.*?)\](; |$)`)

func newQueryError(query string, err error) *QueryError {
	text := err.Error()
	position := -1
	if m := parserContext.FindStringSubmatch(text); m != nil {
		if at := strings.LastIndex(query, m[1]); at >= 0 {
			position = at + len(m[1])
		}
	}
	return &QueryError{Text: parserContext.ReplaceAllString(text, "$2"), Position: position}
}
