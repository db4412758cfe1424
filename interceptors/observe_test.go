package interceptors_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
)

func answer(err error) grpc.StreamHandler { return func(any, grpc.ServerStream) error { return err } }

func TestObserveLog(t *testing.T) {
	for _, c := range []struct {
		err   error
		level string
		code  string
	}{
		{nil, "INFO", "OK"},
		{status.Error(codes.NotFound, "x"), "INFO", "NOT_FOUND"},
		{status.Error(codes.Unavailable, "x"), "WARN", "UNAVAILABLE"},
		{status.Error(codes.Internal, strings.Repeat("x", 1<<20)), "ERROR", "INTERNAL"},
		{fmt.Errorf("no status"), "ERROR", "UNKNOWN"},
		{status.Error(codes.Code(99), "x"), "INFO", "Code(99)"},
	} {
		log, out := logger()
		cl := call.New(method(t, "UnaryCall"), call.MCP)
		_, _ = run(t.Context(), cl, nil, answer(c.err), interceptors.Observe(interceptors.Options{Logger: log}))
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("log %s: %v", out, err)
		}
		for k, want := range map[string]string{"level": c.level, "code": c.code, "door": "mcp", "method": "/grpc.testing.TestService/UnaryCall", "call_id": cl.ID, "trace_id": cl.ID, "backend": "echo"} {
			if line[k] != want {
				t.Errorf("%v: %s = %v, want %q", c.err, k, line[k], want)
			}
		}
		if out.Len() > 3000 {
			t.Errorf("the line has %d bytes", out.Len())
		}
	}
}

// TestObserveLogSource has the line say where it comes from, of a handler that asks.
func TestObserveLogSource(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{AddSource: true}))
	_, _ = run(t.Context(), call.New(method(t, "UnaryCall"), call.MCP), nil, answer(nil), interceptors.Observe(interceptors.Options{Logger: log}))
	if !strings.Contains(out.String(), "observe.go") {
		t.Errorf("the line does not say where it comes from: %s", out.String())
	}
}

func TestObserveTraceID(t *testing.T) {
	for header, want := range map[string]string{
		"00-" + traceID + "-" + parentID + "-01":                  traceID,
		"00-" + traceID + "-" + parentID + "-00":                  traceID,
		"cc-" + traceID + "-" + parentID + "-01-extra":            traceID,
		"00-" + traceID + "-" + parentID + "-01-extra":            "",
		"ff-" + traceID + "-" + parentID + "-01":                  "",
		"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01":  "",
		"00-" + strings.ToUpper(traceID) + "-" + parentID + "-01": "",
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01":   "",
		"": "", "garbage": "",
	} {
		c := call.New(method(t, "UnaryCall"), call.GRPC)
		c.Forward = metadata.Pairs("traceparent", header)
		if _, err := run(t.Context(), c, nil, answer(nil), interceptors.Observe(interceptors.Options{Logger: discard()})); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = c.ID
		}
		if c.TraceID != want || c.Forward["traceparent"][0] != header {
			t.Errorf("traceparent %q: trace id %q, forwarded %q, want %q and the header as it came", header, c.TraceID, c.Forward["traceparent"], want)
		}
	}
	c := call.New(method(t, "UnaryCall"), call.GRPC)
	c.ID = "not-hex"
	_, _ = run(t.Context(), c, nil, answer(nil), interceptors.Observe(interceptors.Options{Logger: discard()}))
	if len(c.TraceID) != 32 {
		t.Errorf("TraceID = %q, want 32 hex digits", c.TraceID)
	}
}

func TestObserveSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	o := interceptors.Options{Logger: discard(), Tracer: tp}
	c := call.New(method(t, "UnaryCall"), call.GRPC)
	c.Forward = metadata.Pairs("traceparent", "00-"+traceID+"-"+parentID+"-01", "tracestate", "v=1")
	_, _ = run(t.Context(), c, nil, answer(status.Error(codes.Unavailable, "down")), interceptors.Observe(o))
	root := call.New(method(t, "UnaryCall"), call.GRPC) // with nil metadata
	_, _ = run(t.Context(), root, nil, answer(nil), interceptors.Observe(o))

	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans, want 2", len(ended))
	}
	s := ended[0]
	if s.Name() != "grpc.testing.TestService/UnaryCall" || s.Parent().SpanID().String() != parentID || c.TraceID != traceID || s.Status().Description != "down" {
		t.Errorf("span %q below %v in %q, status %v", s.Name(), s.Parent().SpanID(), c.TraceID, s.Status())
	}
	want := "00-" + traceID + "-" + s.SpanContext().SpanID().String() + "-01"
	if got := c.Forward["traceparent"]; len(got) != 1 || got[0] != want || c.Forward["tracestate"][0] != "v=1" {
		t.Errorf("forwarded %v, want traceparent %q and the tracestate", c.Forward, want)
	}
	if id := ended[1].SpanContext().TraceID().String(); root.TraceID != id || !strings.Contains(root.Forward["traceparent"][0], id) {
		t.Errorf("root: trace id %q, forwarded %v, want %q", root.TraceID, root.Forward, id)
	}
}

func TestObserveMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	o := interceptors.Options{Logger: discard(), Meter: mp}
	observe := interceptors.Observe(o)
	var during metricdata.ResourceMetrics
	for _, err := range []error{nil, nil, status.Error(codes.NotFound, ""), status.Error(codes.Code(12345), "")} {
		_, _ = run(t.Context(), call.New(method(t, "UnaryCall"), call.HTTP), nil, func(any, grpc.ServerStream) error {
			if rerr := reader.Collect(t.Context(), &during); rerr != nil {
				t.Error(rerr)
			}
			return err
		}, observe)
	}
	func() { // a panic is counted too
		defer func() { _ = recover() }()
		_, _ = run(t.Context(), call.New(method(t, "UnaryCall"), call.HTTP), nil, func(any, grpc.ServerStream) error { panic("x") }, observe)
	}()
	var after metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &after); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(points(during)["toolway.calls.in_flight"]); got != "[door=http 1]" {
		t.Errorf("in flight during a call = %v", got)
	}
	got := points(after)
	want := map[string]string{
		"toolway.calls":           "[code=INTERNAL,door=http,method=grpc.testing.TestService/UnaryCall 1 code=NOT_FOUND,door=http,method=grpc.testing.TestService/UnaryCall 1 code=OK,door=http,method=grpc.testing.TestService/UnaryCall 2 code=UNKNOWN,door=http,method=grpc.testing.TestService/UnaryCall 1]",
		"toolway.calls.in_flight": "[door=http 0]",
	}
	want["toolway.call.duration"] = want["toolway.calls"]
	for k, w := range want {
		if g := fmt.Sprint(got[k]); g != w {
			t.Errorf("%s = %s, want %s", k, g, w)
		}
	}
}

// points lists the sums and counts of all metrics.
func points(rm metricdata.ResourceMetrics) map[string][]string {
	enc := attribute.DefaultEncoder()
	out := map[string][]string{}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[m.Name] = append(out[m.Name], fmt.Sprint(p.Attributes.Encoded(enc), " ", p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[m.Name] = append(out[m.Name], fmt.Sprint(p.Attributes.Encoded(enc), " ", p.Count))
				}
			}
			sort.Strings(out[m.Name])
		}
	}
	return out
}
