package mcpadapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolway/toolway/internal/call"
)

// envelope is one JSON-RPC message of a client, as far as a transport has to know it.
type envelope struct {
	// id is the raw id of a request or response; nil for a notification.
	id json.RawMessage
	// method is "" for a response.
	method string
	// params is an object, or nil.
	params json.RawMessage
}

func (e *envelope) isRequest() bool { return e.method != "" && e.id != nil }

// encode returns the message of a request under the given id.
func (e *envelope) encode(id []byte) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = appendString(append(out, `,"method":`...), e.method)
	if e.params != nil {
		out = append(append(out, `,"params":`...), e.params...)
	}
	return append(out, '}')
}

// maxNesting is what the SDK accepts; deeper messages are refused before it sees them.
const maxNesting = 1000

// parseEnvelope reads one message. Names are matched exactly, as the SDK does, so that both see the same message. The id of a message
// that is refused is returned where it can be told.
func parseEnvelope(data []byte) (envelope, *jsonrpc.Error) {
	var e envelope
	data = bytes.TrimSpace(data)
	if tooDeep(data) {
		deep := longMessage{head: data[:min(len(data), idWindow)], tail: data[max(0, len(data)-idWindow):]}
		e.id = deep.id()
		return e, rpcError(jsonrpc.CodeInvalidRequest, "the message is nested more than %d deep", maxNesting)
	}
	if !json.Valid(data) {
		return e, rpcError(jsonrpc.CodeParseError, "the message is not JSON")
	}
	if data[0] == '[' {
		return e, rpcError(jsonrpc.CodeInvalidRequest, "batches are not part of this protocol version; send one message at a time")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return e, rpcError(jsonrpc.CodeInvalidRequest, "a message is an object, not %s", kindOf(data))
	}
	if id, ok := members["id"]; ok {
		if !isID(id) {
			return e, rpcError(jsonrpc.CodeInvalidRequest, "id is %s: want a string or a number", kindOf(id))
		}
		e.id = id
	}
	if string(members["jsonrpc"]) != `"2.0"` {
		return e, rpcError(jsonrpc.CodeInvalidRequest, `jsonrpc is missing or wrong: want "2.0"`)
	}
	method, ok := members["method"]
	if !ok {
		_, isResult := members["result"]
		_, isError := members["error"]
		if e.id == nil || isResult == isError {
			return e, rpcError(jsonrpc.CodeInvalidRequest, "method is missing")
		}
		return e, nil
	}
	if err := json.Unmarshal(method, &e.method); err != nil || e.method == "" {
		return e, rpcError(jsonrpc.CodeInvalidRequest, "method is %s: want a name", kindOf(method))
	}
	if params, ok := members["params"]; ok && string(params) != "null" {
		if params[0] != '{' {
			return e, rpcError(jsonrpc.CodeInvalidParams, "params is %s: want an object", kindOf(params))
		}
		e.params = params
	}
	return e, checkParams(e)
}

// isID says whether a JSON value can be an id.
func isID(value json.RawMessage) bool {
	kind := kindOf(value)
	return kind == "a string" || kind == "a number"
}

// isNumber says whether a JSON value is a number.
func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

// keepsID says whether the SDK gives an id back as it is. It keeps numbers as int64, by way of float64.
func keepsID(id json.RawMessage) bool {
	if id[0] == '"' {
		return true
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	return err == nil && n >= -1<<53 && n <= 1<<53 && string(id) != "-0"
}

// tooDeep says whether objects and arrays are nested deeper than maxNesting.
func tooDeep(data []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func rpcError(code int64, format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: call.PlainText(fmt.Sprintf(format, args...))}
}

// errorMessage returns a JSON-RPC error response. A nil id is written as null: the request could not be read.
func errorMessage(id json.RawMessage, e *jsonrpc.Error) []byte {
	dst := []byte(`{"jsonrpc":"2.0","id":`)
	if id == nil {
		id = json.RawMessage("null")
	}
	return append(appendError(append(dst, id...), e), '}')
}

// appendError appends the member "error" of a response, with a comma before it.
func appendError(dst []byte, e *jsonrpc.Error) []byte {
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	if e.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, '}')
}

// withInitializeVersion returns params of initialize that ask for a version that has initialize. 2026-07-28 has none: a client that
// asks for it here is answered with the newest that does, and the SDK must not take the session for a modern one.
func withInitializeVersion(params json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if params == nil || json.Unmarshal(params, &members) != nil {
		return params
	}
	var asked string
	if err := json.Unmarshal(members["protocolVersion"], &asked); err != nil || asked == version20250618 || asked == version20251125 {
		return params
	}
	members["protocolVersion"] = json.RawMessage(`"` + newestLegacy + `"`)
	out, err := json.Marshal(members)
	if err != nil {
		return params
	}
	return out
}
