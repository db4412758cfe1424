package mcpadapter

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/buffer"
)

const (
	eventBegin = "event: message\ndata: "
	eventEnd   = "\n\n"
)

// scratch is what one request of the fast path is read into, worked on in, and written from: one piece of memory that the next request uses again.
type scratch struct {
	body, json, out []byte
	quick           quickRequest
	call            toolCall
	reply           reply
}

// scratch returns memory for one request.
func (a *Adapter) scratch() *scratch {
	if s, ok := a.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// free gives s back. Nothing may use it any more.
func (a *Adapter) free(s *scratch) {
	for _, b := range [...]*[]byte{&s.body, &s.json, &s.out} {
		if cap(*b) > buffer.Small { // not for small messages
			give(b)
		}
	}
	s.quick = quickRequest{} // what it points to is not to be kept
	s.call = toolCall{}
	if s.reply.clear() {
		a.scratches.Put(s)
	}
}

func give(b *[]byte) {
	large := *b
	buffer.Give(&large)
	*b = nil
}

// quickAnswer is the answer to a request of the fast path, framed as an event. Its pieces belong to a scratch, or are shared with others.
type quickAnswer struct {
	// pieces are what is sent, one after the other.
	pieces [3][]byte
	// refused says that it is a JSON-RPC error.
	refused bool
}

// bare returns the answer without its frame, but with so many bytes of what follows the message.
func (q *quickAnswer) bare(after int) [3][]byte {
	p := q.pieces
	p[0] = p[0][len(eventBegin):]
	last := 0
	if p[2] != nil {
		last = 2
	}
	p[last] = p[last][:len(p[last])-len(eventEnd)+after]
	return p
}

func size(pieces [3][]byte) int { return len(pieces[0]) + len(pieces[1]) + len(pieces[2]) }

// answerQuick answers q, which scan found fit for the fast path. What the transport knows of the caller is in s.call. Refusals are those of tools/list and tools/call themselves.
func (a *Adapter) answerQuick(ctx context.Context, q *quickRequest, s *scratch) quickAnswer {
	res, err := a.callQuick(ctx, q, s)
	return a.writeQuick(ctx, q, s, res, err)
}

// callQuick calls the tool that q calls, if it does. All that has a large frame stands apart from it and its callers, which are on the stack while a call waits.
func (a *Adapter) callQuick(ctx context.Context, q *quickRequest, s *scratch) (*result, error) {
	if q.method != "tools/call" {
		return nil, nil //nolint:nilnil // writeQuick has the rest
	}
	t := &s.call
	t.name, t.arguments, t.meta, t.buffer = q.name, q.arguments, q.meta.crossing, &s.json
	return a.call(ctx, t)
}

// writeQuick writes the answer to q, which is res or err if q calls a tool.
func (a *Adapter) writeQuick(ctx context.Context, q *quickRequest, s *scratch, res *result, err error) (answer quickAnswer) {
	out := append(append(s.out[:0], eventBegin...), `{"jsonrpc":"2.0","id":`...)
	out = append(out, q.id...)
	var shared []byte
	split := 0 // where shared goes
	switch q.method {
	case "tools/list":
		var next string
		if shared, next, err = a.currentListing(ctx).page(q.cursor, a.conf.PageTools, a.conf.PageBytes); err == nil {
			out = a.appendMeta(append(out, `,"result":{`...), nil, q.modern())
			out = append(out, listBegin...)
			split = len(out)
			out = append(a.appendListEnd(out, next, q.modern()), "}}"...)
		}
	case "tools/call":
		if err == nil {
			s.out = out
			buffer.Room(&s.out, res.size())
			out = s.out
			out = a.appendMeta(append(out, `,"result":{`...), res.meta, q.modern())
			out = append(res.append(out, q.modern()), "}}"...)
		}
	case getTask, cancelTask:
		var body []byte
		if body, err = a.answerTask(ctx, q.method, asker{header: s.call.header, meta: q.meta.crossing, protocol: version20260728, peer: s.call.peer, modern: true}, s.call.client.can, q.name); err == nil {
			out = append(append(a.appendMeta(append(out, `,"result":{`...), nil, true), body...), "}}"...)
		}
	case "server/discover":
		out = append(append(append(out, `,"result":`...), a.discovery...), '}')
	default:
		out = append(out, `,"result":{}}`...)
	}
	if err != nil {
		out = append(appendError(out, wireError(err)), '}')
	}
	out = append(out, eventEnd...)
	s.out = out
	answer.refused = err != nil && wireError(err).Code != jsonrpc.CodeInternalError // the SDK has no HTTP status for it
	answer.pieces[0] = s.out
	if split > 0 {
		answer.pieces = [3][]byte{s.out[:split], shared, s.out[split:]}
	}
	return answer
}

// failQuick answers q with an error.
func (a *Adapter) failQuick(q *quickRequest, s *scratch, err error) (answer quickAnswer) {
	s.out = append(append(append(s.out[:0], eventBegin...), `{"jsonrpc":"2.0","id":`...), q.id...)
	s.out = append(append(appendError(s.out, wireError(err)), '}'), eventEnd...)
	answer.refused, answer.pieces[0] = true, s.out
	return answer
}

// appendMeta appends the member "_meta" of a result, if it has one, with a comma after it. As the SDK does, it has the server say who it
// is in each answer of 2026-07-28.
func (a *Adapter) appendMeta(dst []byte, meta map[string]any, modern bool) []byte {
	switch {
	case len(meta) == 0 && !modern:
		return dst
	case len(meta) == 0:
		return append(append(append(dst, `"_meta":`...), a.introduction...), ',')
	case modern:
		meta = maps.Clone(meta)
		meta[mcp.MetaKeyServerInfo] = a.implementation()
	}
	raw, err := marshal(meta)
	if err != nil { // it has nothing in it that cannot be encoded
		return dst
	}
	return append(append(append(dst, `"_meta":`...), raw...), ',')
}

// appendProgress appends a progress notification.
func appendProgress(dst []byte, token json.RawMessage, p step) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...), token...)
	if p.message != "" {
		dst = appendString(append(dst, `,"message":`...), p.message)
	}
	dst = appendNumber(append(dst, `,"progress":`...), p.done)
	if p.total != 0 {
		dst = appendNumber(append(dst, `,"total":`...), p.total)
	}
	return append(dst, "}}"...)
}

// appendNumber appends a number in the form that encoding/json gives it.
func appendNumber(dst []byte, n float64) []byte {
	if abs := math.Abs(n); n == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, n, 'f', -1, 64)
	}
	raw, err := json.Marshal(n)
	if err != nil { // report lets none through
		return append(dst, '0')
	}
	return append(dst, raw...)
}

// introduce encodes what answers of the fast path say about this server.
func (a *Adapter) introduce() error {
	meta := map[string]any{mcp.MetaKeyServerInfo: a.implementation()}
	var err error
	if a.introduction, err = marshal(meta); err != nil {
		return err
	}
	a.discovery, err = marshal(struct {
		ResultType        string                  `json:"resultType"`
		Meta              json.RawMessage         `json:"_meta"`
		TTLMs             int64                   `json:"ttlMs"`
		CacheScope        string                  `json:"cacheScope"`
		SupportedVersions []string                `json:"supportedVersions"`
		Capabilities      *mcp.ServerCapabilities `json:"capabilities"`
		Instructions      string                  `json:"instructions,omitempty"`
	}{"complete", a.introduction, a.conf.CacheTTL.Milliseconds(), "private", versions, a.capabilities(), a.conf.Instructions})
	return err
}
