package verify_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/verify"
)

// TestWords holds the words that toolschema uses against those that instances are made by: every sort of value comes up in them.
func TestWords(t *testing.T) {
	s := snapshot(t, everything)
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		schema := s.Tool("shop_order").InputSchema(p)
		docs, err := verify.Instances(schema, []string{"shop.v1.OrderRequest"}, 1, 20)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(docs, "\n")
		wants := []string{
			`"kind":"KIND_BIG"`, `"kind":"KIND_SMALL"`, `"number":"-9223372036854775808"`, `"cash":"18446744073709551615"`, `"card":""`,
			`"at":"9999-12-31T23:59:59.999999999Z"`, `"wait":"-1.000000001s"`, `"raw":"AP8"`, `"many":[]`, `"many":["`, "日本", `\u0000`,
			`"mask":"name,size.width"`, `"s":-2147483648`, `"gift":false`, `"x":"9007199254740993"`, strings.Repeat("long €", 100),
		}
		if p != toolschema.Strict { // which leaves maps and free objects out
			wants = append(wants, `{}`, `"byInt":{"-`, `"byBool":{"false"`, `"byUint":{"0":"`, `"@type":"type.googleapis.com/shop.v1.OrderRequest"`, `"free":{"a":null`, `"kindsByName":{`)
		}
		if p == toolschema.Full {
			wants = append(wants, `"number":9223372036854775807`, `"f":"NaN"`, `"d":"-Infinity"`, `"byUint":{"4294967295"`)
		}
		for _, want := range wants {
			if !strings.Contains(all, want) {
				t.Errorf("%v: no instance has %s", p, want)
			}
		}
		if both := regexp.MustCompile(`"card":"[^"]*",.*"cash":"`).FindString(all); both != "" && p != toolschema.Strict {
			t.Errorf("%v: two members of a oneof: %s", p, both)
		}
	}
}

// TestDeepest nests as deep as the codec lets it.
func TestDeepest(t *testing.T) {
	s := snapshot(t, everything)
	docs, err := verify.Instances(s.Tool("shop_put").InputSchema(toolschema.Full), nil, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	deepest := 0
	for _, doc := range docs {
		if !json.Valid([]byte(doc)) {
			t.Errorf("no JSON: %s", doc)
		}
		deepest = max(deepest, strings.Count(doc, `"parts"`), strings.Count(doc, `"named"`))
	}
	if deepest < 20 {
		t.Errorf("the deepest of %d instances nests %d times, want 20 at least", len(docs), deepest)
	}
}

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		pattern   string
		low, high int
	}{
		{`^[a-z]+$`, 0, -1}, {`^[a-z]+$`, 20, 30}, {`^a{2,5}b?$`, 0, -1}, {`^(?:foo|bar)-[0-9]{4}$`, 0, -1}, {`x`, 0, -1},
		{`^[^\n]*$`, 5, 5}, {`^projects/[^/]+/items/[A-Z0-9_-]{1,8}$`, 0, -1}, {`^[\x00-\xff]{3}$`, 0, 3}, {`^\w+@\w+\.com$`, 0, 64},
	} {
		got := verify.Matching(c.pattern, c.low, c.high)
		if len(got) == 0 {
			t.Errorf("Matching(%q, %d, %d) is empty", c.pattern, c.low, c.high)
		}
		for _, s := range got {
			n := utf8.RuneCountInString(s)
			if !regexp.MustCompile(c.pattern).MatchString(s) || n < c.low || c.high >= 0 && n > c.high {
				t.Errorf("Matching(%q, %d, %d) gives %q", c.pattern, c.low, c.high, s)
			}
		}
		if again := verify.Matching(c.pattern, c.low, c.high); !slices.Equal(got, again) {
			t.Errorf("Matching(%q) gives %q, then %q", c.pattern, got, again)
		}
	}
	if got := verify.Matching(`^(`, 0, -1); got != nil {
		t.Errorf("Matching of no pattern gives %q", got)
	}
}
