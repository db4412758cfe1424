package catalog

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// pattern is the pattern of a resource name or the template of a URI: text with {variables}. A variable stands for something that is not
// empty and has no slash in it, so that each segment between slashes is matched by itself, in linear time.
type pattern struct {
	text     string
	vars     []string
	segments []segment
}

// segment is literals with one variable between two of them: literals[0], variable, literals[1], …
type segment struct{ literals []string }

// maxPattern bounds the text of a pattern, maxVars its variables.
const (
	maxPattern = 512
	maxVars    = 16
)

// parsePattern parses a pattern of google.api.resource or a URI template of RFC 6570, level 1.
func parsePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	}
	p := &pattern{text: text}
	for part := range strings.SplitSeq(text, "/") {
		seg, err := p.segment(part)
		if err != nil {
			return nil, err
		}
		p.segments = append(p.segments, seg)
	}
	if len(p.vars) > maxVars {
		return nil, fmt.Errorf("it has more than %d variables", maxVars)
	}
	return p, nil
}

func (p *pattern) segment(part string) (segment, error) {
	var seg segment
	for {
		literal, rest, open := strings.Cut(part, "{")
		if i := strings.IndexFunc(literal, unfitInURI); i >= 0 {
			return seg, fmt.Errorf("character %q may not stand in it", []rune(literal[i:])[0])
		}
		if len(seg.literals) > 0 && literal == "" && open {
			return seg, fmt.Errorf("two variables stand side by side")
		}
		seg.literals = append(seg.literals, literal)
		if !open {
			return seg, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			return seg, fmt.Errorf("a variable is not closed")
		case name == "" || strings.ContainsFunc(name, unfitInName):
			return seg, fmt.Errorf("variable %q is not a name", name)
		case slices.Contains(p.vars, name):
			return seg, fmt.Errorf("variable %q occurs twice", name)
		}
		p.vars = append(p.vars, name)
		part = after
	}
}

func unfitInURI(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("}<>\"\\^`|*", r)
}

func unfitInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.'
}

// match returns the values of the variables in text, in order.
func (p *pattern) match(text string) ([]string, bool) {
	if strings.Count(text, "/") != len(p.segments)-1 {
		return nil, false
	}
	values := make([]string, 0, len(p.vars))
	for i := range p.segments {
		part, rest, _ := strings.Cut(text, "/")
		var ok bool
		if values, ok = p.segments[i].match(values, part); !ok {
			return nil, false
		}
		text = rest
	}
	return values, true
}

// match gives each variable the shortest text that lets the rest match.
func (s *segment) match(values []string, part string) ([]string, bool) {
	part, ok := strings.CutPrefix(part, s.literals[0])
	if !ok {
		return values, false
	}
	last := len(s.literals) - 1
	if last == 0 {
		return values, part == ""
	}
	if part, ok = strings.CutSuffix(part, s.literals[last]); !ok {
		return values, false
	}
	for _, literal := range s.literals[1:last] {
		if part == "" {
			return values, false
		}
		at := strings.Index(part[1:], literal)
		if at < 0 {
			return values, false
		}
		values = append(values, part[:at+1])
		part = part[at+1+len(literal):]
	}
	return append(values, part), part != ""
}

// matchURI is match for percent-encoded values. A value that holds a slash is none.
func (p *pattern) matchURI(uri string) ([]string, bool) {
	values, ok := p.match(uri)
	if !ok {
		return nil, false
	}
	for i, v := range values {
		plain, err := url.PathUnescape(v)
		if err != nil || strings.Contains(plain, "/") {
			return nil, false
		}
		values[i] = plain
	}
	return values, true
}

// expand puts values in place of the variables, through encode.
func (p *pattern) expand(values []string, encode func(string) string) string {
	var b strings.Builder
	for i := range p.segments {
		if i > 0 {
			b.WriteByte('/')
		}
		for j, literal := range p.segments[i].literals {
			if j > 0 {
				b.WriteString(encode(values[0]))
				values = values[1:]
			}
			b.WriteString(literal)
		}
	}
	return b.String()
}

// shape is the same for all patterns that match the same texts, whatever their variables are called.
func (p *pattern) shape() string {
	return p.expand(make([]string, len(p.vars)), func(string) string { return "{}" })
}

// escape percent-encodes all but the unreserved characters of RFC 3986, as simple expansion of RFC 6570 does.
func escape(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isLower(c) || isUpper(c) || isDigit(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
