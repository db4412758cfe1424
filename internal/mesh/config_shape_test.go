package mesh_test

import (
	"strings"
	"testing"
)

const flowBackends = "backends: [{name: crm, targets: [\"127.0.0.1:1\"]}, {name: mailer, targets: [\"127.0.0.1:2\"]}]\n"

// TestConfigOfResults has the blocks that shape what callers get.
func TestConfigOfResults(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"cache", "cache: {max_bytes: 1048576, stale: 10m}\n", ""},
		{"cache off", "cache: {off: true}\n", ""},
		{"cache off and on", "cache: {off: true, stale: 1m}\n", "cache.off is set beside other keys of cache: drop the one or the others"},
		{"cache below its replies", "cache: {max_bytes: 10, max_reply_bytes: 20}\n", "cache.max_reply_bytes is above cache.max_bytes: lower the one or raise the other"},
		{"cache below zero", "cache: {max_bytes: -1}\n", "a limit cannot be negative"},
		{"results", "results: {max_bytes: 4096, max_items: 50, max_depth: 8, invisible: keep, objects: {ttl: 1h}}\n", ""},
		{"results off and on", "results: {objects: {off: true, ttl: 1h}}\n", "results.objects.off is set beside other keys"},
		{"results with a word", "results: {invisible: hide}\n", `results.invisible "hide": want strip or keep`},
		{"results below one", "results: {objects: {max_bytes: 1, max_object_bytes: 2}}\n", "max_object_bytes is above"},
		{"data flow", flowBackends + "data_flow: {rules: [{from: {label: pii, backends: [crm]}, to: {backends: [mailer]}}, {to: {backends: ['*']}, action: log}], remember: 2h}\n", ""},
		{"data flow to a stranger", flowBackends + "data_flow: {rules: [{to: {backends: [mailr]}}]}\n", `data_flow.rules[0].to.backends: there is no backend "mailr"; did you mean "mailer"?`},
		{"data flow from all by star", flowBackends + "data_flow: {rules: [{from: {backends: ['*']}, to: {backends: [mailer]}}]}\n", `data_flow.rules[0].from.backends: there is no backend "*"`},
		{"data flow to nowhere", flowBackends + "data_flow: {rules: [{from: {label: pii}}]}\n", "data_flow.rules[0].to.backends is empty"},
		{"data flow with a word", flowBackends + "data_flow: {rules: [{to: {backends: [crm]}, action: drop}]}\n", `data_flow.rules[0].action "drop": want refuse or log`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := load(t, c.yaml)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // a normalised configuration stays as it is
				err = conf.Normalise()
				if c.want == "" && err != nil {
					t.Error(err)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("Normalise = %v, want %q", err, c.want)
				}
			}
		})
	}
}
