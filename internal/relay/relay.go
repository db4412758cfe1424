// Package relay joins an agent host that speaks MCP over stdio to a mesh that speaks it over Streamable HTTP. Messages pass as they are: what
// host and mesh agree on, versions included, is between them. The relay adds what HTTP needs and stdio has not: the credential, the headers,
// the session, and new connections for those that break.
package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Config says where the mesh is and how it is reached. URL is required.
type Config struct {
	// URL is the MCP endpoint, such as https://tools.example.com/mcp.
	URL string
	// Credential sets the headers that say who calls; nil sets none. It is called for every request, so that a token may be replaced.
	Credential func(http.Header) error
	// Client makes the requests. It must have no Timeout: streams stay open. Default: one with its own connections.
	Client *http.Client
	// Logger gets what neither side of the protocol is told. Default: slog.Default().
	Logger *slog.Logger
	// Retry bounds how long a request that has not reached the mesh is tried again. Default 30 seconds.
	Retry time.Duration
	// Drain bounds how long calls in flight may go on when the host has closed its side. Default 5 seconds.
	Drain time.Duration
	// MaxMessageBytes bounds one message of either side. Default 64 MiB.
	MaxMessageBytes int
}

// Relay joins one host to the mesh. Make one with New for each host.
type Relay struct {
	conf     Config
	ctx      context.Context // Run's
	session  session
	renewing sync.Mutex // held while the session is made again
	calls    calls
	running  sync.WaitGroup

	out    sync.Mutex // held while a line is written
	writer io.Writer
}

// New returns a relay. The error is about the configuration.
func New(c Config) (*Relay, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no MCP endpoint: want a URL such as https://tools.example.com/mcp", c.URL)
	}
	if u.User != nil {
		return nil, errors.New("the endpoint's URL holds a password: give the credential by the environment or a file, where it does not show")
	}
	if c.Client == nil {
		c.Client = &http.Client{Transport: newTransport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Retry == 0 {
		c.Retry = 30 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 5 * time.Second
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 64 << 20
	}
	return &Relay{conf: c}, nil
}

// newTransport has connections of its own, which a hung one does not share.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16
	t.ResponseHeaderTimeout = 0 // a call may take long
	t.DisableCompression = true // events must not wait in a buffer
	return t
}

// maxCalls is how many calls of the host may be under way; it is not read while there are more.
const maxCalls = 1000

// Run relays until in ends or ctx does. Then calls in flight may finish within the bound. out carries one JSON-RPC message a line and nothing
// else. The error is that of in or out; a mesh that cannot be reached is told to the host, call by call.
func (r *Relay) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	r.writer = out
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.ctx = ctx
	free := make(chan struct{}, maxCalls)
	err := r.read(ctx, in, func(m message) {
		switch {
		case m.Method == "notifications/cancelled":
			r.cancel(ctx, m)
		case m.isRequest():
			free <- struct{}{}
			r.begin(ctx, m, func() { <-free })
		case m.Method != "":
			r.notify(ctx, m)
		default:
			r.answer(ctx, m)
		}
	})
	r.finish(stop)
	return err
}

// finish waits for calls in flight, up to the bound, and ends the session.
func (r *Relay) finish(stop context.CancelFunc) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.calls.wait()
	}()
	timer := time.NewTimer(r.conf.Drain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.conf.Logger.Warn("the host has gone; calls still in flight are cut", "after", r.conf.Drain.String())
	}
	stop()
	<-done
	r.running.Wait()
	r.endSession()
	r.conf.Client.CloseIdleConnections()
}

// read gives each message of in to take, until in or ctx ends.
func (r *Relay) read(ctx context.Context, in io.Reader, take func(message)) error {
	lines := make(chan message)
	failed := make(chan error, 1)
	go func() { // a read of standard input cannot be interrupted: it ends with the process
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 0, 64<<10), r.conf.MaxMessageBytes)
		for s.Scan() {
			line := bytes.TrimSpace(s.Bytes())
			if len(line) == 0 {
				continue
			}
			m, err := parse(bytes.Clone(line))
			if err != nil {
				r.write(appendError(nil, m.ID, -32700, "parse error: "+err.Error()))
				continue
			}
			select {
			case lines <- m:
			case <-ctx.Done():
				return
			}
		}
		failed <- s.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-lines:
			if !ok {
				select {
				case err := <-failed:
					return err
				default:
					return nil
				}
			}
			take(m)
		}
	}
}

// write writes one line. A host that no longer reads ends its side soon.
func (r *Relay) write(line []byte) {
	var compact bytes.Buffer
	if bytes.IndexByte(line, '\n') >= 0 && json.Compact(&compact, line) == nil { // one message a line
		line = compact.Bytes()
	}
	r.out.Lock()
	defer r.out.Unlock()
	if _, err := r.writer.Write(append(bytes.TrimSpace(line), '\n')); err != nil {
		r.conf.Logger.Debug("write to the host", "error", err)
	}
}
