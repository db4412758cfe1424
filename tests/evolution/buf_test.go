package evolution_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// What make lint holds against the last release: each change that breaks somebody is refused before it is one, and what only adds is not.
func TestBufRefuses(t *testing.T) {
	t.Parallel()
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(module)
	const contract = "proto/agentops/logs/v1/logs.proto"
	text, err := os.ReadFile(filepath.Join(root, contract))
	if err != nil {
		t.Fatal(err)
	}
	const reservation = "  reserved 4;\n  reserved \"severity\";\n"
	for _, test := range []struct {
		name     string
		old, new string
		want     string // "" for none
	}{
		{"nothing", "", "", ""},
		{"a field and a value more", "  REJECTION_CODE_TOO_NEW = 4;", "  REJECTION_CODE_TOO_NEW = 4;\n  // More.\n  REJECTION_CODE_MORE = 5;", ""},
		{"the reserved number used", "  int32 redactions = 5 ", "  int32 attempts = 4;\n  int32 redactions = 5 ", "use of reserved field number `4`"},
		{"the reserved name used", "  int32 redactions = 5 ", "  int32 severity = 6;\n  int32 redactions = 5 ", "use of reserved message field name"},
		{"the reservation gone", reservation, "", `Previously present reserved range "[4]" on message "LogEntry" is missing values`},
		{"the reservation gone, the number used", reservation, "  int32 attempts = 4;\n", `Previously present reserved range "[4]" on message "LogEntry" is missing values`},
		{"a field renamed", "  string message = 2 ", "  string body = 2 ", `changed name from "message" to "body"`},
		{"a type changed", "  int64 accepted = 1;", "  int32 accepted = 1;", `changed type from "int64" to "int32"`},
		{"a field removed", "  string reason = 2;", "", `Previously present field "2" with name "reason" on message "Rejection" was deleted`},
		{"a value renamed", "  ORDER_OLDEST_FIRST = 2;", "  ORDER_OLD_TO_NEW = 2;", `changed name from "ORDER_OLDEST_FIRST" to "ORDER_OLD_TO_NEW"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.Replace(string(text), test.old, test.new, 1)
			if changed == string(text) && test.old != test.new {
				t.Fatalf("%s has no %q to change", contract, test.old)
			}
			dir := t.TempDir()
			for _, folder := range []string{"proto", "third_party"} {
				if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
					t.Fatal(err)
				}
			}
			settings, err := os.ReadFile(filepath.Join(root, "buf.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{"buf.yaml": string(settings), contract: changed} {
				if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// The first one may have to build buf, which takes as long as it takes.
			buf := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/go.mod", "buf", "breaking", filepath.Join(dir, "proto"), "--against", "proto/released.binpb")
			buf.Dir = root
			out, err := buf.CombinedOutput()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(string(out), test.want)) {
				t.Errorf("buf breaking: %v\n%s\nwant %q", err, out, test.want)
			}
		})
	}
}
