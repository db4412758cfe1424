package main

import (
	"errors"
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

func buffered(t *testing.T, w *writes) (*slog.Logger, *lineBuffer) {
	t.Helper()
	b := &lineBuffer{w: w}
	log, err := logger(mesh.Log{Format: "json"}, b)
	if err != nil {
		t.Fatal(err)
	}
	return slog.New(promptly{log.Handler(), b}), b
}

func TestLogGathersLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		log, _ := buffered(t, &w)
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
		log, _ := buffered(t, &w)
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
		log, b := buffered(t, &w)
		for range 10 {
			log.Info(strings.Repeat("x", logBuffer/4))
			if len(b.lines) >= logBuffer {
				t.Fatalf("%d bytes wait, want less than %d", len(b.lines), logBuffer)
			}
		}
		if err := b.flush(); err != nil || strings.Count(w.String(), "\n") != 10 {
			t.Errorf("%d lines, %v, want 10", strings.Count(w.String(), "\n"), err)
		}
		w.err = errors.New("no space")
		if _, err := b.Write(make([]byte, logBuffer)); !errors.Is(err, w.err) {
			t.Errorf("a write that fails: %v", err)
		}
	})
}

func TestLogIsSafeForConcurrentUse(t *testing.T) {
	var w writes
	log, b := buffered(t, &w)
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
	if err := b.flush(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(w.String(), "\n"); got != 8*201 {
		t.Errorf("%d lines, want %d", got, 8*201)
	}
}
