package toolschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Problems checks a schema against the rules of a profile (see [Rules]) and returns one line for each breach:
// its JSON pointer, the rule, who demands it. No problems give nil.
func Problems(schema []byte, p Profile, d Direction) []string {
	var root any
	read := json.NewDecoder(bytes.NewReader(schema))
	read.UseNumber()
	if err := read.Decode(&root); err != nil {
		return []string{"#: not JSON: " + err.Error()}
	}
	object, ok := root.(map[string]any)
	if !ok {
		return []string{"#: not a JSON object"}
	}
	if p == Strict && d == Output {
		p = Full // see For
	}
	c := &checker{root: object}
	for i := range Rules {
		r := &Rules[i]
		if slices.Contains(r.Profiles, p) && (d == Input || !r.InputOnly) && (d == Output || !r.OutputOnly) {
			c.rules = append(c.rules, r)
		}
	}
	c.walk(value{path: "#", schema: object, at: object})
	if c.active(checkStrictSizeID) && (c.properties > 5000 || c.enums > 1000 || c.characters > 120_000) {
		c.problems = append(c.problems, fmt.Sprintf("#: strict-size: %d properties, %d enum values, %d characters (OpenAI strict)", c.properties, c.enums, c.characters))
	}
	return c.problems
}

// checkStrictSizeID names the one rule that is checked at the end too.
const checkStrictSizeID = "strict-size"

// value is one subschema and where it stands.
type value struct {
	path   string
	depth  int // of objects and arrays around it
	schema any
	at     map[string]any // schema, if it is an object
	ifBool bool           // a boolean is fine here
}

func (v value) isRoot() bool { return v.path == "#" }

type checker struct {
	root       map[string]any
	rules      []*Rule
	current    *Rule
	problems   []string
	properties int
	enums      int
	characters int
}

func (c *checker) active(id string) bool {
	return slices.ContainsFunc(c.rules, func(r *Rule) bool { return r.ID == id })
}

func (c *checker) problem(v value, format string, args ...any) {
	c.problems = append(c.problems, v.path+": "+c.current.ID+": "+fmt.Sprintf(format, args...)+" ("+c.current.Providers+")")
}

// schemaMaps, schemaLists and schemas are the keywords that hold subschemas.
var (
	schemaMaps  = []string{"properties", "patternProperties", "$defs", "dependentSchemas"}
	schemaLists = []string{"anyOf", "oneOf", "allOf", "prefixItems"}
	oneSchema   = []string{"items", "additionalProperties", "unevaluatedProperties", "propertyNames", "not", "contains", "if", "then", "else"}
)

func (c *checker) walk(v value) {
	for _, r := range c.rules {
		c.current = r
		r.check(c, v)
	}
	if v.at == nil {
		return
	}
	if props, ok := v.at["properties"].(map[string]any); ok {
		c.properties += len(props)
		for name := range props {
			c.characters += len(name)
		}
	}
	if enum, ok := v.at["enum"].([]any); ok {
		c.enums += len(enum)
		for _, e := range enum {
			c.characters += len(fmt.Sprint(e))
		}
	}
	for _, key := range schemaMaps {
		m, _ := v.at[key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			depth := v.depth + 1
			if key == "$defs" {
				depth = 0
			}
			c.down(v, key+"/"+pointer(name), m[name], depth, false)
		}
	}
	for _, key := range schemaLists {
		l, _ := v.at[key].([]any)
		for i, s := range l {
			c.down(v, fmt.Sprintf("%s/%d", key, i), s, v.depth, false)
		}
	}
	for _, key := range oneSchema {
		if s, ok := v.at[key]; ok {
			c.down(v, key, s, v.depth+1, strings.HasSuffix(key, "Properties"))
		}
	}
}

func (c *checker) down(v value, path string, s any, depth int, ifBool bool) {
	at, _ := s.(map[string]any)
	c.walk(value{path: v.path + "/" + path, depth: depth, schema: s, at: at, ifBool: ifBool})
}

func pointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

func checkRootObject(c *checker, v value) {
	if v.isRoot() && v.at["type"] != "object" {
		c.problem(v, `"type" is %v, want "object"`, v.at["type"])
	}
}

func checkRootUnion(c *checker, v value) {
	if !v.isRoot() {
		return
	}
	for _, key := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		if _, ok := v.at[key]; ok {
			c.problem(v, "%q at the root", key)
		}
	}
}

func checkRootProperties(c *checker, v value) {
	if _, ok := v.at["properties"].(map[string]any); v.isRoot() && !ok {
		c.problem(v, `no "properties"`)
	}
}

func checkLocalRef(c *checker, v value) {
	ref, ok := v.at["$ref"]
	if !ok {
		return
	}
	s, _ := ref.(string)
	name, local := strings.CutPrefix(s, "#/$defs/")
	if !local {
		c.problem(v, `"$ref" to %q`, s)
		return
	}
	defs, _ := c.root["$defs"].(map[string]any)
	if _, ok := defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; !ok {
		c.problem(v, `"$ref" to %q, which is not there`, s)
	}
}

func checkNoRef(c *checker, v value) {
	for _, key := range []string{"$ref", "$defs"} {
		if _, ok := v.at[key]; ok {
			c.problem(v, "%q", key)
		}
	}
}

func checkPropertyKey(c *checker, v value) {
	props, _ := v.at["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if !safeKey.MatchString(name) {
			c.problem(v, "property key %q", name)
		}
	}
}

func checkInheritedKey(c *checker, v value) {
	props, _ := v.at["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if inherited[name] {
			c.problem(v, "property key %q", name)
		}
	}
}

// geminiKeywords are the fields of google.ai.generativelanguage.v1beta.Schema in their JSON form.
var geminiKeywords = set("type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties",
	"required", "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "example", "anyOf",
	"propertyOrdering", "default")

func checkKeywords(c *checker, v value) {
	for _, key := range slices.Sorted(maps.Keys(v.at)) {
		if !geminiKeywords[key] {
			c.problem(v, "keyword %q", key)
		}
	}
}

func checkOneType(c *checker, v value) {
	if t, ok := v.at["type"]; ok {
		if _, ok := t.(string); !ok {
			c.problem(v, `"type" is %v`, t)
		}
	}
}

func checkStringEnum(c *checker, v value) {
	enum, ok := v.at["enum"].([]any)
	if !ok {
		return
	}
	if v.at["type"] != "string" {
		c.problem(v, `"enum" with "type" %v`, v.at["type"])
	}
	for _, e := range enum {
		if s, ok := e.(string); !ok {
			c.problem(v, `"enum" holds %v`, e)
		} else if s == "" {
			c.problem(v, `"enum" holds an empty string`)
		}
	}
}

func checkDistinct(c *checker, v value) {
	for _, key := range []string{"enum", "required"} {
		l, _ := v.at[key].([]any)
		seen := make(map[string]bool, len(l))
		for _, e := range l {
			text := fmt.Sprintf("%T %v", e, e)
			if seen[text] {
				c.problem(v, "%q holds %v twice", key, e)
			}
			seen[text] = true
		}
	}
}

func checkSafeNumber(c *checker, v value) {
	for _, key := range slices.Sorted(maps.Keys(v.at)) {
		l, ok := v.at[key].([]any)
		if !ok {
			l = []any{v.at[key]}
		}
		for _, e := range l {
			number, ok := e.(json.Number)
			if !ok || strings.ContainsAny(number.String(), ".eE") {
				continue
			}
			if n, err := number.Int64(); err != nil || n > maxSafe || n < -maxSafe {
				c.problem(v, "%q is %s", key, number)
			}
		}
	}
}

func checkFormat(c *checker, v value) {
	f, ok := v.at["format"].(string)
	if !ok {
		return
	}
	switch t := v.at["type"]; {
	case t == "string" && f == "date-time",
		t == "integer" && (f == "int32" || f == "int64"),
		t == "number" && (f == "float" || f == "double"):
	default:
		c.problem(v, `"format" %q with "type" %v`, f, t)
	}
}

func checkTyped(c *checker, v value) {
	if v.at == nil {
		return
	}
	_, typed := v.at["type"]
	if _, union := v.at["anyOf"]; !typed && !union {
		c.problem(v, `no "type"`)
	}
}

func checkLoneAnyOf(c *checker, v value) {
	if _, ok := v.at["anyOf"]; ok && len(v.at) > 1 {
		c.problem(v, `"anyOf" beside %v`, slices.Sorted(maps.Keys(v.at)))
	}
}

func checkItems(c *checker, v value) {
	if _, ok := v.at["items"]; !ok && hasType(v.at["type"], "array") {
		c.problem(v, `array without "items"`)
	}
}

func checkRequiredDefined(c *checker, v value) {
	required, _ := v.at["required"].([]any)
	props, _ := v.at["properties"].(map[string]any)
	for _, r := range required {
		name, _ := r.(string)
		if _, ok := props[name]; !ok {
			c.problem(v, `"required" names %q, which is no property`, name)
		}
	}
}

func checkNoBoolean(c *checker, v value) {
	if b, ok := v.schema.(bool); ok && !v.ifBool {
		c.problem(v, "the schema is %v", b)
	}
}

func hasType(t any, name string) bool {
	if l, ok := t.([]any); ok {
		return slices.Contains(l, any(name))
	}
	return t == name
}

func checkClosed(c *checker, v value) {
	if hasType(v.at["type"], "object") && v.at["additionalProperties"] != false {
		c.problem(v, `no "additionalProperties":false`)
	}
}

func checkAllRequired(c *checker, v value) {
	props, _ := v.at["properties"].(map[string]any)
	required, _ := v.at["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if !slices.Contains(required, any(name)) {
			c.problem(v, "property %q is not required", name)
		}
	}
}

// strictKeywords are what all strict modes take.
var strictKeywords = set("type", "description", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref", "$defs", "pattern", "format")

func checkStrictKeywords(c *checker, v value) {
	for _, key := range slices.Sorted(maps.Keys(v.at)) {
		if !strictKeywords[key] {
			c.problem(v, "keyword %q", key)
		}
	}
	if f, ok := v.at["format"].(string); ok && !formatsOf[Strict][quoted(f)] {
		c.problem(v, `"format" %q`, f)
	}
}

func checkLoneRef(c *checker, v value) {
	if _, ok := v.at["$ref"]; ok && len(v.at) > 1 {
		c.problem(v, `"$ref" beside %v`, slices.Sorted(maps.Keys(v.at)))
	}
}

func checkStrictSize(c *checker, v value) {
	if v.depth > 10 && v.at != nil && hasType(v.at["type"], "object") {
		c.problem(v, "%d levels deep", v.depth)
	}
}
