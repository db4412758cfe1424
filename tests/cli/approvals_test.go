package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// TestApprovals holds calls of a running mesh, and decides about them by command.
func TestApprovals(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "toolway.yaml")
	config := fmt.Sprintf("backends: [{name: probe, targets: [%q]}]\npolicy: [{match: probe.v1.Probe/Ask, approval: approver}]\n", startProbe(t))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m := run.Start(t, "--config", file)
	call := func(text string) (code int, stdout, id string) {
		code, stdout, stderr := toolway(t, "", "tools", "call", "-b", m.GRPC, "probe_ask", fmt.Sprintf(`{"text":%q}`, text))
		if _, rest, ok := strings.Cut(stderr, `"approval_id":"`); ok {
			id, _, _ = strings.Cut(rest, `"`)
		}
		return code, stdout, id
	}
	code, _, first := call("one")
	_, _, second := call("two")
	if code != 1 || first == "" || second == "" || first == second {
		t.Fatalf("held with exit code %d: approvals %q and %q", code, first, second)
	}
	command := func(code int, want string, args ...string) string {
		t.Helper()
		got, stdout, stderr := toolway(t, "", append([]string{"approvals"}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("approvals %s: exit code %d, %s%s; want %d and %q", args, got, stdout, stderr, code, want)
		}
		return stdout
	}
	if out := command(0, first, "list", "--mesh", m.GRPC); !strings.Contains(out, second) || !strings.Contains(out, "probe.v1.Probe/Ask") || !strings.Contains(out, "pending") {
		t.Errorf("list: %s", out)
	}
	for line := range strings.Lines(command(0, first, "list", "--mesh", m.GRPC, "--json", "--state", "all")) {
		var a struct{ ID, State, Arguments string }
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.State != "STATE_PENDING" || !strings.Contains(a.Arguments, "text") {
			t.Errorf("list --json: %s, %v", line, err)
		}
	}
	command(0, "approved "+first, "approve", "--mesh", m.GRPC, first)
	command(0, "refused "+second, "refuse", "--mesh", m.GRPC, second, "--comment", "no")
	command(1, "APPROVAL_DECIDED", "refuse", "--mesh", m.GRPC, first)
	command(1, "APPROVAL_NOT_FOUND", "approve", "--mesh", m.GRPC, "nothing")
	command(2, "want one of all, pending", "list", "--mesh", m.GRPC, "--state", "old")
	if code, stdout, _ := call("one"); code != 0 || !strings.Contains(stdout, "one") {
		t.Errorf("approved: exit code %d, %s", code, stdout)
	}
	if code, _, _ := call("two"); code != 1 {
		t.Errorf("refused: exit code %d", code)
	}
	command(0, first, "list", "--mesh", m.GRPC, "--state", "used")
}
