package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// HTTP is a client of one Streamable HTTP endpoint.
type HTTP struct {
	url     string
	version string
	header  http.Header
	client  *http.Client
	session string
	ids     atomic.Int64
}

// NewHTTP returns a client for the endpoint. Versions before 2026-07-28 are opened with initialize. header is sent with each request.
func NewHTTP(ctx context.Context, url, version string, header http.Header) (*HTTP, error) {
	c := &HTTP{url: url, version: version, header: header, client: &http.Client{Transport: &http.Transport{}}}
	if version >= V20260728 {
		return c, nil
	}
	raw, err := c.Request(ctx, "initialize", initializeParams(version), nil)
	if err != nil {
		return nil, err
	}
	var res struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, err
	}
	if res.ProtocolVersion != version {
		return nil, fmt.Errorf("initialize with %q was answered with %q", version, res.ProtocolVersion)
	}
	return c, c.Notify(ctx, "notifications/initialized", nil)
}

// Close drops the client's idle connections.
func (c *HTTP) Close() { c.client.CloseIdleConnections() }

// Session is the session id that initialize gave, or "".
func (c *HTTP) Session() string { return c.session }

// Notify sends a notification.
func (c *HTTP) Notify(ctx context.Context, method string, params map[string]any) error {
	resp, err := c.post(ctx, nil, method, params)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s: %s", method, resp.Status, b)
	}
	return nil
}

// Request implements Requester. The end of ctx closes the request's connection or stream.
func (c *HTTP) Request(ctx context.Context, method string, params map[string]any, notify func(Message)) (json.RawMessage, error) {
	resp, err := c.post(ctx, c.ids.Add(1), method, params)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" && method == "initialize" {
		c.session = s
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return readEvents(resp.Body, notify)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: %s: %.500s", method, resp.Status, b)
	}
	if m.Error != nil {
		return nil, m.Error
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.500s", method, resp.Status, b)
	}
	return m.Result, nil
}

func (c *HTTP) post(ctx context.Context, id any, method string, params map[string]any) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": withMeta(c.version, params)})
	if id == nil {
		body, err = json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": withMeta(c.version, params)})
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, vs := range c.header {
		req.Header[k] = vs
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method != "initialize" {
		req.Header.Set("Mcp-Protocol-Version", c.version)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.version >= V20260728 {
		req.Header.Set("Mcp-Method", method)
		for _, key := range []string{"name", "uri", "taskId"} {
			if name, ok := params[key].(string); ok {
				req.Header.Set("Mcp-Name", name)
			}
		}
	}
	return c.client.Do(req)
}

// readEvents reads an SSE stream whose last message is the response.
func readEvents(r io.Reader, notify func(Message)) (json.RawMessage, error) {
	br := bufio.NewReader(r)
	var data []byte
	for {
		line, err := br.ReadString('\n')
		switch text := strings.TrimRight(line, "\r\n"); {
		case strings.HasPrefix(text, "data:"):
			data = append(data, strings.TrimPrefix(strings.TrimPrefix(text, "data:"), " ")...)
		case text == "" && len(data) > 0:
			var m Message
			if err := json.Unmarshal(data, &m); err != nil {
				return nil, fmt.Errorf("event %.500s: %w", data, err)
			}
			data = nil
			switch {
			case m.Error != nil:
				return nil, m.Error
			case m.Method == "":
				return m.Result, nil
			case notify != nil:
				notify(m)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("event stream ended without a response: %w", err)
		}
	}
}
