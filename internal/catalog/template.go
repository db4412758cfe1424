package catalog

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// template is a google.api.http path template, parsed.
type template struct {
	// segments are the path's segments with every variable replaced by its pattern: literals, "*" and "**".
	segments []string
	// fields are the variables' field paths, in order.
	fields []string
	verb   string
}

// parseTemplate parses a path template of google/api/http.proto:
// "/" [ segment { "/" segment } ] [ ":" verb ], where a segment is "*", "**", a literal or {field.path[=segments]}.
// One "**" may stand anywhere, as in the rules of public APIs and in grpc-gateway, though that file wants it last.
func parseTemplate(s string) (template, error) {
	var t template
	rest, ok := strings.CutPrefix(s, "/")
	if !ok {
		return t, fmt.Errorf("it does not begin with a slash")
	}
	if rest == "" {
		return t, nil
	}
	last := strings.LastIndexAny(rest, "/}") + 1
	tail := rest[last:]
	i := strings.LastIndexByte(tail, ':')
	if last > 0 && rest[last-1] == '}' {
		i = strings.IndexByte(tail, ':')
	}
	if i >= 0 {
		t.verb, rest = tail[i+1:], rest[:last+i]
		if t.verb == "" {
			return t, fmt.Errorf("the verb after the colon is empty")
		}
		if err := checkLiteral(t.verb); err != nil {
			return t, err
		}
	}
	for more := true; more; {
		var err error
		if rest, more, err = t.next(rest); err != nil {
			return t, err
		}
	}
	deep := 0
	for _, seg := range t.segments {
		if seg == "**" {
			deep++
		}
	}
	if deep > 1 {
		return t, fmt.Errorf("** stands in it more than once")
	}
	return t, nil
}

// next takes one segment off rest.
func (t *template) next(rest string) (after string, more bool, err error) {
	if !strings.HasPrefix(rest, "{") {
		seg, after, more := strings.Cut(rest, "/")
		return after, more, t.add(seg)
	}
	end := strings.IndexByte(rest, '}')
	if end < 0 {
		return "", false, fmt.Errorf("a variable is not closed")
	}
	field, pattern, hasPattern := strings.Cut(rest[1:end], "=")
	if !hasPattern {
		pattern = "*"
	}
	for _, part := range strings.Split(field, ".") {
		if !protoreflect.Name(part).IsValid() {
			return "", false, fmt.Errorf("variable %q is not a field path", field)
		}
	}
	t.fields = append(t.fields, field)
	for _, seg := range strings.Split(pattern, "/") {
		if err := t.add(seg); err != nil {
			return "", false, err
		}
	}
	switch rest = rest[end+1:]; {
	case rest == "":
		return "", false, nil
	case rest[0] == '/':
		return rest[1:], true, nil
	}
	return "", false, fmt.Errorf("variable %q is followed by %q; only a slash or a verb may follow", field, rest)
}

func (t *template) add(seg string) error {
	if seg != "*" && seg != "**" {
		if seg == "" {
			return fmt.Errorf("a segment is empty")
		}
		if err := checkLiteral(seg); err != nil {
			return err
		}
	}
	t.segments = append(t.segments, seg)
	return nil
}

// shape is the same for all templates that match the same paths, whatever their variables are called.
func (t *template) shape() string {
	s := "/" + strings.Join(t.segments, "/")
	if t.verb != "" {
		s += ":" + t.verb
	}
	return s
}

// checkLiteral accepts the pchar of RFC 3986.
func checkLiteral(s string) error {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isLower(c), isUpper(c), isDigit(c), strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0:
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			i += 2
		default:
			return fmt.Errorf("character %q in %q may not stand in a path", c, s)
		}
	}
	return nil
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
