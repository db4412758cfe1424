package toolschema

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// encoder writes nodes as JSON.
type encoder struct {
	buf    []byte
	strict bool
	lone   bool // "anyOf" stands alone
	output bool
}

func (e *encoder) node(n *node) {
	e.buf = append(e.buf, '{')
	first := len(e.buf)
	key := func(k string) {
		if len(e.buf) != first {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, '"')
		e.buf = append(e.buf, k...)
		e.buf = append(e.buf, '"', ':')
	}
	if n.target != nil {
		ref := "#/$defs/" + n.target.name
		if e.strict && n.nullable {
			key("anyOf")
			e.buf = append(e.buf, `[{"$ref":`...)
			e.buf = appendString(e.buf, ref)
			e.buf = append(e.buf, `},{"type":"null"}]`...)
		} else {
			key("$ref")
			e.buf = appendString(e.buf, ref)
			if e.strict {
				e.buf = append(e.buf, '}')
				return
			}
		}
	}
	if n.kind != "" {
		key("type")
		if n.nullable || len(n.or) > 0 {
			e.buf = append(e.buf, '[')
			e.buf = appendString(e.buf, n.kind)
			for _, t := range n.or {
				e.buf = append(e.buf, ',')
				e.buf = appendString(e.buf, t)
			}
			if n.nullable && n.kind != "null" {
				e.buf = append(e.buf, `,"null"`...)
			}
			e.buf = append(e.buf, ']')
		} else {
			e.buf = appendString(e.buf, n.kind)
		}
	}
	if d := e.description(n); d != "" && len(n.anyOf) > 0 && e.lone {
		first := *n.anyOf[0]
		first.desc = join(d, first.desc)
		n = &node{anyOf: append([]*node{&first}, n.anyOf[1:]...)}
	} else if d != "" {
		key("description")
		e.buf = appendString(e.buf, d)
	}
	e.object(n, key)
	if n.items != nil {
		key("items")
		e.node(n.items)
	}
	e.enums(n, key)
	if len(n.anyOf) > 0 {
		key("anyOf")
		e.list(n.anyOf, n.nullable)
	}
	e.choices(n, key)
	for _, f := range n.facts {
		key(f.key)
		e.buf = append(e.buf, f.raw...)
	}
	e.buf = append(e.buf, '}')
}

func (e *encoder) choices(n *node, key func(string)) {
	if len(n.choices) > 1 {
		key("allOf")
		e.buf = append(e.buf, '[')
	}
	for i, c := range n.choices {
		if len(n.choices) == 1 {
			key("oneOf")
		} else {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = append(e.buf, `{"oneOf":`...)
		}
		e.buf = append(e.buf, '[')
		e.eachRequired(c.members)
		if !c.required {
			e.buf = append(e.buf, `,{"not":{"anyOf":[`...)
			e.eachRequired(c.members)
			e.buf = append(e.buf, `]}}`...)
		}
		e.buf = append(e.buf, ']')
		if len(n.choices) > 1 {
			e.buf = append(e.buf, '}')
		}
	}
	if len(n.choices) > 1 {
		e.buf = append(e.buf, ']')
	}
}

func (e *encoder) eachRequired(names []string) {
	for i, s := range names {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, `{"required":[`...)
		e.buf = appendString(e.buf, s)
		e.buf = append(e.buf, `]}`...)
	}
}

func (e *encoder) enums(n *node, key func(string)) {
	if len(n.enum) > 0 {
		key("enum")
		e.buf = append(e.buf, '[')
		for i, s := range n.enum {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = appendString(e.buf, s)
		}
		if n.nullable {
			e.buf = append(e.buf, `,null`...)
		}
		e.buf = append(e.buf, ']')
	}
	if len(n.exact) > 0 {
		key("enum")
		e.buf = append(e.buf, '[')
		e.buf = append(e.buf, strings.Join(n.exact, ",")...)
		if n.nullable {
			e.buf = append(e.buf, `,null`...)
		}
		e.buf = append(e.buf, ']')
	}
}

func (e *encoder) object(n *node, key func(string)) {
	if len(n.props) > 0 || n.rootless || e.strict && n.closed {
		key("properties")
		e.buf = append(e.buf, '{')
		first := true
		for _, p := range n.props {
			if e.strict && p.node.omitted() {
				continue
			}
			if !first {
				e.buf = append(e.buf, ',')
			}
			first = false
			e.buf = appendString(e.buf, p.name)
			e.buf = append(e.buf, ':')
			e.node(p.node)
		}
		e.buf = append(e.buf, '}')
	}
	if len(n.required) > 0 {
		e.requirement(n, key)
	}
	if n.keys != nil {
		key("propertyNames")
		e.node(n.keys)
	}
	if n.extras != nil {
		key("patternProperties")
		e.buf = append(e.buf, `{"^\\[":`...)
		e.node(n.extras)
		e.buf = append(e.buf, '}')
	}
	switch {
	case n.values != nil:
		key("additionalProperties")
		e.node(n.values)
	case n.closed:
		key("additionalProperties")
		e.buf = append(e.buf, "false"...)
	}
}

func (e *encoder) requirement(n *node, key func(string)) {
	first := true
	for _, r := range n.required {
		if e.strict && n.propOmitted(r) {
			continue
		}
		if first {
			key("required")
			e.buf = append(e.buf, '[')
		} else {
			e.buf = append(e.buf, ',')
		}
		first = false
		e.buf = appendString(e.buf, r)
	}
	if !first {
		e.buf = append(e.buf, ']')
	}
}

func (n *node) propOmitted(name string) bool {
	for i := range n.props {
		if n.props[i].name == name {
			return n.props[i].node.omitted()
		}
	}
	return true
}

func (e *encoder) list(ns []*node, null bool) {
	e.buf = append(e.buf, '[')
	for i, n := range ns {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.node(n)
	}
	if null {
		e.buf = append(e.buf, `,{"type":"null"}`...)
	}
	e.buf = append(e.buf, ']')
}

func (e *encoder) description(n *node) string {
	d := n.desc
	for _, w := range n.words {
		d = join(d, w)
	}
	left := n.left
	if e.strict {
		for _, p := range n.props {
			if p.node.omitted() {
				left = append(left[:len(left):len(left)], p.name+p.node.briefly())
			}
		}
	}
	if len(left) > 0 {
		d = join(d, e.leftOut(left))
	}
	if n.grow != nil {
		d = join(d, n.grow.rest)
	}
	return d
}

// leftOut says which properties the call accepts, or the result may have, although the schema does not list them.
func (e *encoder) leftOut(names []string) string {
	const maxBytes = 600
	var b strings.Builder
	if e.output {
		b.WriteString("There if set, but not described here: ")
	} else {
		b.WriteString("Accepted but not described here: ")
	}
	for i, s := range names {
		if b.Len()+len(s) > maxBytes {
			b.WriteString(" and " + strconv.Itoa(len(names)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s)
	}
	b.WriteByte('.')
	return b.String()
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Only what JSON demands is escaped, and bytes that are not UTF-8 are replaced.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}

func quoted(s string) string { return string(appendString(nil, s)) }
