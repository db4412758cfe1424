package mesh_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

// TestUnmatched pins that what names nothing is told with what was probably meant, and what names something is not.
func TestUnmatched(t *testing.T) {
	dir := t.TempDir()
	logsFile(t, dir)
	for _, tt := range []struct{ config, want string }{
		{"rules: {list: [{name: r, match: agentops.logs.v1.LogServise}]}", `rules.list[0] (r).match: "agentops.logs.v1.LogServise" names no method; did you mean "agentops.logs.v1.LogService"?`},
		{"rules: {list: [{name: r, match: {backend: lgs}}]}", `rules.list[0] (r).match: there is no backend "lgs"; did you mean "logs"?`},
		{"rules: {list: [{name: r, match: {labels: [nope]}}]}", "rules.list[0] (r).match: it names no method with label nope"},
		{"rules: {tenants: [{match: 'shop.*', tenants: acme}]}", `rules.tenants[0].match: "shop.*" names no method`},
		{"limits: {methods: [{methods: [agentops.logs.v1.LogService/SearchLog], rate: {per_second: 1}}]}", `limits.methods[0]: "agentops.logs.v1.LogService/SearchLog" names no method; did you mean "agentops.logs.v1.LogService/SearchLogs"?`},
		{"attempts: {hedge: [{methods: ['shop.*'], delay: 50ms}]}", `attempts.hedge[0]: "shop.*" names no method`},
		{"idempotency: {methods: ['shop.*']}", `idempotency.methods: "shop.*" names no method`},
		{"data_flow: {rules: [{from: {label: nope}, to: {backends: ['*']}}]}", `data_flow.rules[0].from.label: no field of a reply has the label "nope"`},
		{"rules: {list: [{name: r, match: '*/ListTools'}]}", `rules.list[0] (r).match: "*/ListTools" names no method`},
		{"limits: {methods: [{methods: ['*/ListTools'], rate: {per_second: 1}}]}", ""},
		{"attempts: {hedge: [{methods: ['*/ListTools'], delay: 50ms}]}", ""},
		{"idempotency: {methods: ['*/ListTools']}", ""},
		{"rules: {list: [{name: r, match: 'agentops.*'}, {name: all}, {name: own, match: 'toolway.*'}]}", ""},
	} {
		path := filepath.Join(dir, "toolway.yaml")
		if err := os.WriteFile(path, []byte("backends: [{name: logs, descriptors: [logs.binpb]}]\n"+tt.config+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := mesh.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mesh.Open(t.Context(), c, mesh.Options{Logger: slog.New(slog.DiscardHandler), NoStore: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Unmatched(), "\n"); tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.config, got, tt.want)
		}
		m.Close()
	}
}
