package interceptors_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// durations reads the histogram of calls.
func durations(t *testing.T, reader sdkmetric.Reader) []metricdata.HistogramDataPoint[float64] {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "toolway.call.duration" {
				return h.DataPoints
			}
		}
	}
	return nil
}

// TestMeasureDurations has more calls than are told to the histogram at once: whoever reads it sees each, in its bucket, and so does a second reader.
func TestMeasureDurations(t *testing.T) {
	first, second := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
	observe := interceptors.Observe(interceptors.Options{Logger: discard(), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(first), sdkmetric.WithReader(second))})
	m := method(t, "UnaryCall")
	const each = 50
	for n := range each {
		for _, ago := range []time.Duration{200 * time.Second, 7 * time.Second, 400 * time.Second} {
			c := call.New(m, call.HTTP)
			c.Start = c.Start.Add(-ago)
			_, _ = run(t.Context(), c, nil, answer(nil), observe)
		}
		if n%20 != 0 {
			continue
		}
		if got := durations(t, first); len(got) != 1 || got[0].Count != uint64(3*(n+1)) {
			t.Fatalf("after %d calls the histogram is %+v", 3*(n+1), got)
		}
	}
	for _, reader := range []sdkmetric.Reader{first, second} {
		got := durations(t, reader)
		if len(got) != 1 {
			t.Fatalf("%d histograms, want 1", len(got))
		}
		h := got[0]
		for _, bound := range []float64{10, 300} {
			if n := h.BucketCounts[slices.Index(h.Bounds, bound)]; n != each {
				t.Errorf("%d calls took up to %v seconds, want %d", n, bound, each)
			}
		}
		if n := h.BucketCounts[len(h.Bounds)]; n != each {
			t.Errorf("%d calls took longer than all bounds, want %d", n, each)
		}
		if h.Sum < each*607 || h.Sum > each*607+100 {
			t.Errorf("all calls took %v seconds, want about %d", h.Sum, each*607)
		}
	}
}

// TestMeasuresOutliveSnapshots counts on when a method comes again with another catalog.
func TestMeasuresOutliveSnapshots(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	observe := interceptors.Observe(interceptors.Options{Logger: discard(), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	for range 3 {
		c := call.New(method(t, "UnaryCall"), call.MCP)
		c.Attempts = []call.Attempt{
			{Backend: "echo", Code: codes.Unavailable, Outcome: call.NotExecuted},
			{Backend: "other", Code: codes.Code(12345), Outcome: call.Unknown}, {Backend: "echo", Outcome: call.Answered},
		}
		_, _ = run(t.Context(), c, nil, answer(nil), observe)
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	got := points(rm)
	for k, want := range map[string]string{
		"toolway.calls":    "[code=OK,door=mcp,method=grpc.testing.TestService/UnaryCall 3]",
		"toolway.attempts": "[backend=echo,code=OK,outcome=answered 3 backend=echo,code=UNAVAILABLE,outcome=not executed 3 backend=other,code=Code(17),outcome=unknown 3]",
	} {
		if g := fmt.Sprint(got[k]); g != want {
			t.Errorf("%s = %s, want %s", k, g, want)
		}
	}
}

// TestMeasuresShowSpans has a call that is sampled as an example of its duration, and no other.
func TestMeasuresShowSpans(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	for _, sampled := range []bool{false, true} {
		sampler := sdktrace.NeverSample()
		if sampled {
			sampler = sdktrace.AlwaysSample()
		}
		o := interceptors.Options{Logger: discard(), Meter: meter, Tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))}
		c := call.New(method(t, "UnaryCall"), call.HTTP)
		_, _ = run(t.Context(), c, nil, answer(nil), interceptors.Observe(o))
		var ids []string
		for _, p := range durations(t, reader) {
			for _, e := range p.Exemplars {
				ids = append(ids, hex.EncodeToString(e.TraceID))
			}
		}
		if want := []string{c.TraceID}; sampled && !slices.Equal(ids, want) || !sampled && ids != nil {
			t.Errorf("sampled %v: the histogram shows %v, the call's is %v", sampled, ids, want)
		}
	}
}

func TestMeasuresAreSafeForConcurrentUse(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	observe := interceptors.Observe(interceptors.Options{Logger: discard(), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	m := method(t, "UnaryCall")
	const callers, each = 8, 100
	var calling sync.WaitGroup
	for i := range callers {
		door := []call.Door{call.GRPC, call.MCP, call.HTTP}[i%3]
		calling.Go(func() {
			for n := range each {
				var err error
				if n%2 == 0 {
					err = status.Error(codes.Code(n%5), "")
				}
				_, _ = run(context.Background(), call.New(m, door), nil, answer(err), observe)
			}
		})
	}
	count := func() (sum uint64) {
		for _, p := range durations(t, reader) {
			sum += p.Count
		}
		return sum
	}
	var before uint64
	for range 20 {
		now := count()
		if now < before {
			t.Errorf("%d calls, and there were %d", now, before)
		}
		before = now
	}
	calling.Wait()
	if got := count(); got != callers*each {
		t.Errorf("%d calls, want %d", got, callers*each)
	}
}
