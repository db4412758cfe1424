package catalog_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/catalog"
)

const keyProto = `syntax = "proto3"; package k; import "toolway/v1/options.proto";
message Target { string name = 1; bytes raw = 2; }
enum Action { NONE = 0; RESTART = 1; }
message Request { string incident = 1; Action action = 2; Target target = 3; int64 generation = 4; bool hard = 5; repeated string tags = 6; double ratio = 7; map<string, string> labels = 8; }
message Reply {}
service S {
  rpc Plain(Request) returns (Reply);
  rpc Template(Request) returns (Reply) { option (toolway.v1.method).idempotency = {key_template: "{incident}:{action}:{target.name}:{generation}"}; }
  rpc Field(Request) returns (Reply) { option (toolway.v1.method).idempotency = {key_field: "incident"}; }
  rpc Broken(Request) returns (Reply) { option (toolway.v1.method).idempotency = {key_template: "{nothing}" required: true}; }
  rpc Streamed(stream Request) returns (Reply) { option (toolway.v1.method) = {approval: APPROVAL_APPROVER idempotency: {key_field: "incident"}}; }
}`

func TestKeyTemplate(t *testing.T) {
	m := static(t, compileOne(t, keyProto)).Method("/k.S/Template")
	whole := `{"incident":"INC-7","action":"RESTART","target":{"name":"web"},"generation":"3"}`
	for _, c := range []struct{ name, template, request, want string }{
		{"all set", "{incident}:{action}:{target.name}:{generation}", whole, "INC-7:RESTART:web:3"},
		{"one field", "{target.name}", whole, "web"},
		{"literals around", "v1/{incident}/x", whole, "v1/INC-7/x"},
		{"unset scalar", "{incident}:{hard}", whole, ""},
		{"unset message", "{incident}:{target.name}", `{"incident":"INC-7"}`, ""},
		{"unset in a message", "{incident}:{target.raw}", whole, ""},
		{"bool", "{hard}", `{"hard":true}`, "true"},
		{"bytes", "{target.raw}", `{"target":{"raw":"_v8"}}`, "_v8"},
		{"an enum value that is not known", "{action}", `{"action":77}`, "77"},
		{"what stands between fields, in a value", "{incident}:{target.name}", `{"incident":"a:b","target":{"name":"c"}}`, "a%3Ab:c"},
		{"the same parts, cut elsewhere", "{incident}:{target.name}", `{"incident":"a","target":{"name":"b:c"}}`, "a:b%3Ac"},
		{"what headers cannot carry", "{incident}", `{"incident":"ä \"%\n"}`, "%C3%A4%20%22%25%0A"},
		{"too long", "{incident}", `{"incident":"` + strings.Repeat("x", 256) + `"}`, "sha256:"},
	} {
		k, err := catalog.ParseKeyTemplate(m.Desc.Input(), c.template)
		if err != nil {
			t.Errorf("%s: ParseKeyTemplate(%q): %v", c.name, c.template, err)
			continue
		}
		request := dynamicpb.NewMessage(m.Desc.Input())
		if err := protojson.Unmarshal([]byte(c.request), request); err != nil {
			t.Fatal(err)
		}
		got := k.Key(request)
		if c.name == "too long" {
			if len(got) != len("sha256:")+64 || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: Key = %q, want a SHA-256", c.name, got)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s: Key(%q, %s) = %q, want %q", c.name, c.template, c.request, got, c.want)
		}
	}
}

func TestKeyTemplateRefused(t *testing.T) {
	in := static(t, compileOne(t, keyProto)).Method("/k.S/Plain").Desc.Input()
	for template, want := range map[string]string{
		"":                  "names no field",
		"fixed":             "names no field",
		"{incident":         `"{" without "}"`,
		"incident}":         `"}" without "{"`,
		"{}":                `has no field ""`,
		"{nothing}":         `has no field "nothing"`,
		"{target}":          "k.Request.target is a message",
		"{incident.x}":      "k.Request.incident is no message",
		"{tags}":            "k.Request.tags is repeated",
		"{labels.x}":        "k.Request.labels is repeated",
		"{ratio}":           "k.Request.ratio is a double",
		"{incident} {hard}": "only visible ASCII",
	} {
		if _, err := catalog.ParseKeyTemplate(in, template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseKeyTemplate(%q) = %v, want an error with %q", template, err, want)
		}
	}
}

func TestKeyPolicy(t *testing.T) {
	s := static(t, compileOne(t, keyProto))
	for name, want := range map[string]struct {
		fields   string
		declares bool
	}{
		"Plain": {"", false}, "Template": {"incident action target.name generation", true}, "Field": {"incident", true},
		"Broken": {"", true}, "Streamed": {"", true},
	} {
		m := s.Method("/k.S/" + name)
		got := ""
		if k := m.KeyTemplate(); k != nil {
			got = strings.Join(k.Fields(), " ")
		}
		if got != want.fields || m.DeclaresKey() != want.declares {
			t.Errorf("%s: fields %q, declares %v; want %q, %v", name, got, m.DeclaresKey(), want.fields, want.declares)
		}
	}
	bad := map[string]string{}
	for _, f := range s.Findings() {
		if f.Code == "idempotency-key-invalid" || f.Code == "approval-impossible" {
			bad[f.Subject] += f.Code + " "
		}
	}
	if len(bad) != 2 || bad["k.S.Broken"] != "idempotency-key-invalid " || bad["k.S.Streamed"] != "idempotency-key-invalid approval-impossible " {
		t.Errorf("findings = %v, want one for Broken and two for Streamed", bad)
	}
}
