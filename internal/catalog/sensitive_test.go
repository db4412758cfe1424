package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

const marked = `syntax = "proto3"; package acme.v1; import "toolway/v1/options.proto";
	message Login { string user = 1; string password = 2 [debug_redact = true]; Card card = 3; map<string, Card> cards = 4; Login next = 5; Plain plain = 6; }
	message Card { string number = 1 [(toolway.v1.field) = {redact_result: true, data_label: "pci"}]; string holder = 2 [(toolway.v1.field).data_label = "pii"]; }
	message Plain { string name = 1; Plain sub = 2; }
	message Tree { repeated Tree kids = 1; string note = 2 [(toolway.v1.field).sensitive = true]; }
	service S { rpc Do(Login) returns (Plain); rpc Grow(stream Tree) returns (stream Tree); }`

func paths(s *catalog.FieldSet) string {
	var out []string
	for _, p := range s.Paths() {
		text := p.Path
		if p.Mark.Sensitive {
			text += " sensitive"
		}
		if p.Mark.Redact {
			text += " redact"
		}
		out = append(out, strings.TrimSpace(text+" "+p.Mark.Label))
	}
	return strings.Join(out, "; ")
}

func TestSensitiveFields(t *testing.T) {
	s := static(t, compileOne(t, marked))
	do := s.Method("/acme.v1.S/Do")
	in := do.Sensitive(toolschema.Input)
	want := "password sensitive; card.number sensitive redact pci; card.holder pii; cards.number sensitive redact pci; cards.holder pii"
	if got := paths(in); got != want {
		t.Errorf("marked fields of Do's request = %s, want %s", got, want)
	}
	if !in.Sensitive() || !in.Redacts() || fmt.Sprint(in.Labels()) != "[pci pii]" {
		t.Errorf("summary of Do's request = %v %v %v, want all", in.Sensitive(), in.Redacts(), in.Labels())
	}
	if got := in.Mark(5).Within; got != in {
		t.Errorf("the set within a recursive field is %p, want the set itself, %p", got, in)
	}
	if got := in.Mark(6); got != nil {
		t.Errorf("a field that reaches nothing marked has the mark %+v, want none", got)
	}
	if got := do.Sensitive(toolschema.Output); got != nil || got.Sensitive() || got.Mark(1) != nil || got.Paths() != nil {
		t.Errorf("marked fields of Do's response = %+v, want none", got)
	}
	if got, want := paths(s.Method("/acme.v1.S/Grow").Sensitive(toolschema.Output)), "note sensitive"; got != want {
		t.Errorf("marked fields of a recursive message = %q, want %q", got, want)
	}
}

// Every message of a dense contract reaches every other: the paths are beyond number.
func TestSensitivePathsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`syntax = "proto3"; package acme.v1; message M { string s = 100 [debug_redact = true]; N0 n = 1; } service S { rpc Do(M) returns (M); }`)
	for i := range 30 {
		fmt.Fprintf(&b, "message N%d { M m = 1000; ", i)
		for j := range 30 {
			fmt.Fprintf(&b, "N%d n%d = %d; ", j, j, j+1)
		}
		b.WriteString("}\n")
	}
	s := static(t, compileOne(t, b.String()))
	if got, want := paths(s.Method("/acme.v1.S/Do").Sensitive(toolschema.Input)), "s sensitive"; got != want {
		t.Errorf("marked fields = %q, want %q", got, want)
	}
}
