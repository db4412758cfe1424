package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Fsync says when a file is forced to the disk.
type Fsync string

// The kinds of Fsync. A record is always with the operating system when Record returns, so no kill of the process loses it.
const (
	// FsyncNever leaves it to the operating system: a power cut loses up to half a minute.
	FsyncNever Fsync = "never"
	// FsyncSecond does it every second in which something was written: a power cut loses that second.
	FsyncSecond Fsync = "second"
	// FsyncAlways does it before Record returns: a power cut loses nothing that was answered. Every call waits for the disk.
	FsyncAlways Fsync = "always"
)

// File is a sink that appends records to a file as JSON lines, each in one write. It never rotates: whoever does (logrotate) renames the
// file and has Reopen called.
type File struct {
	path  string
	fsync Fsync
	stop  chan struct{}
	done  sync.WaitGroup

	mu    sync.Mutex
	file  *os.File // nil after Close
	line  []byte
	torn  bool // the last write ended within a line
	dirty bool
}

// OpenFile opens the file, which only its owner may read if it is made now. Errors of a sync that nobody waits for go to log.
func OpenFile(path string, fsync Fsync, log *slog.Logger) (*File, error) {
	f := &File{path: path, fsync: fsync, stop: make(chan struct{})}
	if err := f.Reopen(); err != nil {
		return nil, err
	}
	if fsync == FsyncSecond {
		f.done.Go(func() { f.syncing(log) })
	}
	return f, nil
}

// Record appends one line.
func (f *File) Record(_ context.Context, r Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return fmt.Errorf("audit file %q: %w", f.path, os.ErrClosed)
	}
	line := f.line[:0]
	if f.torn {
		line = append(line, '\n')
	}
	line, err := r.AppendJSON(line)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if cap(line) <= pooled {
		f.line = line
	}
	if n, err := f.file.Write(line); err != nil {
		f.torn = f.torn || n > 0
		return fmt.Errorf("audit file: %w", err)
	}
	f.torn, f.dirty = false, true
	if f.fsync == FsyncAlways {
		return f.sync()
	}
	return nil
}

// Reopen opens the path anew, which may be another file by now, and closes the old one. If that fails the old one stays in use.
func (f *File) Reopen() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.torn = !endsLine(f.path)
	if f.file == nil {
		f.file = file
		return nil
	}
	err = errors.Join(f.sync(), f.file.Close())
	f.file = file
	return err
}

// endsLine says whether the file is empty, unreadable or ends in a newline: a crash may have cut the last line short.
func endsLine(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return true
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return true
	}
	var last [1]byte
	if _, err := file.ReadAt(last[:], info.Size()-1); err != nil && !errors.Is(err, io.EOF) {
		return true
	}
	return last[0] == '\n'
}

// Close syncs and closes the file. Later records are refused.
func (f *File) Close() error {
	f.mu.Lock()
	file := f.file
	if file == nil {
		f.mu.Unlock()
		return nil
	}
	err := errors.Join(f.sync(), file.Close())
	f.file = nil
	close(f.stop)
	f.mu.Unlock()
	f.done.Wait()
	return err
}

// sync forces what was written to the disk. The lock is held. A pipe or terminal cannot be synced.
func (f *File) sync() error {
	if !f.dirty || f.fsync == FsyncNever {
		return nil
	}
	f.dirty = false
	if info, err := f.file.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	return nil
}

func (f *File) syncing(log *slog.Logger) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-every.C:
		}
		f.mu.Lock()
		var err error
		if f.file != nil {
			err = f.sync()
		}
		f.mu.Unlock()
		if err != nil {
			log.Error("audit", "error", err)
		}
	}
}

// Writer is a sink that writes records to w as JSON lines: standard output or error.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	line []byte
}

// NewWriter returns a sink that writes to w, each record in one write.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Record writes one line.
func (w *Writer) Record(_ context.Context, r Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, err := r.AppendJSON(w.line[:0])
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if cap(line) <= pooled {
		w.line = line
	}
	_, err = w.w.Write(line)
	return err
}
