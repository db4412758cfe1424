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
		{"tasks", "tasks: {timeout: 2h, max_timeout: 48h, ttl: 1h, workers: 8, per_tool: 4, lease: 5s}\n", ""},
		{"tasks off", "tasks: {off: true}\n", ""},
		{"tasks off and on", "tasks: {off: true, workers: 8}\n", "tasks.off is set beside other keys of tasks: drop the one or the others"},
		{"tasks above their cap", "tasks: {timeout: 2h, max_timeout: 1h}\n", "tasks.timeout 2h0m0s is above tasks.max_timeout 1h0m0s"},
		{"tasks kept above their cap", "tasks: {ttl: 2h, max_ttl: 1h}\n", "tasks.ttl 2h0m0s is above tasks.max_ttl 1h0m0s"},
		{"tasks with a short lease", "tasks: {lease: 10ms}\n", "tasks.lease 10ms is too short"},
		{"tasks below zero", "tasks: {workers: -1}\n", "a limit cannot be negative"},
		{"task by policy", "policy: [{match: 'a.v1.*', task: required}]\n", ""},
		{"task by a word", "policy: [{match: 'a.v1.*', task: require}]\n", `did you mean "required"?`},
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
