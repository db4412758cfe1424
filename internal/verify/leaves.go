package verify

import (
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The patterns by which toolschema writes what is no plain text.
const (
	patternInt      = `^-?(0|[1-9][0-9]{0,18})$`
	patternUint     = `^(0|[1-9][0-9]{0,19})$`
	patternDuration = `^-?(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?s$`
)

var (
	texts      = []string{"", "a", "über 日本 😀", "a b\n\t\r\\ \"q\"", "\u0000\u001f\u007f\u2028<&>", "x@example.com", strings.Repeat("long €", 100)}
	ints       = []string{`"0"`, `"-1"`, `"9223372036854775807"`, `"-9223372036854775808"`, `"9007199254740993"`}
	uints      = []string{`"0"`, `"1"`, `"18446744073709551615"`, `"9007199254740993"`}
	durations  = []string{"0s", "1.5s", "-1.000000001s", "0.000000001s", "315576000000s", "-315576000000s"}
	timestamps = []string{"2026-01-31T08:30:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59.5+01:30"}
	base64s    = []string{"", "AA==", "_-8=", "+/8=", "AP8"}
	masks      = []string{"", "name", "name,size.width", "a1.fooBar"}
	formats    = map[string][]string{
		"date-time":     timestamps,
		"email":         {"agent@example.com"},
		"hostname":      {"example.com", "a"},
		"ipv4":          {"10.0.0.1", "255.255.255.255"},
		"ipv6":          {"::1", "2001:db8::ff"},
		"uri":           {"https://example.com/a?b=c#d"},
		"uri-reference": {"/a/b?c", ""},
		"uuid":          {"123e4567-e89b-12d3-a456-426614174000"},
	}
)

func withType(s map[string]any, kind string) map[string]any {
	s = maps.Clone(s)
	s["type"] = kind
	return s
}

// leavesOf returns the values of a schema that is no object and no array: every name of an enum, else what lies at the edges.
func leavesOf(s map[string]any, desc string) []value {
	if enum, ok := s["enum"].([]any); ok {
		var out []value
		for _, e := range enum {
			if b, err := json.Marshal(e); err == nil && (s["type"] == nil || kindFits(s["type"], e)) {
				out = append(out, raw(string(b)))
			}
		}
		return keep(out, s)
	}
	switch s["type"] {
	case "null":
		return []value{raw("null")}
	case "boolean":
		return keep([]value{exact("true"), exact("false")}, s)
	case "integer":
		return keep(integers(s, desc), s)
	case "number":
		return keep(numbers(s), s)
	case "string":
		return keep(stringLeaves(s, desc), s)
	}
	return nil
}

// kindFits says whether an enum's value is of a type that the schema splits into.
func kindFits(kind, v any) bool {
	switch v.(type) {
	case string:
		return kind == "string"
	case json.Number:
		return kind == "integer" || kind == "number"
	case bool:
		return kind == "boolean"
	case nil:
		return kind == "null"
	}
	return false
}

func integers(s map[string]any, desc string) (out []value) {
	if p, wide := s["pattern"].(string); wide && (p == patternInt || p == patternUint) { // 64 bits, as a number
		out = []value{exact("0"), exact("1"), exact("9223372036854775807")}
		if p == patternInt {
			out = append(out, exact("-9223372036854775808"))
		}
		return out
	}
	for _, key := range []string{"minimum", "maximum"} {
		if n, ok := s[key].(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				out = append(out, exact(strconv.FormatInt(i, 10)))
			}
		}
	}
	out = append(out, exact("0"), exact("1"), exact("2147483647"), exact("1.0"), exact("2e1"))
	if !strings.Contains(desc, wordsUnsigned) {
		out = append(out, exact("-1"), exact("-2147483648"))
	}
	if len(keep(out, s)) == 0 {
		out = append(out, between(s)...)
	}
	return out
}

func numbers(s map[string]any) (out []value) {
	for _, key := range []string{"minimum", "maximum"} {
		if n, ok := s[key].(json.Number); ok {
			out = append(out, raw(n.String()))
		}
	}
	out = append(out, exact("0"), exact("1.5"), exact("-2.25"), exact("16777216"), raw("-0"), raw("1e-30"), raw("-3.4028234e38"), raw("3.4028234e38"))
	if len(keep(out, s)) == 0 {
		out = append(out, between(s)...)
	}
	return out
}

// between returns numbers near the bounds.
func between(s map[string]any) (out []value) {
	low, isLow := bound(s, "minimum", "exclusiveMinimum")
	high, isHigh := bound(s, "maximum", "exclusiveMaximum")
	switch {
	case isLow && isHigh:
		out = append(out, raw(strconv.FormatFloat((low+high)/2, 'g', -1, 64)))
	case isLow:
		out = append(out, raw(strconv.FormatFloat(low+1, 'f', -1, 64)))
	case isHigh:
		out = append(out, raw(strconv.FormatFloat(high-1, 'f', -1, 64)))
	}
	return out
}

func bound(s map[string]any, keys ...string) (float64, bool) {
	for _, key := range keys {
		if n, ok := s[key].(json.Number); ok {
			f, err := n.Float64()
			return f, err == nil
		}
	}
	return 0, false
}

func stringLeaves(s map[string]any, desc string) (out []value) {
	format, _ := s["format"].(string)
	pattern, _ := s["pattern"].(string)
	all := func(texts []string, leaf func(string) value) []value {
		for _, t := range texts {
			out = append(out, leaf(quoted(t)))
		}
		return out
	}
	if names, told := enumInWords(desc); told {
		return names
	}
	switch {
	case len(formats[format]) > 0:
		return all(formats[format], raw)
	case pattern == patternInt || pattern == patternUint:
		wide := ints
		if pattern == patternUint {
			wide = uints
		}
		for _, t := range wide {
			out = append(out, exact(t))
		}
		return out
	case pattern == patternDuration:
		return all(durations, raw)
	case strings.Contains(desc, wordsMask):
		return all(masks, raw)
	case s["contentEncoding"] == "base64" || strings.Contains(desc, wordsBase64):
		return all(base64s, raw)
	case pattern != "":
		return all(matching(pattern, intOf(s, "minLength", 0), intOf(s, "maxLength", -1)), exact)
	}
	low, high := intOf(s, "minLength", 0), intOf(s, "maxLength", -1)
	seen := map[string]bool{}
	const longest = 1 << 16
	if low > longest {
		return nil
	}
	for _, text := range append(slices.Clone(texts), strings.Repeat("x", low)) {
		if n := utf8.RuneCountInString(text); n < low {
			text += strings.Repeat("é", low-n)
		}
		if high >= 0 && utf8.RuneCountInString(text) > high {
			text = string([]rune(text)[:high])
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, exact(quoted(text)))
		}
	}
	return out
}

// keep returns those values that break none of the schema's own keywords.
func keep(vs []value, s map[string]any) []value {
	var not []string
	if n, ok := s["not"].(map[string]any); ok {
		l, _ := n["enum"].([]any)
		for _, e := range l {
			if b, err := json.Marshal(e); err == nil {
				not = append(not, string(b))
			}
		}
	}
	var re *regexp.Regexp
	if p, ok := s["pattern"].(string); ok {
		re, _ = regexp.Compile(p) // one that Go cannot read was told by compile
	}
	return slices.DeleteFunc(slices.Clone(vs), func(v value) bool {
		if slices.Contains(not, v.leaf) {
			return true
		}
		if strings.HasPrefix(v.leaf, `"`) {
			return re != nil && !re.MatchString(unquoted(v.leaf))
		}
		return !inRange(v.leaf, s, not)
	})
}

func inRange(number string, s map[string]any, not []string) bool {
	x, ok := new(big.Rat).SetString(number)
	if !ok {
		return true
	}
	for _, n := range not {
		if y, ok := new(big.Rat).SetString(n); ok && x.Cmp(y) == 0 {
			return false
		}
	}
	for key, bad := range map[string]func(c int) bool{
		"minimum":          func(c int) bool { return c < 0 },
		"exclusiveMinimum": func(c int) bool { return c <= 0 },
		"maximum":          func(c int) bool { return c > 0 },
		"exclusiveMaximum": func(c int) bool { return c >= 0 },
	} {
		n, ok := s[key].(json.Number)
		if !ok {
			continue
		}
		if y, ok := new(big.Rat).SetString(n.String()); ok && bad(x.Cmp(y)) {
			return false
		}
	}
	return true
}

func unquoted(s string) string {
	var out string
	if json.Unmarshal([]byte(s), &out) != nil {
		return s
	}
	return out
}
