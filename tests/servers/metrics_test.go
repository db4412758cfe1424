package servers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestMetrics puts the mesh before the metric service, which scrapes a page of this test: the same answers through each door.
func TestMetrics(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE orders_total counter\norders_total{state=\"paid\"} 3\norders_total{state=\"refused\"} 8\nodd NaN\n")
	}))
	defer page.Close()
	addr := startService(t, "metrics", "--scrape", "shop="+page.URL, "--scrape-interval", "250ms", "--scrape-timeout", "30s")
	mesh := run.Start(t, "--backend", "metrics="+addr)
	ctx := patience(t)
	client := metricsv1.NewMetricServiceClient(run.Dial(t, mesh.GRPC))
	run.Eventually(t, "the page is scraped", func() bool {
		got, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "orders_total"})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.GetSeries()) == 2
	})
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Second)
	run.Eventually(t, "a second has passed since the first scrape", func() bool {
		at = time.Now().UTC().Truncate(time.Second).Add(-time.Second)
		got, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "orders_total", Time: timestamppb.New(at)})
		return err == nil && len(got.GetSeries()) == 2
	})
	when := at.Format(time.RFC3339)
	for _, c := range []struct {
		path, tool string
		arguments  map[string]any
		grpc       func() (proto.Message, error)
		into       proto.Message
		want       string
	}{
		{"/v1/metrics:query?time=" + when + "&query=" + url.QueryEscape(`orders_total / 0`), "metrics_query", map[string]any{"query": "orders_total / 0", "time": when}, func() (proto.Message, error) {
			return client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "orders_total / 0", Time: timestamppb.New(at)})
		}, &metricsv1.QueryInstantResponse{}, `"Infinity"`},
		{"/v1/metrics:query?time=" + when + "&query=" + url.QueryEscape(`sum(orders_total) * 0`), "metrics_query", map[string]any{"query": "sum(orders_total) * 0", "time": when}, func() (proto.Message, error) {
			return client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "sum(orders_total) * 0", Time: timestamppb.New(at)})
		}, &metricsv1.QueryInstantResponse{}, `"value":0`},
		{"/v1/metrics:query?time=" + when + "&query=" + url.QueryEscape(`odd`), "metrics_query", map[string]any{"query": "odd", "time": when}, func() (proto.Message, error) {
			return client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "odd", Time: timestamppb.New(at)})
		}, &metricsv1.QueryInstantResponse{}, `"NaN"`},
		{"/v1/metrics:queryRange?startTime=" + when + "&endTime=" + when + "&query=" + url.QueryEscape(`sum(orders_total)`), "metrics_query_range", map[string]any{"query": "sum(orders_total)", "startTime": when, "endTime": when}, func() (proto.Message, error) {
			return client.QueryRange(ctx, &metricsv1.QueryRangeRequest{Query: "sum(orders_total)", StartTime: timestamppb.New(at), EndTime: timestamppb.New(at)})
		}, &metricsv1.QueryRangeResponse{}, `"step"`},
		{"/v1/metrics:series?selector=" + url.QueryEscape(`{job="shop",__name__=~"o.*"}`), "metrics_series", map[string]any{"selector": `{job="shop",__name__=~"o.*"}`}, func() (proto.Message, error) {
			return client.ListSeries(ctx, &metricsv1.ListSeriesRequest{Selector: `{job="shop",__name__=~"o.*"}`})
		}, &metricsv1.ListSeriesResponse{}, `"refused"`},
	} {
		want, err := c.grpc()
		if err != nil {
			t.Fatal(err)
		}
		text := fetchText(t, mesh.URL(c.path))
		if err := protojson.Unmarshal([]byte(text), c.into); err != nil || !proto.Equal(c.into, want) || !strings.Contains(text, c.want) {
			t.Errorf("GET %s = %s, %v, want what gRPC gives: %v", c.path, text, err, want)
		}
		res, err := agent.Call(ctx, a, c.tool, c.arguments, nil)
		if err != nil || res.IsError {
			t.Fatalf("%s: %+v, %v", c.tool, res, err)
		}
		proto.Reset(c.into)
		if err := protojson.Unmarshal(res.StructuredContent, c.into); err != nil || !proto.Equal(c.into, want) {
			t.Errorf("%s = %v, %v, want what gRPC gives: %v", c.tool, c.into, err, want)
		}
	}
	progress := 0
	res, err := agent.Call(ctx, a, "metrics_watch", map[string]any{"query": "sum(orders_total)", "interval": "1s", "maxUpdates": 3}, func(string) { progress++ })
	if err != nil || res.IsError || strings.Count(string(res.StructuredContent), `"cursor"`) != 3 || progress == 0 {
		t.Errorf("MCP: watch = %+v, %v, %d progress notifications, want three messages with cursors", res, err, progress)
	}
	tools, err := agent.Tools(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if !tool.Annotations["readOnlyHint"] || tool.Annotations["openWorldHint"] {
			t.Errorf("tool %q: annotations %v, want what the contract's options say", tool.Name, tool.Annotations)
		}
	}
	t.Run("one error through each door", func(t *testing.T) { metricErrors(ctx, t, mesh, client, a) })
}

// metricErrors holds the three doors to one code and one reason for each kind of failure.
func metricErrors(ctx context.Context, t *testing.T, mesh *run.Mesh, client metricsv1.MetricServiceClient, a agent.Requester) {
	for _, c := range []struct {
		query  string
		code   codes.Code
		http   int
		reason string
		detail string
	}{
		{`rate(orders_total[5m]`, codes.InvalidArgument, http.StatusBadRequest, "QUERY_SYNTAX", "(at byte 21)"},
		{`orders_total * on (job) orders_total`, codes.InvalidArgument, http.StatusBadRequest, "QUERY_FAILED", "many-to-many"},
		{`sum_over_time(vector(1)[30d:1s])`, codes.ResourceExhausted, http.StatusTooManyRequests, "QUERY_TOO_LARGE", "at most 100000"},
		{``, codes.InvalidArgument, http.StatusBadRequest, "", "query"},
	} {
		_, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: c.query})
		reason, field := "", ""
		for _, d := range status.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				reason = d.GetReason()
			case *errdetails.BadRequest:
				field = d.GetFieldViolations()[0].GetField()
			}
		}
		if status.Code(err) != c.code || reason != c.reason || !strings.Contains(err.Error(), c.detail) || (field == "query") != (c.code == codes.InvalidArgument) {
			t.Errorf("gRPC, %q: %v, reason %q, field %q, want %v, %q", c.query, err, reason, field, c.code, c.reason)
		}
		resp, err := http.Get(mesh.URL("/v1/metrics:query?query=" + url.QueryEscape(c.query)))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.http || !strings.Contains(string(b), c.reason) || !strings.Contains(string(b), c.detail) {
			t.Errorf("HTTP, %q: %s %s, want %d, %q", c.query, resp.Status, b, c.http, c.reason)
		}
		res, err := agent.Call(ctx, a, "metrics_query", map[string]any{"query": c.query}, nil)
		if err != nil || !res.IsError || !strings.Contains(res.Text()+string(res.StructuredContent), c.reason) || !strings.Contains(res.Text(), c.detail) {
			t.Errorf("MCP, %q: %+v, %v, want a tool error with %q", c.query, res, err, c.reason)
		}
	}
}

// TestMetricsOnPrometheus puts the mesh before the metric service before a real Prometheus: a query ends there when the caller goes or the deadline
// passes, and a watch that breaks, by its reader or by kill -9 of the service, goes on without loss or repeat.
func TestMetricsOnPrometheus(t *testing.T) {
	t.Parallel()
	prometheus := startPrometheus(t)
	bin, err := run.Service("metrics")
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	spawn := func() *run.Process {
		p, err := run.Spawn(nil, bin, "--addr", addr, "--prometheus-url", prometheus)
		if err != nil {
			t.Fatal(err)
		}
		p.Explain(t)
		t.Cleanup(p.Kill)
		run.Eventually(t, "the metric service listens on "+addr, func() bool { return canConnect(addr) })
		return p
	}
	service := spawn()
	mesh := run.Start(t, "--backend", "metrics="+addr)
	ctx := patience(t)
	client := metricsv1.NewMetricServiceClient(run.Dial(t, mesh.GRPC))

	t.Run("a query ends in the engine", func(t *testing.T) {
		// Minutes of work in few samples.
		endless := "max_over_time((vector(time())" + strings.Repeat("+vector(time())", 250) + ")[26h:1s])"
		inFlight := regexp.MustCompile(`(?m)^prometheus_engine_queries ([1-9])`)
		runs := func() bool { return inFlight.MatchString(fetchText(t, prometheus+"/metrics")) }
		for name, call := range map[string]func(ctx context.Context) error{
			"grpc": func(ctx context.Context) error {
				_, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: endless})
				return err
			},
			"http": func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, mesh.URL("/v1/metrics:query?query="+url.QueryEscape(endless)), http.NoBody)
				if err != nil {
					return err
				}
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				return err
			},
		} {
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			run.Eventually(t, name+": the query runs in the engine", runs)
			cancel()
			if err := <-done; err == nil {
				t.Errorf("%s: no error after the cancel", name)
			}
			run.Eventually(t, name+": the query has ended in the engine", func() bool { return !runs() })
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := client.QueryInstant(short, &metricsv1.QueryInstantRequest{Query: endless}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("after the deadline = %v, want DEADLINE_EXCEEDED", err)
		}
		run.Eventually(t, "the query has ended in the engine after the deadline", func() bool { return !runs() })
	})

	t.Run("a watch goes on", func(t *testing.T) {
		var instants []time.Time
		cursor := ""
		keep := func(msg *metricsv1.WatchMetricResponse) {
			instants, cursor = append(instants, msg.GetTime().AsTime()), msg.GetCursor()
			if got := msg.GetSeries()[0].GetSamples()[0].GetValue(); got != float64(msg.GetTime().AsTime().UnixMilli())/1000 {
				t.Errorf("at %v the value is %v, want the time", msg.GetTime().AsTime(), got)
			}
		}
		watch := func(ctx context.Context) (*metricsv1.WatchMetricResponse, func() (*metricsv1.WatchMetricResponse, error), error) {
			stream, err := client.WatchMetric(ctx, &metricsv1.WatchMetricRequest{Query: "vector(time())", Interval: durationpb.New(time.Second), Cursor: cursor})
			if err != nil {
				return nil, nil, err
			}
			first, err := stream.Recv()
			return first, stream.Recv, err
		}
		// gRPC; the service is killed while messages come.
		first, next, err := watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		keep(first)
		service.Kill()
		for {
			msg, err := next()
			if err != nil {
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("after kill -9 = %v, want UNAVAILABLE", err)
				}
				break
			}
			keep(msg)
		}
		service = spawn()
		run.Eventually(t, "the watch goes on at its cursor", func() bool {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			msg, _, err := watch(ctx)
			if err != nil {
				return false
			}
			keep(msg)
			return true
		})
		// SSE; the reader goes and comes back with the last event's id, twice.
		for range 2 {
			for _, data := range events(ctx, t, mesh.URL("/v1/metrics:watch?interval=1s&maxUpdates=2&query="+url.QueryEscape("vector(time())")), cursor) {
				msg := &metricsv1.WatchMetricResponse{}
				if err := protojson.Unmarshal([]byte(data), msg); err != nil {
					t.Fatalf("event %s: %v", data, err)
				}
				keep(msg)
			}
		}
		if len(instants) < 6 {
			t.Errorf("%d instants, want those of each part", len(instants))
		}
		for i := 1; i < len(instants); i++ {
			if d := instants[i].Sub(instants[i-1]); d != time.Second {
				t.Errorf("instant %d comes %v after the one before, want 1s: none lost, none twice", i, d)
			}
		}
	})
}

// events reads the data of all events of an SSE stream until it ends.
func events(ctx context.Context, t *testing.T, address, lastEventID string) (data []string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "curl", "-sS", "-N", "-H", "Accept: text/event-stream", "-H", "Last-Event-ID: "+lastEventID, address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if d, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Valid([]byte(d)) && strings.Contains(d, `"cursor"`) {
			data = append(data, d)
		}
		if e, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			last = e
		}
	}
	if err := cmd.Wait(); err != nil || last != "end" {
		t.Fatalf("GET %s: %v, last event %q, want end", address, err, last)
	}
	return data
}

// startPrometheus starts Debian's Prometheus on a free port with nothing to scrape, and returns its URL.
func startPrometheus(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v: this test needs Debian's package: apt-get install --no-install-recommends prometheus, as .ci/run does", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := run.Spawn(nil, bin, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	listening, addr, ready := regexp.MustCompile(`msg="Listening on" address=(\S+)`), "", false
	if err := p.Await(func(line string) bool {
		if m := listening.FindStringSubmatch(line); m != nil {
			addr = m[1]
		}
		ready = ready || strings.Contains(line, "Server is ready to receive web requests.")
		return ready && addr != ""
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://%s", addr)
}

// TestMetricsTakesTheMeshsCallsOnly gives the service the mesh's name and keys: a call that comes by itself is refused, one through the mesh passes.
func TestMetricsTakesTheMeshsCallsOnly(t *testing.T) {
	t.Parallel()
	web, dir := freeAddr(t), t.TempDir()
	addr := startService(t, "metrics", "--auth-issuer", "https://mesh.test", "--auth-audience", "metrics", "--auth-jwks", "http://"+web+"/.well-known/jwks.json")
	config := filepath.Join(dir, "toolway.yaml")
	text := fmt.Sprintf("backends: [{name: metrics, targets: [%q], credentials: {mint: {}}}]\ncredentials: {issuer: \"https://mesh.test\"}\n", addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--http-addr", web, "--config", config)
	ctx := patience(t)
	query := &metricsv1.QueryInstantRequest{Query: "1"}
	if _, err := metricsv1.NewMetricServiceClient(run.Dial(t, addr)).QueryInstant(ctx, query); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without the mesh = %v, want UNAUTHENTICATED", err)
	}
	client := metricsv1.NewMetricServiceClient(run.Dial(t, mesh.GRPC))
	if got, err := client.QueryInstant(ctx, query); err != nil || len(got.GetSeries()) != 1 {
		t.Errorf("through the mesh = %v, %v, want an answer", got, err)
	}
	stream, err := client.WatchMetric(ctx, &metricsv1.WatchMetricRequest{Query: "1", MaxUpdates: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a stream through the mesh: %v", err)
	}
}
