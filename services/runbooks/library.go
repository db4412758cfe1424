package runbooks

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configures [Open]. The zero value works.
type Options struct {
	// Poll is how often the folder is looked at. Default: 1 s. Watching by the operating system would miss changes on network file systems
	// and in containers' mounts; a look at 1,000 files that have not changed takes milliseconds.
	Poll time.Duration
	// Settle is the pause between two looks that have to agree before a change counts, so that a file that is being written, or a checkout that
	// is under way, is not served half. Default: 100 ms.
	Settle time.Duration
	// MaxFiles is how many runbooks are served; what comes after in the order of paths is left out. Default: 2000.
	MaxFiles int
	// MaxFileBytes is how large one file may be; a larger one is left out. Default: 256 KiB.
	MaxFileBytes int64
	// MaxTotalBytes bounds all files together; what comes after in the order of paths is left out. Default: 32 MiB.
	MaxTotalBytes int64
	// Logger gets warnings of files, once for each. Default: nothing is logged.
	Logger *slog.Logger
}

// maxLooks is how many looks are made at most until two agree: a file that never rests is served as it is.
const maxLooks = 20

// Runbook is one runbook. It is not changed after it was made.
type Runbook struct {
	// Name is the file's path below the folder without .md, with "." for "/".
	Name string
	// Title is never empty.
	Title string
	// Content is Markdown, without the front matter.
	Content string
	// Services, Alerts and Tags are the front matter's.
	Services, Alerts, Tags []string
	// ETag is a hash of the file.
	ETag string
	// Updated is when the file last changed.
	Updated time.Time
}

// Library holds the runbooks of a folder. Its methods may be called concurrently.
type Library struct {
	dir     string
	options Options
	stop    context.CancelFunc
	stopped chan struct{}

	mu       sync.RWMutex
	look     look
	runbooks []*Runbook // in the order of names
	index    *index
	watchers map[*watcher]struct{}
}

// Open reads the runbooks of dir and goes on looking for changes until Close. A folder that cannot be read is an error; one that goes away
// later is not: what was read last is served until it is back.
func Open(dir string, options Options) (*Library, error) {
	options.Poll = cmp.Or(options.Poll, time.Second)
	options.Settle = cmp.Or(options.Settle, 100*time.Millisecond)
	options.MaxFiles = cmp.Or(options.MaxFiles, 2000)
	options.MaxFileBytes = cmp.Or(options.MaxFileBytes, 256<<10)
	options.MaxTotalBytes = cmp.Or(options.MaxTotalBytes, 32<<20)
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	found, err := lookAt(dir, options, look{})
	if err != nil {
		return nil, err
	}
	x, err := newIndex()
	if err != nil {
		return nil, err
	}
	l := &Library{dir: dir, options: options, stopped: make(chan struct{}), index: x, watchers: make(map[*watcher]struct{})}
	if err := l.publish(found); err != nil {
		_ = x.close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() {
		defer close(l.stopped)
		l.follow(ctx)
	}()
	return l, nil
}

// Close stops looking for changes and releases the index. No other method may be called after it.
func (l *Library) Close() error {
	l.stop()
	<-l.stopped
	return l.index.close()
}

// Warnings says which files are left out, or have lost their front matter, and why; in the order of paths.
func (l *Library) Warnings() []Warning {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.look.warnings
}

// Revision is the commit that is checked out; empty if the folder is in no git checkout.
func (l *Library) Revision() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.look.revision
}

// get returns a runbook; nil if there is none of this name.
func (l *Library) get(name string) (found *Runbook, revision string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.named(name), l.look.revision
}

// named is get for who holds the lock.
func (l *Library) named(name string) *Runbook {
	i, ok := slices.BinarySearchFunc(l.runbooks, name, func(r *Runbook, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return l.runbooks[i]
}

// list returns at most limit runbooks whose names come after a name, and whether there are more.
func (l *Library) list(after string, limit int) (found []*Runbook, more bool, revision string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	from, exact := slices.BinarySearchFunc(l.runbooks, after, func(r *Runbook, name string) int { return strings.Compare(r.Name, name) })
	if exact {
		from++
	}
	to := min(from+limit, len(l.runbooks))
	return l.runbooks[from:to], to < len(l.runbooks), l.look.revision
}

// search returns the runbooks that fit, the best first.
func (l *Library) search(ctx context.Context, words, service string, limit int) (found []match, revision string, err error) {
	// Under the lock what the index found is what the runbooks say.
	l.mu.RLock()
	defer l.mu.RUnlock()
	found, err = l.index.search(ctx, words, service, limit, l.named)
	return found, l.look.revision, err
}

// follow looks at the folder until ctx ends.
func (l *Library) follow(ctx context.Context) {
	ticker := time.NewTicker(l.options.Poll)
	defer ticker.Stop()
	missing := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		found, err := l.settled(ctx)
		if err == nil {
			err = l.publish(found)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !missing:
			l.options.Logger.Error("runbooks not read again; what was read last is served", "error", err)
		case err == nil && missing:
			l.options.Logger.Info("runbooks are read again", "dir", l.dir)
		}
		missing = err != nil
	}
}

// settled looks at the folder until it rests. Only follow writes l.look, so it may be read here without the lock.
func (l *Library) settled(ctx context.Context) (look, error) {
	last := l.look
	for range maxLooks {
		found, err := lookAt(l.dir, l.options, last)
		if err != nil || found.same(last) {
			return found, err
		}
		last = found
		select {
		case <-time.After(l.options.Settle):
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
	return last, nil
}

// publish makes what was found what is served, and tells the watchers.
func (l *Library) publish(found look) error {
	for _, w := range found.warnings {
		if !slices.Contains(l.look.warnings, w) {
			l.options.Logger.Warn(w.Text, "file", w.Path, "line", w.Line)
		}
	}
	runbooks := found.runbooks()
	changes := differences(l.runbooks, runbooks)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.index.update(changes); err != nil {
		return fmt.Errorf("bring the index up to date: %w", err)
	}
	l.look, l.runbooks = found, runbooks
	for w := range l.watchers {
		w.tell(changes)
	}
	return nil
}

// change is a runbook that has come, changed or gone.
type change struct {
	name string
	now  *Runbook // nil if it is gone
}

// differences compares two lists in the order of names.
func differences(before, after []*Runbook) []change {
	var changes []change
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Name < after[0].Name:
			changes = append(changes, change{name: before[0].Name})
			before = before[1:]
		case len(before) == 0 || after[0].Name < before[0].Name:
			changes = append(changes, change{after[0].Name, after[0]})
			after = after[1:]
		default:
			if before[0].ETag != after[0].ETag {
				changes = append(changes, change{after[0].Name, after[0]})
			}
			before, after = before[1:], after[1:]
		}
	}
	return changes
}
