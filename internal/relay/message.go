package relay

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// message is a JSON-RPC message as far as HTTP needs to know it. The id stays as it was written: 2^53+1 must come back unchanged.
type message struct {
	raw []byte
	// acknowledged says that the host has heard that its subscription is heard.
	acknowledged bool

	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  params          `json:"params"`
	Version string          `json:"jsonrpc"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

type params struct {
	Name            string          `json:"name"`
	URI             string          `json:"uri"`
	TaskID          string          `json:"taskId"`
	ProtocolVersion string          `json:"protocolVersion"`
	RequestID       json.RawMessage `json:"requestId"`
	Notifications   notifications   `json:"notifications"`
	Meta            struct {
		Version string `json:"io.modelcontextprotocol/protocolVersion"`
	} `json:"_meta"`
}

// notifications are those of a subscription.
type notifications struct {
	Tools     bool     `json:"toolsListChanged"`
	Prompts   bool     `json:"promptsListChanged"`
	Resources bool     `json:"resourcesListChanged"`
	Updates   []string `json:"resourceSubscriptions"`
}

var errNoObject = errors.New("want one JSON object a line")

func parse(line []byte) (message, error) {
	m := message{raw: line}
	if len(line) == 0 || line[0] != '{' {
		return m, errNoObject
	}
	if err := json.Unmarshal(line, &m); err != nil {
		var wrongType *json.UnmarshalTypeError
		if !errors.As(err, &wrongType) { // odd members are for the mesh to judge
			return m, err
		}
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	return m, nil
}

// valid says whether the message may be given to a host: a proxy's page or error is none of the protocol.
func (m *message) valid() bool {
	if m.Version != "2.0" || m.Method == "" && (m.Result == nil) == (m.Error == nil) {
		return false
	}
	return m.Error == nil || len(m.Error) > 0 && m.Error[0] == '{'
}

func (m *message) isRequest() bool { return m.Method != "" && m.ID != nil }

// modern says whether the message follows 2026-07-28, where each request carries its version.
func (m *message) modern() bool { return m.Params.Meta.Version != "" }

// headers are those that 2026-07-28 wants for the message (Streamable HTTP, "Standard request headers").
func (m *message) headers(h http.Header) {
	if !m.modern() {
		return
	}
	h.Set("Mcp-Protocol-Version", m.Params.Meta.Version)
	h.Set("Mcp-Method", m.Method)
	switch m.Method {
	case "tools/call", "prompts/get":
		h.Set("Mcp-Name", headerValue(m.Params.Name))
	case "resources/read":
		h.Set("Mcp-Name", headerValue(m.Params.URI))
	case "tasks/get", "tasks/update", "tasks/cancel":
		h.Set("Mcp-Name", headerValue(m.Params.TaskID))
	}
}

// headerValue wraps what a header cannot carry as it is.
func headerValue(s string) string {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || (c == ' ' && (i == 0 || i == len(s)-1)) {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
		}
	}
	return s
}

func appendError(dst []byte, id json.RawMessage, code int, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = strconv.AppendInt(append(dst, `,"error":{"code":`...), int64(code), 10)
	quoted, _ := json.Marshal(text) // a string can always be encoded
	return append(append(append(dst, `,"message":`...), quoted...), "}}"...)
}

// appendFailure is the answer to a request that the mesh has not answered. To a model it is the result of its call, which it can read; other
// requests get an error of the protocol.
func appendFailure(dst []byte, m *message, text string) []byte {
	if m.Method != "tools/call" {
		return appendError(dst, m.ID, -32603, text)
	}
	quoted, _ := json.Marshal(text) // a string can always be encoded
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), m.ID...)
	dst = append(append(append(dst, `,"result":{"content":[{"type":"text","text":`...), quoted...), `}],"isError":true`...)
	if m.modern() {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return append(dst, "}}"...)
}
