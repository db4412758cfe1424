package mcpadapter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/apart"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/transcode"
)

// toolCall is one tools/call, whatever transport it came by.
type toolCall struct {
	name string
	// arguments are the bytes that the client sent: no number in them has been through a float.
	arguments json.RawMessage
	meta      crossing
	caller
	// buffer, if not nil, is what the JSON of the reply is written to; it holds the grown one afterwards. The result is valid only until
	// it is used again.
	buffer *[]byte
	// keeper keeps the replies of the round that runs.
	keeper keeper
}

// caller is what a transport knows about who makes a request.
type caller struct {
	header   http.Header
	protocol string
	// peer is the caller's address, if the context does not have it.
	peer net.Addr
	// notify sends one progress notification; nil if the client asked for none.
	notify func(step)
	// log takes the log messages of the backend; nil if the client asked for none.
	log *logSink
	// begin sends the header of the stream that progress goes out on, so that the client knows that the call was taken; it may be nil.
	begin func()
	// client is who calls, as far as it can be asked something.
	client client
}

// call runs one tool call. The error is a JSON-RPC error; everything that the model can mend is in the result.
func (a *Adapter) call(ctx context.Context, t *toolCall) (*result, error) {
	snapshot := a.conf.Catalog.Snapshot()
	if t.name == callTool && a.conf.View.Search {
		return a.callThrough(ctx, snapshot, t)
	}
	m := a.tool(ctx, snapshot, t.name)
	if m == nil {
		return nil, a.unknownTool(ctx, snapshot, t.name)
	}
	return a.run(ctx, m, t)
}

// run runs a call of m.
func (a *Adapter) run(ctx context.Context, m *catalog.Method, t *toolCall) (*result, error) {
	if mayBeCached := a.conf.ServeStale && m.Policy.CacheTTL > 0; m.Backend.State == catalog.Down && !mayBeCached {
		e := withdrawn(m)
		return a.refuse(ctx, m, t, e, call.Error(codes.Unavailable, e.Reason, e.Message, "hint", e.Hint)), nil
	}
	last, err := a.resume(m, t)
	if err != nil {
		if _, found, denied := a.pass(ctx, m, t, call.Error(codes.InvalidArgument, "INPUT_INVALID", "requestState or inputResponses are not what this call was answered with")); denied {
			return found, nil
		}
		return nil, err
	}
	p := startProgress(t.notify)
	defer p.stop()
	for rounds := 1; ; rounds++ {
		requests, err := Requests(m, t.arguments)
		switch {
		case err != nil && m.Quarantine != "": // the chain refuses the call, whatever its arguments
			requests = call.One(call.NewFrame(m.Desc.Input(), nil))
		case err != nil:
			return a.refuse(ctx, m, t, badArguments(err), errBadArguments), nil
		}
		at := a.attempt(ctx, m, t, requests, last, p)
		next, res, err := a.after(ctx, m, t, &at, last, p, rounds)
		if next == nil {
			return res, err
		}
		last = next
	}
}

// after is what follows a round: the next one, or else the result.
func (a *Adapter) after(ctx context.Context, m *catalog.Method, t *toolCall, at *attempt, last *round, p *progress, rounds int) (*round, *result, error) {
	ask := at.asks()
	switch {
	case last != nil && last.foreign:
		return nil, nil, invalidParams(errForeignState.Error())
	case at.call.Hidden:
		p.stop()
		return nil, nil, a.unknownTool(call.WithPrincipal(ctx, at.call.Principal), a.conf.Catalog.Snapshot(), t.name)
	case at.call.Task != "":
		p.stop()
		return nil, a.createdTask(ctx, at.call), nil
	case ask == nil && t.client.modern && onlyAsTask(at.err):
		p.stop()
		return nil, nil, needsTasks("tool " + strconv.Quote(m.Tool.Name) + " runs only as a task")
	case ask == nil:
		p.stop()
		return nil, a.shown(a.finish(ctx, at.call, at.kept, at.err), at.call), nil
	}
	if next := at.unasked(m, t, ask, last); next != nil && rounds < maxRounds {
		return next, nil, nil
	}
	if t.client.modern {
		p.stop()
		res, err := a.inputResult(m, t, *at, ask, last)
		return nil, res, err
	}
	next, refusal := a.fulfil(ctx, m, t, *at, ask)
	if refusal != nil || rounds == maxRounds {
		p.stop()
		return nil, cmp.Or(refusal, a.tooManyRounds(*at)), nil
	}
	return next, nil, nil
}

// errBadArguments is what logs and audit are told of arguments that do not fit: the agent is told more, which may quote them.
var errBadArguments = call.Error(codes.InvalidArgument, "INVALID_ARGUMENTS", "the arguments do not fit the tool")

// refuse ends a call that this door cannot take, with e, after it has passed the chain with the status why. What the chain finds first is told
// in place of e: that nobody is authenticated, say.
func (a *Adapter) refuse(ctx context.Context, m *catalog.Method, t *toolCall, e *toolError, why error) *result {
	c, found, denied := a.pass(ctx, m, t, why)
	if denied {
		return found
	}
	return a.shown(errorResult(m, e, nil), c)
}

// pass takes a call that this door refuses with why through the chain, so that who calls is asked first, and observe and audit see it. It is
// denied, with what the caller is told, if the chain has found something else first.
func (a *Adapter) pass(ctx context.Context, m *catalog.Method, t *toolCall, why error) (_ *call.Call, found *result, denied bool) {
	c := call.New(m, call.MCP)
	c.Protocol, c.Peer = t.protocol, t.peer
	c.Forward = forward(a.conf.Rules, t.header, t.meta)
	identify(ctx, c)
	c.Refuse(why)
	k := &keeper{method: m, shape: shapeOf(m), options: a.conf.JSON}
	err := a.conf.Handler(call.NewStream(ctx, c, call.Refused(why), func(*call.Frame) error { return why }, nil))
	if err != nil && !errors.Is(err, why) {
		return c, a.shown(a.finish(ctx, c, k, err), c), true
	}
	return c, nil, false
}

// attempt is one round of a tool call that has ended.
type attempt struct {
	call *call.Call
	kept *keeper
	// asker is the chain's; nil if the client cannot be asked.
	asker *questioner
	err   error
}

// attempt makes one round of a tool call. Its frame is on the stack while the call waits, as those of its callers are: what comes before and after is apart.
func (a *Adapter) attempt(ctx context.Context, m *catalog.Method, t *toolCall, requests func() (*call.Frame, error), last *round, p *progress) attempt {
	at := a.prepare(ctx, m, t, last, p)
	if t.buffer != nil {
		defer func() { *t.buffer = t.keeper.json }()
	}
	at.err = a.conf.Handler(call.NewStream(ctx, at.call, last.bring(at.call, requests), at.kept.keep, nil))
	return at
}

// prepare makes what a round needs.
func (a *Adapter) prepare(ctx context.Context, m *catalog.Method, t *toolCall, last *round, p *progress) attempt {
	c := call.New(m, call.MCP)
	c.Protocol, c.Peer = t.protocol, t.peer
	c.Forward = forward(a.conf.Rules, t.header, t.meta)
	identify(ctx, c)
	c.Confirm = t.meta.confirm
	if m.Service.Mesh {
		c.View = a.conf.View.Has
	}
	if a.conf.Tasks != nil && t.client.modern && t.client.can&canTask != 0 && becomesTask(m) {
		c.Async = &call.Async{Unaskable: t.client.can.unaskable()}
	}
	at := attempt{call: c}
	if t.client.can&canForm != 0 {
		at.asker = &questioner{client: &t.client, round: last}
		c.Asker = at.asker
	}
	if t.begin != nil && (t.notify != nil || t.log != nil) && m.Kind().Server {
		apart.Run(t.begin)
	}
	k := &t.keeper
	*k = keeper{} // and not a whole one that is made elsewhere and copied
	k.method, k.shape, k.progress, k.log, k.options = m, shapeOf(m), p, t.log, a.conf.JSON
	k.ctx, k.call, k.objects = ctx, c, a.conf.Objects
	k.limit(&a.conf)
	if t.buffer != nil {
		k.json = (*t.buffer)[:0]
	}
	at.kept = k
	return at
}

// shown makes a result fit to be shown, and says how old it is.
func (a *Adapter) shown(r *result, c *call.Call) *result {
	if !a.conf.KeepInvisible {
		r.strip()
	}
	if r.isError {
		if r.meta == nil {
			r.meta = map[string]any{}
		}
		r.meta[metaCallID] = c.ID
	}
	if f := &c.Freshness; f.Cached && !r.isError {
		if r.meta == nil {
			r.meta = map[string]any{}
		}
		r.meta[metaAge] = int64(f.Age / time.Second)
		if f.Stale {
			r.meta[metaStale] = true
		}
	}
	if c.Replayed {
		if r.meta == nil {
			r.meta = map[string]any{}
		}
		r.meta[metaReplayed] = true
	}
	return r
}

// finish turns what a call left behind into its result.
func (a *Adapter) finish(ctx context.Context, c *call.Call, k *keeper, err error) *result {
	switch {
	case k.full != "" && k.shape == asMessage:
		return k.streamResult()
	case k.full != "":
		return k.contentResult()
	case k.failure != nil:
		e := describe(k.failure, c)
		e.Hint = "the backend did its work, only its reply cannot be shown; do not repeat a call that changes something"
		r := errorResult(c.Method, e, k.kept())
		if k.link != nil {
			r.content = append(r.content, linkBlock(c.Method.Tool.Name, k.link))
		}
		return r
	case err != nil:
		st, ok := status.FromError(err)
		if ctxErr := ctx.Err(); !ok && ctxErr != nil {
			st, ok = status.FromContextError(ctxErr), true
		}
		if !ok {
			a.conf.Logger.ErrorContext(ctx, "tool call failed without a status", "tool", c.Method.Tool.Name, "call", c.ID, "error", err)
			st = status.New(codes.Internal, "internal error; the mesh's log has more under call "+c.ID)
		}
		if st.Code() == codes.Unavailable && c.Method.Backend.State == catalog.Down {
			return errorResult(c.Method, withdrawn(c.Method), nil)
		}
		e := describe(st, c)
		if e.Reason == reasonTaskRequired {
			e.Hint = "nothing was done: this tool needs a client of protocol version 2026-07-28 that declares the extension " + tasksExtension + "; if there is another tool for this, use it"
		}
		return errorResult(c.Method, e, k.kept())
	case c.Method.Kind().Server && k.shape == asMessage:
		return k.streamResult()
	case k.count == 0 && !c.Method.Kind().Server:
		return errorResult(c.Method, describe(status.New(codes.Internal, "the backend ended the call without a reply"), c), nil)
	case k.shape != asMessage:
		return k.contentResult()
	}
	return k.unaryResult()
}

// keeper keeps the replies of one call, up to the limits.
type keeper struct {
	method             *catalog.Method
	shape              shape
	progress           *progress
	log                *logSink
	options            transcode.WriteOptions
	maxBytes, maxItems int
	maxDepth           int
	storing

	// json is the one reply, or the replies of a stream separated by commas; of content, the structured form.
	json  []byte
	count int
	// blocks are content blocks, held their bytes, where the replies are content.
	blocks [][]byte
	held   int
	// blob is the reply of a method that answers with google.api.HttpBody.
	blob *blob
	// full says which limit ended the stream.
	full string
	// failure is why a reply could not be kept.
	failure *status.Status
	// cut says what was left out of the one reply, link where the whole is; nil if there is none.
	cut  *transcode.Cut
	link *object.Info
	// lastCut is what was left out of the last reply, cutItems of how many items of a stream something was.
	lastCut  transcode.Cut
	cutItems int
	// next is how to get what comes after the reply, or after the last item.
	next *cursor
	// result is room for a result.
	result result
}

// errFull ends a stream of which enough has been kept.
var errFull = call.Error(codes.Canceled, call.ResultFull, "the result is full")

// keep is given each reply.
func (k *keeper) keep(f *call.Frame) error {
	stream := k.method.Kind().Server
	if stream && k.shape == asMessage && k.count == k.maxItems {
		k.full = fmt.Sprintf("%d items", k.maxItems)
		return errFull
	}
	if k.count > 0 && !stream || k.call != nil && k.call.Task != "" && k.call.Async != nil {
		return nil // the chain reports the second reply of a unary call; that of one that became a task is empty
	}
	if k.shape != asMessage {
		return k.keepContent(f.Bytes())
	}
	if !stream {
		return k.keepReply(f.Bytes())
	}
	before := len(k.json)
	if k.count > 0 {
		k.json = append(k.json, ',')
	}
	out, err := k.method.Response().AppendJSON(k.json, f.Bytes(), k.options)
	if err != nil {
		k.json = k.json[:before]
		return k.unwritable(f.Bytes(), err)
	}
	if len(out) > k.maxBytes {
		k.json = out[:before]
		if k.count > 0 {
			k.full = fmt.Sprintf("%d bytes", k.maxBytes)
			return errFull
		}
		k.link = k.put(f.Bytes(), out[before:], true)
		k.failure = status.Newf(codes.ResourceExhausted, "the reply has %d bytes of JSON, and %d are allowed; ask for less, such as a smaller page or fewer fields", len(out)-before, k.maxBytes)
		return k.failure.Err()
	}
	k.json = out
	k.count++
	if len(k.lastCut.Places) > 0 {
		k.cutItems++
	}
	k.resumeAt(f.Bytes())
	k.progress.received(k.count)
	return nil
}

// kept returns the items of a stream that arrived before it broke, as a JSON array, or nil.
func (k *keeper) kept() []byte {
	if !k.method.Kind().Server || k.count == 0 || k.shape != asMessage {
		return nil
	}
	return k.items()
}

func (k *keeper) items() []byte {
	out := make([]byte, 0, len(k.json)+2)
	out = append(out, '[')
	out = append(out, k.json...)
	return append(out, ']')
}

// unknownTool is a JSON-RPC error: the model is not offered such a tool, though it may have been.
func (a *Adapter) unknownTool(ctx context.Context, s *catalog.Snapshot, name string) error {
	if a.listed.Load() != nil {
		a.listingsOf(s) // notes which tools it has no longer
	}
	if a.conf.Visibility == nil && a.removed.has(name) {
		return invalidParams(fmt.Sprintf("tool %q was removed; list the tools again", name))
	}
	text := fmt.Sprintf("unknown tool %q", cut(name, 100))
	if near := nearmiss.Find(name, slices.Values(a.listingsOf(s).forCaller(a, call.PrincipalFrom(ctx)).names)); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	} else {
		text += "; list the tools again, they may have changed"
	}
	return invalidParams(text)
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
