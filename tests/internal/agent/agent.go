// Package agent is an MCP client that hides nothing: requests and answers are the JSON of the wire. The official clients are run elsewhere;
// this one is for what they cannot send or do not show.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
)

// The protocol versions that the mesh speaks.
const (
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"
)

// Message is a JSON-RPC message.
type Message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      any             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// Error is a JSON-RPC error.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// Requester sends a request and returns its result. Notifications that come before go to notify, which may be nil. A JSON-RPC error is
// returned as *Error. The end of ctx cancels the request in the way of the protocol version.
type Requester interface {
	Request(ctx context.Context, method string, params map[string]any, notify func(Message)) (json.RawMessage, error)
}

// Tool is one entry of tools/list.
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  map[string]bool `json:"annotations"`
}

// Result is what tools/call returns.
type Result struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent"`
	IsError           bool            `json:"isError"`
	// Meta holds what the mesh adds, such as the error of a tool whose result has a field "error" of its own.
	Meta map[string]json.RawMessage `json:"_meta"`
}

// Text is the text of all content.
func (r *Result) Text() string {
	var s string
	for _, c := range r.Content {
		s += c.Text
	}
	return s
}

// Tools lists all tools, page by page.
func Tools(ctx context.Context, r Requester) ([]Tool, error) {
	var tools []Tool
	params := map[string]any{}
	for {
		raw, err := r.Request(ctx, "tools/list", params, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []Tool `json:"tools"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, err
		}
		tools = append(tools, page.Tools...)
		if page.NextCursor == "" {
			return tools, nil
		}
		params = map[string]any{"cursor": page.NextCursor}
	}
}

// Call calls a tool. progress, which may be nil, asks for progress and gets each notification's message.
func Call(ctx context.Context, r Requester, tool string, arguments any, progress func(message string)) (*Result, error) {
	params := map[string]any{"name": tool, "arguments": arguments}
	if progress != nil {
		params["_meta"] = map[string]any{"progressToken": "token-" + tool}
	}
	raw, err := r.Request(ctx, "tools/call", params, func(m Message) {
		if m.Method != "notifications/progress" || progress == nil {
			return
		}
		var p struct {
			ProgressToken string `json:"progressToken"`
			Message       string `json:"message"`
		}
		if json.Unmarshal(m.Params, &p) == nil && p.ProgressToken == "token-"+tool {
			progress(p.Message)
		}
	})
	if err != nil {
		return nil, err
	}
	var res Result
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, fmt.Errorf("result %.500s: %w", raw, err)
	}
	return &res, nil
}

// withMeta adds what each request of 2026-07-28 carries.
func withMeta(version string, params map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range params {
		out[k] = v
	}
	if version < V20260728 {
		return out
	}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    version,
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"io.modelcontextprotocol/clientInfo":         clientInfo,
	}
	if m, ok := params["_meta"].(map[string]any); ok {
		for k, v := range m {
			meta[k] = v
		}
	}
	out["_meta"] = meta
	return out
}

var clientInfo = map[string]any{"name": "toolway-tests", "version": "1"}

func initializeParams(version string) map[string]any {
	return map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": clientInfo}
}
