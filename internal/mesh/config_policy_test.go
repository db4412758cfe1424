package mesh_test

import (
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/internal/mesh"
)

func TestPolicyLoads(t *testing.T) {
	c, err := load(t, `
policy:
  - match: shop.v1.Orders
    scopes: shop.read
  - match: [shop.v1.Orders/Put*, "*/Delete*"]
    scopes: []
    approval: approver
    idempotency: {key_template: "{name}:{revision}", required: true}
    fields: [{path: customer.email, sensitive: true, data_label: pii}]
    doors: [grpc, mcp]
  - match: {backend: shop, labels: read}
    cache_ttl: 1m
expose:
  http: annotated
  methods: shop.v1.*
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	first, second, third := c.Policy[0], c.Policy[1], c.Policy[2]
	if len(first.Match.Methods) != 1 || first.Match.Methods[0] != "shop.v1.Orders" || len(first.Scopes) != 1 || first.Doors != nil {
		t.Errorf("policy[0] = %+v", first)
	}
	if len(second.Match.Methods) != 2 || second.Scopes == nil || len(second.Scopes) != 0 || *second.Approval != "approver" || !*second.Idempotency.Required || second.Fields[0].Path != "customer.email" || len(second.Doors) != 2 {
		t.Errorf("policy[1] = %+v", second)
	}
	if third.Match.Backend != "shop" || len(third.Match.Labels) != 1 || time.Duration(*third.CacheTTL) != time.Minute {
		t.Errorf("policy[2] = %+v", third)
	}
	if e := c.Expose; e.GRPC != "all" || e.MCP != "all" || e.HTTP != "annotated" || len(e.Methods) != 1 {
		t.Errorf("expose = %+v", e)
	}
}

func TestExposeDefaults(t *testing.T) {
	for _, c := range []struct{ grpc, http, want string }{
		{"", "", "all all all"},
		{"127.0.0.1:1", "localhost:1", "all all all"},
		{"0.0.0.0:7070", "off", "listed all all"},
		{":7070", "10.0.0.1:8080", "listed listed listed"},
	} {
		conf := mesh.Config{GRPC: mesh.GRPC{Addr: c.grpc}, HTTP: mesh.HTTP{Addr: c.http}}
		if err := conf.Normalise(); err != nil {
			t.Fatal(err)
		}
		if got := conf.Expose.GRPC + " " + conf.Expose.MCP + " " + conf.Expose.HTTP; got != c.want {
			t.Errorf("exposure of %q and %q = %s, want %s", c.grpc, c.http, got, c.want)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"policy: [{scopes: a}]", "policy[0] (line 1): match is missing"},
		{"policy:\n  - match: a.B\n  - match: 'a b'", `policy[1] (line 3): match: pattern "a b" names no methods`},
		{"policy: [{match: a.B, approval: aprover}]", `approval "aprover": want none, confirm, approver; did you mean "approver"?`},
		{"policy: [{match: a.B, scopes: 'read write'}]", `scope "read write": want visible ASCII without spaces`},
		{"policy: [{match: a.B, priority: urgent}]", `priority "urgent": want low, normal, high`},
		{"policy: [{match: a.B, read_only: true, destructive: true}]", "read_only and destructive contradict each other"},
		{"policy: [{match: a.B, timeout: 2s, max_timeout: 1s}]", "timeout 2s is above max_timeout 1s"},
		{"policy: [{match: a.B, read_only: false, cache_ttl: 1s}]", "cache_ttl contradicts read_only: false"},
		{"policy: [{match: a.B, idempotency: {key_template: '{a}', key_field: a}}]", "key_template and key_field"},
		{"policy: [{match: a.B, cost: 0}]", "cost 0: want 1"},
		{"policy: [{match: a.B, result_limits: {max_items: -1}}]", "result_limits.max_items -1"},
		{"policy: [{match: a.B, doors: [rest]}]", `door "rest": want grpc, mcp or http`},
		{"policy: [{match: a.B, fields: [{sensitive: true}]}]", "fields[0] has no path"},
		{"policy: [{match: a.B, sensitive: x, fields: [{path: x}]}]", `field "x" stands under sensitive and under fields`},
		{"policy: [{match: a.B, fields: [{path: x, sensitive: false, redact_result: true}]}]", "redact_result implies sensitive"},
		{"policy: [{match: a.B, scope: x}]", `unknown key "scope"; did you mean "scopes"?`},
		{"policy: [{match: {method: a.B}}]", `unknown key "method"; did you mean "methods"?`},
		{"policy: [{match: a.B, scopes: {a: b}}]", "want a list"},
		{"expose: {grpc: some}", `expose.grpc: exposure "some": want all, listed or annotated`},
		{"expose: {methods: ['?']}", `expose.methods: pattern "?"`},
	} {
		conf, err := load(t, c.yaml)
		if err == nil {
			err = conf.Normalise()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.yaml, err, c.want)
		}
	}
}
