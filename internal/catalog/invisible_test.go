package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/toolway/toolway/internal/toolschema"
)

// hidden are characters by which a text says something else to a model than to whoever reviews it, or breaks a terminal.
var hidden = map[string]rune{
	"escape": 0x1b, "bell": 0x07, "C1 control": 0x9b, "soft hyphen": 0xad, "combining grapheme joiner": 0x34f, "Arabic letter mark": 0x61c,
	"Hangul filler": 0x3164, "Mongolian vowel separator": 0x180e, "zero-width space": 0x200b, "zero-width joiner": 0x200d, "right-to-left mark": 0x200f,
	"bidi embedding": 0x202a, "bidi override": 0x202e, "word joiner": 0x2060, "invisible times": 0x2062, "bidi isolate": 0x2067, "pop isolate": 0x2069,
	"variation selector": 0xfe0f, "byte order mark": 0xfeff, "interlinear annotation": 0xfff9, "tag": 0xe0041, "cancel tag": 0xe007f,
	"variation selector supplement": 0xe0101, "private use": 0xe000,
}

// TestNothingHiddenReachesAgents puts each of them into every text that a backend writes and an agent reads.
func TestNothingHiddenReachesAgents(t *testing.T) {
	for name, r := range hidden {
		text := "Be" + string(r) + "fore"
		if unicode.IsControl(r) { // no such characters in a source's string literals
			text = "Before" + string(r)
		}
		option := strings.ReplaceAll(fmt.Sprintf("%+q", text), `"`, "")
		source := fmt.Sprintf(`syntax = "proto3"; package acme.v1; import "toolway/v1/options.proto";
			// %[1]s message.
			message In {
				// %[1]s field.
				string id = 1;
				// %[1]s enum field.
				Kind kind = 2;
			}
			// %[1]s enum.
			enum Kind {
				// %[1]s value.
				A = 0;
			}
			// %[1]s service.
			service S {
				option (toolway.v1.service) = {labels: "%[2]s"};
				// %[1]s method.
				rpc Comment(In) returns (In);
				rpc Option(In) returns (In) { option (toolway.v1.method) = {title: "%[2]s" description: "%[2]s" examples: "{\"id\": \"%[2]s\"}"}; }
			}`, text, option)
		s := static(t, compileOne(t, source))
		for _, m := range s.Methods() {
			all := m.Tool.Name + m.Tool.Title + m.Tool.Description + strings.Join(m.Policy.Labels, "") + string(m.InputSchema(toolschema.Full)) + string(m.OutputSchema(toolschema.Full))
			var decoded any
			for _, d := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
				if err := json.Unmarshal(m.WholeSchema(d, toolschema.Full), &decoded); err != nil {
					t.Fatal(err)
				}
				all += fmt.Sprint(decoded)
			}
			if strings.ContainsRune(all, r) {
				t.Errorf("%s (%U) reaches agents in %s: %q", name, r, m.FullMethod, all)
			}
			if !strings.Contains(all, "Before") {
				t.Errorf("%s: the text around it is gone: %q", name, all)
			}
		}
	}
}
