package evolution_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

const (
	searchMethod = "/agentops.logs.v1.LogService/SearchLogs"
	ingestMethod = "/agentops.logs.v1.LogService/IngestLogs"
)

// raw is a codec that leaves bytes as they are, so that tests see what programs send.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

// oldServer answers with bytes that were made once, of whatever contract, and keeps the last request of each method. It has no reflection, so
// that a mesh knows of its contract what a file says.
type oldServer struct {
	addr    string
	answers map[string][]byte

	mu       sync.Mutex
	requests map[string][]byte
}

func startOld(t *testing.T, answers map[string][]byte) *oldServer {
	t.Helper()
	s := &oldServer{answers: answers, requests: map[string][]byte{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(s.handle))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *oldServer) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	answer, known := s.answers[method]
	if !known { // reflection and health: the mesh has the contract from a file
		return status.Error(codes.Unimplemented, "unknown method")
	}
	for {
		var request []byte
		err := stream.RecvMsg(&request)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.requests[method] = request
		s.mu.Unlock()
	}
	return stream.SendMsg(&answer)
}

func (s *oldServer) request(method string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method]
}

// startNew starts the log service as it is built now.
func startNew(t *testing.T) string {
	t.Helper()
	bin, err := run.Service("logs")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := run.Spawn(nil, bin, "--addr", addr, "--data", filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	run.Eventually(t, "the log service listens on "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

// doors reaches one mesh through each door.
type doors struct {
	conn  *grpc.ClientConn
	mesh  *run.Mesh
	agent *agent.HTTP
}

func open(t *testing.T, args ...string) *doors {
	t.Helper()
	mesh := run.Start(t, args...)
	a, err := agent.NewHTTP(patience(t), mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return &doors{conn: run.Dial(t, mesh.GRPC), mesh: mesh, agent: a}
}

// unary calls with bytes, and returns bytes.
func (d *doors) unary(t *testing.T, method string, request []byte) []byte {
	t.Helper()
	var answer []byte
	if err := d.conn.Invoke(patience(t), method, &request, &answer, grpc.ForceCodec(raw{})); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return answer
}

// ingest sends one batch as bytes.
func (d *doors) ingest(t *testing.T, batch []byte) []byte {
	t.Helper()
	stream, err := d.conn.NewStream(patience(t), &grpc.StreamDesc{ClientStreams: true}, ingestMethod, grpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&batch); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// post calls through the HTTP door, by the method's path, and returns code and body.
func (d *doors) post(t *testing.T, method, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patience(t), http.MethodPost, d.mesh.URL(method), bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
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

// call calls a tool; bad is a tool error's text.
func (d *doors) call(t *testing.T, tool, arguments string) (result, bad string) {
	t.Helper()
	res, err := agent.Call(patience(t), d.agent, tool, json.RawMessage(arguments), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", tool, arguments, err)
	}
	if res.IsError {
		return "", res.Text()
	}
	return string(res.StructuredContent), ""
}

// byJSON calls through the HTTP and the MCP door, and returns what each answered.
func (d *doors) byJSON(t *testing.T, method, tool, body string) map[string]string {
	t.Helper()
	code, text := d.post(t, method, body)
	if code != http.StatusOK {
		t.Fatalf("POST %s %s: %d %s", method, body, code, text)
	}
	result, bad := d.call(t, tool, body)
	if bad != "" {
		t.Fatalf("%s %s: %s", tool, body, bad)
	}
	return map[string]string{"REST": text, "MCP": result}
}

// refusedByJSON wants INVALID_ARGUMENT with a text through the HTTP and the MCP door.
func (d *doors) refusedByJSON(t *testing.T, method, tool, body string) map[string]string {
	t.Helper()
	code, text := d.post(t, method, body)
	if code != http.StatusBadRequest {
		t.Errorf("POST %s %s: %d %s, want 400", method, body, code, text)
	}
	result, bad := d.call(t, tool, body)
	if bad == "" {
		t.Errorf("%s %s: %s, want a tool error", tool, body, result)
	}
	return map[string]string{"REST": text, "MCP": bad}
}
