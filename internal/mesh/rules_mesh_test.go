package mesh_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

// TestRulesLeaveTheMeshAlone pins that rules touch the mesh's own API only where they name it, as policy does.
func TestRulesLeaveTheMeshAlone(t *testing.T) {
	for _, tt := range []struct{ rules, want string }{
		{"{list: [{name: r, match: '*'}]}", "allow"},
		{"{list: [{name: r}]}", "allow"},
		{"{list: [{name: r, match: '*/Approve'}]}", "allow"},
		{"{list: [{name: r, match: 'toolway.*'}]}", "deny"},
		{"{list: [{name: r, match: {backend: toolway}}]}", "deny"},
		{"{tenants: [{match: '*', tenants: acme}]}", "allow"},
		{"{tenants: [{match: toolway.v1.ApprovalService, tenants: acme}]}", "hide"},
		{"{default: deny, list: [{name: r, effect: allow, when: 'false'}]}", "allow"},
		{"{default: deny, list: [{name: r, effect: allow, match: toolway.v1.ApprovalService, when: 'false'}]}", "deny"},
		{"{default: deny, hide: true, list: [{name: r, effect: allow, match: 'shop.*', when: 'false'}]}", "allow"},
	} {
		c, err := loadText(t, "rules: "+tt.rules)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mesh.Open(t.Context(), c, mesh.Options{Logger: slog.New(slog.DiscardHandler), NoStore: true})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "cases.yaml")
		if err := os.WriteFile(file, []byte("cases: [{method: toolway.v1.ApprovalService/Approve, principal: {id: a, scopes: ['*']}, expect: "+tt.want+"}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		cases, err := mesh.LoadCases(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := m.Judge(&cases[0]); err != nil || v.Effect != tt.want {
			t.Errorf("%s: %v, %v, want %s", tt.rules, v, err, tt.want)
		}
		m.Close()
	}
}
