package mesh

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// telemetry owns the metric and trace providers of one mesh. Nothing global is touched.
type telemetry struct {
	registry *prometheus.Registry
	meters   *sdkmetric.MeterProvider
	tracers  *sdktrace.TracerProvider // nil when no spans are wanted
}

func openTelemetry(ctx context.Context, c Trace, version string) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	t := &telemetry{registry: registry, meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))}
	if c.OTLP == "" {
		return t, nil
	}
	spans, err := otlptracegrpc.New(ctx, otlpEndpoint(c.OTLP)...)
	if err != nil {
		return nil, fmt.Errorf("trace.otlp %q: %w", c.OTLP, err)
	}
	ratio := 1.0
	if c.SampleRatio != nil {
		ratio = *c.SampleRatio
	}
	res := resource.NewSchemaless(attribute.String("service.name", "toolway"), attribute.String("service.version", version))
	t.tracers = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(spans),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
		sdktrace.WithResource(res),
	)
	return t, nil
}

// otlpEndpoint takes host:port (plaintext) or a URL, whose scheme says whether TLS is used.
func otlpEndpoint(s string) []otlptracegrpc.Option {
	if strings.Contains(s, "://") {
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(s)}
	}
	return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(s), otlptracegrpc.WithInsecure()}
}

func (t *telemetry) meterProvider() metric.MeterProvider { return t.meters }

// tracerProvider is nil when no spans are wanted.
func (t *telemetry) tracerProvider() trace.TracerProvider {
	if t.tracers == nil {
		return nil
	}
	return t.tracers
}

// handler serves the metrics in Prometheus' and OpenMetrics' text formats.
func (t *telemetry) handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// close flushes spans.
func (t *telemetry) close(ctx context.Context) error {
	if t.tracers != nil {
		if err := t.tracers.Shutdown(ctx); err != nil {
			return err
		}
	}
	return t.meters.Shutdown(ctx)
}
