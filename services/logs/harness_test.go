package logs_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// patience is how long a test waits for what must happen; it is not reached unless something is broken.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The engine's process-wide caches, clocks and log throttles start when its packages are loaded and have no stop.
		goleak.IgnoreCurrent(),
		// So does this one, at the first store.
		goleak.IgnoreAnyFunction("github.com/VictoriaMetrics/metrics.summariesSwapCron"),
	)
}

// start serves engine on an in-memory listener and returns a client. Everything stops when the test ends, the engine last.
func start(t *testing.T, engine logs.Engine, options logs.Options, serverOptions ...grpc.ServerOption) (logsv1.LogServiceClient, *logs.Server) {
	t.Helper()
	conn, service := startConn(t, engine, options, serverOptions...)
	return logsv1.NewLogServiceClient(conn), service
}

// startBoth is start for who wants other clients too.
func startBoth(t *testing.T, engine logs.Engine) (logsv1.LogServiceClient, *grpc.ClientConn) {
	t.Helper()
	conn, _ := startConn(t, engine, logs.Options{})
	return logsv1.NewLogServiceClient(conn), conn
}

func startConn(t *testing.T, engine logs.Engine, options logs.Options, serverOptions ...grpc.ServerOption) (*grpc.ClientConn, *logs.Server) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	service := logs.New(engine, options)
	server := grpc.NewServer(serverOptions...)
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:logs",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		service.Drain()
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn, service
}

func openEmbedded(t *testing.T) *logs.Embedded {
	t.Helper()
	engine, err := logs.OpenEmbedded(t.TempDir(), logs.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func entry(at time.Time, message string, fields ...string) *logsv1.LogEntry {
	e := &logsv1.LogEntry{Time: timestamppb.New(at), Message: message, Fields: map[string]string{}}
	for i := 0; i+1 < len(fields); i += 2 {
		e.Fields[fields[i]] = fields[i+1]
	}
	return e
}

func ingest(t *testing.T, client logsv1.LogServiceClient, entries ...*logsv1.LogEntry) *logsv1.IngestLogsResponse {
	t.Helper()
	stream, err := client.IngestLogs(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for batch := range slices.Chunk(entries, 500) {
		if err := stream.Send(&logsv1.IngestLogsRequest{Entries: batch}); err != nil {
			t.Fatal(err)
		}
	}
	summary, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

// searchAll reads every page of req, and calls between after each.
func searchAll(t *testing.T, client logsv1.LogServiceClient, req *logsv1.SearchLogsRequest, between func()) [][]*logsv1.LogEntry {
	t.Helper()
	var pages [][]*logsv1.LogEntry
	for {
		resp, err := client.SearchLogs(within(t), req)
		if err != nil {
			t.Fatalf("page %d: %v", len(pages), err)
		}
		pages = append(pages, resp.Entries)
		if resp.NextPageToken == "" {
			return pages
		}
		if between != nil {
			between()
		}
		req.PageToken = resp.NextPageToken
	}
}

func messages(entries []*logsv1.LogEntry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.GetMessage()
	}
	return out
}

// tail receives count messages and then ends the call.
func tail(t *testing.T, client logsv1.LogServiceClient, req *logsv1.TailLogsRequest, count int) []*logsv1.TailLogsResponse {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	stream, err := client.TailLogs(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	var got []*logsv1.TailLogsResponse
	for len(got) < count {
		msg, err := stream.Recv()
		if err != nil {
			t.Fatalf("message %d: %v", len(got), err)
		}
		got = append(got, msg)
	}
	return got
}

// detail returns the first detail of type T in err's status.
func detail[T any](err error) (T, bool) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok {
			return d, true
		}
	}
	var none T
	return none, false
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("code = %v, want %v (%v)", got, want, err)
	}
}

func wantInfo(t *testing.T, err error, reason string) map[string]string {
	t.Helper()
	info, ok := detail[*errdetails.ErrorInfo](err)
	if !ok || info.Reason != reason {
		t.Fatalf("ErrorInfo of %v = %v, want reason %s", err, info, reason)
	}
	return info.Metadata
}

// buildVictoriaLogs builds the real server from the module this one pins.
func buildVictoriaLogs(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "victoria-logs")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build VictoriaLogs: %v\n%s", err, out)
	}
	return binary
}

// startVictoriaLogs runs the real server on a free port until the test ends, and returns its URL.
func startVictoriaLogs(t *testing.T) string {
	t.Helper()
	binary := buildVictoriaLogs(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	cmd := exec.Command(binary, "-httpListenAddr="+addr, "-storageDataPath="+t.TempDir(), "-retentionPeriod=31d", "-loggerLevel=WARN")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("VictoriaLogs: %s", output.String())
		}
	})
	url := "http://" + addr
	eventually(t, "VictoriaLogs answers", func() bool {
		resp, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	return url
}

// eventually asks until ok, for what another process decides.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// ended reads a stream to its end and returns the error that ended it; nil for EOF.
func ended(stream grpc.ServerStreamingClient[logsv1.TailLogsResponse]) (got []*logsv1.TailLogsResponse, err error) {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, msg)
	}
}

func codeOf(err error) codes.Code { return status.Code(err) }
