package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"time"
)

// feedBatch is how many lines are appended at once.
const feedBatch = 256

// feedRetry is the pause before a batch that the engine did not take is offered again.
const feedRetry = time.Second

// Feeder puts log lines into an engine: JSON objects as log/slog, zap or zerolog write them, and plain text. A line over
// 256 KiB is cut.
type Feeder struct {
	// Engine gets the entries.
	Engine Engine
	// Fields are added to every entry that does not have them, such as the service that writes the lines.
	Fields map[string]string
	// Logger hears of entries that could not be stored. Default: nobody.
	Logger *slog.Logger
}

// Read appends the lines of r until it ends, in batches of what is there at once. It cannot interrupt r, but returns at the
// next line once ctx ends or the engine is closed.
func (f *Feeder) Read(ctx context.Context, r io.Reader) error {
	lines := bufio.NewReaderSize(r, maxEntryBytes)
	var batch []Entry
	for {
		line, _, err := readLine(lines)
		if len(line) > 0 {
			batch = f.collect(batch, line)
		}
		if len(batch) > 0 && (err != nil || len(batch) == feedBatch || !bufferedLine(lines)) {
			if appendErr := f.append(ctx, batch); appendErr != nil {
				return appendErr
			}
			batch = batch[:0]
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns the next line without its end, and how many bytes were read for it; what goes over the buffer is dropped.
func readLine(r *bufio.Reader) (line []byte, n int64, err error) {
	line, err = r.ReadSlice('\n')
	n = int64(len(line))
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			rest, err = r.ReadSlice('\n')
			n += int64(len(rest))
		}
	}
	return bytes.TrimRight(line, "\r\n"), n, err
}

// bufferedLine reports whether another whole line can be read without waiting.
func bufferedLine(r *bufio.Reader) bool {
	b, _ := r.Peek(r.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

// collect adds the entry of a line to batch, if it is one that can be stored.
func (f *Feeder) collect(batch []Entry, line []byte) []Entry {
	entry := parseLine(line, time.Now())
	for name, value := range f.Fields {
		if _, set := entry.Fields[name]; !set {
			entry.Fields[name] = value
		}
	}
	checked, err := parseEntry(entry.proto(), time.Now(), f.Engine.Retention())
	if err != nil {
		f.logger().Warn("log line not stored", "error", err)
		return batch
	}
	return append(batch, checked)
}

// append stores a batch, and waits for as long as the store is out of reach or full.
func (f *Feeder) append(ctx context.Context, batch []Entry) error {
	for {
		err := f.Engine.Append(ctx, batch)
		if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrReadOnly) {
			return err
		}
		f.logger().Warn("log lines wait", "error", err, "retry_in", feedRetry)
		select {
		case <-time.After(feedRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *Feeder) logger() *slog.Logger {
	if f.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return f.Logger
}

// parseLine reads one line: a JSON object, whose nested names are joined with dots, or plain text.
func parseLine(line []byte, now time.Time) Entry {
	entry := Entry{Time: now, Fields: map[string]string{}}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil {
		entry.Message = string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		return entry
	}
	flatten(entry.Fields, "", object)
	if text, found := take(entry.Fields, "time", "ts", "timestamp", "@timestamp", fieldTime); found {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			entry.Time = at
		}
	}
	entry.Message, _ = take(entry.Fields, "msg", "message", fieldMessage)
	if entry.Message == "" {
		entry.Message = string(line)
	}
	// A line that came out of this service or VictoriaLogs once goes in as a new entry.
	maps.DeleteFunc(entry.Fields, func(name, _ string) bool {
		return name == "" || name == fieldStream || name == fieldStreamID || name == fieldSequence
	})
	return entry
}

// take removes the first of the names that is there.
func take(fields map[string]string, names ...string) (string, bool) {
	for _, name := range names {
		if value, found := fields[name]; found {
			delete(fields, name)
			return value, true
		}
	}
	return "", false
}

// flatten stores the scalars of value under dotted names; lists stay JSON.
func flatten(fields map[string]string, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if name != "" {
				key = name + "." + key
			}
			flatten(fields, key, inner)
		}
	case string:
		fields[name] = v
	case nil:
	default:
		text, err := json.Marshal(v)
		if err == nil {
			fields[name] = string(text)
		}
	}
}
