package mesh_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

// load reads a configuration and normalises it.
func loadText(t *testing.T, text string) (mesh.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := mesh.Load(path)
	if err == nil {
		err = c.Normalise()
	}
	if err == nil {
		err = c.Normalise() // Open does it again
	}
	return c, err
}

func TestConfigOfRulesAndAudit(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"rules: {list: [{name: a, when: 'door == \"mcp\"', match: 'shop.*'}]}", ""},
		{"rules: {default: deny, hide: true, zone: Europe/Berlin, list: [{name: a, effect: allow}]}", ""},
		{"rules: {tenants: [{match: 'shop.*', tenants: acme}]}", ""},
		{"backends: [{targets: ['127.0.0.1:1'], tenants: [acme]}]", ""},
		{"rules: {default: denied}", `rules.default "denied": want allow or deny`},
		{"rules: {zone: Mars/Base}", `rules.zone "Mars/Base": there is no such zone`},
		{"rules: {list: [{when: 'true'}]}", "it has no name"},
		{"rules: {list: [{name: a, effect: block}]}", `rules.list[0] (a): effect "block": want allow or deny`},
		{"rules: {list: [{name: a, when: 'principal.scope == \"x\"'}]}", `rules: rule "a": when: line 1, column 10: toolway.Principal has no field "scope"; did you mean "scopes"?`},
		{"rules: {list: [{name: a, match: 'a/b/c'}]}", "rules.list[0] (a): match: pattern"},
		{"rules: {tenants: [{tenants: [acme]}]}", "rules.tenants[0]: match is missing"},
		{"rules: {tenants: [{match: '*'}]}", "rules.tenants[0]: tenants is missing"},
		{"rules: {lists: []}", `unknown key "lists"; did you mean "list"?`},
		{"audit: {file: stderr, required: true, keep: 0, log: true, max_argument_bytes: 0, health: true}", ""},
		{"audit: {file: audit.jsonl, fsync: always}", ""},
		{"audit: {required: true}", "audit.required refuses calls whose record cannot be kept"},
		{"audit: {fsync: always}", "audit.fsync is about a file"},
		{"audit: {file: a, fsync: sometimes}", `audit.fsync "sometimes": want never, second, always`},
		{"audit: {keep: -1}", "audit.keep -1"},
		{"audit: {max_argument_bytes: 100000}", "audit.max_argument_bytes 100000"},
	} {
		_, err := loadText(t, c.text)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

// TestAuditFileThatCannotBe keeps a mesh from starting.
func TestAuditFileThatCannotBe(t *testing.T) {
	c, err := loadText(t, "audit: {file: no/such/directory/audit.jsonl}")
	if err != nil {
		t.Fatal(err)
	}
	m, err := mesh.Open(t.Context(), c, mesh.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "name another with audit.file") {
		t.Errorf("err = %v", err)
	}
}
