package mcpadapter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeStdio serves one client that sends one JSON-RPC message a line on in and reads the answers from out, which carries nothing else.
// It returns nil when in has ended, ctx is done or the adapter is closed, after calls in flight have ended or Config.DrainTimeout has
// passed; an error means that in or out broke. If in is an io.Closer it is closed when ctx ends first. One Adapter may serve several clients at once.
func (a *Adapter) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	c := &lineConn{
		out:     out,
		maxLine: a.conf.MaxRequestBytes,
		drain:   a.conf.DrainTimeout,
		stop:    ctx.Done(),
		lines:   make(chan inputLine),
		closed:  make(chan struct{}),
		open:    map[jsonrpc.ID]*openRequest{},
		drained: make(chan struct{}, 1),
	}
	c.adapter = a
	base := context.WithValue(context.WithoutCancel(ctx), lineKey{}, c)
	c.ctx, c.stopCalls = context.WithCancel(base)
	defer c.running.Wait()
	defer c.stopCalls()
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.scan(in)
	}()
	release := a.changes.watch()
	defer release()
	session, err := a.server.Connect(base, lineTransport{c}, nil)
	if err != nil {
		return fmt.Errorf("connect stdio: %w", err)
	}
	err = session.Wait()
	_ = c.Close() // never fails
	stopReading(in, read)
	if broken := c.broken(); broken != nil {
		return broken
	}
	if err != nil && !errors.Is(err, io.EOF) && !a.isClosing() {
		return fmt.Errorf("serve stdio: %w", err)
	}
	return nil
}

// stopReading ends the read in progress, if there is one and in can be told to: closing does not wake a read of a terminal, nor of a
// standard input that blocks. That read ends with its next line, or with the process.
func stopReading(in io.Reader, done <-chan struct{}) {
	closer, ok := in.(io.Closer)
	if !ok {
		return
	}
	select {
	case <-done:
		return
	default:
	}
	_ = closer.Close() // only to wake the read
	select {
	case <-done:
	case <-time.After(100 * time.Millisecond):
	}
}

type lineTransport struct{ conn *lineConn }

// Connect returns the one connection.
func (t lineTransport) Connect(context.Context) (mcp.Connection, error) { return t.conn, nil }

// lineConn is a connection of one message a line. Unlike the SDK's it survives a line that is not a message, answers no cancelled
// request, lets calls finish after the input has ended, and gives ids back exactly as they came.
type lineConn struct {
	out     io.Writer
	maxLine int
	drain   time.Duration
	stop    <-chan struct{}
	lines   chan inputLine
	closed  chan struct{}
	once    sync.Once

	writeMu sync.Mutex // one line at a time

	mu      sync.Mutex
	open    map[jsonrpc.ID]*openRequest
	calls   int           // that end by themselves and are not answered yet
	drained chan struct{} // gets a value when calls becomes 0
	err     error

	quickLine
}

// openRequest is a request without an answer yet.
type openRequest struct {
	id                json.RawMessage // as the client wrote it
	listen, cancelled bool
	// cancel ends a request of the fast path; nil for those of the SDK.
	cancel context.CancelFunc
	// begins is what the protocol of the session is after an answer without an error; "" leaves it as it is.
	begins   string
	discover bool
}

// inputLine is one line of the input: its text, or what is known of it if it is too long.
type inputLine struct {
	text []byte
	long *longMessage
}

// scan reads lines until in ends or the connection is closed.
func (c *lineConn) scan(in io.Reader) {
	defer close(c.lines)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := c.readLine(r)
		if len(bytes.TrimSpace(line.text)) > 0 || line.long != nil {
			select {
			case c.lines <- line:
			case <-c.closed:
				return
			}
		}
		if err != nil {
			select {
			case <-c.closed: // the reader was closed on purpose
			default:
				if !errors.Is(err, io.EOF) {
					c.fail(fmt.Errorf("read stdin: %w", err))
				}
			}
			return
		}
	}
}

// readLine returns the next line.
func (c *lineConn) readLine(r *bufio.Reader) (inputLine, error) {
	var l inputLine
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case l.long != nil:
			l.long.grow(part)
		case len(l.text)+len(part) > c.maxLine:
			l.long = &longMessage{}
			l.long.grow(l.text)
			l.long.grow(part)
			l.text = nil
		default:
			l.text = append(l.text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}

// Read returns the next message for the SDK. After the input has ended it waits for calls in flight, since the SDK then cancels them.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.read(ctx)
	if err != nil {
		c.stopCalls()
	}
	return msg, err
}

func (c *lineConn) read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, io.EOF
		case <-c.stop:
			c.waitForCalls()
			return nil, io.EOF
		case line, ok := <-c.lines:
			if !ok {
				c.waitForCalls()
				return nil, io.EOF
			}
			msg, err := c.accept(line)
			if err != nil {
				return nil, err
			}
			if msg != nil {
				return msg, nil
			}
		}
	}
}

// accept turns a line into a message, or answers it itself and returns nil. The error means that the answer could not be written.
func (c *lineConn) accept(l inputLine) (jsonrpc.Message, error) {
	if l.long != nil {
		return nil, c.write(errorMessage(l.long.id(), rpcError(jsonrpc.CodeInvalidRequest, "the message is longer than %d bytes", c.maxLine)))
	}
	line := l.text
	if c.quick(line) {
		return nil, nil
	}
	e, rpcErr := parseEnvelope(line)
	if rpcErr != nil {
		return nil, c.write(errorMessage(e.id, rpcErr))
	}
	if e.method == "" {
		return jsonrpc.DecodeMessage(line)
	}
	msg := &jsonrpc.Request{Method: e.method, Params: e.params}
	switch {
	case e.isRequest():
		msg.ID = sdkID(e.id)
		if e.method == "initialize" {
			msg.Params = withInitializeVersion(msg.Params)
		}
		switch e.method {
		case "subscriptions/listen":
			x := extra(listenIDHeader, string(e.id))
			x.Header.Set(taskIDsHeader, listenTaskIDs(e.params))
			msg.Extra = x
		case "tools/call":
			if token := numberToken(e.params); token != "" {
				msg.Extra = extra(tokenHeader, token)
			}
		}
		r := &openRequest{id: e.id, listen: e.method == "subscriptions/listen", discover: e.method == "server/discover", begins: begins(e.method, msg.Params)}
		if !c.begin(msg.ID, r) {
			return nil, c.write(errorMessage(e.id, rpcError(jsonrpc.CodeInvalidRequest, "id %s is in use by a request that has no answer yet", e.id)))
		}
	case e.method == "notifications/cancelled":
		id, known := c.cancel(e.params)
		if !known {
			return nil, nil
		}
		params, err := json.Marshal(map[string]any{"requestId": id.Raw()})
		if err != nil {
			return nil, err
		}
		msg.Params = params
	}
	return msg, nil
}

func (c *lineConn) begin(id jsonrpc.ID, r *openRequest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id] != nil {
		return false
	}
	c.open[id] = r
	if !r.listen {
		c.calls++
	}
	return true
}

// cancel marks the request that a notifications/cancelled names as one that gets no answer, and ends it if it is not the SDK's. An id of
// another type, or one that is not open, names no request. It returns the id of one that the SDK knows.
func (c *lineConn) cancel(params json.RawMessage) (id jsonrpc.ID, known bool) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := json.Unmarshal(params, &p); err != nil || !isID(p.RequestID) {
		return jsonrpc.ID{}, false
	}
	id = sdkID(p.RequestID)
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[id]
	if r == nil {
		return jsonrpc.ID{}, false
	}
	r.cancelled = true
	if r.cancel != nil {
		r.cancel()
		return jsonrpc.ID{}, false
	}
	return id, true
}

// end forgets a request and returns it, or nil if there is none: its id may be used again as soon as the answer is out.
func (c *lineConn) end(id jsonrpc.ID) *openRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[id]
	delete(c.open, id)
	return r
}

// answered counts a call that has its answer, or wants none.
func (c *lineConn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls == 0 {
		select {
		case c.drained <- struct{}{}:
		default:
		}
	}
}

func (c *lineConn) waitForCalls() {
	timeout := time.NewTimer(c.drain)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		idle := c.calls == 0
		c.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-c.drained:
		case <-timeout.C:
			return
		case <-c.closed:
			return
		}
	}
}

// Write writes a message of the SDK as one line.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	response, ok := msg.(*jsonrpc.Response)
	if !ok {
		line, err := jsonrpc.EncodeMessage(msg)
		if err != nil {
			return err
		}
		return c.write(line)
	}
	r := c.end(response.ID)
	if r == nil {
		r = &openRequest{listen: true} // the SDK could not tell which request it was
	}
	if !r.listen {
		// Only now, so that waitForCalls does not end the connection before the answer is out.
		defer c.answered()
	}
	if r.cancelled {
		return nil
	}
	id := r.id
	if response.Error != nil {
		return c.write(errorMessage(id, wireError(response.Error)))
	}
	c.begun(r)
	line := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"result":`...)
	return c.write(append(append(line, response.Result...), '}'))
}

// wireError gives errors of the SDK that have no code the one for a request that is out of order.
func wireError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return &jsonrpc.Error{Code: e.Code, Message: err.Error(), Data: e.Data}
	}
	return rpcError(jsonrpc.CodeInvalidRequest, "%v", err)
}

func (c *lineConn) write(line []byte) error { return c.send(append(line, '\n')) }

// send writes one line, in pieces.
func (c *lineConn) send(pieces ...[]byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if _, err := c.out.Write(p); err != nil {
			err = fmt.Errorf("write stdout: %w", err)
			c.fail(err)
			return err
		}
	}
	return nil
}

func (c *lineConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *lineConn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends Read. It does not close the input or output, which are not the connection's own.
func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID is empty: stdio has none.
func (c *lineConn) SessionID() string { return "" }

// numberID marks ids that the SDK would round.
const numberID = "\x00number:"

// sdkID returns the id by which the SDK knows a request.
func sdkID(raw json.RawMessage) jsonrpc.ID {
	var v any
	if !keepsID(raw) || json.Unmarshal(raw, &v) != nil {
		v = numberID + string(raw)
	}
	id, err := jsonrpc.MakeID(v)
	if err != nil { // strings and numbers are always ids
		return jsonrpc.ID{}
	}
	return id
}
