package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// idleStreams measures what a stream costs the mesh while nothing comes on it: n of each kind, each kind before a mesh of its own. Each stream has had
// one message. Readers are bare sockets, one each, but for gRPC, where a connection carries streamsPerConn.
func idleStreams(n int, only string) error {
	fmt.Printf("== idle streams: %d of each kind, one message each before; load average %s\n", n, loadAverage())
	fmt.Printf("  %-36s %12s %12s %12s\n", "memory of a stream, KiB", "resident", "stacks", "heap")
	const body = `{"id":"","text":"x","plan":{"count":1,"hang":true}}`
	watch := request("POST", "/probe.v1.Probe/Watch", body)
	for _, k := range []struct {
		name string
		open func(ctx context.Context, l *loaded, n int) (func(), error)
	}{
		{"SSE of a backend's stream", func(ctx context.Context, l *loaded, n int) (func(), error) {
			return sockets(ctx, l.mesh.HTTP, watch, "data: {", n)
		}},
		{"SSE of the catalog", func(ctx context.Context, l *loaded, n int) (func(), error) {
			return sockets(ctx, l.mesh.HTTP, request("GET", "/v1/catalog:watch", ""), "data: {", n)
		}},
		{"SSE of a task's events", func(ctx context.Context, l *loaded, n int) (func(), error) {
			id, err := l.task(ctx, "silent", map[string]any{"hang": true})
			if err != nil {
				return nil, err
			}
			return sockets(ctx, l.mesh.HTTP, request("GET", "/v1/tasks/"+id+"/events", ""), "tool_started", n)
		}},
		{"MCP call with progress", func(ctx context.Context, l *loaded, n int) (func(), error) {
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"probe_watch","arguments":` + body + `,"_meta":{"progressToken":1}}}`
			return sockets(ctx, l.mesh.HTTP, request("POST", "/mcp", call), "1 received", n)
		}},
		{"gRPC stream through the door", func(ctx context.Context, l *loaded, n int) (func(), error) {
			return grpcStreams(ctx, l.mesh.GRPC, n)
		}},
	} {
		if !strings.Contains(k.name, only) {
			continue
		}
		if err := idleKind(n, k.name, k.open); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// settle is how long it takes until a mesh in which nothing happens has given back what it does not need: the runtime collects when two minutes have
// passed without, and then the mesh does.
const settle = 130 * time.Second

// idleKind measures one kind. What the first streams cost, others do not.
func idleKind(n int, name string, open func(ctx context.Context, l *loaded, n int) (func(), error)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := begin(ctx)
	if err != nil {
		return err
	}
	defer l.end()
	first, err := open(ctx, l, 10)
	if err != nil {
		return err
	}
	defer first()
	before, err := l.memory(ctx)
	if err != nil {
		return err
	}
	all, err := open(ctx, l, n)
	if err != nil {
		return err
	}
	defer all()
	after, err := l.memory(ctx)
	if err != nil {
		return err
	}
	each := func(b float64) float64 { return b / 1024 / float64(n) }
	fmt.Printf("  %-36s %12.1f %12.1f %12.1f\n", name, each(after.resident-before.resident), each(after.stacks-before.stacks), each(after.heap-before.heap))
	return nil
}

// memory is that of the mesh when it has settled, in bytes.
type memory struct{ resident, stacks, heap float64 }

func (l *loaded) memory(ctx context.Context) (m memory, err error) {
	time.Sleep(2 * time.Second) // silent streams are parked
	for range 2 {               // stacks shrink by half with each
		if _, err := l.admin(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return m, err
		}
	}
	time.Sleep(settle)
	mb, err := resident(l.mesh.PID())
	if err != nil {
		return m, err
	}
	m.resident = mb * 1e6
	raw, err := l.admin(ctx, "/debug/pprof/heap?debug=1")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(raw)) {
		_, _ = fmt.Sscanf(line, "# Stack = %f", &m.stacks)
		_, _ = fmt.Sscanf(line, "# HeapAlloc = %f", &m.heap)
	}
	return m, nil
}

func (l *loaded) admin(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.mesh.Admin+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, res.Status)
	}
	return raw, err
}

func request(verb, path, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", verb, path, len(body), body)
}

// sockets opens n connections that each send a request, and returns when each has got an answer up to a text.
func sockets(ctx context.Context, addr, request, until string, n int) (func(), error) {
	conns := make([]net.Conn, n)
	closeAll := func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}
	var opening sync.WaitGroup
	turns := make(chan struct{}, 20)
	failed := make([]error, n)
	for i := range conns {
		turns <- struct{}{}
		opening.Go(func() {
			defer func() { <-turns }()
			conns[i], failed[i] = dialUntil(ctx, addr, request, until)
		})
	}
	opening.Wait()
	for _, err := range failed {
		if err != nil {
			closeAll()
			return nil, err
		}
	}
	return closeAll, nil
}

func dialUntil(ctx context.Context, addr, request, until string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return c, err
	}
	var got bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &got))
	for !bytes.Contains(got.Bytes(), []byte(until)) {
		if _, err := in.ReadSlice('\n'); err != nil {
			return c, fmt.Errorf("%w after %.500s", err, got.Bytes())
		}
	}
	if !bytes.Contains(got.Bytes(), []byte("text/event-stream")) {
		return c, fmt.Errorf("no event stream: %.500s", got.Bytes())
	}
	return c, nil
}

// streamsPerConn is below what the door allows a connection.
const streamsPerConn = 500

func grpcStreams(ctx context.Context, addr string, n int) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var conns []*grpc.ClientConn
	closeAll := func() {
		cancel()
		for _, c := range conns {
			c.Close()
		}
	}
	for i := range n {
		if i%streamsPerConn == 0 {
			c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				closeAll()
				return nil, err
			}
			conns = append(conns, c)
		}
		stream, err := probev1.NewProbeClient(conns[len(conns)-1]).Watch(ctx, &probev1.WatchRequest{Plan: &probev1.Plan{Count: 1, Hang: true}})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			closeAll()
			return nil, err
		}
	}
	return closeAll, nil
}
