package runbooks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolway/toolway/services/runbooks"
)

func TestDocument(t *testing.T) {
	tests := []struct {
		name, text     string
		title, content string
		services, tags []string
		line           int    // of the warning
		warning        string // "" for none
	}{
		{"plain", "# Disk full\n\nFree some.\n", "Disk full", "# Disk full\n\nFree some.\n", nil, nil, 0, ""},
		{"no heading", "Free some.\n", "x", "Free some.\n", nil, nil, 0, ""},
		{"empty", "", "x", "", nil, nil, 0, ""},
		{"front matter", "---\ntitle: Full\nservices: [a, b]\ntags:\n  - c\n---\n\n# Disk\n", "Full", "# Disk\n", []string{"a", "b"}, []string{"c"}, 0, ""},
		{"one instead of a list", "---\nservices: a\n---\nText", "x", "Text", []string{"a"}, nil, 0, ""},
		{"numbers and nulls", "---\ntitle: 503\ntags: [2026-01-01, 5, null]\nservices:\n---\nText", "503", "Text", nil, []string{"2026-01-01", "5"}, 0, ""},
		{"Windows", "\uFEFF---\r\ntitle: Full\r\n---\r\n\r\n# Disk\r\n", "Full", "# Disk\r\n", nil, nil, 0, ""},
		{"other keys", "---\nowner: {team: sre}\ntitle: Full\n---\nText", "Full", "Text", nil, nil, 0, ""},
		{"closed with dots", "---\ntitle: Full\n...\nText", "Full", "Text", nil, nil, 0, ""},
		{"aliases", "---\nservices: &s [a]\ntags: *s\n---\nText", "x", "Text", []string{"a"}, []string{"a"}, 0, ""},
		{"nothing in it", "---\n# only a comment\n---\nText", "x", "Text", nil, nil, 0, ""},
		{"rule inside", "One\n\n---\n\nTwo\n", "x", "One\n\n---\n\nTwo\n", nil, nil, 0, ""},
		{"heading in code", "```sh\n# not this\n```\n## This `one` **here**\n", "This one here", "```sh\n# not this\n```\n## This `one` **here**\n", nil, nil, 0, ""},
		{"bad YAML", "---\ntitle: Full\ntags: [a\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 3, "front matter ignored"},
		{"colon", "---\nservices: a\ntitle: Disk: full\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 3, "front matter ignored"},
		{"list is a map", "---\ntags: a\nservices:\n  a: b\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 4, "list of texts"},
		{"title is a list", "---\ntitle: [a]\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 2, "has to be a text"},
		{"no keys", "---\n- a\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 2, "keys with values"},
		{"not closed", "---\ntitle: Full\n# Disk\n", "Disk", "---\ntitle: Full\n# Disk\n", nil, nil, 1, "close it"},
		{"long", "---\n#" + strings.Repeat("x", 17<<10) + "\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 1, "at most 16384"},
		{"many", "---\ntags: [" + strings.Repeat("a,", 60) + "]\n---\n# Disk\n", "Disk", "# Disk\n", nil, nil, 2, "at most 50"},
		{"not UTF-8", "# Disk \xff\n", "Disk \uFFFD", "# Disk \uFFFD\n", nil, nil, 0, "save it as UTF-8"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := folder(t, "x.md", test.text)
			client, _ := start(t, dir, runbooks.Options{})
			got := get(t, client, "x")
			if got.Title != test.title || got.Content != test.content || !slices.Equal(got.Services, test.services) || !slices.Equal(got.Tags, test.tags) {
				t.Errorf("runbook = %v, want title %q, content %q, services %q, tags %q", got, test.title, test.content, test.services, test.tags)
			}
			warnings := open(t, dir, runbooks.Options{}).Warnings()
			if test.warning == "" && len(warnings) > 0 || test.warning != "" && !warned(warnings, "x.md", test.line, test.warning) {
				t.Errorf("warnings = %v, want line %d with %q", warnings, test.line, test.warning)
			}
		})
	}
}

// One bad file costs its own front matter, and nothing else.
func TestDocumentBadOneAmongGood(t *testing.T) {
	dir := folder(t, "a.md", "---\ntitle: A\n---\n", "b.md", "---\ntitle: [\n---\n# B itself\n", "c.md", "---\ntitle: C\n---\n")
	client, _ := start(t, dir, runbooks.Options{})
	for name, want := range map[string]string{"a": "A", "b": "B itself", "c": "C"} {
		if got := get(t, client, name).Title; got != want {
			t.Errorf("title of %q = %q, want %q", name, got, want)
		}
	}
}
