package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/fstest"
	"time"
)

func TestContainerLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, c := range []struct {
		name string
		fs   fstest.MapFS
		want uint64
	}{
		{"no control groups", fstest.MapFS{}, 0},
		{"version 2", fstest.MapFS{"proc/self/cgroup": file("0::/pod/c\n"), "sys/fs/cgroup/pod/c/memory.max": file("268435456\n")}, 256 << 20},
		{"version 2, the pod's is lower", fstest.MapFS{"proc/self/cgroup": file("0::/pod/c\n"), "sys/fs/cgroup/pod/c/memory.max": file("max\n"), "sys/fs/cgroup/pod/memory.max": file("134217728\n")}, 128 << 20},
		{"version 2, own name space", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456\n")}, 256 << 20},
		{"version 2, path of the host", fstest.MapFS{"proc/self/cgroup": file("0::/kubepods/x\n"), "sys/fs/cgroup/memory.max": file("268435456\n")}, 256 << 20},
		{"version 2, none", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		{"version 1", fstest.MapFS{"proc/self/cgroup": file("5:cpu:/d\n4:memory:/d\n"), "sys/fs/cgroup/memory/d/memory.limit_in_bytes": file("268435456\n")}, 256 << 20},
		{"version 1, none", fstest.MapFS{"proc/self/cgroup": file("4:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 0},
		{"nonsense", fstest.MapFS{"proc/self/cgroup": file("x\n0::/../..\n"), "sys/fs/cgroup/memory.max": file("lots\n")}, 0},
	} {
		if got := containerLimit(c.fs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestGCPercent pins the documented bounds: 64 MiB of garbage, never less than Go's own default allows, never more than four times what is in use.
func TestGCPercent(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(inUse); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", inUse, got, want)
		}
	}
}

// TestTuneMemory runs itself with another environment, since the runtime reads it once.
func TestTuneMemory(t *testing.T) {
	if os.Getenv("TOOLWAY_TEST_TUNED") == "" {
		for _, env := range [][]string{{"GOGC=", "WANT=adapts"}, {"GOGC=77", "WANT=stays"}} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTuneMemory$")
			cmd.Env = append(append(os.Environ(), "TOOLWAY_TEST_TUNED=1"), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("with %v: %v\n%s", env, err, out)
			}
		}
		return
	}
	tuneMemory(true)
	if runtime.MemProfileRate == 0 {
		t.Error("no profile of memory is kept, though it can be read")
	}
	tuneMemory(false)
	if runtime.MemProfileRate != 0 {
		t.Errorf("the runtime keeps a profile of memory that nobody can read: MemProfileRate is %d", runtime.MemProfileRate)
	}
	percent := func() uint64 {
		read := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(read)
		return read[0].Value.Uint64()
	}
	if os.Getenv("WANT") == "stays" {
		if got := percent(); got != 77 {
			t.Errorf("GOGC = %d, want the operator's 77", got)
		}
		return
	}
	if got := percent(); got <= 100 {
		t.Errorf("GOGC = %d for a small heap, want more than 100", got)
	}
	held := make([]byte, 80<<20)
	for end := time.Now().Add(30 * time.Second); percent() != 100; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("GOGC = %d with 80 MiB in use, want 100", percent())
		}
		runtime.GC()
	}
	runtime.KeepAlive(held)
	for end := time.Now().Add(30 * time.Second); percent() == 100; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("GOGC is still 100 when nothing is in use any more")
		}
		runtime.GC()
	}
}

// TestMemoryGoesBackWhenQuiet leaves garbage behind, as load does, and has nothing happen for a while.
func TestMemoryGoesBackWhenQuiet(t *testing.T) {
	free := func() uint64 {
		read := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
		metrics.Read(read)
		return read[0].Value.Uint64()
	}
	p := newPacer()
	p.last = time.Now().Add(-2 * quiet)
	held := make([][]byte, 64)
	for i := range held {
		held[i] = make([]byte, 1<<20)
		for j := 0; j < len(held[i]); j += 4096 {
			held[i][j] = 1 // else the system has never given it
		}
	}
	clear(held)
	runtime.GC()
	if got := free(); got < spare {
		t.Fatalf("only %d bytes are free after 64 MiB were", got)
	}
	p.adapt()
	for end := time.Now().Add(time.Minute); free() >= spare; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes that nobody uses are still the process's", free())
		}
	}
}
