package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// logDelay is the longest that a line waits to be written together with those after it.
const logDelay = 10 * time.Millisecond

// logBuffer is how many bytes of lines wait at most.
const logBuffer = 32 << 10

// lineBuffer writes lines to w in one go where they come fast: with a line for each call a system call for each line is a tenth of the mesh's work. It
// is safe for concurrent use. A writer that is slow holds up whoever logs, as it would without the buffer.
type lineBuffer struct {
	w io.Writer

	mu      sync.Mutex
	lines   []byte
	waiting bool // a flush is due
}

// Write takes a line, whose end must be in p.
func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, p...)
	if len(b.lines) >= logBuffer {
		return len(p), b.flushLocked()
	}
	if !b.waiting {
		b.waiting = true
		time.AfterFunc(logDelay, func() { _ = b.flush() }) // there is nowhere to tell that the log cannot be written
	}
	return len(p), nil
}

func (b *lineBuffer) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = false
	return b.flushLocked()
}

func (b *lineBuffer) flushLocked() error {
	if len(b.lines) == 0 {
		return nil
	}
	_, err := b.w.Write(b.lines)
	b.lines = b.lines[:0]
	return err
}

// promptly is a handler whose warnings and errors are written at once, with all that was logged before them.
type promptly struct {
	slog.Handler
	buffer *lineBuffer
}

// Handle logs r.
func (h promptly) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		if flushErr := h.buffer.flush(); err == nil {
			err = flushErr
		}
	}
	return err
}

// WithAttrs keeps warnings prompt.
func (h promptly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return promptly{h.Handler.WithAttrs(attrs), h.buffer}
}

// WithGroup keeps warnings prompt.
func (h promptly) WithGroup(name string) slog.Handler {
	return promptly{h.Handler.WithGroup(name), h.buffer}
}
