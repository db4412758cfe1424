// Package run builds the toolway binary and the backends, starts them, waits until they are ready, and stops them.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Module is the directory of the tests module.
var Module = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(b, []byte("module github.com/toolway/toolway/tests\n")) {
			return dir, nil
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return "", errors.New("find the tests module: no go.mod of it above the working directory")
	}
})

// Descriptors is the path of a file of the shared corpus, which lies beside the repository.
func Descriptors(name string) (string, error) {
	module, err := Module()
	if err != nil {
		return "", err
	}
	path := filepath.Join(module, "..", "..", "shared", "descriptors", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("corpus: %w: put the shared/ folder beside the checkout", err)
	}
	return filepath.Clean(path), nil
}

// Toolway builds the binary, with the race detector if the tests have it, and returns its path.
func Toolway() (string, error) {
	if Race {
		return build("toolway-race", "..", "./cmd/toolway", "-race")
	}
	return Plain()
}

// Plain builds the binary without the race detector, for work that is long and has one goroutine.
func Plain() (string, error) { return build("toolway", "..", "./cmd/toolway") }

// Backend builds tests/backends/NAME and returns the path of the binary.
func Backend(name string) (string, error) { return build(name, ".", "./backends/"+name) }

// Service builds the command of one of our own services, which are in a module of their own, and returns the path of the binary.
func Service(name string) (string, error) {
	return build("service-"+name, "../services", "./"+name+"/cmd")
}

// Package builds a main package that go.mod pins and returns the path of the binary.
func Package(name, path string) (string, error) { return build(name, ".", path) }

// build builds below the tests module's .bin. Test packages run as processes side by side, so a lock file keeps one go build at a time;
// go build does nothing if the binary is up to date.
func build(name, dir, pkg string, flags ...string) (string, error) {
	once, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) { return buildNow(name, dir, pkg, flags) }))
	return once.(func() (string, error))()
}

// builds holds a function for each name, so that one test process builds each binary once.
var builds sync.Map

func buildNow(name, dir, pkg string, flags []string) (string, error) {
	module, err := Module()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(module, ".bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	out := filepath.Join(bin, name)
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.CommandContext(context.Background(), "go", append(args, pkg)...)
	cmd.Dir = filepath.Join(module, dir)
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %v in %q: %w\n%s", cmd.Args[1:], cmd.Dir, err, b)
	}
	return out, nil
}
