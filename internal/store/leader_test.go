package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolway/toolway/internal/store"
)

// TestConflictIsSeen pins that what a write has found in its way is there for whoever reads after it: a cluster's leader knows of it before it can be
// read.
func TestConflictIsSeen(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv, log := must(s.KV(ctx, store.KVConfig{Name: "test"})), must(s.Log(ctx, store.LogConfig{Name: "test"}))
		lost := func(what string, seen func() bool) {
			if !seen() {
				t.Errorf("%s has found another in its way, which cannot be read", what)
			}
		}
		for round := range 12 {
			key := fmt.Sprint("k", round)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					switch _, err := kv.Create(ctx, key, nil, 0); {
					case errors.Is(err, store.ErrConflict):
						lost("Create", func() bool { _, err := kv.Get(ctx, key); return err == nil })
					case err != nil:
						t.Errorf("Create: %v", err)
					}
					switch _, err := log.AppendAfter(ctx, key, nil, 0); {
					case errors.Is(err, store.ErrConflict):
						lost("AppendAfter", func() bool { _, err := log.Last(ctx, key); return err == nil })
					case err != nil:
						t.Errorf("AppendAfter: %v", err)
					}
				})
			}
			wg.Wait()
			before := must(kv.Get(ctx, key)).Revision
			for range 8 {
				wg.Go(func() {
					switch _, err := kv.Update(ctx, key, nil, before, 0); {
					case errors.Is(err, store.ErrConflict):
						lost("Update", func() bool { return must(kv.Get(ctx, key)).Revision != before })
					case err != nil:
						t.Errorf("Update: %v", err)
					}
				})
			}
			wg.Wait()
		}
	})
}

// TestLeadersChange has the leader of a log change all the time while some write, and readers come and go: each gets every event once and in order,
// and what was told once is known to whoever leads.
func TestLeadersChange(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{URL: three()[0].ClientURL(), Replicas: 3, Prefix: "leaders"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	log := must(s.Log(ctx, store.LogConfig{Name: "test"}))
	conn := must(nats.Connect(three()[0].ClientURL()))
	defer conn.Close()
	const writers, each = 3, 20
	var work, changing sync.WaitGroup
	stop := make(chan struct{})
	var changes atomic.Int32
	changing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(200+rand.IntN(400)) * time.Millisecond):
			}
			if m, err := conn.Request("$JS.API.STREAM.LEADER.STEPDOWN.leaders_log_test", nil, 5*time.Second); err == nil && strings.Contains(string(m.Data), `"success":true`) {
				changes.Add(1)
			}
		}
	})
	for w := range writers {
		work.Go(func() {
			for i := range each {
				for i == each/2 && changes.Load() < 3 && ctx.Err() == nil { // else a quick machine is done before there was one
					time.Sleep(10 * time.Millisecond)
				}
				for {
					_, err := log.Append(ctx, "s", fmt.Appendf(nil, "%d %d", w, i), fmt.Sprintf("%d-%d", w, i))
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
						t.Errorf("Append: %v", err)
						return
					}
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			}
		})
	}
	for range 4 {
		work.Go(func() {
			var last uint64
			next := map[int]int{}
			for got := 0; got < writers*each; {
				run, cut := context.WithCancel(ctx)
				left := 1 + rand.IntN(10)
				err := log.Follow(run, "s", last, func(e store.Event) error {
					var w, i int
					if _, err := fmt.Sscan(string(e.Data), &w, &i); err != nil {
						return err
					}
					if e.Sequence <= last || next[w] != i {
						return fmt.Errorf("event %d of writer %d with sequence %d after %d, want event %d", i, w, e.Sequence, last, next[w])
					}
					next[w]++
					last = e.Sequence
					got++
					if left--; left == 0 || got == writers*each {
						cut()
						return run.Err()
					}
					return nil
				})
				cut()
				if !errors.Is(err, context.Canceled) {
					t.Errorf("reader after %d events: %v", got, err)
					return
				}
				if known, err := log.Reached(ctx, last); err == nil && !known {
					t.Errorf("event %d was told, and is not known to the leader", last)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	changing.Wait()
	t.Logf("%d changes of the leader", changes.Load())
	if changes.Load() < 3 {
		t.Errorf("the leader has changed %d times: the test shows little", changes.Load())
	}
}
