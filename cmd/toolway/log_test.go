package main

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolway/toolway/internal/mesh"
)

// writes counts the writes that reach it.
type writes struct {
	mu   sync.Mutex
	text strings.Builder
	n    int
	err  error
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.err != nil {
		return 0, w.err
	}
	return w.text.Write(p)
}

func (w *writes) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func queueing(t testing.TB, format string, w io.Writer) (*slog.Logger, *logQueue) {
	t.Helper()
	q := &logQueue{w: w}
	log, err := logger(mesh.Log{Format: format}, &q.lines)
	if err != nil {
		t.Fatal(err)
	}
	return slog.New(queued{log.Handler(), q}), q
}

func TestLogGathersLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		log, _ := queueing(t, "json", &w)
		for range 20 {
			log.Info("call")
		}
		if w.count() != 0 {
			t.Errorf("%d writes at once, want none", w.count())
		}
		time.Sleep(logDelay)
		synctest.Wait()
		if got := strings.Count(w.String(), "\n"); w.count() != 1 || got != 20 {
			t.Errorf("%d writes of %d lines after the delay, want one of 20", w.count(), got)
		}
	})
}

// TestLogIsPrompt has warnings written at once, with what came before them and in its order.
func TestLogIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		log, _ := queueing(t, "json", &w)
		log = log.With("a", 1).WithGroup("g")
		log.Info("first")
		log.Warn("second")
		if got := w.String(); !strings.Contains(got, "first") || strings.Index(got, "first") > strings.Index(got, "second") {
			t.Errorf("after a warning the log is %q, want both lines in order", got)
		}
		time.Sleep(logDelay)
		synctest.Wait()
		if w.count() != 1 {
			t.Errorf("%d writes, want 1: there was nothing left", w.count())
		}
	})
}

func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		log, q := queueing(t, "json", &w)
		for range 10 {
			log.Info(strings.Repeat("x", logBuffer/4))
			if q.bytes >= logBuffer {
				t.Fatalf("%d bytes wait, want less than %d", q.bytes, logBuffer)
			}
		}
		if err := q.flush(); err != nil || strings.Count(w.String(), "\n") != 10 {
			t.Errorf("%d lines, %v, want 10", strings.Count(w.String(), "\n"), err)
		}
		w.err = errors.New("no space")
		log.Info("call")
		if err := q.flush(); !errors.Is(err, w.err) {
			t.Errorf("a write that fails: %v", err)
		}
		for range 10 * logBuffer / recordBytes { // without text
			log.Info("")
			if q.bytes >= logBuffer {
				t.Fatalf("%d bytes wait, want less than %d", q.bytes, logBuffer)
			}
		}
	})
}

// changing is a value that others change.
type changing struct{ n int }

func (c *changing) LogValue() slog.Value { return slog.IntValue(c.n) }

// TestLogIsThatOfTheMoment has records that wait formatted as slog formats them at once: with the time at which they were logged, and with the value
// that others change as it was.
func TestLogIsThatOfTheMoment(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		synctest.Test(t, func(t *testing.T) {
			var w, plain writes
			log, q := queueing(t, format, &w)
			want, err := logger(mesh.Log{Format: format}, &plain)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []*slog.Logger{log, want} {
				start, value := time.Now(), &changing{1}
				l = l.With("method", "/a.B/C", "of", value)
				l.Info("call", "code", "OK", "duration_ms", 1234567.891, "attempts", 2, "ok", true, "took", time.Second, "at", start, "text", "a \"b\"\n<c> \xff")
				l.Info("later", "value", value, "error", errors.New("x"))
				l.Info("group", slog.Group("g", "value", value))
				value.n = 2
				l.WithGroup("g").Info("end", "a", uint64(1))
				time.Sleep(time.Minute)
				value.n = 3
			}
			if err := q.flush(); err != nil {
				t.Fatal(err)
			}
			got, exp := strings.Split(w.String(), "\n"), strings.Split(plain.String(), "\n")
			if len(got) != len(exp) {
				t.Fatalf("%d lines, want %d", len(got), len(exp))
			}
			for i := range got {
				if g, e := got[i], strings.ReplaceAll(exp[i], "00:01:00", "00:00:00"); g != e { // the clock went on for a minute
					t.Errorf("line %d:\n%s\nwant\n%s", i, g, e)
				}
			}
		})
	}
}

func TestLogIsSafeForConcurrentUse(t *testing.T) {
	var w writes
	log, q := queueing(t, "json", &w)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				log.Info("call", "i", i)
			}
			log.Error("end")
		})
	}
	wg.Wait()
	if err := q.flush(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(w.String(), "\n"); got != 8*201 {
		t.Errorf("%d lines, want %d", got, 8*201)
	}
}

// BenchmarkLog is the line of a call, written to nowhere.
func BenchmarkLog(b *testing.B) {
	for _, format := range []string{"json", "text"} {
		b.Run(format, func(b *testing.B) {
			log, q := queueing(b, format, io.Discard)
			log = log.With("method", "/shop.v1.OrderService/GetOrder", "backend", "orders")
			b.ReportAllocs()
			for b.Loop() {
				log.LogAttrs(b.Context(), slog.LevelInfo, "call", slog.String("door", "http"), slog.String("code", "OK"), slog.Float64("duration_ms", 1.234),
					slog.String("trace_id", "0af7651916cd43dd8448eb211c80319c"), slog.String("call_id", "0af7651916cd43dd8448eb211c80319c"))
			}
			if err := q.flush(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
