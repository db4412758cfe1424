package store_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolway/toolway/internal/store"
)

// lines is a log that tests wait for.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write keeps a line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// TestStartWaitsForLeaders has several start at once on a cluster of which one node is there: they say what they wait for, and have all that they open once
// the others have come.
func TestStartWaitsForLeaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	options := nodes(3)
	first := launch(options[0])
	if !first.ReadyForConnections(patience) {
		t.Fatal("the first node does not start")
	}
	open := func(ctx context.Context, to *lines) error {
		s, err := store.Open(ctx, store.Config{URL: first.ClientURL(), Replicas: 3, Timeout: 2 * time.Second, Wait: 2 * patience, Logger: slog.New(slog.NewTextHandler(to, nil))})
		if err != nil {
			return err
		}
		defer s.Close()
		kv, err := s.KV(ctx, store.KVConfig{Name: "test"})
		if err != nil {
			return err
		}
		for { // a write to a leader is not waited for, and the machine may be busy
			if _, err = kv.Create(ctx, "k", nil, 0); err == nil || errors.Is(err, store.ErrConflict) {
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
				return err
			}
		}
		if _, err = s.Objects(ctx, store.ObjectsConfig{Name: "test"}); err != nil {
			return err
		}
		_, err = s.Queue(ctx, store.QueueConfig{Name: "test"})
		return err
	}
	brief, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if err := open(brief, new(lines)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), first.ClientURL()) {
		t.Errorf("open with one node of three: %v, want ErrUnavailable and where", err)
	}
	logs := make([]lines, 3)
	var starting sync.WaitGroup
	for i := range logs {
		starting.Go(func() {
			if err := open(ctx, &logs[i]); err != nil {
				t.Errorf("open %d: %v", i, err)
			}
		})
	}
	for i := range logs {
		wait(t, "it says what it waits for", func() bool { return logs[i].has("still waiting for the store") && logs[i].has(first.ClientURL()) })
	}
	launch(options[1])
	launch(options[2])
	starting.Wait()
}
