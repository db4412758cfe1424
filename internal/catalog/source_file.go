package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// pollEvery is how often a file is looked at. Polling sees what notifications miss: network file systems, swapped symbolic links.
const pollEvery = time.Second

// File returns a source that reads a FileDescriptorSet or buf image from path: binary, JSON or text, each also gzipped, told apart by
// content. The file is read again when it changes; while it cannot be read, as when it is half written, the last contract stays. A binary set
// that breaks off at the very first read gives the whole files before the break, with a finding.
func File(path string) Source { return &fileSource{path: path} }

type fileSource struct {
	path string
	last report
	seen os.FileInfo
	read time.Time
}

func (s *fileSource) start() (report, error) {
	s.seen, s.read = s.stat(), time.Now()
	d, err := readFile(s.path)
	if err != nil {
		return report{}, err
	}
	s.last = report{files: d.raws, settled: true, joins: true, rev: 1}
	if d.cut != "" {
		s.last.findings = []Finding{cutFinding(s.path, d.cut, "only what comes before is served")}
	}
	return s.last, nil
}

func cutFinding(path, cut, consequence string) Finding {
	return Finding{Code: "set-truncated", Severity: SeverityError, Subject: path, Message: fmt.Sprintf("descriptors in %q are damaged: %s; %s; write the file again", path, cut, consequence)}
}

func readFile(path string) (decoded, error) {
	info, err := os.Stat(path)
	if err != nil {
		return decoded{}, fmt.Errorf("load descriptors from %q: %w; check the path", path, err)
	}
	if !info.Mode().IsRegular() {
		return decoded{}, fmt.Errorf("load descriptors from %q: it is not a regular file; give a descriptor set", path)
	}
	if info.Size() > maxSetBytes {
		return decoded{}, fmt.Errorf("load descriptors from %q: it is larger than %d MiB; split it", path, maxSetBytes>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return decoded{}, fmt.Errorf("load descriptors from %q: %w; check its permissions", path, err)
	}
	d, err := decode(data)
	if err != nil {
		return decoded{}, fmt.Errorf("load descriptors from %q: %w", path, err)
	}
	return d, nil
}

func (s *fileSource) stat() os.FileInfo {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil
	}
	return info
}

func (s *fileSource) run(ctx context.Context, emit func(report)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.changed() {
				emit(s.reread())
			}
		}
	}
}

// changed compares what the file system says. A file written just before it was read may have changed again within the clock's grain.
func (s *fileSource) changed() bool {
	const grain = 2 * time.Second
	now := s.stat()
	if now == nil || s.seen == nil {
		return now != s.seen
	}
	return !os.SameFile(now, s.seen) || now.Size() != s.seen.Size() || !now.ModTime().Equal(s.seen.ModTime()) ||
		s.read.Sub(now.ModTime()) < grain && time.Since(s.read) < 2*grain
}

// reread keeps the last contract when the file cannot be read whole.
func (s *fileSource) reread() report {
	s.seen, s.read = s.stat(), time.Now()
	d, err := readFile(s.path)
	s.last.findings = nil
	switch {
	case err != nil:
		s.last.findings = []Finding{{Code: "source-unreadable", Severity: SeverityError, Subject: s.path, Message: err.Error() + "; the contract read before stays"}}
	case d.cut != "":
		s.last.findings = []Finding{cutFinding(s.path, d.cut, "the contract read before stays")}
	case !sameRaws(d.raws, s.last.files):
		s.last.files = d.raws
		s.last.rev++
	}
	return s.last
}

func sameRaws(a, b []rawFile) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if string(a[i].data) != string(b[i].data) {
			return false
		}
	}
	return true
}

// Kept returns a source of a contract that Backend.Descriptors gave in an earlier run and that was kept at path. It is read once and stands in
// only while no other source of the backend has a contract. That it is missing or damaged is a finding at most.
func Kept(path string) Source { return keptSource(path) }

type keptSource string

func (s keptSource) start() (report, error) {
	r := report{settled: true, fallback: true}
	d, err := readFile(string(s))
	if err == nil && d.cut == "" {
		_, err = load(d.raws, loadOptions{})
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || d.cut != "":
		why := d.cut
		if err != nil {
			why = err.Error()
		}
		r.findings = []Finding{{Code: "kept-unreadable", Severity: SeverityWarning, Subject: string(s), Message: fmt.Sprintf("the contract kept in %q is not used: %s; it is written again when the backend is read", string(s), why)}}
	default:
		r.files, r.rev = d.raws, 1
	}
	return r, nil
}

func (s keptSource) run(context.Context, func(report)) {}
