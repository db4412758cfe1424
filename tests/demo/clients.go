package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
)

// withKey sends an API key with every request.
type withKey struct {
	key string
	to  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", t.key)
	return t.to.RoundTrip(r)
}

// client is a caller's own: as they are programs of their own, no two share connections.
func (w *world) client(name string) *http.Client {
	t := &http.Transport{}
	w.transports = append(w.transports, t)
	return &http.Client{Transport: withKey{w.keys[name], t}}
}

// web is a caller at the HTTP door, as a page in a browser is one.
type web struct {
	base   string
	client *http.Client
	trace  string // traceparent of its calls; "" for none
}

func (w *world) web(key string) *web {
	return &web{base: "http://" + w.addr["HTTP"], client: w.client(key)}
}

// do makes a call and reads the answer into reply. The error has the text of one that is no 200.
func (b *web) do(ctx context.Context, method, path string, body, reply any) (int, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, content)
	if err != nil {
		return 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.trace != "" {
		req.Header.Set("Traceparent", b.trace)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		var failed struct{ Message string }
		if json.Unmarshal(text, &failed) != nil || failed.Message == "" {
			failed.Message = string(text)
		}
		return resp.StatusCode, fmt.Errorf("%s: %s", resp.Status, failed.Message)
	}
	if m, ok := reply.(proto.Message); ok {
		return resp.StatusCode, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
	}
	return resp.StatusCode, json.Unmarshal(text, reply)
}

// failing is the share of a service's requests that fail now, over the last five seconds; false if there were none.
func (b *web) failing(ctx context.Context, service string) (float64, bool, error) {
	query := fmt.Sprintf(`sum(rate(http_requests_total{service=%q,code=~"5.."}[5s]) or vector(0)) / sum(rate(http_requests_total{service=%q}[5s]))`, service, service)
	var found metricsv1.QueryInstantResponse
	if _, err := b.do(ctx, http.MethodGet, "/v1/metrics:query?query="+url.QueryEscape(query), nil, &found); err != nil {
		return 0, false, err
	}
	for _, series := range found.GetSeries() {
		for _, sample := range series.GetSamples() {
			if v := sample.GetValue(); v-v == 0 {
				return v, true, nil
			}
		}
	}
	return 0, false, nil
}

// events follows a diagnosis as an EventSource does: it comes back with Last-Event-ID when the stream breaks. Each event is told once; it returns after the last.
func (b *web) events(ctx context.Context, name string, told func(*incidentsv1.DiagnosisEvent), broken func(why string)) error {
	last := ""
	for ctx.Err() == nil {
		over, err := b.read(ctx, name, &last, told)
		if over || ctx.Err() != nil {
			return ctx.Err()
		}
		why := "it ended"
		if err != nil {
			why = err.Error()
		}
		broken(fmt.Sprintf("the stream broke after event %s (%s); it comes back with Last-Event-ID: %s", last, why, last))
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (b *web) read(ctx context.Context, name string, last *string, told func(*incidentsv1.DiagnosisEvent)) (over bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/v1/"+name+"/events", http.NoBody)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if *last != "" {
		req.Header.Set("Last-Event-ID", *last)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, errors.New(resp.Status)
	}
	var id, kind string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
			if kind == "end" {
				return true, nil
			}
		case "data":
			if kind == "error" || kind == "server_draining" {
				var failed struct{ Message string }
				_ = json.Unmarshal([]byte(value), &failed)
				return false, errors.New(failed.Message)
			}
			e := &incidentsv1.DiagnosisEvent{}
			if err := protojson.Unmarshal([]byte(value), e); err != nil {
				return false, err
			}
			told(e)
			*last = id
		}
	}
	return false, nil
}

// agent is an MCP client: the Go SDK's, over Streamable HTTP.
type agent struct {
	session *mcp.ClientSession
	trace   string // traceparent of its calls
}

func (w *world) agent(ctx context.Context, trace string) (*agent, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "demo-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: "http://" + w.addr["HTTP"] + "/mcp/incident", HTTPClient: w.client("agent"),
	}, nil)
	if err != nil {
		return nil, err
	}
	return &agent{session: session, trace: trace}, nil
}

// refused is a tool's answer that says no.
type refused struct {
	Code, Reason, Message string
	Metadata              map[string]string
}

// call calls a tool and reads its structured answer into reply, or returns what was refused.
func (a *agent) call(ctx context.Context, tool string, arguments map[string]any, reply proto.Message) (replayed bool, _ *refused, err error) {
	res, err := a.session.CallTool(ctx, &mcp.CallToolParams{Meta: mcp.Meta{"traceparent": a.trace}, Name: tool, Arguments: arguments})
	if err != nil {
		return false, nil, err
	}
	if res.IsError {
		return false, refusal(res), nil
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return false, nil, err
	}
	replayed, _ = res.Meta["io.toolway/replayed"].(bool)
	return replayed, nil, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, reply)
}

// refusal reads what a tool's answer says of its error.
func refusal(res *mcp.CallToolResult) *refused {
	var failed struct{ Error refused }
	if text, err := json.Marshal(res.StructuredContent); err == nil && json.Unmarshal(text, &failed) == nil && failed.Error.Code != "" {
		return &failed.Error
	}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			failed.Error.Message += text.Text
		}
	}
	return &failed.Error
}
