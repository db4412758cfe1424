package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// logDelay is the longest that a record waits to be written together with those after it.
const logDelay = 10 * time.Millisecond

// logBuffer is how many bytes of records wait at most.
const logBuffer = 128 << 10

// recordBytes is what a record takes that waits, beside its text.
const recordBytes = 300

// logQueue has records wait, and writes those that come fast to w in one go: with a line for each call a system call for each line is a tenth of the
// mesh's work, and to format a line between two other things costs several times as much as after another line. It is safe for concurrent use. A
// writer that is slow holds up whoever logs, as it would without the queue.
type logQueue struct {
	w io.Writer

	mu      sync.Mutex
	records []waitingRecord
	bytes   int
	waiting bool // a flush is due

	writing sync.Mutex      // taken before mu, so that lines are written in order
	former  []waitingRecord // room for the next records
	lines   bytes.Buffer    // where handlers format to
}

type waitingRecord struct {
	handler slog.Handler // formats it
	record  slog.Record
}

// add has a record wait, and says whether there are enough of them now.
func (q *logQueue) add(h slog.Handler, r *slog.Record, size int) (full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records = append(q.records, waitingRecord{h, *r})
	q.bytes += size
	if !q.waiting {
		q.waiting = true
		time.AfterFunc(logDelay, q.flushDue)
	}
	return q.bytes >= logBuffer
}

func (q *logQueue) flushDue() {
	q.mu.Lock()
	q.waiting = false
	q.mu.Unlock()
	_ = q.flush() // there is nowhere to tell that the log cannot be written
}

// flush writes what was logged before it.
func (q *logQueue) flush() error {
	q.writing.Lock()
	defer q.writing.Unlock()
	q.mu.Lock()
	q.records, q.former, q.bytes = q.former, q.records, 0
	q.mu.Unlock()
	var err error
	for i := range q.former {
		w := &q.former[i]
		if e := w.handler.Handle(context.Background(), w.record); err == nil {
			err = e
		}
	}
	clear(q.former)
	q.former = q.former[:0]
	if q.lines.Len() > 0 {
		if _, e := q.w.Write(q.lines.Bytes()); err == nil {
			err = e
		}
		q.lines.Reset()
	}
	return err
}

// queued is a handler whose records wait in a queue until they are formatted, by the handler inside. Warnings and errors do not: they are written at
// once, with all that was logged before them.
type queued struct {
	slog.Handler
	queue *logQueue
}

// Handle logs r.
func (h queued) Handle(_ context.Context, r slog.Record) error {
	size, settled := weigh(&r)
	if h.queue.add(h.Handler, &r, size) || r.Level >= slog.LevelWarn || !settled {
		return h.queue.flush()
	}
	return nil
}

// weigh returns about how many bytes a record takes that waits, and whether it may: what is not settled could be something else by the time that it is
// formatted.
func weigh(r *slog.Record) (size int, settled bool) {
	size, settled = recordBytes+len(r.Message), true
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindString:
			size += len(a.Value.String())
		case slog.KindAny, slog.KindGroup, slog.KindLogValuer:
			settled = false
		}
		return true
	})
	return size, settled
}

// WithAttrs has records with more in common wait in the same queue.
func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queued{h.Handler.WithAttrs(attrs), h.queue}
}

// WithGroup has records of a group wait in the same queue.
func (h queued) WithGroup(name string) slog.Handler {
	return queued{h.Handler.WithGroup(name), h.queue}
}
