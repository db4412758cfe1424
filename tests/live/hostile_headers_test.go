package live_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestOddHeaders sends headers with values that nobody should send, through every door of a mesh that lets all metadata cross. The call is
// answered or refused, never a fault of the mesh; the mesh's own headers never reach the backend as the caller's; and the mesh lives.
func TestOddHeaders(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--allow-metadata", "*")
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	good := map[int]bool{200: true, 400: true, 401: true, 403: true, 408: true, 409: true, 413: true, 422: true, 431: true, 499: true, 504: true}
	for i, h := range []struct {
		key, value string
		httpOnly   bool // gRPC clients cannot send it
	}{
		{"grpc-timeout", "", true}, {"grpc-timeout", "0n", true}, {"grpc-timeout", "1n", true}, {"grpc-timeout", "-1S", true}, {"grpc-timeout", "999999999H", true},
		{"grpc-timeout", "99999999H", true}, {"grpc-timeout", "S", true}, {"grpc-timeout", "1e3S", true}, {"grpc-timeout", "٣S", true},
		{"idempotency-key", `"`, false}, {"idempotency-key", `""`, false}, {"idempotency-key", strings.Repeat("k", 300), false}, {"idempotency-key", `"a", "b"`, false},
		{"idempotency-key", `"a\"`, false}, {"idempotency-key", "a,b", false}, {"idempotency-key", "caf\xc3\xa9", true},
		{"toolway-call-id", "mine", false}, {"toolway-replayed", "true", false}, {"toolway-cache", "hit", false}, {"toolway-stale", "true", false},
		{"toolway-confirm", strings.Repeat("A", 26), false}, {"toolway-principal", "admin", false}, {"toolway-task", "x", false},
		{"x-acme-huge", strings.Repeat("v", 6<<10), false}, {"x-acme-enormous", strings.Repeat("v", 2<<20), true},
		{"x-request-id", strings.Repeat("r", 4<<10), false}, {"traceparent", "00-" + strings.Repeat("f", 4<<10), false},
	} {
		name := fmt.Sprintf("%s_%.12q_%d", h.key, h.value, i)
		t.Run(name, func(t *testing.T) {
			ids := map[string]string{}
			for _, door := range []string{"grpc", "http", "mcp"} {
				ids[door] = fmt.Sprintf("odd-%d-%s", i, door)
			}
			if !h.httpOnly {
				_, err := client.Ask(metadata.AppendToOutgoingContext(ctx, h.key, h.value), &probev1.AskRequest{Id: ids["grpc"]})
				if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
					t.Errorf("gRPC: %v", err)
				}
			}
			for door, request := range map[string]string{
				"http": "POST /v1/probe/" + ids["http"] + ":ask", "mcp": "POST /mcp",
			} {
				body := "{}"
				if door == "mcp" {
					body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"probe_ask","arguments":{"id":%q}}}`, ids["mcp"])
				}
				if code := raw(t, mesh, request, h.key+": "+h.value, body); !good[code] {
					t.Errorf("%s: HTTP status %d", door, code)
				}
			}
			for door, id := range ids {
				if !server.Saw(id) {
					continue
				}
				for k := range mustSee(ctx, t, server, id).Metadata {
					if strings.HasPrefix(k, "toolway-") {
						t.Errorf("%s: %s reached the backend", door, k)
					}
				}
			}
		})
	}
	if _, err := client.Ask(ctx, &probev1.AskRequest{Id: "after"}); err != nil {
		t.Errorf("after all: %v", err)
	}
	if mesh.Contains("panic") {
		t.Error("the log tells of a panic")
	}
}

// raw sends a request with a header that a client library would not, and returns the status; 431 also if the connection is cut off, which is how a
// server refuses what it does not want to read.
func raw(t *testing.T, mesh *run.Mesh, request, header, body string) int {
	t.Helper()
	c, err := net.Dial("tcp", mesh.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: %s\r\nContent-Length: %d\r\n%s\r\n\r\n%s",
		request, mesh.HTTP, agent.V20251125, len(body), header, body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
