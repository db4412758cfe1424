package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// TestSuggestionsLoad has the suggestions for foreign APIs load as a configuration, with nothing to say against them.
func TestSuggestionsLoad(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcd", "qdrant", "temporal-api", "vitess", "googleapis-core", "grpc-gateway-examples"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := run.Descriptors(name + ".binpb")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "policy.yaml")
			if code, _, stderr := toolway(t, "", "check", "--suggest", "-o", file, set); code != 0 {
				t.Fatalf("check --suggest: exit code %d: %s", code, stderr)
			}
			_, before, _ := toolway(t, "", "check", "--json", set)
			code, after, stderr := toolway(t, "", "check", "--json", "--config", file, set)
			if code > 1 {
				t.Fatalf("check with the suggestion: exit code %d: %s", code, stderr)
			}
			unclear := func(report string) (n int) {
				var r struct {
					Findings []struct{ Code, Message string }
				}
				if err := json.Unmarshal([]byte(report), &r); err != nil {
					t.Fatal(err)
				}
				for _, f := range r.Findings {
					switch f.Code {
					case "write-unannotated":
						n++
					case "policy-unmatched", "policy-field-unknown", "policy-contradiction", "option-contradiction", "idempotency-key-invalid":
						t.Errorf("the suggestion is at fault: %s", f.Message)
					}
				}
				return n
			}
			if was, is := unclear(before), unclear(after); is >= was {
				t.Errorf("%d methods say nothing about themselves with the suggestion, %d without", is, was)
			}
			if code, _, stderr := toolway(t, "", "check", "--suggest", "-o", file, set); code != 2 || !strings.Contains(stderr, "there already") {
				t.Errorf("suggesting over a file: exit code %d: %s", code, stderr)
			}
		})
	}
}

// TestPolicyFaults has a policy with mistakes: each is told with what was meant.
func TestPolicyFaults(t *testing.T) {
	t.Parallel()
	set, err := run.Descriptors("etcd.binpb")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(config, []byte(`
policy:
  - match: etcdserverpb.KW
    scopes: kv
  - match: etcdserverpb.KV/Put
    sensitive: [vallue]
    idempotency: {key_template: "{kee}"}
  - match: etcdserverpb.Watch/Watch
    approval: approver
`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := toolway(t, "", "check", "--config", config, set)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{
		`error: policy-unmatched: policy[0] (line 3): "etcdserverpb.KW" names no method; did you mean "etcdserverpb.KV"?`,
		`policy-field-unknown: policy[1] (line 5): field "vallue" is in no request or response of its methods: etcdserverpb.PutRequest has no field "vallue"; did you mean "value"?`,
		`etcdserverpb.PutRequest has no field "kee"; did you mean "key"?`,
		`approval-impossible: policy[2] (line 8).approval of etcdserverpb.Watch.Watch: it needs the whole request before the call runs`,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("check says nothing of %s:\n%s", want, stdout)
		}
	}
}

func TestLockAndDiff(t *testing.T) {
	t.Parallel()
	set, err := run.Descriptors("etcd.binpb")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lock, config := filepath.Join(dir, "a,b.lock"), filepath.Join(dir, "toolway.yaml")
	if err := os.WriteFile(config, []byte("policy: [{match: etcdserverpb.KV/Range, description: 'Reads keys.\n\n100% safe.'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := toolway(t, "", "lock", "-o", lock, set); code != 0 || stdout != "" || !strings.Contains(stderr, "49 tools") {
		t.Fatalf("lock: exit code %d, %q, %q", code, stdout, stderr)
	}
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := toolway(t, "", "lock", "-o", "-", set); code != 0 || stdout != string(text) {
		t.Errorf("a second lock of the same contract differs, exit code %d", code)
	}
	if code, stdout, stderr := toolway(t, "", "diff", "--lock", lock, set); code != 0 || stdout != "nothing has changed\n" {
		t.Errorf("diff: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ := toolway(t, "", "diff", "--github", "--lock", lock, "--config", config, set)
	above, block, _ := strings.Cut(string(text), `"etcdserverpb.KV/Range": {`)
	within, _, _ := strings.Cut(block, `"description": `)
	line := 1 + strings.Count(above+within, "\n")
	if want := "::warning file=" + strings.ReplaceAll(lock, ",", "%2C") + ",line="; code != 1 || !strings.HasPrefix(stdout, want) ||
		!strings.Contains(stdout, "title=kv_range changes::the description changed from ") || !strings.Contains(stdout, "100%25 safe.") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("diff --github: exit code %d, %q", code, stdout)
	}
	if want := `,line=` + jsonNumber(line) + `,`; !strings.Contains(stdout, want) {
		t.Errorf("diff --github: %q, want %q in it", stdout, want)
	}
	code, stdout, _ = toolway(t, "", "diff", "--json", "--lock", lock, "--config", config, set)
	var report struct {
		Changes []struct{ Effect, Method, Tool, Text string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 || len(report.Changes) != 1 || report.Changes[0].Effect != "changes" || report.Changes[0].Method != "etcdserverpb.KV/Range" {
		t.Errorf("diff --json: exit code %d, %v, %s", code, err, stdout)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"diff", "--lock", filepath.Join(dir, "none.lock"), set}, "write it with toolway lock"},
		{[]string{"diff", "--lock", config, set}, "it is no lock"},
		{[]string{"lock", "-o", filepath.Join(dir, "none", "x.lock"), set}, "write the lock"},
		{[]string{"lock", "-o", lock, filepath.Join(dir, "none.binpb")}, "none.binpb"},
		{[]string{"serve", "--backend", "127.0.0.1:1", "--lock", filepath.Join(dir, "none.lock")}, "write it with toolway lock"},
	} {
		if code, _, stderr := toolway(t, "", c.args...); code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, want 2 and %q", c.args, code, stderr, c.want)
		}
	}
	if after, err := os.ReadFile(lock); err != nil || string(after) != string(text) {
		t.Errorf("a lock that could not be made changed the file: %v", err)
	}
}

func jsonNumber(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestShowPolicy(t *testing.T) {
	t.Parallel()
	set, err := run.Descriptors("etcd.binpb")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(config, []byte("policy:\n  - match: etcdserverpb.KV\n    scopes: [kv.read, kv.write]\n    fields: [{path: value, sensitive: true, data_label: pii}]\n    doors: [mcp]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := toolway(t, "", "tools", "show", "--config", config, "-d", "etcd="+set, "kv_put")
	for _, want := range []string{"scopes         kv.read, kv.write          policy[0] (line 2)", "doors          mcp                        policy[0] (line 2)",
		"request value  sensitive, data_label pii  policy[0] (line 2)", "approval       none                       default"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("tools show has no %q:\n%s%s", want, stdout, stderr)
		}
	}
	_, stdout, _ = toolway(t, "", "tools", "show", "--json", "--config", config, "-d", "etcd="+set, "kv_put")
	var tool struct {
		Name   string
		Policy map[string]struct {
			Value any
			From  string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &tool); err != nil || tool.Name != "kv_put" || tool.Policy["scopes"].From != "policy[0] (line 2)" || tool.Policy["retry"].Value != false {
		t.Errorf("tools show --json: %v, %+v", err, tool)
	}
}
