package mcpadapter

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The fast path answers ping, tools/list, tools/call, tasks/get, tasks/cancel and server/discover without the SDK, which costs more than all the rest of a call
// (PERFORMANCE.md). It takes a message only if it is certain that the SDK would come to the same answer; whatever is wrong or unusual is
// left to the SDK. Both paths end in the same functions of Adapter, and the tests compare them byte for byte.

// quickRequest is a request that the fast path can answer, as far as the message tells.
type quickRequest struct {
	id     json.RawMessage
	method string
	// name, which is the id where the method is one of tasks, and cursor mean what they say: they are written without escapes.
	name, cursor string
	arguments    json.RawMessage
	meta         quickMeta
	seen         uint
}

// quickMeta is what a request's _meta says.
type quickMeta struct {
	version string          // 2026-07-28, or nothing
	token   json.RawMessage // a string or a number
	// logLevel is the name of the least serious log message that the client wants.
	logLevel string
	// can is what the client can be asked.
	can abilities
	crossing
	seen uint
}

// modern says whether the request follows 2026-07-28.
func (q *quickRequest) modern() bool { return q.meta.version != "" }

// The members that may occur once.
const (
	hasName = 1 << iota
	hasArguments
	hasCursor
	hasMeta
	hasParams
	hasVersion
	hasToken
	hasCapabilities
	hasClientInfo
	hasTraceparent
	hasTracestate
	hasBaggage
	hasKey
	hasConfirm
	hasLogLevel
	hasTask
)

// once notes a member; it is false at the second time.
func once(seen *uint, bit uint) bool {
	fresh := *seen&bit == 0
	*seen |= bit
	return fresh
}

// quickMethods are the methods of the fast path. Looking one up makes no string of the message's bytes.
var quickMethods = map[string]string{"ping": "ping", "tools/list": "tools/list", "tools/call": "tools/call", "server/discover": "server/discover", getTask: getTask, cancelTask: cancelTask}

// scan reads a message into q, which is empty. It is false for one that is not JSON, or is not for the fast path.
func (q *quickRequest) scan(data []byte) bool {
	s := scanner{data: data}
	versioned := false
	ok := s.object(func(name []byte) bool {
		switch string(name) {
		case "jsonrpc":
			v, ok := s.value()
			fresh := !versioned
			versioned = true
			return ok && fresh && string(v) == `"2.0"`
		case "id":
			v, ok := s.value()
			fresh := q.id == nil
			q.id = v
			return ok && fresh && isID(v)
		case "method":
			v, ok := s.string()
			fresh := q.method == ""
			q.method = quickMethods[string(v)]
			return ok && fresh && q.method != ""
		case "params":
			return once(&q.seen, hasParams) && s.params(q)
		}
		return false
	})
	ok = ok && s.end() && !s.odd && versioned && q.id != nil && q.method != ""
	if !ok {
		return false
	}
	switch members := q.seen &^ (hasMeta | hasParams); q.method {
	case "tools/call":
		ok = members|hasArguments == hasName|hasArguments && q.name != ""
	case "tools/list":
		ok = members&^hasCursor == 0
	case getTask, cancelTask:
		ok = members == hasTask && q.modern()
	default:
		ok = members == 0
	}
	if q.meta.seen&hasVersion == 0 {
		return ok && q.method != "server/discover"
	}
	return ok && q.meta.seen&hasCapabilities != 0 && q.method != "ping"
}

// string reads a string that means what it says.
func (s *scanner) string() ([]byte, bool) {
	if s.space() != '"' {
		return nil, false
	}
	v, plain, ok := s.text()
	return v, ok && plain
}

// keep reads such a string into dst.
func (s *scanner) keep(dst *string) bool {
	v, ok := s.string()
	*dst = string(v)
	return ok
}

func (s *scanner) params(q *quickRequest) bool {
	return s.object(func(name []byte) (ok bool) {
		switch string(name) {
		case "name":
			return once(&q.seen, hasName) && s.keep(&q.name)
		case "taskId":
			return once(&q.seen, hasTask) && s.keep(&q.name)
		case "cursor":
			return once(&q.seen, hasCursor) && s.keep(&q.cursor)
		case "arguments":
			q.arguments, ok = s.value()
			return ok && once(&q.seen, hasArguments)
		case "_meta":
			return once(&q.seen, hasMeta) && s.meta(&q.meta)
		}
		return false
	})
}

func (s *scanner) meta(m *quickMeta) bool {
	return s.object(func(name []byte) (ok bool) {
		switch string(name) {
		case mcp.MetaKeyProtocolVersion:
			v, ok := s.string()
			m.version = version20260728
			return once(&m.seen, hasVersion) && ok && string(v) == version20260728
		case mcp.MetaKeyClientCapabilities:
			m.can, ok = s.capabilities()
			return once(&m.seen, hasCapabilities) && ok
		case mcp.MetaKeyClientInfo:
			return once(&m.seen, hasClientInfo) && s.clientInfo()
		case "progressToken":
			m.token, ok = s.token()
			return once(&m.seen, hasToken) && ok
		case mcp.MetaKeyLogLevel:
			return once(&m.seen, hasLogLevel) && s.keep(&m.logLevel)
		case "traceparent":
			return once(&m.seen, hasTraceparent) && s.keep(&m.traceparent)
		case "tracestate":
			return once(&m.seen, hasTracestate) && s.keep(&m.tracestate)
		case "baggage":
			return once(&m.seen, hasBaggage) && s.keep(&m.baggage)
		case metaIdempotencyKey, "idempotency-key":
			return once(&m.seen, hasKey) && s.keep(&m.idempotencyKey) && m.idempotencyKey != ""
		case metaConfirm:
			return once(&m.seen, hasConfirm) && s.keep(&m.confirm)
		}
		_, ok = s.value()
		return ok
	})
}

// token reads a progress token: a number, or a string that means what it says.
func (s *scanner) token() (json.RawMessage, bool) {
	first, start := s.space(), s.pos
	if first == '"' {
		_, ok := s.string()
		return s.data[start:s.pos], ok
	}
	v, ok := s.value()
	return v, ok && isNumber(v)
}

// anyObject reads an object, whatever is in it.
func (s *scanner) anyObject() bool {
	first := s.space()
	_, ok := s.value()
	return ok && first == '{'
}

// clientInfo reads how the client introduces itself: strings, and icons that are made of strings.
func (s *scanner) clientInfo() bool {
	return s.object(func(name []byte) bool {
		if string(name) == "icons" {
			return s.array(func() bool { return s.object(s.icon) })
		}
		return s.anyString()
	})
}

func (s *scanner) icon(name []byte) bool {
	if string(name) == "sizes" {
		return s.array(s.anyString)
	}
	return s.anyString()
}

func (s *scanner) anyString() bool {
	if s.space() != '"' {
		return false
	}
	_, _, ok := s.text()
	return ok
}
