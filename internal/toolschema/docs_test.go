package toolschema_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/toolschema"
)

var update = flag.Bool("update", false, "rewrite the rule table of docs/schema.md")

// TestRuleTable keeps the table of docs/schema.md equal to toolschema.Rules; -update rewrites it.
func TestRuleTable(t *testing.T) {
	const begin, end = "<!-- rules -->\n", "<!-- /rules -->"
	var b strings.Builder
	b.WriteString("| rule | what must hold | profiles | who demands it | source |\n|---|---|---|---|---|\n")
	ids := map[string]bool{}
	for _, r := range toolschema.Rules {
		var profiles []string
		for _, p := range r.Profiles {
			profiles = append(profiles, p.String())
		}
		side := ""
		if r.InputOnly {
			side = " (inputs)"
		}
		if r.OutputOnly {
			side = " (outputs)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s |\n", r.ID, strings.ReplaceAll(r.Text, "|", "\\|"), strings.Join(profiles, ", "), side, r.Providers, r.Source)
		if ids[r.ID] || r.Text == "" || r.Source == "" || r.Providers == "" || len(r.Profiles) == 0 {
			t.Errorf("rule %q is doubled or lacks a part", r.ID)
		}
		ids[r.ID] = true
	}
	path := filepath.Join("..", "..", "docs", "schema.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(doc), begin)
	table, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q … %q", path, begin, end)
	}
	if table == b.String() {
		return
	}
	if !*update {
		t.Fatalf("rule table of %s is out of date; run go test ./internal/toolschema -run TestRuleTable -update", path)
	}
	if err := os.WriteFile(path, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
