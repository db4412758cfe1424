package mesh_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/internal/mesh"
)

// logsFile writes the logs service's contract to a file.
func logsFile(t *testing.T, dir string) {
	t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	add(logsv1.File_agentops_logs_v1_logs_proto)
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "logs.binpb"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExampleOfRules judges the cases in docs/examples by the configuration beside them.
func TestExampleOfRules(t *testing.T) {
	c, err := mesh.Load("../../docs/examples/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Backends { // the contract alone, not the server
		c.Backends[i].Targets = nil
	}
	m, err := mesh.Open(t.Context(), c, mesh.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := m.CheckRules(); len(p) > 0 {
		t.Errorf("rules that do not fit: %v", p)
	}
	cases, err := mesh.LoadCases("../../docs/examples/rules-cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		v, err := m.Judge(&c)
		if err != nil || !c.Met(v) {
			t.Errorf("%s: %s: got %+v, %v, want %s by %q", c.Where(), c.Name, v, err, c.Expect, c.Rule)
		}
		seen[v.Effect+" "+v.Rule] = true
	}
	if len(seen) < 6 {
		t.Errorf("the cases show only %v", seen)
	}
	for _, c := range []struct{ text, want string }{
		{`{method: logs_serch, expect: allow}`, `there is no method "logs_serch"; did you mean "logs_search"?`},
		{`{method: logs_search, expect: allow, request: {querry: x}}`, `did you mean "query"?`},
	} {
		bad := writeCases(t, c.text)
		cases, err := mesh.LoadCases(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Judge(&cases[0]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

func writeCases(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "cases:\n  - %s\n", text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCasesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{expect: allow}`, "cases.yaml:2: method is missing"},
		{`{method: a, expect: alow}`, `expect "alow": want allow, deny, hide; did you mean "allow"?`},
		{`{method: a, expect: allow, door: htp}`, `door "htp": want grpc, mcp, http, cli; did you mean "http"?`},
		{`{method: a, expect: allow, time: noon}`, `time "noon"`},
		{`{method: a, expects: allow}`, `unknown key "expects"; did you mean "expect"?`},
		{`{method: a, expect: allow, principal: {claims: x}}`, `principal.claims: want keys and values, got "x"`},
	} {
		if _, err := mesh.LoadCases(writeCases(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	empty := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mesh.LoadCases(empty); err == nil || !strings.Contains(err.Error(), "there are no cases") {
		t.Errorf("no cases: %v", err)
	}
	cases, err := mesh.LoadCases(writeCases(t, `{method: a, expect: allow, request: {n: 1, t: 2026-01-01T00:00:00Z}}`))
	if err != nil || cases[0].Name != "a" {
		t.Errorf("defaults: %+v, %v", cases, err)
	}
}
