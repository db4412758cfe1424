package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolway/toolway/internal/store"
)

func TestKV(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv := must(s.KV(ctx, store.KVConfig{Name: "test"}))
		if _, err := kv.Get(ctx, "a.b"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Get of nothing: %v, want ErrNotFound", err)
		}
		r1 := must(kv.Create(ctx, "a.b", []byte("one"), 0))
		if _, err := kv.Create(ctx, "a.b", []byte("two"), 0); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second Create: %v, want ErrConflict", err)
		}
		r2 := must(kv.Update(ctx, "a.b", []byte("two"), r1, 0))
		if _, err := kv.Update(ctx, "a.b", []byte("three"), r1, 0); !errors.Is(err, store.ErrConflict) {
			t.Errorf("an Update of an old revision: %v, want ErrConflict", err)
		}
		if e := must(kv.Get(ctx, "a.b")); string(e.Value) != "two" || e.Revision != r2 || e.Key != "a.b" || e.Written.IsZero() {
			t.Errorf("Get = %+v, want two at revision %d", e, r2)
		}
		if err := kv.Delete(ctx, "a.b", r1); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Delete of an old revision: %v, want ErrConflict", err)
		}
		if err := kv.Delete(ctx, "a.b", r2); err != nil {
			t.Error(err)
		}
		if _, err := kv.Get(ctx, "a.b"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Get after Delete: %v, want ErrNotFound", err)
		}
		must(kv.Create(ctx, "a.b", nil, 0)) // an empty value is a value
		if e := must(kv.Get(ctx, "a.b")); len(e.Value) != 0 {
			t.Errorf("an empty value came back as %q", e.Value)
		}
		must(kv.Create(ctx, "a.c.d", []byte("x"), 0))
		must(kv.Create(ctx, "b", []byte("y"), 0))
		for under, want := range map[string]string{"": "a.b a.c.d b", "a": "a.b a.c.d", "a.c": "a.c.d", "z": ""} {
			var got []string
			if err := kv.List(ctx, under, func(e store.Entry) error { got = append(got, e.Key); return nil }); err != nil {
				t.Error(err)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("List(%q) = %q, want %q", under, got, want)
			}
		}
		for _, key := range []string{"", "a..b", "a b", "a.*", ">", "ä", strings.Repeat("k", 2000)} {
			if _, err := kv.Create(ctx, key, nil, 0); err == nil {
				t.Errorf("key %.20q was taken", key)
			}
		}
		if _, err := kv.Create(ctx, "big", make([]byte, 2<<20), 0); !errors.Is(err, store.ErrFull) {
			t.Errorf("a value beyond the bound: %v, want ErrFull", err)
		}
		if _, err := kv.Create(ctx, store.Token("any key / of a client ☃"), nil, 0); err != nil {
			t.Errorf("a key of a token: %v", err)
		}
	})
}

func TestKVExpires(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv := must(s.KV(ctx, store.KVConfig{Name: "test"}))
		heard := make(chan string, 100)
		watching, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- kv.Watch(watching, "", func(e store.Entry, live bool) error {
				heard <- fmt.Sprintf("%s %s %v", e.Key, e.Value, live)
				return nil
			})
		}()
		wait(t, "the watcher hears", func() bool { // it hears only what is written after it has begun
			must(kv.Create(ctx, "warm."+store.Token(strconv.Itoa(rand.Int())), nil, 0))
			return len(heard) > 0
		})
		must(kv.Create(ctx, "k", []byte("v"), time.Second))
		wait(t, "the key expires", func() bool { _, err := kv.Get(ctx, "k"); return errors.Is(err, store.ErrNotFound) })
		expect := func(want ...string) {
			t.Helper()
			for len(want) > 0 {
				select {
				case got := <-heard:
					if !strings.HasPrefix(got, "k ") {
						continue
					}
					if got != want[0] {
						t.Fatalf("the watcher heard %q, want %q", got, want[0])
					}
					want = want[1:]
				case <-ctx.Done():
					t.Fatalf("the watcher has not heard %q", want)
				}
			}
		}
		expect("k v true", "k  false")
		must(kv.Create(ctx, "k", []byte("again"), time.Hour)) // over the mark of the expired one
		expect("k again true")
		r := must(kv.Get(ctx, "k")).Revision
		must(kv.Update(ctx, "k", []byte("short"), r, time.Second))
		wait(t, "the updated key expires", func() bool { _, err := kv.Get(ctx, "k"); return errors.Is(err, store.ErrNotFound) })
		expect("k short true", "k  false")
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v, want the context's error", err)
		}
	})
}

// TestKVFollow begins with what is there, and goes on with what is written; whoever has heard the last write has heard all before.
func TestKVFollow(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv := must(s.KV(ctx, store.KVConfig{Name: "test"}))
		if _, err := kv.Last(ctx, "a"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the last write of none: %v, want ErrNotFound", err)
		}
		gone := must(kv.Create(ctx, "a.gone", nil, 0))
		must(kv.Create(ctx, "a.x", []byte("1"), 0))
		changed := must(kv.Create(ctx, "a.y", []byte("2"), 0))
		if err := kv.Delete(ctx, "a.gone", gone); err != nil {
			t.Fatal(err)
		}
		changed = must(kv.Update(ctx, "a.y", []byte("3"), changed, 0))
		must(kv.Create(ctx, "b.z", []byte("4"), 0))
		if last, err := kv.Last(ctx, "a"); err != nil || last != changed {
			t.Errorf("the last write under a: %d, %v, want %d", last, err, changed)
		}
		var got []string
		following, stop := context.WithCancel(ctx)
		defer stop()
		err := kv.Follow(following, "a", func(e store.Entry, live bool) error {
			got = append(got, fmt.Sprint(e.Key, string(e.Value), live))
			switch e.Revision {
			case changed:
				must(kv.Create(ctx, "a.new", []byte("5"), 0))
			case must(kv.Last(ctx, "a")):
				stop()
			}
			return nil
		})
		if want := "a.x1true a.gonefalse a.y3true a.new5true"; !errors.Is(err, context.Canceled) || strings.Join(got, " ") != want {
			t.Errorf("Follow = %q, %v, want %q", got, err, want)
		}
	})
}

func TestOneOfManyCreates(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv := must(s.KV(ctx, store.KVConfig{Name: "test"}))
		for round := range 5 {
			var won atomic.Int32
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					switch _, err := kv.Create(ctx, fmt.Sprintf("k%d", round), nil, 0); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, store.ErrConflict):
						t.Errorf("Create: %v", err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d of 16 created the key, want one", won.Load())
			}
		}
	})
}

func TestKVFull(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		kv := must(s.KV(ctx, store.KVConfig{Name: "small", MaxBytes: 64 << 10, MaxValueBytes: 32 << 10}))
		noise := make([]byte, 8<<10)
		for i := range noise {
			noise[i] = byte(rand.Int())
		}
		revisions := []uint64{}
		for i := range 100 {
			revision, err := kv.Create(ctx, fmt.Sprintf("k%d", i), noise, 0)
			if errors.Is(err, store.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			revisions = append(revisions, revision)
		}
		stored := len(revisions)
		if stored < 3 || stored == 100 {
			t.Fatalf("%d values of 8 KiB were taken by a table of 64 KiB", stored)
		}
		for i := range stored {
			if _, err := kv.Get(ctx, fmt.Sprintf("k%d", i)); err != nil {
				t.Errorf("k%d was forgotten to make room: %v", i, err)
			}
		}
		// What is there can change and go.
		if _, err := kv.Create(ctx, "k0", noise, 0); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Create of a key that is there = %v, want ErrConflict", err)
		}
		large := slices.Concat(noise, noise)
		if _, err := kv.Update(ctx, "k0", append(large, 1), revisions[0], 0); !errors.Is(err, store.ErrFull) {
			t.Errorf("Update to a large value = %v, want ErrFull", err)
		}
		for i, value := range [][]byte{large, noise, nil} {
			if _, err := kv.Update(ctx, fmt.Sprintf("k%d", i), value, revisions[i], 0); err != nil {
				t.Errorf("Update to %d bytes in a full table: %v", len(value), err)
			}
		}
		for i := 3; i < stored; i++ {
			if err := kv.Delete(ctx, fmt.Sprintf("k%d", i), revisions[i]); err != nil {
				t.Errorf("Delete in a full table: %v", err)
			}
		}
		for { // what has gone makes room for others
			_, err := kv.Create(ctx, "another", noise, 0)
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrFull) || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestObjects(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		objects := must(s.Objects(ctx, store.ObjectsConfig{Name: "test", MaxObjectBytes: 1 << 20}))
		content := bytes.Repeat([]byte("0123456789"), 50_000)
		o := must(objects.Put(ctx, "x", map[string]string{"type": "text/plain"}, bytes.NewReader(content)))
		if o.Size != int64(len(content)) || !strings.HasPrefix(o.Digest, "SHA-256=") || !o.Expires.After(time.Now()) {
			t.Errorf("stored %+v", o)
		}
		got, raw, err := objects.Get(ctx, "x")
		if err != nil || !bytes.Equal(raw, content) || got.Digest != o.Digest || got.Meta["type"] != "text/plain" {
			t.Errorf("read %d bytes of %+v, %v", len(raw), got, err)
		}
		if _, err := objects.Put(ctx, "big", nil, bytes.NewReader(make([]byte, 1<<20+1))); !errors.Is(err, store.ErrFull) {
			t.Errorf("an object beyond the bound: %v, want ErrFull", err)
		}
		for _, name := range []string{"big", "never"} {
			if _, _, err := objects.Get(ctx, name); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get(%q): %v, want ErrNotFound", name, err)
			}
		}
		if err := errors.Join(objects.Delete(ctx, "x"), objects.Delete(ctx, "x")); err != nil {
			t.Errorf("Delete, twice: %v", err)
		}
	})
}

func TestQueue(t *testing.T) {
	forKinds(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		q := must(s.Queue(ctx, store.QueueConfig{Name: "test", Lease: 2 * time.Second, MaxDeliveries: 2}))
		if err := errors.Join(q.Put(ctx, "1", []byte("one")), q.Put(ctx, "1", []byte("one"))); err != nil {
			t.Fatal(err)
		}
		if n := must(q.Len(ctx)); n != 1 {
			t.Errorf("%d jobs after the same one was put twice, want one", n)
		}
		first := must(q.Take(ctx))
		if string(first.Data) != "one" || first.Delivery != 1 {
			t.Errorf("job %+v", first)
		}
		// The worker dies: the lease ends, and the job comes again.
		second := must(q.Take(ctx))
		if string(second.Data) != "one" || second.Delivery != 2 {
			t.Errorf("after the lease: %+v, want the second delivery", second)
		}
		if err := second.Return(0); err != nil {
			t.Error(err)
		}
		if err := q.Put(ctx, "2", []byte("two")); err != nil {
			t.Fatal(err)
		}
		third := must(q.Take(ctx))
		if string(third.Data) != "two" {
			t.Errorf("job %q, want the next: the first was given out often enough", third.Data)
		}
		if err := third.Done(ctx); err != nil {
			t.Error(err)
		}
		wait(t, "the queue is empty", func() bool { return must(q.Len(ctx)) == 0 })
		var dead []string
		if err := q.Dead(ctx, func(e store.Event) error { dead = append(dead, string(e.Data)); return nil }); err != nil || !slices.Equal(dead, []string{"one"}) {
			t.Errorf("dead letters %q, %v, want the first job", dead, err)
		}
	})
}

// TestLease extends a lease beyond its length: no other worker gets the job.
func TestLease(t *testing.T) {
	const lease = 3 * time.Second
	s := embedded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := must(s.Queue(ctx, store.QueueConfig{Name: "test", Lease: lease}))
	if err := q.Put(ctx, "1", nil); err != nil {
		t.Fatal(err)
	}
	job := must(q.Take(ctx))
	other, stop := context.WithTimeout(ctx, lease+lease/2)
	defer stop()
	var wg sync.WaitGroup
	var longest time.Duration // between two extensions: a machine that stands still for longer than the lease proves nothing
	wg.Go(func() {
		for last := time.Now(); other.Err() == nil; {
			if err := job.Extend(); err != nil {
				t.Error(err)
			}
			longest, last = max(longest, time.Since(last)), time.Now()
			select {
			case <-other.Done():
			case <-time.After(lease / 20):
			}
		}
	})
	again, err := q.Take(other)
	stop()
	wg.Wait()
	if err == nil && longest < lease/2 {
		t.Errorf("another worker got the job, delivery %d, although the lease was extended every %v", again.Delivery, longest)
	}
	if err := job.Done(ctx); err != nil {
		t.Error(err)
	}
}

// TestReopen finds everything that was acknowledged.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	s := open(t, store.Config{Dir: dir})
	rev := must(must(s.KV(ctx, store.KVConfig{Name: "kv"})).Create(ctx, "k", []byte("v"), 0))
	seq := must(must(s.Log(ctx, store.LogConfig{Name: "log"})).Append(ctx, "a", []byte("e"), ""))
	if err := must(s.Queue(ctx, store.QueueConfig{Name: "q"})).Put(ctx, "1", []byte("job")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, store.Config{Dir: dir})
	if e := must(must(s.KV(ctx, store.KVConfig{Name: "kv"})).Get(ctx, "k")); string(e.Value) != "v" || e.Revision != rev {
		t.Errorf("the key is %+v", e)
	}
	if e := must(must(s.Log(ctx, store.LogConfig{Name: "log"})).Last(ctx, "a")); e.Sequence != seq {
		t.Errorf("the event is %+v", e)
	}
	if j := must(must(s.Queue(ctx, store.QueueConfig{Name: "q"})).Take(ctx)); string(j.Data) != "job" {
		t.Errorf("the job is %+v", j)
	}
}

func TestOpenRefuses(t *testing.T) {
	locked := t.TempDir()
	open(t, store.Config{Dir: locked})
	newer := t.TempDir()
	corrupt := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	for name, text := range map[string]string{filepath.Join(newer, "layout.json"): `{"version":99}`, filepath.Join(corrupt, "layout.json"): "garbage", file: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, c := range map[string]store.Config{
		"used by another process (pid " + strconv.Itoa(os.Getpid()) + ")": {Dir: locked},
		"layout 99":                       {Dir: newer},
		"is not what this program writes": {Dir: corrupt},
		"not a directory":                 {Dir: filepath.Join(file, "x")},
		"give one of the two":             {},
		"leave the other out":             {Dir: locked, URL: "nats://x"},
		"replicas need a cluster":         {Dir: locked, Replicas: 3},
		"want 1 to 5":                     {URL: "nats://x", Replicas: 9},
		"want letters":                    {URL: "nats://x", Prefix: "a.b"},
	} {
		c.Logger = slog.New(slog.DiscardHandler)
		if s, err := store.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%+v) = %v, %v, want an error with %q", c, s, err, want)
		}
	}
}

// TestClusterGoesAway stops the servers under an open store: it says so, fails writes, and is well again when they return.
func TestClusterGoesAway(t *testing.T) {
	dir, port := t.TempDir(), freePorts(1)[0]
	start := func() *server.Server {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(patience) {
			t.Fatal("the server does not start")
		}
		return s
	}
	srv := start()
	s := open(t, store.Config{URL: srv.ClientURL(), Timeout: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	kv := must(s.KV(ctx, store.KVConfig{Name: "test"}))
	log := must(s.Log(ctx, store.LogConfig{Name: "test"}))
	must(kv.Create(ctx, "before", nil, 0))
	heard := make(chan string, 10)
	var wg sync.WaitGroup
	following, stop := context.WithCancel(ctx)
	wg.Go(func() {
		_ = log.Follow(following, "a", 0, func(e store.Event) error { heard <- string(e.Data); return nil })
	})
	must(log.Append(ctx, "a", []byte("1"), ""))
	if got := <-heard; got != "1" {
		t.Errorf("heard %q", got)
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	wait(t, "the store says that it is away", func() bool { return s.Down() != "" })
	if _, err := kv.Create(ctx, "during", nil, 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write while it is away: %v, want ErrUnavailable", err)
	}
	srv = start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	wait(t, "the store is back", func() bool { return s.Down() == "" })
	if _, err := kv.Get(ctx, "before"); err != nil {
		t.Errorf("what was written before: %v", err)
	}
	must(log.Append(ctx, "a", []byte("2"), ""))
	if got := <-heard; got != "2" {
		t.Errorf("the follower heard %q after the return, want the next event", got)
	}
	stop()
	wg.Wait()
}
