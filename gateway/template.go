package gateway

import (
	"errors"
	"fmt"
	"strings"
)

// template is a parsed path template of a google.api.http rule:
//
//	Template = "/" Segments [ Verb ] ;
//	Segments = Segment { "/" Segment } ;
//	Segment  = "*" | "**" | LITERAL | Variable ;
//	Variable = "{" FieldPath [ "=" Segments ] "}" ;
//	Verb     = ":" LITERAL ;
type template struct {
	segments []segment // variables flattened
	vars     []variable
	verb     string
}

type segmentKind uint8

const (
	literal segmentKind = iota
	single              // *
	deep                // **
)

type segment struct {
	kind segmentKind
	text string // of a literal
}

// variable is the part of a path that is bound to a request field.
type variable struct {
	path     string // dotted proto names
	from, to int    // the segments it covers
	multi    bool   // more than one segment: %2F stays as it is
}

// parseTemplate parses tmpl strictly; what it refuses cannot be served.
func parseTemplate(tmpl string) (*template, error) {
	p := &templateParser{rest: tmpl}
	t, err := p.parse()
	if err != nil {
		return nil, fmt.Errorf("path template %q: %w", tmpl, err)
	}
	return t, nil
}

type templateParser struct {
	rest string
	out  template
	deep bool
}

func (p *templateParser) parse() (*template, error) {
	if !p.accept("/") {
		return nil, errors.New(`want "/" at the start`)
	}
	if p.rest == "" {
		p.out.segments = []segment{{kind: literal}}
		return &p.out, nil
	}
	p.cutVerb()
	for {
		if err := p.segment(); err != nil {
			return nil, err
		}
		if p.rest == "" {
			return &p.out, nil
		}
		if !p.accept("/") {
			return nil, fmt.Errorf(`want "/" or the end before %q`, p.rest)
		}
	}
}

// cutVerb takes ":verb" off the end. After a variable everything behind the first colon is the verb, after a literal what is behind the last.
func (p *templateParser) cutVerb() {
	last := strings.LastIndexByte(p.rest, '/')
	if brace := strings.LastIndexByte(p.rest, '}'); brace > last {
		if tail := p.rest[brace+1:]; strings.HasPrefix(tail, ":") {
			p.rest, p.out.verb = p.rest[:brace+1], normalise(tail[1:])
		}
		return
	}
	if colon := strings.LastIndexByte(p.rest, ':'); colon > last {
		p.rest, p.out.verb = p.rest[:colon], normalise(p.rest[colon+1:])
	}
}

func (p *templateParser) segment() error {
	if p.accept("{") {
		return p.variable()
	}
	return p.plain("/")
}

// plain reads "*", "**" or a literal that ends before one of the bytes in stop.
func (p *templateParser) plain(stop string) error {
	text := p.until(stop)
	switch text {
	case "":
		return errors.New("empty segment")
	case "*":
		p.out.segments = append(p.out.segments, segment{kind: single})
	case "**":
		if p.deep {
			return errors.New(`"**" may occur only once`)
		}
		p.deep = true
		p.out.segments = append(p.out.segments, segment{kind: deep})
	default:
		if i := strings.IndexFunc(text, notPathChar); i >= 0 {
			return fmt.Errorf("segment %q: character %q not allowed", text, text[i])
		}
		p.out.segments = append(p.out.segments, segment{kind: literal, text: normalise(text)})
	}
	return nil
}

func (p *templateParser) variable() error {
	v := variable{path: p.until("=}"), from: len(p.out.segments)}
	for _, name := range strings.Split(v.path, ".") {
		if !identifier(name) {
			return fmt.Errorf("variable %q: not a field path", v.path)
		}
	}
	if !p.accept("=") {
		p.out.segments = append(p.out.segments, segment{kind: single})
	} else {
		for {
			if err := p.plain("/}"); err != nil {
				return fmt.Errorf("variable %q: %w", v.path, err)
			}
			if !p.accept("/") {
				break
			}
		}
	}
	if !p.accept("}") {
		return fmt.Errorf(`variable %q: want "}"`, v.path)
	}
	v.to = len(p.out.segments)
	v.multi = v.to-v.from > 1 || p.out.segments[v.from].kind == deep
	p.out.vars = append(p.out.vars, v)
	return nil
}

func (p *templateParser) accept(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

func (p *templateParser) until(stop string) string {
	i := strings.IndexAny(p.rest, stop)
	if i < 0 {
		i = len(p.rest)
	}
	s := p.rest[:i]
	p.rest = p.rest[i:]
	return s
}

func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

// notPathChar is true for what RFC 3986 does not allow in a path segment.
func notPathChar(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-._~!$&'()*+,;=:@%", r)
}

// normalise decodes percent-encoded unreserved characters, which RFC 3986 section 2.3 calls equivalent to the plain ones, and nothing else.
func normalise(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	return decode(s, func(c byte) bool {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			return true
		}
		return false
	})
}

// decode replaces the percent-encodings of the bytes that want asks for. Malformed ones stay as they are.
func decode(s string, want func(byte) bool) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, ok1 := unhex(s[i+1])
			lo, ok2 := unhex(s[i+2])
			if c := hi<<4 | lo; ok1 && ok2 && want(c) {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// decodeValue decodes a path value once: all of it in a variable of one segment, all but "/" in one of several, as
// google/api/http.proto says.
func (v *variable) decodeValue(s string) string {
	return decode(s, func(c byte) bool { return !v.multi || c != '/' })
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
