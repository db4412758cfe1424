package runbooks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// maxRefBytes bounds what is read of a file that holds one reference, maxRefDepth how often one refers to another, and maxPackedBytes what is
// read of packed references.
const (
	maxRefBytes    = 4 << 10
	maxRefDepth    = 5
	maxPackedBytes = 64 << 20
)

// objectID is a commit's id: of SHA-1 or SHA-256.
var objectID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// revision is the commit that is checked out where dir is; empty in no git checkout, and in one without commits.
//
// It reads .git/HEAD, loose and packed references and worktrees as gitrepository-layout(5) has them. A library for that would bring ssh, OpenPGP
// and a packfile reader along; of all of it one line is wanted.
func revision(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	git, err := gitDir(dir)
	if git == "" || err != nil {
		return "", err
	}
	id, err := resolve(git, "HEAD")
	if err != nil {
		return "", fmt.Errorf("read the revision of the checkout: %w", err)
	}
	return id, nil
}

// gitDir finds the git directory of the checkout that dir is in; "" if it is in none.
func gitDir(dir string) (string, error) {
	for {
		dotGit := filepath.Join(dir, ".git")
		info, err := os.Stat(dotGit)
		switch {
		case err == nil && info.IsDir():
			return dotGit, nil
		case err == nil && info.Mode().IsRegular():
			// A worktree or submodule: a file that says where.
			line, err := firstLine(dotGit)
			if err != nil {
				return "", err
			}
			at, ok := strings.CutPrefix(line, "gitdir: ")
			if !ok {
				return "", fmt.Errorf("%q does not begin with \"gitdir: \"", dotGit)
			}
			if !filepath.IsAbs(at) {
				at = filepath.Join(dir, at)
			}
			return at, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

// resolve follows a reference to a commit.
func resolve(git, ref string) (string, error) {
	common := git
	if line, err := firstLine(filepath.Join(git, "commondir")); err == nil {
		if common = line; !filepath.IsAbs(common) {
			common = filepath.Join(git, common)
		}
	}
	for range maxRefDepth {
		line, err := loose(git, common, ref)
		if errors.Is(err, fs.ErrNotExist) {
			if ref == "HEAD" {
				return "", errors.New("the git directory has no HEAD")
			}
			return packed(common, ref)
		}
		if err != nil {
			return "", err
		}
		next, symbolic := strings.CutPrefix(line, "ref: ")
		if !symbolic {
			if !objectID.MatchString(line) {
				return "", fmt.Errorf("%s is no commit's id", ref)
			}
			return line, nil
		}
		next = strings.TrimSpace(next)
		if next == "refs/heads/.invalid" {
			return "", errors.New("references are kept as a reftable, which is not read here; make the checkout with --ref-format=files")
		}
		if !strings.HasPrefix(next, "refs/") || !filepath.IsLocal(next) {
			return "", fmt.Errorf("%s refers to %q, which is no reference", ref, next)
		}
		ref = next
	}
	return "", fmt.Errorf("%s is over %d references deep", ref, maxRefDepth)
}

// loose reads a reference of its own file: the worktree's first, as HEAD is, then all worktrees'.
func loose(git, common, ref string) (string, error) {
	line, err := firstLine(filepath.Join(git, filepath.FromSlash(ref)))
	if err != nil && common != git {
		line, err = firstLine(filepath.Join(common, filepath.FromSlash(ref)))
	}
	// A branch "a" may be packed while the folder of branches "a/…" is there.
	var at *fs.PathError
	if errors.As(err, &at) {
		if info, statErr := os.Stat(at.Path); statErr == nil && info.IsDir() {
			return "", fs.ErrNotExist
		}
	}
	return line, err
}

// packed looks a reference up among the packed ones; a branch without commits is nowhere.
func packed(common, ref string) (string, error) {
	f, err := os.Open(filepath.Join(common, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(io.LimitReader(f, maxPackedBytes))
	for lines.Scan() {
		// "# …" are headers and "^…" what a tag points to.
		if id, name, ok := strings.Cut(lines.Text(), " "); ok && name == ref && objectID.MatchString(id) {
			return id, nil
		}
	}
	return "", lines.Err()
}

// firstLine reads a small file of one line.
func firstLine(path string) (string, error) {
	// What is no file may block whoever opens it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxRefBytes))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r "), nil
}
