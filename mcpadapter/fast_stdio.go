package mcpadapter

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// quickLine is what a lineConn knows for the fast path.
type quickLine struct {
	adapter *Adapter
	// ctx is the context of calls; stopCalls ends it.
	ctx       context.Context
	stopCalls context.CancelFunc
	running   sync.WaitGroup
	// protocol is the version that the session was begun with, as the SDK sees it; "" before. It is guarded by the connection's mu.
	protocol string
	// logLevel is what an older client has set with logging/setLevel; 0 before.
	logLevel atomic.Int32
	// older is what is known of an older client, once it has begun a session.
	older atomic.Pointer[client]
}

// keepSession notes the SDK's session of an older client, which it has begun.
func (c *quickLine) keepSession(s mcp.Session) {
	if session, ok := s.(*mcp.ServerSession); ok {
		older := sessionClient(session)
		c.older.Store(&older)
	}
}

func (c *quickLine) client() client {
	if older := c.older.Load(); older != nil {
		return *older
	}
	return client{}
}

// begins returns the version with which the session has begun if the SDK answers the request without an error: older versions begin with
// initialize, 2026-07-28 with any request.
func begins(method string, params json.RawMessage) string {
	switch method {
	case "initialize":
		var p struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(params, &p) == nil && p.ProtocolVersion == version20251125 {
			return version20251125
		}
		return version20250618
	case "server/discover", "tools/list", "tools/call":
		return version20260728
	}
	return ""
}

// begun notes that the SDK has answered r without an error. server/discover makes any session one of 2026-07-28.
func (c *lineConn) begun(r *openRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.begins != "" && (c.protocol == "" || r.discover) {
		c.protocol = r.begins
	}
}

// quick begins to answer a line on the fast path, and says whether it was one for it. Before the SDK has seen a session begin, none is,
// and neither is what would change the SDK's own idea of the session.
func (c *lineConn) quick(line []byte) bool {
	c.mu.Lock()
	protocol := c.protocol
	c.mu.Unlock()
	if protocol == "" || c.adapter.conf.sdkOnly {
		return false
	}
	q := &quickRequest{}
	if !q.scan(line) || !c.adapter.offersQuick(q) || q.method == "server/discover" && protocol != version20260728 {
		return false
	}
	from := caller{protocol: version20250618}
	switch {
	case q.modern():
		from.protocol = version20260728
	case protocol == version20251125:
		from.protocol = version20251125
	}
	if q.modern() {
		from.client = client{modern: true, can: q.meta.can}
	} else {
		from.client = c.client()
	}
	if !c.adapter.beginStdioCall() {
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	id := sdkID(q.id)
	if !c.begin(id, &openRequest{id: q.id, cancel: cancel}) {
		cancel()
		c.adapter.stdioCalls.Done()
		return false
	}
	if q.meta.token != nil {
		from.notify = func(p step) {
			if ctx.Err() == nil {
				// A broken output ends the connection, and with it this call.
				_ = c.write(appendProgress(nil, q.meta.token, p))
			}
		}
	}
	if level := c.logLevelOf(q); level != 0 {
		from.log = &logSink{from: level, send: func(data []byte, level mcp.LoggingLevel, logger string) {
			if ctx.Err() == nil {
				_ = c.write(appendLog(nil, data, level, logger))
			}
		}}
	}
	// As with the SDK, a client that sends on without reading answers does not stop the reading.
	c.running.Go(func() {
		defer c.adapter.stdioCalls.Done()
		defer cancel()
		s := c.adapter.scratch()
		defer c.adapter.free(s)
		s.call.caller = from
		answer := c.answerSafely(ctx, q, s)
		r := c.end(id)
		defer c.answered()
		if r.cancelled {
			return
		}
		line := answer.bare(len("\n"))
		if err := c.send(line[:]...); err != nil {
			_ = c.Close() // never fails
		}
	})
	return true
}

// answerSafely is answerQuick on a goroutine of its own, where a panic would end the process.
func (c *lineConn) answerSafely(ctx context.Context, q *quickRequest, s *scratch) (answer quickAnswer) {
	defer func() {
		if r := recover(); r != nil {
			c.adapter.panicked(ctx, q.method, r)
			answer = c.adapter.failQuick(q, s, rpcError(jsonrpc.CodeInternalError, "%v", errPanic))
		}
	}()
	return c.adapter.answerQuick(ctx, q, s)
}

// logLevelOf returns the least serious level that the client wants of this call, or 0.
func (c *lineConn) logLevelOf(q *quickRequest) toolwayv1.LogLevel {
	if q.modern() {
		return logLevel(q.meta.logLevel)
	}
	return toolwayv1.LogLevel(c.logLevel.Load())
}

// beginStdioCall counts a call of the fast path over stdio, unless the adapter is closing.
func (a *Adapter) beginStdioCall() bool {
	a.closingMu.Lock()
	defer a.closingMu.Unlock()
	if a.closing {
		return false
	}
	a.stdioCalls.Add(1)
	return true
}

func (a *Adapter) isClosing() bool {
	a.closingMu.Lock()
	defer a.closingMu.Unlock()
	return a.closing
}
