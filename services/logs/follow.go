package logs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"time"
)

// followPoll is how often a followed file is looked at. Polling works on every file system; notification does not.
const followPoll = 200 * time.Millisecond

// Follow appends the lines of the file at path as they are written, from its start, until ctx ends; then it returns nil. The
// file may appear later, be renamed and made anew (rotation: the old one is read to its end first), or be cut to nothing.
//
// state, if not empty, is a file that holds how far path was read, so that a restart goes on there. It is written after the
// lines were appended: a crash between the two appends some lines again.
func (f *Feeder) Follow(ctx context.Context, path, state string) error {
	ticker := time.NewTicker(followPoll)
	defer ticker.Stop()
	file := &followed{feeder: f, path: path, state: state}
	defer file.close()
	for {
		if err := file.advance(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("follow %q: %w", path, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// followed is the file that is being read.
type followed struct {
	feeder      *Feeder
	path, state string

	file   *os.File
	offset int64 // behind the last whole line that was appended
}

// advance appends what was written since the last time.
func (f *followed) advance(ctx context.Context) error {
	if f.file == nil {
		if opened, err := f.open(); err != nil || !opened {
			return err
		}
	}
	if err := f.read(ctx, false); err != nil {
		return err
	}
	current, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mine, statErr := f.file.Stat()
	if statErr != nil {
		return statErr
	}
	if err != nil || !os.SameFile(current, mine) {
		// Its last line may lack an end, and none will come.
		if err := f.read(ctx, true); err != nil {
			return err
		}
		f.close()
		return nil
	}
	if mine.Size() < f.offset {
		f.offset = 0
		return f.read(ctx, false)
	}
	return nil
}

func (f *followed) open() (opened bool, err error) {
	f.file, err = os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		f.file = nil
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.offset = f.restore()
	return true, nil
}

func (f *followed) close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
	f.offset = 0
}

// read appends the whole lines after the offset, and with last also one that has no end.
func (f *followed) read(ctx context.Context, last bool) error {
	if _, err := f.file.Seek(f.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(f.file, maxEntryBytes)
	var batch []Entry
	offset := f.offset
	for {
		line, n, err := readLine(lines)
		whole := err == nil || last && n > 0
		if whole {
			offset += n
			if len(line) > 0 {
				batch = f.feeder.collect(batch, line)
			}
		}
		if len(batch) == feedBatch || err != nil {
			if appendErr := f.feeder.append(ctx, batch); appendErr != nil {
				return appendErr
			}
			batch = batch[:0]
			if f.offset != offset {
				f.offset = offset
				f.save()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// progress is what a state file holds.
type progress struct {
	// Offset is how far the file was read.
	Offset int64 `json:"offset"`
	// Head is a hash of the file's beginning, which tells it from another of the same name.
	Head uint64 `json:"head"`
}

// restore is the offset to begin at: the saved one if the file is still the one it was saved for.
func (f *followed) restore() int64 {
	if f.state == "" {
		return 0
	}
	text, err := os.ReadFile(f.state)
	if err != nil {
		return 0
	}
	var p progress
	if json.Unmarshal(text, &p) != nil || p.Offset < 0 {
		return 0
	}
	if head, err := f.head(p.Offset); err != nil || head != p.Head {
		return 0
	}
	return p.Offset
}

func (f *followed) save() {
	if f.state == "" {
		return
	}
	head, err := f.head(f.offset)
	if err == nil {
		text, _ := json.Marshal(progress{f.offset, head})
		err = os.WriteFile(f.state+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(f.state+".new", f.state)
	}
	if err != nil {
		f.feeder.logger().Warn("progress of a followed file not saved", "file", f.path, "error", err)
	}
}

// head hashes the first KiB, or what of it lies before offset; a shorter file is an error.
func (f *followed) head(offset int64) (uint64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < offset {
		return 0, io.ErrUnexpectedEOF
	}
	b := make([]byte, min(offset, 1024))
	if _, err := f.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64(), nil
}
