package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// TestNewStreamSettles has nobody take writes for a while for streams that have just been opened, as it may be in a cluster that has just begun: they are
// written once somebody does. Later such a write is refused soon.
func TestNewStreamSettles(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	servers := cluster(1)
	s := external(t, servers, 1)
	prefix := fmt.Sprintf("t%d", prefixes.Load())
	kv, log := must(s.KV(ctx, store.KVConfig{Name: "test"})), must(s.Log(ctx, store.LogConfig{Name: "test"}))
	queue := must(s.Queue(ctx, store.QueueConfig{Name: "test"}))
	conn := must(nats.Connect(servers[0].ClientURL()))
	defer conn.Close()
	js := must(jetstream.New(conn))
	// deaf has the streams listen to other subjects until it is called again.
	deaf := func() func() {
		var undo []func()
		for _, kind := range []string{"kv", "log", "queue"} {
			c := must(js.Stream(ctx, prefix+"_"+kind+"_test")).CachedInfo().Config
			before := c
			c.Subjects = []string{prefix + ".nobody." + kind}
			must(js.UpdateStream(ctx, c))
			undo = append(undo, func() { must(js.UpdateStream(ctx, before)) })
		}
		return func() {
			for _, f := range undo {
				f()
			}
		}
	}
	hear := deaf()
	writes := map[string]func() error{
		"Create": func() error { _, err := kv.Create(ctx, "k", nil, 0); return err },
		"Append": func() error { _, err := log.Append(ctx, "s", nil, ""); return err },
		"Put":    func() error { return queue.Put(ctx, "id", nil) },
	}
	var writing sync.WaitGroup
	for what, write := range writes {
		writing.Go(func() {
			if err := write(); err != nil {
				t.Errorf("%s into a new stream that nobody takes writes for at first: %v", what, err)
			}
		})
	}
	<-time.After(1200 * time.Millisecond) // the client's own patience is half a second
	hear()
	writing.Wait()
	<-time.After(10 * time.Second) // later it is as with a leader that is gone
	hear = deaf()
	defer hear()
	sent := func() (n int64) {
		for _, c := range must(servers[0].Connz(nil)).Conns {
			if c.Name == "toolway" {
				n += c.InMsgs
			}
		}
		return n
	}
	before := sent()
	if err := writes["Append"](); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "nobody takes writes") {
		t.Errorf("Append to a stream that nobody takes writes for: %v, want ErrUnavailable and why", err)
	}
	if n := sent() - before; n >= 10 {
		t.Errorf("it was sent some %d times, want few", n)
	}
}
