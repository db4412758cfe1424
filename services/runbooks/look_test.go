package runbooks_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolway/toolway/services/runbooks"
)

func TestLookNames(t *testing.T) {
	dir := folder(t,
		"b.md", "", "a/x.md", "", "a/y/z-1_2.md", "", "Größe 2.md", "", "v1.2.md", "",
		".hidden.md", "", ".hidden/x.md", "", "text.txt", "", "a/.md", "",
		"bad:one.md", "", "-.md", "", "a.x.md", "", strings.Repeat("l", 210)+".md", "",
	)
	client, _ := start(t, dir, runbooks.Options{})
	if got, want := names(t, client), []string{"Größe 2", "a.x", "a.y.z-1_2", "b", "v1.2"}; !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
	warnings := open(t, dir, runbooks.Options{}).Warnings()
	for path, text := range map[string]string{
		"bad:one.md": `':' cannot be in a name`, "-.md": "begin with a letter", "a/x.md": `has the name of "a.x.md"`, strings.Repeat("l", 210) + ".md": "over 200 bytes",
	} {
		if !warned(warnings, path, 0, text) {
			t.Errorf("warnings = %v, want one of %q with %q", warnings, path, text)
		}
	}
	if len(warnings) != 4 {
		t.Errorf("%d warnings, want 4: %v", len(warnings), warnings)
	}
}

// Links are followed inside the folder, as a mounted ConfigMap needs it, and never out of it.
func TestLookLinks(t *testing.T) {
	outside := folder(t, "secret.md", "secret", "sub/secret.md", "secret")
	dir := folder(t, "..2026/real.md", "real", "sub/y.md", "y")
	for link, target := range map[string]string{
		"..data": "..2026", "real.md": "..data/real.md", "absolute.md": filepath.Join(outside, "secret.md"), "up.md": "../" + filepath.Base(outside) + "/secret.md",
		"folder": filepath.Join(outside, "sub"), "inner": "sub", "dangling.md": "nowhere.md", "loop.md": "loop.md",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	client, _ := start(t, dir, runbooks.Options{})
	if got, want := names(t, client), []string{"real", "sub.y"}; !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
	if got := get(t, client, "real").Content; got != "real" {
		t.Errorf("content = %q, want the linked file's", got)
	}
	warnings := open(t, dir, runbooks.Options{}).Warnings()
	for path, text := range map[string]string{
		"absolute.md": "leaves the folder", "up.md": "leaves the folder", "inner": "links to folders", "dangling.md": "does not exist", "loop.md": "left out",
	} {
		if !warned(warnings, path, 0, text) {
			t.Errorf("warnings = %v, want one of %q with %q", warnings, path, text)
		}
	}
}

// What is no file is not opened, since it could block.
func TestLookNoFile(t *testing.T) {
	dir := folder(t, "a.md", "a", "d.md/b.md", "b")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	client, _ := start(t, dir, runbooks.Options{})
	if got, want := names(t, client), []string{"a", "d.md.b"}; !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
}

func TestLookBounds(t *testing.T) {
	dir := folder(t, "a.md", "1234", "b.md", "12345", "c.md", "1234", "d.md", "1234")
	tests := []struct {
		name    string
		options runbooks.Options
		want    []string
		path    string
		text    string
	}{
		{"file", runbooks.Options{MaxFileBytes: 4}, []string{"a", "c", "d"}, "b.md", "5 bytes; at most 4"},
		{"files", runbooks.Options{MaxFiles: 2}, []string{"a", "b"}, "c.md", "over 2 runbooks"},
		{"together", runbooks.Options{MaxTotalBytes: 13}, []string{"a", "b", "c"}, "d.md", "over 13 bytes together"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client, _ := start(t, dir, test.options)
			if got := names(t, client); !slices.Equal(got, test.want) {
				t.Errorf("names = %q, want %q", got, test.want)
			}
			if warnings := open(t, dir, test.options).Warnings(); len(warnings) != 1 || !warned(warnings, test.path, 0, test.text) {
				t.Errorf("warnings = %v, want one of %q with %q", warnings, test.path, test.text)
			}
		})
	}
}

func TestLookChanges(t *testing.T) {
	dir := folder(t, "a.md", "one", "b.md", "b")
	client, _ := start(t, dir, runbooks.Options{})
	before := get(t, client, "a")
	if before.Content != "one" || len(before.Etag) != 32 || time.Since(before.UpdateTime.AsTime()) > time.Hour {
		t.Fatalf("runbook = %v", before)
	}
	write(t, dir, "a.md", "two") // as long as before, and perhaps within one tick of the clock
	eventually(t, "a change is served", func() bool { return get(t, client, "a").Content == "two" })
	if now := get(t, client, "a"); now.Etag == before.Etag {
		t.Errorf("etag is %q still", now.Etag)
	}
	write(t, dir, "a.md", "one")
	eventually(t, "the first etag is back", func() bool { return get(t, client, "a").Etag == before.Etag })
	write(t, dir, "new/c.md", "c")
	eventually(t, "a new one is listed", func() bool { return slices.Equal(names(t, client), []string{"a", "b", "new.c"}) })
	if err := os.Remove(filepath.Join(dir, "b.md")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one is gone", func() bool { return slices.Equal(names(t, client), []string{"a", "new.c"}) })
}

// A folder that goes away, or a link to it that is turned, loses nothing meanwhile.
func TestLookFolderReplaced(t *testing.T) {
	one, two := folder(t, "a.md", "one"), folder(t, "a.md", "two")
	link := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	told := make(heard, 10)
	client, _ := start(t, link, runbooks.Options{Logger: slog.New(slog.NewTextHandler(told, nil))})
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-told:
		if !strings.Contains(line, "what was read last is served") {
			t.Errorf("log = %q", line)
		}
	case <-within(t).Done():
		t.Error("nobody is told that the folder is gone")
	}
	if got := get(t, client, "a").Content; got != "one" {
		t.Errorf("content = %q, want what was read last", got)
	}
	if err := os.Symlink(two, link); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other folder is served", func() bool { return get(t, client, "a").Content == "two" })
}

// heard has the lines of a log; what does not fit is lost.
type heard chan string

func (h heard) Write(line []byte) (int, error) {
	select {
	case h <- string(line):
	default:
	}
	return len(line), nil
}

func TestOpenRefuses(t *testing.T) {
	dir := folder(t, "a.md", "")
	for _, bad := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "a.md"), ""} {
		if l, err := runbooks.Open(bad, runbooks.Options{}); err == nil {
			_ = l.Close()
			t.Errorf("Open(%q) = nil error, want one", bad)
		}
	}
}
