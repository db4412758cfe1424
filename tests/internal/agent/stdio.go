package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Stdio is a client of a server that is a child process.
type Stdio struct {
	// Version is the protocol version that requests are sent under.
	Version string

	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr lockedBuffer
	exited chan struct{}
	err    error

	mu      sync.Mutex
	lines   []string
	ids     int64
	waiting map[int64]chan Message
	notify  map[int64]func(Message)
	other   func(Message)
}

// NewStdio starts the server. Nothing is sent yet. Env is added to the environment. Notifications that belong to no request go to other,
// which may be nil.
func NewStdio(version string, env []string, other func(Message), path string, args ...string) (*Stdio, error) {
	c := &Stdio{Version: version, cmd: exec.CommandContext(context.Background(), path, args...), exited: make(chan struct{}), waiting: map[int64]chan Message{}, notify: map[int64]func(Message){}, other: other}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.exited)
		c.read(out)
		c.err = c.cmd.Wait()
	}()
	return c, nil
}

// Initialize opens the session, for versions before 2026-07-28.
func (c *Stdio) Initialize(ctx context.Context) error {
	if c.Version >= V20260728 {
		return nil
	}
	if _, err := c.Request(ctx, "initialize", initializeParams(c.Version), nil); err != nil {
		return err
	}
	return c.Send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func (c *Stdio) read(out io.Reader) {
	br := bufio.NewReader(out)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			c.take(line)
		}
		if err != nil {
			return
		}
	}
}

func (c *Stdio) take(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, strings.TrimSuffix(line, "\n"))
	var m Message
	if json.Unmarshal([]byte(line), &m) != nil {
		return
	}
	if id, ok := m.ID.(float64); ok && m.Method == "" {
		if w := c.waiting[int64(id)]; w != nil {
			w <- m
		}
		return
	}
	for _, f := range c.notify {
		f(m)
	}
	if c.other != nil {
		c.other(m)
	}
}

// Send writes one message.
func (c *Stdio) Send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.in.Write(append(b, '\n'))
	return err
}

// Request implements Requester. The end of ctx sends notifications/cancelled.
func (c *Stdio) Request(ctx context.Context, method string, params map[string]any, notify func(Message)) (json.RawMessage, error) {
	c.mu.Lock()
	c.ids++
	id := c.ids
	answer := make(chan Message, 1)
	c.waiting[id] = answer
	if notify != nil {
		c.notify[id] = notify
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
		delete(c.notify, id)
	}()
	if err := c.Send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": withMeta(c.Version, params)}); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return nil, m.Error
		}
		return m.Result, nil
	case <-ctx.Done():
		err := c.Send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id, "reason": "the test says so"}})
		return nil, errors.Join(ctx.Err(), err)
	case <-c.exited:
		return nil, fmt.Errorf("server ended: %w\n%s", c.end(), c.stderr.String())
	}
}

// Close ends the server's input, waits for its end and returns its error.
func (c *Stdio) Close() error {
	c.in.Close()
	<-c.exited
	return c.err
}

// Kill ends the server at once.
func (c *Stdio) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// Exited is closed when the server has gone.
func (c *Stdio) Exited() <-chan struct{} { return c.exited }

// end is how the server ended, if it has.
func (c *Stdio) end() error {
	if c.err == nil {
		return io.EOF
	}
	return c.err
}

// Lines is all that came on standard output.
func (c *Stdio) Lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines...)
}

// Stderr is all that came on standard error.
func (c *Stdio) Stderr() string { return c.stderr.String() }

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
