package toolschema_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// instances makes JSON values that a schema accepts and that keep the rules it states in words.
type instances struct {
	r    *randomizer
	root map[string]any
	deep int // nesting so far
}

var groupWords = regexp.MustCompile(`Set (at most|exactly) one of ([a-zA-Z0-9_.,\- ]+?)\.(?: |$)`)

func (g instances) of(schema map[string]any) any {
	g.deep++
	if g.r.left--; g.r.left < 0 {
		g.deep = 13
	}
	if ref, ok := schema["$ref"].(string); ok {
		return g.of(g.root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any))
	}
	if l, ok := schema["anyOf"].([]any); ok {
		last := l[len(l)-1].(map[string]any)
		if g.deep > 12 && last["type"] == "null" {
			return nil
		}
		return g.of(l[g.r.IntN(len(l))].(map[string]any))
	}
	desc, _ := schema["description"].(string)
	kind := schema["type"]
	if l, ok := kind.([]any); ok {
		kind = l[g.r.IntN(len(l))]
		if g.deep > 12 && slices.Contains(l, any("null")) {
			kind = "null"
		}
	}
	if enum, ok := schema["enum"].([]any); ok && kind != "string" {
		return enum[g.r.IntN(len(enum))]
	}
	switch kind {
	case "object":
		return g.object(schema, desc)
	case "array":
		out := []any{}
		items, _ := schema["items"].(map[string]any)
		low, _ := schema["minItems"].(float64)
		high, limited := schema["maxItems"].(float64)
		n := int(low) + g.r.IntN(2)
		if g.deep > 12 {
			n = int(low)
		}
		if limited {
			n = min(n, int(high))
		}
		for range n {
			out = append(out, g.of(items))
		}
		return out
	case "string":
		return g.text(schema, desc)
	case "integer", "number":
		return g.number(schema, kind)
	case "boolean":
		return g.r.IntN(2) == 0
	}
	return nil
}

func (g instances) object(schema map[string]any, desc string) any {
	out := map[string]any{}
	props, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	if props["@type"] != nil {
		return map[string]any{"@type": "type.googleapis.com/google.protobuf.Any", "value": map[string]any{}}
	}
	skip := map[string]bool{}
	for _, m := range groupWords.FindAllStringSubmatch(desc, -1) {
		names := strings.Split(m[2], ", ")
		keep := g.r.IntN(len(names))
		if must := slices.IndexFunc(names, func(s string) bool { return slices.Contains(required, any(s)) }); must >= 0 {
			keep = must
		}
		for i, name := range names {
			skip[name] = i != keep
		}
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		p := props[name].(map[string]any)
		must := slices.Contains(required, any(name))
		switch {
		case skip[name] && must && nullable(p):
			out[name] = nil
		case must || !skip[name] && g.deep < 12 && g.r.IntN(2) == 0:
			out[name] = g.of(p)
		}
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok && g.deep < 12 {
		keys := []string{"7"}
		if names, ok := schema["propertyNames"].(map[string]any); ok && names["enum"] != nil {
			keys = []string{"true"}
		}
		for _, k := range keys {
			out[k] = g.of(values)
		}
	}
	if low, ok := schema["minProperties"].(float64); ok && len(props) == 0 {
		return g.mapOf(desc, int(low))
	}
	return out
}

// nullable says whether a schema of the strict profile takes null.
func nullable(schema map[string]any) bool {
	if l, ok := schema["type"].([]any); ok {
		return slices.Contains(l, any("null"))
	}
	l, ok := schema["anyOf"].([]any)
	return ok && l[len(l)-1].(map[string]any)["type"] == "null"
}

// mapOf makes a map from the words that describe it.
func (g instances) mapOf(desc string, n int) any {
	keys := []string{"true", "false"}
	if strings.Contains(desc, "keys are strings") || strings.Contains(desc, "decimal") {
		keys = []string{"1", "2", "3", "4", "5", "6", "7"}
	}
	out := map[string]any{}
	for _, k := range keys[:min(n, len(keys))] {
		switch {
		case strings.Contains(desc, "each value is a boolean"):
			out[k] = true
		case strings.Contains(desc, "each value is an integer"), strings.Contains(desc, "each value is a number"):
			out[k] = 1
		case strings.Contains(desc, "each value is an object"):
			out[k] = map[string]any{}
		case strings.Contains(desc, "each value is a 64-bit"):
			out[k] = "1"
		default:
			out[k] = "YQ=="
		}
	}
	return out
}

func (g instances) text(schema map[string]any, desc string) any {
	if enum, ok := schema["enum"].([]any); ok {
		return enum[g.r.IntN(len(enum))]
	}
	if schema["contentEncoding"] != nil {
		return pick(g.r, "", "YQ==", "-_8")
	}
	pattern, _ := schema["pattern"].(string)
	switch {
	case schema["format"] == "date-time":
		return pick(g.r, "2026-01-31T08:30:00Z", "1999-12-31T23:59:59.123456789+01:00")
	case strings.HasPrefix(pattern, `^-?(0|[1-9][0-9]{0,18})`):
		return pick(g.r, "0", "-1", "9223372036854775807", "1915883588174806058")
	case strings.HasPrefix(pattern, `^(0|[1-9][0-9]{0,19})`):
		return pick(g.r, "0", "18446744073709551615")
	case strings.HasSuffix(pattern, `s$`) && strings.HasPrefix(pattern, `^-?(0|`):
		return pick(g.r, "0s", "1.5s", "-3.000000001s")
	case pattern != "":
		return examples[pattern]
	case strings.Contains(desc, "Field paths"):
		return pick(g.r, "", "name", "name,fooBar.baz")
	case strings.Contains(desc, "Base64"):
		return pick(g.r, "", "YQ==", "-_8")
	}
	low, _ := schema["minLength"].(float64)
	high, limited := schema["maxLength"].(float64)
	s := pick(g.r, texts...)
	for float64(len([]rune(s))) < low {
		s += "x"
	}
	if limited && float64(len([]rune(s))) > high {
		s = string([]rune(s)[:int(high)])
	}
	return s
}

// examples are strings for the patterns of contracts in the corpus.
var examples = map[string]string{}

func (g instances) number(schema map[string]any, kind any) any {
	low, isLow := schema["minimum"].(float64)
	high, isHigh := schema["maximum"].(float64)
	if desc, _ := schema["description"].(string); strings.Contains(desc, "Not negative") {
		low, isLow = 0, true
	}
	switch {
	case isLow && isHigh:
		return pick(g.r, low, high)
	case isLow:
		return pick(g.r, low, low+1)
	case isHigh:
		return pick(g.r, high, high-1)
	case kind == "integer":
		return pick(g.r, 0, 1, -1, -2147483648, 2147483647)
	}
	return pick[float64](g.r, 0, 1.5, -2.25)
}
