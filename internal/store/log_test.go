package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolway/toolway/internal/store"
)

func TestLog(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		log := must(s.Log(ctx, store.LogConfig{Name: "test"}))
		a1 := must(log.Append(ctx, "a", []byte("1"), "id-1"))
		if again := must(log.Append(ctx, "a", []byte("1"), "id-1")); again != a1 {
			t.Errorf("a repeated id got sequence %d, want the first's %d", again, a1)
		}
		must(log.Append(ctx, "b", []byte("2"), ""))
		a3 := must(log.AppendAfter(ctx, "a", []byte("3"), a1))
		if _, err := log.AppendAfter(ctx, "a", []byte("4"), a1); !errors.Is(err, store.ErrConflict) {
			t.Errorf("AppendAfter an old one: %v, want ErrConflict", err)
		}
		must(log.AppendAfter(ctx, "c.x", []byte("5"), 0))
		read := func(filter string, after uint64) string {
			t.Helper()
			var got []string
			if _, err := log.Read(ctx, filter, after, func(e store.Event) error { got = append(got, e.Subject+string(e.Data)); return nil }); err != nil {
				t.Fatal(err)
			}
			return strings.Join(got, " ")
		}
		for _, c := range []struct {
			filter string
			after  uint64
			want   string
		}{{">", 0, "a1 b2 a3 c.x5"}, {"a", 0, "a1 a3"}, {"a", a1, "a3"}, {"a", a3, ""}, {"c.>", 0, "c.x5"}, {"z", 0, ""}} {
			if got := read(c.filter, c.after); got != c.want {
				t.Errorf("Read(%q, %d) = %q, want %q", c.filter, c.after, got, c.want)
			}
		}
		if e := must(log.Last(ctx, "a")); string(e.Data) != "3" || e.Sequence != a3 {
			t.Errorf("Last = %+v", e)
		}
		for _, filter := range []string{"", "a.*", "a>", ".>", "a b"} {
			if _, err := log.Read(ctx, filter, 0, nil); err == nil {
				t.Errorf("filter %q was taken", filter)
			}
		}
		if err := log.Forget(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if got := read(">", 0); got != "b2 c.x5" {
			t.Errorf("after Forget: %q", got)
		}
	})
}

// TestLogRetention reads from a sequence that is past the retention.
func TestLogRetention(t *testing.T) {
	s := embedded(t)
	ctx := t.Context()
	log := must(s.Log(ctx, store.LogConfig{Name: "small", MaxBytes: 64 << 10, MaxEventBytes: 8 << 10}))
	noise := make([]byte, 8<<10)
	for i := range 40 {
		for j := range noise {
			noise[j] = byte(rand.Int())
		}
		if seq := must(log.Append(ctx, "a", noise, "")); seq != uint64(i+1) {
			t.Fatalf("event %d has sequence %d", i, seq)
		}
	}
	first, last, err := log.Bounds(ctx)
	if err != nil || first <= 2 || last != 40 {
		t.Fatalf("bounds %d to %d, %v, want the oldest forgotten", first, last, err)
	}
	if _, err := log.Read(ctx, "a", 1, nil); !errors.Is(err, store.ErrExpired) {
		t.Errorf("Read after 1: %v, want ErrExpired", err)
	}
	if err := log.Follow(ctx, "a", 1, nil); !errors.Is(err, store.ErrExpired) {
		t.Errorf("Follow after 1: %v, want ErrExpired", err)
	}
	n := 0
	if _, err := log.Read(ctx, "a", first-1, func(store.Event) error { n++; return nil }); err != nil || n != int(last-first+1) {
		t.Errorf("Read of what is kept: %d events, %v", n, err)
	}
}

// TestForgottenWhileRead has a log forget what a slow reader has not read yet: the reader is told, and does not go on as if there had been nothing.
func TestForgottenWhileRead(t *testing.T) {
	s := embedded(t)
	ctx := t.Context()
	log := must(s.Log(ctx, store.LogConfig{Name: "small", MaxBytes: 64 << 10, MaxEventBytes: 8 << 10}))
	noise := make([]byte, 8<<10)
	for i := range noise {
		noise[i] = byte(rand.Int())
	}
	fill := func(n int) {
		for range n {
			must(log.Append(ctx, "other", noise, ""))
		}
	}
	for _, resumes := range []bool{false, true} {
		fill(20)
		own := must(log.Append(ctx, "own", []byte("0"), ""))
		for _, data := range []string{"1", "2"} {
			fill(1)
			must(log.Append(ctx, "own", []byte(data), ""))
		}
		after := uint64(0)
		if resumes {
			after = own - 1
		}
		var got []string
		_, err := log.Read(ctx, "own", after, func(e store.Event) error {
			got = append(got, string(e.Data))
			fill(20)
			return nil
		})
		if !errors.Is(err, store.ErrExpired) || strings.Join(got, " ") != "0" {
			t.Errorf("Read after %d while the log forgets = %q, %v, want 0 and ErrExpired", after, got, err)
		}
	}
}

// TestGaplessFollow cuts and resumes readers at random points while several write: each reader gets every event of its subject once, in order.
func TestGaplessFollow(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		log := must(s.Log(ctx, store.LogConfig{Name: "test"}))
		const writers, each = 4, 300
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if _, err := log.Append(ctx, fmt.Sprintf("s%d", w%2), fmt.Appendf(nil, "%d %d", w, i), ""); err != nil {
						t.Errorf("Append: %v", err)
						return
					}
				}
			})
		}
		for reader := range 6 {
			filter, want := fmt.Sprintf("s%d", reader%2), writers*each/2
			if reader >= 4 {
				filter, want = ">", writers*each
			}
			wg.Go(func() {
				var last uint64
				next := map[string]int{}
				for got := 0; got < want; {
					run, cut := context.WithCancel(ctx)
					left := 1 + rand.IntN(100)
					slow := rand.IntN(4) == 0
					err := log.Follow(run, filter, last, func(e store.Event) error {
						var w, i int
						if _, err := fmt.Sscan(string(e.Data), &w, &i); err != nil {
							return err
						}
						if e.Sequence <= last {
							return fmt.Errorf("sequence %d after %d", e.Sequence, last)
						}
						if key := strconv.Itoa(w); next[key] != i {
							return fmt.Errorf("event %d of writer %d, want %d", i, w, next[key])
						}
						next[strconv.Itoa(w)]++
						last = e.Sequence
						got++
						if slow {
							time.Sleep(time.Millisecond) // falls behind the writers
						}
						if left--; left == 0 || got == want {
							cut()
							return run.Err()
						}
						return nil
					})
					cut()
					if !errors.Is(err, context.Canceled) {
						t.Errorf("reader %d of %s after %d events: %v", reader, filter, got, err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
