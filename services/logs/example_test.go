package logs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// A whole tool backend: an engine, the service on it, a gRPC server.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	engine, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = engine.Close() }()

	server := grpc.NewServer()
	logs.New(engine, logs.Options{}).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			panic(err)
		}
	}()

	err = engine.Append(context.Background(), []logs.Entry{
		{Time: time.Now(), Message: "connection refused", Fields: map[string]string{"service": "orders", "level": "ERROR"}},
		{Time: time.Now(), Message: "request done", Fields: map[string]string{"service": "orders", "level": "INFO"}},
	})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	found, err := logsv1.NewLogServiceClient(conn).SearchLogs(context.Background(), &logsv1.SearchLogsRequest{Query: "level:ERROR"})
	if err != nil {
		panic(err)
	}
	for _, entry := range found.Entries {
		fmt.Println(entry.Fields["service"], entry.Message)
	}
	// Output: orders connection refused
}

func ExampleFeeder() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	engine, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = engine.Close() }()

	lines, err := os.CreateTemp(dir, "*.log")
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(lines, `{"time":"`+time.Now().Format(time.RFC3339Nano)+`","level":"INFO","msg":"listening","addr":":8080"}`)
	_, _ = lines.Seek(0, 0)
	feeder := &logs.Feeder{Engine: engine, Fields: map[string]string{"service": "gateway"}}
	if err := feeder.Read(context.Background(), lines); err != nil {
		panic(err)
	}
	_ = lines.Close()
	now := time.Now()
	entries, _, err := engine.Select(context.Background(), logs.Selection{
		Filter: "service:gateway", Start: now.Add(-time.Hour), End: now.Add(time.Hour), At: now, Limit: 10, MaxBytes: 1 << 20,
	})
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		fmt.Println(entry.Message, entry.Fields["addr"])
	}
	// Output: listening :8080
}
