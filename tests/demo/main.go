// Command demo tells the story of an incident: a shop gets a fault, an agent has it diagnosed, a person approves the restart, and the trail is read back. All of it
// runs for real: a shop of three processes, five services, and one mesh before them. "make demo-incident" runs it; the test of this package does the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", "", "directory for keys, configuration and data, emptied first; default: .cache/demo-incident of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *dir, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, dir string, out io.Writer) error {
	repository, err := repository()
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(repository, ".cache", "demo-incident")
	}
	// The directory is emptied, so it has to be one of ours.
	if _, err := os.Stat(filepath.Join(dir, "demo-incident.yaml")); err == nil {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fmt.Fprintln(out, "Building the mesh, five services and the shop ...")
	binaries, err := build()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return play(ctx, dir, binaries, out)
}

// play runs the story in a directory, and stops everything that it has started.
func play(ctx context.Context, dir string, binaries map[string]string, out io.Writer) (err error) {
	w, err := prepare(dir, binaries)
	if err != nil {
		return err
	}
	p := &printer{begun: time.Now(), w: out}
	defer func() {
		if stopped := w.stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stop: %w", stopped))
		}
		if err != nil {
			p.line("\nIt went wrong: %v\nWhat the processes printed last:\n%s", err, w.logs())
		} else {
			p.line("\nThe end, after %.0f s: every process has been stopped. Configuration, keys, the audit and the shop's log lie in %s.", time.Since(p.begun).Seconds(), w.dir)
		}
	}()
	if err := w.start(); err != nil {
		return err
	}
	s, err := newStory(ctx, w, p)
	if err != nil {
		return err
	}
	return s.tell(ctx)
}
