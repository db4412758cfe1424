package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// mounts returns a program that begins another with a small file system of its own at a directory, which ends with it; nil if this machine does not
// let the test.
func mounts(dir string) []string {
	for _, how := range []string{"-m", "-Urm"} {
		program := []string{"unshare", how, "sh", "-c", "mount -t tmpfs -o size=48m,mode=700 tmpfs " + dir + ` && exec "$0" "$@"`}
		if exec.CommandContext(context.Background(), program[0], slices.Concat(program[1:], []string{"true"})...).Run() == nil {
			return program
		}
	}
	return nil
}

// TestDiskFull fills the disk under a mesh, and makes room again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	backend, dir := startCounter(t), t.TempDir()
	program := mounts(dir)
	if program == nil {
		t.Log("this machine lets the test mount nothing: it only shows that a bound too small for the records is refused")
		if _, err := run.Serve("--config", backend.configFile(t, "store: {max_bytes: 1048576}\n"), "--data", dir); err == nil || !strings.Contains(err.Error(), "store.max_bytes") {
			t.Errorf("a store of 1 MiB: %v", err)
		}
		return
	}
	started, err := run.ServeBy(program, "--config", backend.configFile(t, "store: {timeout: 2s}\n"), "--data", dir)
	if err != nil {
		t.Fatal(err)
	}
	m := connect(t, started)
	var before []string
	for i := range 20 {
		key := fmt.Sprint("before ", i)
		if a, err := m.ask(ctx, doors[i%3], key); err != nil || a.String() != ok {
			t.Fatalf("%s: %v, %v", key, a, err)
		}
		before = append(before, key)
	}
	done := m.submit(t, "task before")
	m.awaitTask(t, done)
	filler := filepath.Join("/proc", strconv.Itoa(m.PID()), "root", dir, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	m.awaitStore(t, "down") // before a call fails for it
	n := 0
	run.Eventually(t, "a key is refused since the disk is full", func() bool {
		n++
		key := fmt.Sprint("full ", n)
		a, err := m.ask(ctx, doors[n%3], key)
		if err == nil && a.String() == noKeys && backend.count(key) != 0 {
			t.Fatalf("%s was executed, and its key refused", key)
		}
		if err == nil && a.String() == ok {
			before = append(before, key)
		}
		return err == nil && a.String() == noKeys && a.retry
	})
	s := m.awaitStore(t, "down")
	t.Logf("after %d calls: %s", n, s.Why)
	if err := m.watch(ctx); err != nil {
		t.Errorf("a call that needs no store: %v", err)
	}
	if v, err := m.makeTask(ctx, "task refused", false); err == nil || v.ID != "" || backend.count("task refused") != 0 {
		t.Errorf("a task on a full disk: %+v, %v; %d executions; want it refused", v, err, backend.count("task refused"))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m.awaitStore(t, "up")
	if v := m.task(t, done); v.State != "STATE_COMPLETED" {
		t.Errorf("task of before: %+v, want it completed", v)
	}
	for _, key := range []string{"task refused", "task after"} {
		if v := m.awaitTask(t, m.submit(t, key)); v.State != "STATE_COMPLETED" || backend.count(key) != 1 {
			t.Errorf("%s, once there is room: %+v after %d executions, want it completed", key, v, backend.count(key))
		}
	}
	for i, key := range before {
		// What became of a call that was answered while the disk was full is recorded a little later.
		run.Eventually(t, "the answer under "+key+" is replayed", func() bool {
			a, err := m.ask(ctx, doors[i%3], key)
			return err == nil && a.replayed && a.number == 1
		})
	}
	if a, err := m.ask(ctx, "http", "after"); err != nil || a.String() != ok {
		t.Errorf("after: %v, %v", a, err)
	}
	backend.mu.Lock()
	defer backend.mu.Unlock()
	for key, n := range backend.times {
		if n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
}

// fill writes a file until the disk is full.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			block = block[:len(block)/2]
		}
	}
	return f.Sync()
}

// TestDirectoryInUse starts a second mesh on a directory that one has.
func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	backend, dir := startCounter(t), t.TempDir()
	file := backend.configFile(t, "")
	m := serve(t, "--config", file, "--data", dir)
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr, err := run.Output(nil, bin, "serve", "--config", file, "--data", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "off", "--admin-addr", "off")
	if err != nil || code == 0 || !strings.Contains(string(stderr), fmt.Sprintf("is used by another process (pid %d)", m.PID())) {
		t.Errorf("a second mesh: exit code %d, %v, %s", code, err, stderr)
	}
	if a, err := m.ask(t.Context(), "grpc", "first"); err != nil || a.String() != ok {
		t.Errorf("the first mesh: %v, %v", a, err)
	}
	m.Kill()
	// The lock is the process's: nothing is to be cleaned up after a crash.
	m = serve(t, "--config", file, "--data", dir)
	if a, err := m.ask(t.Context(), "grpc", "first"); err != nil || !a.replayed {
		t.Errorf("after a crash: %v, %v", a, err)
	}
	m.stop(t)
}

// blocks are the files that hold the records of keys.
func blocks(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".blk") && strings.Contains(path, "toolway_kv_keys") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("blocks: %v, %v", out, err)
	}
	return out
}

// TestDamage damages what a mesh has kept, after it was stopped and after it was killed: it does not start as if nothing had been lost, since a lost
// key lets a call run twice, and starts once the operator says so.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"flipped":   func(b []byte) []byte { b[len(b)/2] ^= 0x40; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"emptied":   func([]byte) []byte { return nil },
	} {
		for _, how := range []string{"stopped", "killed"} {
			t.Run(how+" and "+name, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				backend, dir := startCounter(t), t.TempDir()
				file, mark := backend.configFile(t, ""), filepath.Join(dir, "store", "marks.json")
				m := serve(t, "--config", file, "--data", dir)
				const n = 20
				for i := range n {
					if a, err := m.ask(ctx, "grpc", fmt.Sprint(i)); err != nil || a.String() != ok {
						t.Fatalf("%d: %v, %v", i, a, err)
					}
				}
				if how == "stopped" {
					m.stop(t)
				} else {
					// A key has two writes.
					run.Eventually(t, "the mark is set", func() bool {
						raw, err := os.ReadFile(mark)
						return err == nil && strings.Contains(string(raw), fmt.Sprintf(`"toolway_kv_keys":{"last":%d,`, 2*n))
					})
					m.Kill()
				}
				block := blocks(t, dir)[0]
				raw, err := os.ReadFile(block)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(block, damage(raw), 0o600); err != nil {
					t.Fatal(err)
				}
				again, err := run.Serve("--config", file, "--data", dir)
				if err == nil && how == "stopped" && name == "flipped" {
					// One record in the middle, of which the engine learns when it is read: its call is refused, and not made again.
					m = connect(t, again)
					for i := range n {
						a, err := m.ask(ctx, doors[i%3], fmt.Sprint(i))
						if err != nil || a.String() != noKeys && (a.String() != ok || !a.replayed) || backend.count(fmt.Sprint(i)) != 1 {
							t.Errorf("%d: %v, replayed %v, %v; %d executions", i, a, a.replayed, err, backend.count(fmt.Sprint(i)))
						}
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), "has lost records") || !strings.Contains(err.Error(), mark) {
					t.Fatalf("a mesh with damaged records: %v", err)
				}
				if err := os.Remove(mark); err != nil {
					t.Fatal(err)
				}
				m = serve(t, "--config", file, "--data", dir)
				if a, err := m.ask(ctx, "http", "new"); err != nil || a.String() != ok {
					t.Errorf("after the operator's word: %v, %v", a, err)
				}
				m.stop(t)
			})
		}
	}
}
