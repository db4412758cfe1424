package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// pasted is a command to paste, over several lines if they end with a backslash.
var pasted = regexp.MustCompile(`(?:bin/toolway|curl) (?:[^\n]*\\\n)*[^\n]*`)

// TestQuickStart does what `make run` does once everything is built, and pastes the commands that the README and the script show, as they stand there: in a
// network namespace of its own, so that the ports are free. Where this machine allows none, they must be.
func TestQuickStart(t *testing.T) {
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	checkout := filepath.Dir(module)
	readme, err := os.ReadFile(filepath.Join(checkout, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(readme), "With `make run` going")
	if !ok {
		t.Fatal("README.md does not say what to do with `make run` going; mend the page, or the test")
	}
	_, text, _ = strings.Cut(text, "```sh\n")
	text, _, _ = strings.Cut(text, "```")

	dir := t.TempDir()
	sh := startShell(t, namespace(), dir)
	sh.run(t, fmt.Sprintf("cp -r %[1]s/deploy . && mkdir -p bin services/runbooks && cp -r %[1]s/services/runbooks/samples services/runbooks", checkout))
	for name, build := range map[string]func() (string, error){
		"toolway":  run.Plain,
		"logs":     func() (string, error) { return run.Service("logs") },
		"runbooks": func() (string, error) { return run.Service("runbooks") },
	} {
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	up := sh.run(t, `deploy/local/run.sh >up.txt 2>&1 & script=$!
until grep -q 'Ctrl-C stops everything' up.txt; do kill -0 $script 2>/dev/null || { cat up.txt >&2; exit 1; }; sleep 0.1; done; cat up.txt`)

	var live, once []string
	for _, command := range append(pasted.FindAllString(text, -1), pasted.FindAllString(up, -1)...) {
		if strings.Contains(command, "curl -N") {
			live = append(live, command)
		} else {
			once = append(once, command)
		}
	}
	if len(live) != 2 || len(once) != 8 {
		t.Errorf("the README and the script show %d live streams and %d other commands, want 2 and 8: %q, %q", len(live), len(once), live, once)
	}
	for i, command := range live {
		sh.run(t, fmt.Sprintf("%s >live%d.txt 2>/dev/null &", command, i))
	}
	for _, command := range once {
		want := `"entries":[{"time":"` // a search finds what the mesh logged at its start
		if strings.Contains(command, "runbooks") {
			want = `"name":"runbooks/disk-full"`
		}
		if got := sh.run(t, command); !strings.Contains(got, want) {
			t.Errorf("%s\nprints %q, want something with %q", command, got, want)
		}
	}
	for i, command := range live { // what came meanwhile: the calls
		file := filepath.Join(dir, fmt.Sprintf("live%d.txt", i))
		run.Eventually(t, command+" prints an event", func() bool {
			b, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(b), `data: {"entry":`)
		})
	}
	const servers = `awk -v group=$$ '$5 == group && $2 ~ /toolway|logs|runbooks/ { print $2 }' /proc/[0-9]*/stat 2>/dev/null || true` // stat may be gone again
	if got := sh.run(t, servers); strings.Count(got, "\n") != 3 {
		t.Errorf("the script runs %q, want three servers", got)
	}
	if got := sh.run(t, "kill -TERM $script; wait $script; "+servers); got != "" {
		t.Errorf("the script, asked to stop, leaves %q", got)
	}
}

// namespace is the command that gives a program a network of its own with nothing but loopback, or none.
func namespace() []string {
	for _, flags := range []string{"-n", "-Urn"} {
		inside := []string{"unshare", flags, "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}
		if exec.CommandContext(context.Background(), inside[0], append(slices.Clone(inside[1:]), "true")...).Run() == nil {
			return inside
		}
	}
	return nil
}
