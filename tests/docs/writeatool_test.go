package docs_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolway/toolway/tests/docs"
	"github.com/toolway/toolway/tests/internal/run"
)

// patience is for one step; the first builds buf, which is large.
const patience = 10 * time.Minute

// TestWriteATool follows docs/write-a-tool.md literally: each file is written and each command run in one shell, and what the page says that they print is what
// they print. Only the addresses are others, since those of the page may be taken here.
func TestWriteATool(t *testing.T) {
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	checkout := filepath.Dir(module)
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "write-a-tool.md"))
	if err != nil {
		t.Fatal(err)
	}
	stock, grpc, web, admin := freeAddr(t), freeAddr(t), freeAddr(t), freeAddr(t)
	text := string(page)
	for from, to := range map[string]string{"127.0.0.1:50051": stock, "127.0.0.1:7070": grpc, "127.0.0.1:8080": web} {
		if !strings.Contains(text, from) {
			t.Fatalf("the page does not name %s; mend the page, or the test", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	steps, err := docs.Steps(text)
	if err != nil {
		t.Fatal(err)
	}
	sh := startShell(t, nil, t.TempDir(), "TOOLWAY="+checkout)
	sh.run(t, fmt.Sprintf(`toolway() { if [ "$1" = serve ]; then exec "$(type -P toolway)" "$@" --grpc-addr %s --http-addr %s --admin-addr %s; else command toolway "$@"; fi; }`, grpc, web, admin))
	for _, step := range steps {
		if step.File != "" {
			dir := strings.TrimSpace(sh.run(t, "pwd"))
			path := filepath.Join(dir, step.File)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(step.Text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got := sh.run(t, step.Text)
		if step.Shown && !docs.Agrees(got, step.Prints) {
			t.Errorf("docs/write-a-tool.md, line %d: the commands\n%s\nprint\n%s\nbut the page says\n%s", step.Line, step.Text, got, step.Prints)
		}
		// What a reader takes for the next command is enough for a server to start; here it is waited for.
		switch {
		case strings.Contains(step.Text, "toolway serve"):
			run.Eventually(t, "the mesh is ready", func() bool { return ready("http://" + admin + "/readyz") })
		case strings.Contains(step.Text, "\nstock &\n"):
			run.Eventually(t, "the tool listens", func() bool { return listens(stock) })
		}
	}
	for _, addr := range []string{stock, grpc, web} {
		run.Eventually(t, "nothing listens on "+addr+" after the last step", func() bool { return !listens(addr) })
	}
}

// shell is a bash that is given commands one after the other.
type shell struct {
	in     io.WriteCloser
	out    *bufio.Reader
	errors lockedBuffer
	turn   int
}

// startShell starts one in a folder, by a program that is given its command line, if there is one.
func startShell(t *testing.T, program []string, dir string, env ...string) *shell {
	t.Helper()
	command := append(slices.Clip(program), "bash", "-eo", "pipefail")
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	// Not the variables of the run that this test is part of.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "GOFLAGS" && name != "GOBIN" && name != "TOOLWAY" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GOFLAGS=-buildvcs=false", "PWD="+dir)
	cmd.Env = append(cmd.Env, env...)
	// One group, so that what the page starts ends with the test, whatever happens.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	s := &shell{}
	cmd.Stderr = &s.errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return s
}

// run runs commands and returns what they print.
func (s *shell) run(t *testing.T, commands string) string {
	t.Helper()
	s.turn++
	mark := fmt.Sprintf("--- end of step %d ---", s.turn)
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '%%s\\n' %q\n", commands, mark); err != nil {
		t.Fatalf("%v\n%s", err, s.errors.String())
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		var b strings.Builder
		for {
			line, err := s.out.ReadString('\n')
			if strings.HasSuffix(line, mark+"\n") {
				answered <- answer{b.String() + strings.TrimSuffix(line, mark+"\n"), nil}
				return
			}
			b.WriteString(line)
			if err != nil {
				answered <- answer{b.String(), err}
				return
			}
		}
	}()
	select {
	case a := <-answered:
		if a.err != nil {
			t.Fatalf("a command of\n%s\nfailed; it printed\n%s\n%s", commands, a.text, s.errors.String())
		}
		return a.text
	case <-time.After(patience):
		t.Fatalf("the commands\n%s\ndo not end\n%s", commands, s.errors.String())
	}
	return ""
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func ready(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestAgrees(t *testing.T) {
	for _, test := range []struct {
		output, shown string
		want          bool
	}{
		{"a\n\nb 1 c\n", "a\nb … c\n", true},
		{"a\nb\n", "a\n", false},
		{"a\nb\n", "a…b\n", false},
		{"a.c\n", "abc\n", false},
		{"", "a\n", false},
	} {
		if got := docs.Agrees(test.output, test.shown); got != test.want {
			t.Errorf("Agrees(%q, %q) = %v, want %v", test.output, test.shown, got, test.want)
		}
	}
}

func TestSteps(t *testing.T) {
	steps, err := docs.Steps("# A page\n\n`a/b.go`:\n\n```go\npackage b\n```\n\nText with `c`:\n\n```sh\ncat a/b.go\n```\n\n```text\npackage b\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []docs.Step{{Line: 5, File: "a/b.go", Text: "package b\n"}, {Line: 11, Text: "cat a/b.go\n", Prints: "package b\n", Shown: true}}
	if len(steps) != 2 || steps[0] != want[0] || steps[1] != want[1] {
		t.Errorf("Steps = %+v, want %+v", steps, want)
	}
	for page, want := range map[string]string{
		"no block":                       "no steps",
		"```sh\nls":                      "no end",
		"```go\npackage a\n```":          "neither a file",
		"```text\nprinted\n```":          "neither a file",
		"`../a`:\n\n```go\npackage\n```": "not in the folder",
	} {
		if _, err := docs.Steps(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Steps(%q) = %v, want an error with %q", page, err, want)
		}
	}
}
