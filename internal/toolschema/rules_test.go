package toolschema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// typeWords are what a schema says about types, not about rules.
var typeWords = regexp.MustCompile(`u?int64 in decimal; a (?:string keeps its value everywhere|number works too)\.|Base64\.|RFC 3339 time[^.]*\.|Seconds with suffix s, such as \\"1\.5s\\"\.|Map: keys are [a-z "\\]+(?:, each value is [^.]+)?\.|Field paths in lowerCamelCase with commas between, such as \\"name,size\.width\\"\.`)

// narrower are messages with a field whose message is exempt from its own rules there (IGNORE_ALWAYS). One definition stands for all
// places, with the rules; a caller who keeps them is never refused.
var narrower = []string{"MessageSkip", "RepeatedEmbedSkip", "MessageOneofIgnoreOverride"}

// TestRules compares the verdict of protovalidate with that of the input schema for messages of its own conformance suite.
// A schema never accepts what breaks a rule, unless it says that rule in words; it never refuses what keeps all rules.
func TestRules(t *testing.T) {
	files, _ := load(t, filepath.Join(corpusDir(t), "protovalidate-conformance.binpb"))
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []toolschema.Profile{toolschema.Full, toolschema.Portable} {
		t.Run(p.String(), func(t *testing.T) {
			stride := every(t, 1)
			c := comparison{validator: validator, types: dynamicpb.NewTypes(files), profile: p}
			for i, s := range shapes(files) {
				if s.dir == toolschema.Input && strings.HasPrefix(string(s.md.FullName()), "buf.validate.conformance.cases.") && i%stride == 0 {
					c.message(t, s.md, uint64(i))
				}
			}
			t.Logf("%d verdicts compared, %d of them valid; %d messages without rules in words", c.compared, c.valid, c.exact)
			if c.compared < 2000/stride || c.valid < 300/stride {
				t.Errorf("compared %d verdicts, %d valid: too few to mean anything", c.compared, c.valid)
			}
		})
	}
}

// comparison holds what TestRules counts.
type comparison struct {
	validator              protovalidate.Validator
	types                  *dynamicpb.Types
	profile                toolschema.Profile
	compared, exact, valid int
}

// exempt says whether the schema of a message is narrower than its rules, by design.
func (c *comparison) exempt(name string) bool {
	// Portable cannot say that a rule holds for all but the zero value, which callers leave out anyway.
	return slices.Contains(narrower, name) || c.profile == toolschema.Portable && strings.Contains(name, "Ignore")
}

func (c *comparison) message(t *testing.T, md protoreflect.MessageDescriptor, seed uint64) {
	t.Helper()
	if c.exempt(string(md.Name())) {
		return
	}
	schema := toolschema.For(md, toolschema.Options{Profile: c.profile})
	compiled := mustCompile(t, schema)
	// Formats are annotations: validators need not check them.
	words := descriptions(schema) || strings.Contains(strings.ReplaceAll(string(schema), `"format":"date-time"`, ""), `"format":"`)
	var parsed map[string]any
	if err := json.Unmarshal(schema, &parsed); err != nil {
		t.Fatal(err)
	}
	m := mutator{rand.New(rand.NewPCG(seed, 3)), parsed}
	if !words {
		c.exact++
	}
	codec := transcode.NewSet(c.types).Message(md)
	for range 24 {
		doc, err := json.Marshal(m.of(parsed, 3))
		if err != nil {
			t.Fatal(err)
		}
		wire, err := codec.AppendWire(nil, doc, transcode.ReadOptions{})
		if err != nil {
			continue
		}
		msg := dynamicpb.NewMessage(md)
		if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: c.types}).Unmarshal(wire, msg); err != nil {
			t.Fatal(err)
		}
		verdict := c.validator.Validate(msg)
		if err := proto.CheckInitialized(msg); verdict == nil && err != nil {
			verdict = err
		}
		if refused := (*protovalidate.CompilationError)(nil); errors.As(verdict, &refused) {
			return // a contract that protovalidate itself refuses
		}
		c.compared++
		if verdict == nil {
			c.valid++
		}
		bySchema := validate(t, compiled, doc)
		if verdict == nil && bySchema != nil {
			t.Errorf("schema of %s refuses what keeps the rules: %v\n%s\n%s", md.FullName(), bySchema, doc, schema)
			return
		}
		if verdict != nil && bySchema == nil && !words {
			t.Errorf("schema of %s accepts what breaks the rules: %v\n%s\n%s", md.FullName(), verdict, doc, schema)
			return
		}
	}
}

// descriptions says whether any description is left that is more than type words.
func descriptions(schema []byte) bool {
	found := false
	for _, m := range regexp.MustCompile(`"description":"((?:[^"\\]|\\.)*)"`).FindAllSubmatch(schema, -1) {
		if strings.TrimSpace(typeWords.ReplaceAllString(string(m[1]), "")) != "" {
			found = true
		}
	}
	return found
}

// mutator makes instances around the bounds of a schema, good and bad ones.
type mutator struct {
	*rand.Rand
	root map[string]any
}

func (m mutator) of(schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		return m.of(m.root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), depth)
	}
	if l, ok := schema["anyOf"].([]any); ok {
		return m.of(l[m.IntN(len(l))].(map[string]any), depth)
	}
	if enum, ok := schema["enum"].([]any); ok && m.IntN(4) > 0 {
		return enum[m.IntN(len(enum))]
	}
	if not, ok := schema["not"].(map[string]any); ok && m.IntN(3) == 0 {
		if enum, ok := not["enum"].([]any); ok {
			return enum[m.IntN(len(enum))]
		}
	}
	kind := schema["type"]
	if l, ok := kind.([]any); ok {
		kind = l[m.IntN(len(l))]
	}
	switch kind {
	case "object":
		return m.object(schema, depth)
	case "array":
		out := []any{}
		items, _ := schema["items"].(map[string]any)
		if items == nil {
			return out
		}
		for range m.near(schema, "minItems", "maxItems", 2) {
			out = append(out, m.of(items, depth-1))
		}
		if len(out) > 1 && m.IntN(3) == 0 {
			out[1] = out[0]
		}
		return out
	case "string":
		return m.text(schema)
	case "integer":
		return int(m.number(schema))
	case "number":
		return m.number(schema)
	case "boolean":
		return m.IntN(2) == 0
	case nil:
		if enum, ok := schema["enum"].([]any); ok {
			return enum[0]
		}
	}
	return nil
}

func (m mutator) object(schema map[string]any, depth int) any {
	out := map[string]any{}
	if props, ok := schema["properties"].(map[string]any); ok && props["@type"] != nil {
		return map[string]any{"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		for i := range m.near(schema, "minProperties", "maxProperties", 2) {
			key := fmt.Sprint(i)
			if names, ok := schema["propertyNames"].(map[string]any); ok && m.IntN(3) > 0 {
				if enum, ok := names["enum"].([]any); ok {
					key = enum[i%len(enum)].(string)
				} else if names["pattern"] == nil {
					key = m.text(names) + key
				}
			}
			out[key] = m.of(values, depth-1)
		}
	}
	props, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if m.IntN(4) > 0 && depth > 0 {
			out[name] = m.of(props[name].(map[string]any), depth-1)
		}
	}
	return out
}

// near returns a count around the bounds of a schema.
func (m mutator) near(schema map[string]any, low, high string, most int) int {
	l, hasLow := schema[low].(float64)
	h, hasHigh := schema[high].(float64)
	switch {
	case hasLow && (!hasHigh || m.IntN(2) == 0):
		return max(0, int(l)-1+m.IntN(3))
	case hasHigh:
		return max(0, int(h)-1+m.IntN(3))
	}
	return m.IntN(most + 1)
}

func (m mutator) text(schema map[string]any) string {
	if pattern, ok := schema["pattern"].(string); ok && m.IntN(3) > 0 {
		switch {
		case strings.HasPrefix(pattern, "^-?(0|") && !strings.HasSuffix(pattern, "s$"), strings.HasPrefix(pattern, "^(0|"):
			return fmt.Sprint(m.IntN(20))
		case strings.HasSuffix(pattern, "s$"):
			return fmt.Sprint(m.IntN(20), "s")
		default:
			return strings.Trim(pattern, "^$")
		}
	}
	if schema["format"] == "date-time" {
		return "2026-01-31T08:30:00Z"
	}
	if m.IntN(3) == 0 {
		return []string{"", "foo", "bar", "a@example.com", "http://x.example/", "127.0.0.1", "::1", "FooBar", "example.com", "12345678-1234-1234-1234-123456789abc"}[m.IntN(10)]
	}
	return strings.Repeat([]string{"x", "ü", "😀"}[m.IntN(3)], m.near(schema, "minLength", "maxLength", 4))
}

func (m mutator) number(schema map[string]any) float64 {
	var around []float64
	for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if v, ok := schema[key].(float64); ok && v > -1e9 && v < 1e9 {
			around = append(around, v)
		}
	}
	if len(around) == 0 {
		return []float64{0, 1, 2, 3, 5, -1, -5}[m.IntN(7)]
	}
	return max(-1e9, around[m.IntN(len(around))]+float64(m.IntN(3)-1))
}
