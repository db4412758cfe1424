// Package launch runs commands of services for their tests, in the test's own process.
package launch

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const patience = 60 * time.Second

// Command is a command that runs.
type Command struct {
	// Conn is a connection to it, which the end of the test closes.
	Conn *grpc.ClientConn
	// Stop ends it as SIGTERM does, and returns what it returned. The end of the test calls it too.
	Stop func() error

	output output
}

// Run runs a command on an address of its own until the test ends, and returns when it serves.
func Run(t *testing.T, run func(ctx context.Context, args []string, stderr io.Writer) error, args ...string) *Command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // which ends before what is cleaned up
	c := &Command{output: output{serving: make(chan string, 1)}}
	done := make(chan error, 1)
	go func() { done <- run(ctx, append([]string{"--addr", "127.0.0.1:0"}, args...), &c.output) }()
	c.Stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("does not stop")
		}
	})
	t.Cleanup(func() { _ = c.Stop() })
	select {
	case addr := <-c.output.serving:
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		c.Conn = conn
		t.Cleanup(func() {
			_ = conn.Close()
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	case err := <-done:
		done <- err
		t.Fatalf("ended before it served: %v\n%s", err, c.Log())
	case <-time.After(patience):
		t.Fatalf("does not serve\n%s", c.Log())
	}
	return c
}

// Log is what it has written to standard error.
func (c *Command) Log() string {
	c.output.mu.Lock()
	defer c.output.mu.Unlock()
	return c.output.text.String()
}

var address = regexp.MustCompile(`msg=serving addr=(\S+)\n`)

// output keeps what is written, and finds the address in it.
type output struct {
	serving chan string // gets the address, once

	mu    sync.Mutex
	text  strings.Builder
	found bool
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if !o.found {
		if m := address.FindStringSubmatch(o.text.String()); m != nil {
			o.found = true
			o.serving <- m[1]
		}
	}
	return len(b), nil
}
