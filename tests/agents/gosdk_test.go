package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestGoSDK is TestOfficialClients with the client of the Go SDK, for every version over both transports.
func TestGoSDK(t *testing.T) {
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	mesh.Explain(t)
	for _, version := range []string{agent.V20250618, agent.V20251125, agent.V20260728} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*run.Patience)
				defer cancel()
				var to mcp.Transport = &mcp.StreamableClientTransport{Endpoint: mesh.URL("/mcp")}
				if transport == "stdio" {
					to = &mcp.CommandTransport{Command: exec.CommandContext(ctx, bin, "mcp", "--backend", "probe="+backend)}
				}
				progress := make(chan float64, 10)
				client := mcp.NewClient(&mcp.Implementation{Name: "toolway-tests", Version: "1"}, &mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
				})
				session, err := client.Connect(ctx, to, &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				if got := session.InitializeResult(); got != nil && got.ProtocolVersion != version {
					t.Errorf("version = %q, want %q", got.ProtocolVersion, version)
				}
				goReport(ctx, t, session, fmt.Sprintf("go %s %s %d", version, transport, time.Now().UnixNano()), progress)
			})
		}
	}
}

// goReport does what agent.mjs does.
func goReport(ctx context.Context, t *testing.T, session *mcp.ClientSession, id string, progress <-chan float64) {
	t.Helper()
	names := map[string]bool{}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names[tool.Name] = tool.Description != "" && tool.Annotations != nil
	}
	for _, want := range []string{"probe_ask", "probe_watch", "probe_collect", "probe_chat", "probe_label"} {
		if !names[want] {
			t.Errorf("tools = %v, want %q among them, with a description", names, want)
		}
	}
	for _, c := range []struct {
		tool, arguments string
		isError         bool
		text            string
	}{
		{"probe_ask", `{"text":"hello","number":"4611686018427387905"}`, false, "4611686018427387905"},
		{"probe_ask", `{"plan":{"code":5}}`, true, "must be friendlier"},
		{"probe_ask", `{"txt":"x"}`, true, `did you mean "text"`},
		{"probe_collect", `{"messages":[{"text":"a"},{"text":"b"}]}`, false, "a,b"},
		{"probe_chat", `{"messages":[{"text":"a"},{"text":"b"}]}`, false, `"index":1`},
		{"probe_watch", `{"text":"s","plan":{"count":2,"code":9}}`, true, "FAILED_PRECONDITION"},
	} {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.arguments)})
		if err != nil {
			t.Errorf("%s %s: %v", c.tool, c.arguments, err)
			continue
		}
		if text := texts(res); res.IsError != c.isError || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: isError %t, %q, want %t and %q", c.tool, c.arguments, res.IsError, text, c.isError, c.text)
		}
	}
	var rpc *jsonrpc.Error
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "probe_aks"}); !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams || !strings.Contains(rpc.Message, "probe_ask") {
		t.Errorf("unknown tool: %v, want -32602 with the near miss", err)
	}

	// Each message of the stream waits until the client has heard of the one before.
	params := &mcp.CallToolParams{Name: "probe_watch", Arguments: map[string]any{"id": id, "text": "s", "plan": map[string]any{"count": 3, "gate": true}}}
	params.SetProgressToken(id)
	done := make(chan error, 1)
	go func() {
		res, err := session.CallTool(ctx, params)
		if err == nil && (res.IsError || !strings.Contains(texts(res), `"index":2`)) {
			err = fmt.Errorf("result is %q", texts(res))
		}
		done <- err
	}()
	call, err := server.Call(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for range 3 {
		call.Pass()
		select {
		case p := <-progress:
			if p <= last {
				t.Errorf("progress %v after %v, want it to rise", p, last)
			}
			last = p
		case <-ctx.Done():
			t.Fatal("no progress")
		}
	}
	if err := <-done; err != nil {
		t.Errorf("stream: %v", err)
	}
}

func texts(res *mcp.CallToolResult) string {
	var s strings.Builder
	for _, block := range res.Content {
		if text, ok := block.(*mcp.TextContent); ok {
			s.WriteString(text.Text)
		}
	}
	return s.String()
}
