package live_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestHostileMessages sends JSON-RPC that is meant to hurt: each is answered at its own layer, and the mesh lives.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	long := strings.Repeat("n", 1<<20)
	message := func(id, method, params string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
	}
	for _, tt := range []struct {
		what, body, contentType string
		status                  int
		want                    string
	}{
		{"a method of 1 MB", message("1", long, "{}"), "", 200, `-32601`},
		{"a tool of 1 MB", message("1", "tools/call", `{"name":"`+long+`"}`), "", 200, `-32602`},
		{"a cursor of 1 MB", message("1", "tools/list", `{"cursor":"`+long+`"}`), "", 200, `-32602`},
		{"an argument name of 1 MB", message("1", "tools/call", `{"name":"probe_ask","arguments":{"`+long+`":1}}`), "", 200, `"isError":true`},
		{"a depth bomb", message("1", "tools/call", `{"name":"probe_ask","arguments":`+strings.Repeat(`{"plan":`, 5000)+"{}"+strings.Repeat("}", 5000)+`}`), "", 400, `-32600`},
		{"a batch", "[" + message("1", "ping", "{}") + "," + message("2", "ping", "{}") + "]", "", 400, `-32600`},
		{"an empty batch", "[]", "", 400, `-32600`},
		{"nothing", "", "", 400, `-32700`},
		{"half a message", message("1", "ping", "{}")[:20], "", 400, `-32700`},
		{"another content type", message("1", "ping", "{}"), "text/plain", 415, `-32600`},
		{"a form", message("1", "ping", "{}"), "application/x-www-form-urlencoded", 415, `-32600`},
		{"an unknown member", `{"jsonrpc":"2.0","id":1,"method":"ping","extra":1}`, "", 200, `"result":{}`},
		{"another JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, "", 400, `-32600`},
		{"params as a list", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, "", 400, `-32602`},
		{"the same argument twice", message("1", "tools/call", `{"name":"probe_ask","arguments":{"text":"a","text":"b"}}`), "", 200, `"isError":true`},
	} {
		h := mcpHeader(agent.V20251125, "")
		h.Set("Content-Type", tt.contentType)
		if tt.contentType == "" {
			h.Set("Content-Type", "application/json")
		}
		h.Set("Accept", "application/json")
		if code, body := exchange(t, mesh, tt.body, h); code != tt.status || !strings.Contains(body, tt.want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %.300s, want %d with %s", tt.what, code, body, tt.status, tt.want)
		}
	}
	mcp(ctx, t, mesh, agent.V20251125, nil)
}

// exchange posts a body to the MCP endpoint and returns what comes back as it is.
func exchange(t *testing.T, m *run.Mesh, body string, h http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patience(t), http.MethodPost, m.URL("/mcp"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestIDs gives each id back as it was written, whatever JSON can write, and refuses what is no id.
func TestIDs(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	for _, tt := range []struct{ id, back string }{
		{`"a"`, `"a"`}, {`""`, `""`}, {`"9007199254740993"`, `"9007199254740993"`}, {`0`, `0`}, {`-7`, `-7`}, {`1.5`, `1.5`}, {`9007199254740993`, `9007199254740993`},
		{`-9223372036854775809`, `-9223372036854775809`}, {`1e3`, `1e3`}, {`null`, `null`}, {`true`, `null`}, {`{}`, `null`}, {`[1]`, `null`},
	} {
		for _, method := range []string{"ping", "tools/list", "prompts/list"} { // the last one is the SDK's way
			h := mcpHeader(agent.V20251125, "")
			h.Set("Accept", "application/json")
			h.Set("Content-Type", "application/json")
			_, body := exchange(t, mesh, `{"jsonrpc":"2.0","id":`+tt.id+`,"method":"`+method+`"}`, h)
			var got struct {
				ID    json.RawMessage `json:"id"`
				Error json.RawMessage `json:"error"`
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || string(got.ID) != tt.back || (got.Error != nil) != (tt.back == "null") {
				t.Errorf("%s with id %s: %.200s, want the id %s", method, tt.id, body, tt.back)
			}
		}
	}
}

// TestHalfClosed closes its side of the connection after the request: the answer still comes.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	conn, err := net.Dial("tcp", mesh.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s", mesh.HTTP, len(body), body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), "probe_ask") {
		t.Errorf("answer is %d %.200s, %v; want the tools", resp.StatusCode, b, err)
	}
}

// TestTenThousandTools lists a backend of 10,000 methods, page by page, and calls none that is not there.
func TestTenThousandTools(t *testing.T) {
	t.Parallel()
	const n = 10_000
	service := &descriptorpb.ServiceDescriptorProto{Name: proto.String("Many")}
	for i := range n {
		service.Method = append(service.Method, &descriptorpb.MethodDescriptorProto{Name: proto.String(fmt.Sprintf("Do%05d", i)), InputType: proto.String(".many.v1.Request"), OutputType: proto.String(".many.v1.Request")})
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("many.proto"), Package: proto.String("many.v1"), Syntax: proto.String("proto3"), Service: []*descriptorpb.ServiceDescriptorProto{service},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Request")}},
	}
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "many.binpb")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	child, addr, err := run.Child("probe", "-reflection", "none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Kill() })
	mesh := run.Start(t, "--backend", "many="+addr, "--descriptors", "many="+path)
	ctx := patience(t)
	a := mcp(ctx, t, mesh, agent.V20260728, nil)
	run.Eventually(t, "all tools are listed", func() bool {
		tools, err := agent.Tools(ctx, a)
		return err == nil && len(tools) == n
	})
	if _, err := agent.Call(ctx, a, "many_do_10000", map[string]any{}, nil); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a tool that is not there: %v, want a near miss", err)
	}
}
