package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience is how long anything may take that should be quick. It is far above what a loaded machine needs.
const Patience = 60 * time.Second

// maxLines of a process's output are kept at least, twice as many at most.
const maxLines = 10_000

// Process is a child process whose output is kept.
type Process struct {
	cmd  *exec.Cmd
	name string

	exited chan struct{} // closed when the child has gone and its output is complete
	err    error         // of Wait; read after exited

	mu      sync.Mutex
	lines   []string
	dropped int           // lines before those
	more    chan struct{} // closed and replaced with each line
}

// Spawn starts a program. Lines of both standard output and standard error are kept. env is added to the environment.
func Spawn(env []string, path string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.CommandContext(context.Background(), path, args...), name: path, exited: make(chan struct{}), more: make(chan struct{})}
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.Env = append(os.Environ(), env...)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start %q: %w", path, err)
	}
	go func() {
		defer close(p.exited)
		p.read(r)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

func (p *Process) read(r io.ReadCloser) {
	defer r.Close()
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			p.mu.Lock()
			p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
			if len(p.lines) == 2*maxLines {
				p.lines = slices.Clone(p.lines[maxLines:])
				p.dropped += maxLines
			}
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// Await calls match with each line from the first on until it returns true.
func (p *Process) Await(match func(line string) bool) error {
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	for next := 0; ; {
		p.mu.Lock()
		lines, more := p.lines[max(next-p.dropped, 0):], p.more
		next = p.dropped + len(p.lines)
		p.mu.Unlock()
		for _, l := range lines {
			if match(l) {
				return nil
			}
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-more:
		case <-p.exited:
			if p.lineCount() > next {
				continue
			}
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, errors.Join(p.err, io.ErrUnexpectedEOF), p.Log())
		case <-timeout.C:
			return fmt.Errorf("%s was not ready in %v\n%s", p.name, Patience, p.Log())
		}
	}
}

func (p *Process) lineCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped + len(p.lines)
}

// Log is the last of what the process printed.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	if cut := len(lines) - 200; cut > 0 {
		lines = append([]string{fmt.Sprintf("… %d lines before …", p.dropped+cut)}, lines[cut:]...)
	}
	return strings.Join(lines, "\n")
}

// Contains says whether the process has printed s.
func (p *Process) Contains(s string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if strings.Contains(l, s) {
			return true
		}
	}
	return false
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Exited is closed when the process has gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the process at once, as kill -9 does, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Stop asks the process to end with SIGTERM and waits. It returns an error unless the exit code is 0, or if the race detector spoke.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait(Patience)
}

// Wait waits until the process ends by itself, and kills it after the timeout.
func (p *Process) Wait(timeout time.Duration) error {
	select {
	case <-p.exited:
	case <-time.After(timeout):
		// Every goroutine's stack goes to the log first.
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.exited:
		case <-time.After(5 * time.Second):
		}
		p.Kill()
		return fmt.Errorf("%s did not end in %v\n%s", p.name, timeout, p.Log())
	}
	var exit *exec.ExitError
	switch {
	case p.Contains("WARNING: DATA RACE"):
		return fmt.Errorf("%s has a data race\n%s", p.name, p.Log())
	case errors.As(p.err, &exit):
		return fmt.Errorf("%s: %w\n%s", p.name, exit, p.Log())
	}
	return p.err
}

// Output runs a command to its end and returns exit code, standard output and standard error.
func Output(stdin []byte, path string, args ...string) (code int, stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.SysProcAttr = dieWithParent()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		return 0, nil, nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-time.After(2 * Patience):
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case err = <-done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			err = <-done
		}
		return 0, out.Bytes(), errs.Bytes(), fmt.Errorf("%s %q hangs: %w\n%s", path, args, err, errs.Bytes())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), out.Bytes(), errs.Bytes(), nil
	}
	return 0, out.Bytes(), errs.Bytes(), err
}
