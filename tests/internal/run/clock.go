package run

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Clock is a wall clock of one process that can be made to jump. Its monotonic one goes on, as with a real jump.
type Clock struct{ file string }

// clockFile names the file whose first eight bytes are how far the clock is off, in seconds.
const clockFile = "TOOLWAY_TEST_CLOCK"

// jumpGo is added to the standard library's package time: Linux gives a process no wall clock of its own, so time.Now is the one place to move it.
const jumpGo = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var off = func() *int64 {
	name, _ := syscall.Getenv("` + clockFile + `")
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic("open the clock: " + err.Error())
	}
	m, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the clock: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&m[0]))
}()

func jumped() int64 {
	if off == nil { // not initialised yet
		return 0
	}
	return atomic.LoadInt64(off)
}
`

// jumping builds the binary with a time.Now that a Clock moves. All that is compiled in, the store's engine too, has it.
func jumping() (string, error) {
	module, err := Module()
	if err != nil {
		return "", err
	}
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	const begin = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), begin) != 1 {
		return "", fmt.Errorf("time.Now of %s is not what it was: look at its source, and mend this test", runtime.Version())
	}
	dir := filepath.Join(module, ".bin", "clock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(std, "time.go"): filepath.Join(dir, "time.go"), filepath.Join(std, "jump.go"): filepath.Join(dir, "jump.go"),
	}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string]string{
		"time.go": strings.Replace(string(source), begin, begin+"\tsec += jumped()\n", 1), "jump.go": jumpGo, "overlay.json": string(overlay),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return build("toolway-clock", "..", "./cmd/toolway", "-overlay="+filepath.Join(dir, "overlay.json"))
}

// NewClock returns a clock that is right, and what begins the mesh with it, for ServeBy.
func NewClock(t *testing.T) (c *Clock, program []string) {
	t.Helper()
	bin, err := jumping()
	if err != nil {
		t.Fatal(err)
	}
	c = &Clock{file: filepath.Join(t.TempDir(), "clock")}
	if err := os.WriteFile(c.file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, []string{"env", clockFile + "=" + c.file, "sh", "-c", `exec "` + bin + `" "$@"`}
}

// Set has the clock be off by d, in whole seconds, from now on.
func (c *Clock) Set(t *testing.T, d time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(d/time.Second))), 0); err != nil { //nolint:gosec // two's complement
		t.Fatal(err)
	}
}
