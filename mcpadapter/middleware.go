package mcpadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// receive answers the methods that this door owns and leaves the rest to the SDK.
func (a *Adapter) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer a.rescue(ctx, method, &err) // the SDK has a goroutine for each request, and a panic there ends the process
		ctx = a.withCaller(ctx, req)
		switch method {
		case "tools/list":
			params, _ := req.GetParams().(*mcp.ListToolsParams)
			return a.listTools(ctx, params)
		case "tools/call":
			r, ok := req.(*mcp.CallToolRequest)
			if !ok || r.Params == nil {
				return nil, invalidParams("tools/call needs params with a tool name")
			}
			return a.callTool(ctx, r)
		case getTask, updateTask, cancelTask:
			return a.receiveTask(ctx, method, req)
		case "subscriptions/listen":
			return a.listen(ctx, next, method, req)
		case "initialize":
			res, err := next(ctx, method, req)
			if conn, ok := ctx.Value(lineKey{}).(*lineConn); ok {
				conn.keepSession(req.GetSession())
			}
			return a.forTransport(ctx, res), err
		case "logging/setLevel":
			return a.setLogLevel(ctx, next, method, req)
		}
		if res, err, mine := a.receiveOffer(ctx, next, req); mine {
			return res, err
		}
		return next(ctx, method, req)
	}
}

// errPanic is what the client sees of a panic.
var errPanic = errors.New("internal error; the mesh's log has the cause")

// rescue, deferred, makes an error of a panic.
func (a *Adapter) rescue(ctx context.Context, method string, err *error) {
	if r := recover(); r != nil {
		a.panicked(ctx, method, r)
		*err = rpcError(jsonrpc.CodeInternalError, "%v", errPanic)
	}
}

// panicked tells the log.
func (a *Adapter) panicked(ctx context.Context, method string, r any) {
	a.conf.Logger.ErrorContext(ctx, "panic in a request", "method", method, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
}

// forTransport takes from the result of initialize what is for 2026-07-28 only, and what its transport cannot carry: over HTTP without sessions there
// is no stream on which an older client could hear of changes.
func (a *Adapter) forTransport(ctx context.Context, res mcp.Result) mcp.Result {
	r, ok := res.(*mcp.InitializeResult)
	if !ok || r == nil { // the SDK has refused
		return res
	}
	told := *r
	told.Capabilities = a.capabilities()
	told.Capabilities.Extensions = nil
	if _, stateless := ctx.Value(requestKey{}).(context.Context); !stateless {
		return &told
	}
	told.Capabilities.Tools.ListChanged = false
	told.Capabilities.Logging = nil
	told.Capabilities.Prompts.ListChanged = false
	told.Capabilities.Resources.ListChanged = false
	told.Capabilities.Resources.Subscribe = false
	return &told
}

func (a *Adapter) listTools(ctx context.Context, params *mcp.ListToolsParams) (mcp.Result, error) {
	cursor, modern := "", false
	if params != nil {
		cursor, modern = params.Cursor, isModern(params.Meta)
	}
	tools, next, err := a.currentListing(ctx).page(cursor, a.conf.PageTools, a.conf.PageBytes)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(tools)+256)
	body = append(append(body, listBegin...), tools...)
	return &rawResult{body: a.appendListEnd(body, next, modern)}, nil
}

// listBegin comes before the tools of a tools/list result.
const listBegin = `"tools":[`

// appendListEnd appends what comes after them.
func (a *Adapter) appendListEnd(dst []byte, next string, modern bool) []byte {
	dst = append(dst, ']')
	if next != "" {
		dst = append(append(append(dst, `,"nextCursor":"`...), next...), '"')
	}
	if modern {
		dst = append(dst, `,"ttlMs":`...)
		dst = strconv.AppendInt(dst, a.conf.CacheTTL.Milliseconds(), 10)
		dst = append(dst, `,"cacheScope":"private","resultType":"complete"`...)
	}
	return dst
}

func (a *Adapter) callTool(ctx context.Context, r *mcp.CallToolRequest) (mcp.Result, error) {
	c := &toolCall{name: r.Params.Name, arguments: r.Params.Arguments, meta: crossingOf(r.Params.Meta)}
	c.protocol, c.client = protocolOf(r), a.clientOf(ctx, r)
	if r.Extra != nil {
		c.header = r.Extra.Header
	}
	if token := progressToken(r.Params.Meta, c.header); token != nil {
		c.notify = func(p step) {
			// A client that has gone is noticed by the context; there is nobody else to tell.
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: p.done, Total: p.total, Message: p.message})
		}
	}
	c.log = sessionLog(ctx, r)
	if c.notify != nil || isModern(r.Params.Meta) && c.log != nil {
		c.begin = a.beginner(c.header)
	}
	ctx, stop := followRequest(ctx)
	defer stop()
	defer a.limitStream(r, c.protocol)()
	res, err := a.call(ctx, c)
	if err != nil {
		return nil, err
	}
	return &rawResult{body: res.append(nil, isModern(r.Params.Meta)), ResultBase: mcp.ResultBase{Meta: res.meta}}, nil
}

// reconnectAfter is how soon a client is to come back for the rest of a stream.
const reconnectAfter = 100 * time.Millisecond

// limitStream ends the stream of a call in a session when it has its age. The returned function is to be called when the call has ended.
func (a *Adapter) limitStream(r *mcp.CallToolRequest, protocol string) (stop func()) {
	if a.conf.StreamAge <= 0 || protocol != version20251125 || r.Extra == nil || r.Extra.CloseSSEStream == nil || r.Session.ID() == "" {
		return func() {}
	}
	timer := time.AfterFunc(a.conf.StreamAge, func() { r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: reconnectAfter}) })
	return func() { timer.Stop() }
}

// isModern says whether a request follows 2026-07-28 or later, where each request carries its version.
func isModern(meta map[string]any) bool {
	v, _ := meta[mcp.MetaKeyProtocolVersion].(string)
	return v != ""
}

// protocolOf returns the version that a request is under. One that does not say is taken for the oldest.
func protocolOf(r *mcp.CallToolRequest) string {
	if v, _ := r.Params.Meta[mcp.MetaKeyProtocolVersion].(string); v != "" {
		return v
	}
	if p := r.Session.InitializeParams(); p != nil && p.ProtocolVersion == version20251125 {
		return version20251125
	}
	return version20250618
}

// rawResult is a result whose members, _meta aside, are encoded already: `"a":1,"b":2`.
type rawResult struct {
	mcp.ResultBase
	body []byte
}

// MarshalJSON returns the whole result.
func (r *rawResult) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, len(r.body)+256)
	out = append(out, '{')
	if len(r.Meta) > 0 {
		meta, err := json.Marshal(r.Meta)
		if err != nil {
			return nil, err
		}
		out = append(out, `"_meta":`...)
		out = append(out, meta...)
		if len(r.body) > 0 {
			out = append(out, ',')
		}
	}
	out = append(out, r.body...)
	return append(out, '}'), nil
}

func invalidParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// requestKey is the context key of the HTTP request that a call came with.
type requestKey struct{}

// followRequest returns a context that also ends with the HTTP request, if ctx has one: the SDK detaches calls of the older protocol
// versions from it.
func followRequest(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	r, ok := ctx.Value(requestKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	unfollow := context.AfterFunc(r, cancel)
	return ctx, func() { unfollow(); cancel() }
}
