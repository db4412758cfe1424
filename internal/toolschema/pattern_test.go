package toolschema_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/toolschema"
)

// TestPatterns turns RE2 patterns of contracts into what ECMAScript reads the same way, or into words.
func TestPatterns(t *testing.T) {
	for _, c := range []struct{ re2, want string }{
		{`^[a-z]+$`, `^[a-z]+$`},
		{`^\d{3}-\w+$`, `^[0-9]{3}-[0-9A-Z_a-z]+$`},
		{`\A(?:a|bc)\z`, `^(?:a|bc)$`},
		{`(?P<year>[0-9]{4})`, `(?:[0-9]{4})`},
		{`(?i)^ab1$`, `^[Aa][Bb]1$`},
		{`^.+$`, `^[^\n]+$`},
		{`(?s)^.+$`, `^[\s\S]+$`},
		{`^[^/]*$`, `^[^/]*$`},
		{`a*?b+?`, `a*b+`},
		{`(?:ab)+`, `(?:ab)+`},
		{`^\.\*\(\)\[\]\{\}\|\\\^\$$`, `^\.\*\(\)\[\]\{\}\|\\\^\$$`},
		{`^[\]\-^\\]$`, `^[\-\\-\^]$`},
		{`\bfoo\b`, `\bfoo\b`},
		{`^\x00\t$`, `^\x00\x09$`},
		{`^日本$`, `^日本$`},
		{`(?m)^a$`, ""},   // line anchors
		{`^[😀]$`, ""},     // needs the u flag
		{`^\p{Lu}+$`, ""}, // too long as ranges
	} {
		files := source(t, imports+`message M { optional string s = 1 [(buf.validate.field).string.pattern = `+strconv.QuoteToASCII(c.re2)+`]; }`)
		var schema struct {
			Properties map[string]struct{ Pattern, Description string }
		}
		if err := json.Unmarshal(toolschema.For(find(t, files, "M"), toolschema.Options{}), &schema); err != nil {
			t.Fatal(err)
		}
		got := schema.Properties["s"]
		if got.Pattern != c.want {
			t.Errorf("pattern of %q = %q, want %q", c.re2, got.Pattern, c.want)
		}
		if c.want == "" && !strings.HasPrefix(got.Description, "Pattern (RE2): ") {
			t.Errorf("pattern %q is not told in words: %q", c.re2, got.Description)
		}
	}
}
