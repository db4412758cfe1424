package runbooks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	extension = ".md"
	// maxEntries bounds how much of a folder is looked at: whoever names a home directory learns of it at once.
	maxEntries = 100_000
	// racy is how close to the time of reading a file may have changed for its time not to tell a later change: clocks of file systems are
	// coarse.
	racy = 2 * time.Second
	// maxNameBytes bounds a runbook's name.
	maxNameBytes = 200
)

// Warning says what is wrong with one file, and what would be right.
type Warning struct {
	// Path is the file's, below the folder.
	Path string
	// Line counts from 1; 0 if none is at fault.
	Line int
	// Text says what is wrong.
	Text string
}

// look is what was seen of a folder at one time.
type look struct {
	files    map[string]*file // by path
	revision string
	warnings []Warning
}

// file is a file as it was read.
type file struct {
	size     int64
	modified time.Time
	read     time.Time
	runbook  *Runbook // nil if it is left out
	warnings []Warning
}

// same says whether nothing that is served or warned of differs.
func (l look) same(other look) bool {
	return l.revision == other.revision && slices.Equal(l.warnings, other.warnings) &&
		maps.EqualFunc(l.files, other.files, func(a, b *file) bool {
			return a.runbook == b.runbook || a.runbook != nil && b.runbook != nil && a.runbook.ETag == b.runbook.ETag
		})
}

// runbooks returns what is served, in the order of names.
func (l look) runbooks() []*Runbook {
	var out []*Runbook
	for _, f := range l.files {
		if f.runbook != nil {
			out = append(out, f.runbook)
		}
	}
	slices.SortFunc(out, func(a, b *Runbook) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// lookAt reads the folder. Files that are as they were in before are not read again.
//
// The folder is opened anew each time, so that a symbolic link to it may be turned to another one. Nothing outside it is read: links inside are
// followed to files inside only, and to no folder.
func lookAt(dir string, options Options, before look) (look, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return look{}, fmt.Errorf("open the folder of runbooks %q: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	paths, warnings, err := markdown(root)
	if err != nil {
		return look{}, fmt.Errorf("read the folder of runbooks %q: %w", dir, err)
	}
	found := look{files: make(map[string]*file, len(paths)), warnings: warnings}
	if found.revision, err = revision(dir); err != nil {
		found.warnings = append(found.warnings, Warning{Path: ".", Text: err.Error()})
	}
	names := make(map[string]string, len(paths))
	total := int64(0)
	for _, p := range paths {
		name, err := nameOf(p)
		if err == nil && names[name] != "" {
			err = fmt.Errorf("left out: has the name of %q; rename one", names[name])
		}
		if err == nil && len(names) == options.MaxFiles {
			found.warnings = append(found.warnings, Warning{Path: p, Text: fmt.Sprintf("left out with all after it: there are over %d runbooks", options.MaxFiles)})
			break
		}
		if err != nil {
			found.warnings = append(found.warnings, Warning{Path: p, Text: err.Error()})
			continue
		}
		f, err := readFile(root, p, name, options.MaxFileBytes, before.files[p])
		if errors.Is(err, fs.ErrNotExist) && !linked(root, p) {
			continue // it went while the folder was read
		}
		if err != nil {
			found.warnings = append(found.warnings, Warning{Path: p, Text: "left out: " + err.Error()})
			continue
		}
		if total += f.size; total > options.MaxTotalBytes {
			found.warnings = append(found.warnings, Warning{Path: p, Text: fmt.Sprintf("left out with all after it: the runbooks have over %d bytes together", options.MaxTotalBytes)})
			break
		}
		names[name] = p
		found.files[p] = f
		found.warnings = append(found.warnings, f.warnings...)
	}
	slices.SortStableFunc(found.warnings, func(a, b Warning) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

// markdown lists the files that may be runbooks, in the order of paths. What begins with a dot is none of them.
func markdown(root *os.Root) (paths []string, warnings []Warning, err error) {
	entries := 0
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if entries++; entries > maxEntries {
			return fmt.Errorf("over %d files and folders; name the folder that has only the runbooks", maxEntries)
		}
		switch hidden := p != "." && strings.HasPrefix(path.Base(p), "."); {
		case p == "." && err != nil:
			return err
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			warnings = append(warnings, Warning{Path: p, Text: "left out: " + reason(err)})
			return nil
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden || d.IsDir():
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if info, err := root.Stat(p); err == nil && info.IsDir() {
				warnings = append(warnings, Warning{Path: p, Text: "left out: links to folders are not followed; put the files themselves there, or links to them"})
				return nil
			}
		}
		if strings.HasSuffix(p, extension) {
			paths = append(paths, p)
		}
		return nil
	})
	slices.Sort(paths)
	return paths, warnings, err
}

// nameOf makes a runbook's name of its path.
func nameOf(p string) (string, error) {
	if !utf8.ValidString(p) {
		return "", errors.New("left out: its path is not UTF-8; rename it")
	}
	name := strings.ReplaceAll(strings.TrimSuffix(p, extension), "/", ".")
	if len(name) > maxNameBytes {
		return "", fmt.Errorf("left out: its path has over %d bytes; shorten it", maxNameBytes)
	}
	if bad := misnamed(name); bad >= 0 {
		return "", fmt.Errorf("left out: %q cannot be in a name; use letters, digits, spaces and - _ . and begin with a letter or digit", bad)
	}
	return name, nil
}

// misnamed is the first character that a runbook's name cannot have there; -1 if it is good.
func misnamed(name string) rune {
	for i, r := range name {
		if !unicode.In(r, unicode.L, unicode.M, unicode.Nd) && (i == 0 || !strings.ContainsRune(" -_.", r)) {
			return r
		}
	}
	return -1
}

// linked says whether a path is a symbolic link.
func linked(root *os.Root, p string) bool {
	info, err := root.Lstat(p)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// readFile reads one runbook; before is how it was the last time, or nil.
func readFile(root *os.Root, p, name string, limit int64, before *file) (*file, error) {
	info, err := root.Stat(p)
	if err != nil {
		return nil, because(err)
	}
	if before != nil && before.size == info.Size() && before.modified.Equal(info.ModTime()) && before.read.Sub(before.modified) > racy {
		return before, nil
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("it has %d bytes; at most %d are served; split it", info.Size(), limit)
	}
	// What is no file may block whoever opens it, and may have come between the two calls.
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, because(err)
	}
	defer func() { _ = f.Close() }()
	read := time.Now()
	if info, err = f.Stat(); err != nil {
		return nil, because(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, because(err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("it has over %d bytes, the most that is served; split it", limit)
	}
	sum := sha256.Sum256(text)
	etag := hex.EncodeToString(sum[:16])
	out := &file{size: info.Size(), modified: info.ModTime(), read: read}
	d := parse(name, text)
	for _, m := range d.mistakes {
		out.warnings = append(out.warnings, Warning{Path: p, Line: m.line, Text: m.text})
	}
	out.runbook = &Runbook{
		Name: name, Title: d.title, Content: d.content, Services: d.front.Services, Alerts: d.front.Alerts, Tags: d.front.Tags,
		ETag: etag, Updated: info.ModTime(),
	}
	return out, nil
}

// because keeps an error's kind and leaves out where it happened, which the warning says.
func because(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it links to what does not exist: %w", fs.ErrNotExist)
	}
	return errors.New(reason(err))
}

// reason is an error of the file system without the path.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if strings.Contains(err.Error(), "escapes") {
		return "it is a link that leaves the folder"
	}
	return err.Error()
}
