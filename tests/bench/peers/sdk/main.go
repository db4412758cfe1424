// Command sdk is MCP by the official Go SDK with a tool for each method: arguments by protojson into dynamicpb, a call, and back. It is how a
// bridge is written by the book.
package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/tests/bench/peers/internal/peer"
	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

func main() {
	peer.Main(func(ctx context.Context, backend string, l net.Listener) error {
		conn, err := peer.Dial(backend)
		if err != nil {
			return err
		}
		defer conn.Close()
		server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
		methods := probev1.File_probe_v1_probe_proto.Services().ByName("Probe").Methods()
		for i := range methods.Len() {
			if m := methods.Get(i); !m.IsStreamingClient() && !m.IsStreamingServer() {
				tool := &mcp.Tool{Name: "probe_" + strings.ToLower(string(m.Name())), InputSchema: json.RawMessage(`{"type":"object"}`)}
				server.AddTool(tool, handler(conn, m))
			}
		}
		h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
		return peer.HTTP(ctx, l, h)
	})
}

func handler(conn *grpc.ClientConn, m protoreflect.MethodDescriptor) mcp.ToolHandler {
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
		if err := protojson.Unmarshal(req.Params.Arguments, in); err != nil {
			return nil, err
		}
		if err := conn.Invoke(ctx, path, in, out, grpc.MaxCallRecvMsgSize(16<<20)); err != nil {
			return nil, err
		}
		b, err := protojson.Marshal(out)
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}, StructuredContent: json.RawMessage(b)}, nil
	}
}
