package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/toolway/toolway/internal/audit"
)

var updateWhy = flag.Bool("update-why", false, "rewrite testdata/why.txtar")

// TestWhy pins what toolway why prints of the records in testdata/why.txtar: for each "NAME.json" there is "NAME.txt".
func TestWhy(t *testing.T) {
	path := filepath.Join("testdata", "why.txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		name, isRecord := strings.CutSuffix(f.Name, ".json")
		if !isRecord {
			continue
		}
		r, err := audit.ParseJSON(bytes.ReplaceAll(f.Data, []byte("\n"), nil))
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		var got bytes.Buffer
		if err := explainCall(&got, r); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(got.String(), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		text := strings.Join(lines, "\n")
		out.Files = append(out.Files, f, txtar.File{Name: name + ".txt", Data: []byte(text)})
		if diff := cmp.Diff(texts[name+".txt"], text); diff != "" && !*updateWhy {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(out.Files) == 0 {
		t.Fatal("no records")
	}
	if *updateWhy {
		if err := os.WriteFile(path, txtar.Format(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAuditFileCommands reads a file in which a crash has cut a line short.
func TestAuditFileCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	lines := `{"callId":"a","tool":"orders_get","outcome":"OUTCOME_OK","startedAt":"2026-01-01T00:00:00Z","door":"mcp","code":"OK"}
{"callId":"b","too
{"callId":"c","tool":"orders_delete","outcome":"OUTCOME_REFUSED","startedAt":"2026-01-01T00:00:01Z","door":"grpc","code":"PERMISSION_DENIED","principal":"idp#ann"}
`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want []string
		not  string
	}{
		{[]string{"audit", "list", "--file", path}, 0, []string{"c     ", "a     ", "orders_delete"}, ""},
		{[]string{"audit", "list", "--file", path, "--outcome", "refused"}, 0, []string{"orders_delete"}, "orders_get"},
		{[]string{"audit", "list", "--file", path, "--limit", "1", "--json"}, 0, []string{`{"callId":"c",`}, `"callId":"a"`},
		{[]string{"why", "a", "--file", path}, 0, []string{"ok: OK", "orders_get"}, ""},
		{[]string{"why", "c", "--file", path, "--json"}, 0, []string{`"principal":"idp#ann"`}, ""},
		{[]string{"why", "b", "--file", path}, 2, nil, ""},
		{[]string{"why", "--file", path}, 2, nil, ""},
		{[]string{"audit", "list", "--file", path, "--outcome", "odd"}, 2, nil, ""},
		{[]string{"audit", "list", "--file", path + ".none"}, 2, nil, ""},
	} {
		out, code := runWith(t, c.args...)
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: %q is not in\n%s", c.args, want, out)
			}
		}
		if c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%q: %q is in\n%s", c.args, c.not, out)
		}
	}
}

// runWith runs a command line with standard output in a file, and returns what is in it.
func runWith(t *testing.T, args ...string) (string, int) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	code := run(t.Context(), args)
	os.Stdout = stdout
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(out), code
}
