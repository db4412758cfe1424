package metrics_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// patience is how long a test waits for what must happen; it is not reached unless something is broken.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	shared.stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start serves engine on an in-memory listener and returns a client. Everything stops when the test ends, the engine last.
func start(t *testing.T, engine metrics.Engine, options metrics.Options, serverOptions ...grpc.ServerOption) (metricsv1.MetricServiceClient, *metrics.Server) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	service := metrics.New(engine, options)
	server := grpc.NewServer(serverOptions...)
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:metrics",
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
	return metricsv1.NewMetricServiceClient(conn), service
}

func openEmbedded(t *testing.T, options metrics.EmbeddedOptions) *metrics.Embedded {
	t.Helper()
	engine, err := metrics.OpenEmbedded(options)
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

// eventually calls f until it returns true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("does not happen: %s", what)
		}
	}
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
	if !ok || info.Reason != reason || info.Domain != "metrics.agentops" {
		t.Fatalf("ErrorInfo of %v = %v, want reason %s", err, info, reason)
	}
	return info.Metadata
}

func wantViolation(t *testing.T, err error, field, text string) {
	t.Helper()
	wantCode(t, err, codes.InvalidArgument)
	bad, ok := detail[*errdetails.BadRequest](err)
	if !ok || len(bad.FieldViolations) != 1 {
		t.Fatalf("details of %v: want one BadRequest violation", err)
	}
	if v := bad.FieldViolations[0]; v.Field != field || !strings.Contains(v.Description, text) {
		t.Errorf("violation = %q: %q, want %q with %q", v.Field, v.Description, field, text)
	}
}

// server is a running Prometheus.
type server struct {
	url string
	cmd *exec.Cmd
	out sync.WaitGroup
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// binary finds a program of Debian's package "prometheus".
func binary(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: these tests need Debian's package: apt-get install --no-install-recommends prometheus, as .ci/run does", err)
	}
	return path, nil
}

// runPrometheus starts the real server in a directory that has its configuration and perhaps its data, on a free port.
func runPrometheus(dir string, args ...string) (*server, error) {
	path, err := binary("prometheus")
	if err != nil {
		return nil, err
	}
	s := &server{cmd: exec.Command(path, append([]string{
		"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--storage.tsdb.retention.time=30d"}, args...)...)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	var log strings.Builder
	addr, ready := "", false
	lines := bufio.NewScanner(stderr)
	for (addr == "" || !ready) && lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			addr = m[1]
		}
		ready = ready || strings.Contains(lines.Text(), "Server is ready to receive web requests.")
	}
	if !ready || addr == "" {
		_ = s.cmd.Process.Kill()
		return nil, fmt.Errorf("prometheus does not start: %w\n%s", s.cmd.Wait(), log.String())
	}
	s.out.Go(func() {
		for lines.Scan() {
			continue
		}
	})
	s.url = "http://" + addr
	return s, nil
}

func (s *server) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt)
	s.out.Wait()
	return s.cmd.Wait()
}

// startPrometheus runs the real server with a configuration until the test ends.
func startPrometheus(t *testing.T, config string, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := runPrometheus(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("prometheus: %v", err)
		}
	})
	return s
}

// shared is a real server with the history, for all tests that only read.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	server *server
	dir    string
	err    error
}

func (s *sharedServer) start() {
	if s.dir, s.err = os.MkdirTemp("", "metrics-prometheus-"); s.err != nil {
		return
	}
	promtool, err := binary("promtool")
	if err != nil {
		s.err = err
		return
	}
	history := filepath.Join(s.dir, "history.om")
	for path, text := range map[string]string{history: historyText(), filepath.Join(s.dir, "prometheus.yml"): "global: {}\n"} {
		if s.err = os.WriteFile(path, []byte(text), 0o600); s.err != nil {
			return
		}
	}
	if out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", history, filepath.Join(s.dir, "data")).CombinedOutput(); err != nil {
		s.err = fmt.Errorf("promtool: %w\n%s", err, out)
		return
	}
	s.server, s.err = runPrometheus(s.dir, "--query.max-samples=5000000")
}

func (s *sharedServer) stop() {
	if s.server != nil {
		if err := s.server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "prometheus:", err)
		}
	}
	_ = os.RemoveAll(s.dir)
}

// onBoth runs a test on each driver, with the same history behind both.
func onBoth(t *testing.T, test func(t *testing.T, client metricsv1.MetricServiceClient)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{}), metrics.Options{})
		test(t, client)
	})
	t.Run("prometheus", func(t *testing.T) {
		engine, err := metrics.NewRemote(sharedPrometheus(t), metrics.RemoteOptions{Retention: 30 * 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		client, _ := start(t, engine, metrics.Options{})
		test(t, client)
	})
}

// sharedPrometheus is the URL of the server with the history.
func sharedPrometheus(t *testing.T) string {
	t.Helper()
	shared.once.Do(shared.start)
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.url
}

// withHistory is an embedded engine that has the history.
func withHistory(t *testing.T, options metrics.EmbeddedOptions) *metrics.Embedded {
	t.Helper()
	options.Retention = 30 * 24 * time.Hour
	engine := openEmbedded(t, options)
	stored, err := engine.Import([]byte(historyText()), time.Now().Add(-30*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(historyText(), "\n") - strings.Count(historyText(), "# "); stored != want {
		t.Fatalf("%d samples were stored, want %d", stored, want)
	}
	return engine
}
