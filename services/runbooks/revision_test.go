package runbooks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/services/runbooks"
)

// git runs the real git, which needs nothing of the user's settings.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// What git itself says is checked out is what is served, however the checkout keeps it.
func TestRevision(t *testing.T) {
	dir := folder(t, "docs/runbooks/a.md", "a")
	below := filepath.Join(dir, "docs", "runbooks")
	served := func(dir string) string { return open(t, dir, runbooks.Options{}).Revision() }
	if got := served(below); got != "" {
		t.Errorf("no checkout: %q, want none", got)
	}
	git(t, dir, "init", "-q")
	if got := served(below); got != "" {
		t.Errorf("no commits: %q, want none", got)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	one := git(t, dir, "rev-parse", "HEAD")
	if got := served(below); got != one {
		t.Errorf("loose reference: %q, want %q", got, one)
	}
	git(t, dir, "pack-refs", "--all")
	if got := served(below); got != one {
		t.Errorf("packed reference: %q, want %q", got, one)
	}
	git(t, dir, "tag", "-a", "-m", "t", "main") // a tag of the branch's name, packed with what it points to
	git(t, dir, "pack-refs", "--all")
	if got := served(below); got != one {
		t.Errorf("packed beside a tag: %q, want %q", got, one)
	}
	git(t, dir, "checkout", "-q", "-b", "feature/x")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "two")
	two := git(t, dir, "rev-parse", "HEAD")
	if got := served(below); got != two {
		t.Errorf("branch with a slash: %q, want %q", got, two)
	}
	git(t, dir, "checkout", "-q", "--detach", one)
	if got := served(below); got != one {
		t.Errorf("detached: %q, want %q", got, one)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git(t, dir, "worktree", "add", "-q", tree, "feature/x")
	if got := served(filepath.Join(tree, "docs", "runbooks")); got != two {
		t.Errorf("worktree: %q, want %q", got, two)
	}

	client, _ := start(t, below, runbooks.Options{})
	etag := get(t, client, "a").Etag
	git(t, dir, "checkout", "-q", "--detach", two)
	eventually(t, "the new revision is served", func() bool { return get(t, client, "a").Revision == two })
	if got := get(t, client, "a").Etag; got != etag {
		t.Errorf("etag = %q, want %q as long as the file is the same", got, etag)
	}
}

func TestRevisionBroken(t *testing.T) {
	for name, files := range map[string][]string{
		"head refers out":     {".git/HEAD", "ref: ../../etc/passwd\n"},
		"head is something":   {".git/HEAD", "something\n"},
		"round and round":     {".git/HEAD", "ref: refs/heads/a\n", ".git/refs/heads/a", "ref: refs/heads/a\n"},
		"reftable":            {".git/HEAD", "ref: refs/heads/.invalid\n"},
		"gitdir is something": {".git", "something\n"},
		"gitdir is nowhere":   {".git", "gitdir: nowhere\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, append(files, "a.md", "a")...)
			l := open(t, dir, runbooks.Options{})
			if got := l.Revision(); got != "" || len(l.Warnings()) != 1 || l.Warnings()[0].Path != "." {
				t.Errorf("revision = %q, warnings %v; want none, and one that says why", got, l.Warnings())
			}
		})
	}
}
