package mesh

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// measureConnections counts the connections to each backend, whenever somebody reads the metrics.
func (m *Mesh) measureConnections() error {
	_, err := m.telemetry.meterProvider().Meter("toolway").Int64ObservableGauge("toolway.backend.connections",
		metric.WithDescription("Connections to each endpoint of a backend."), metric.WithUnit("{connection}"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for name, conn := range m.conns {
				calls, streams := conn.Connections()
				o.Observe(int64(calls), metric.WithAttributes(attribute.String("backend", name), attribute.String("kind", "calls")))
				o.Observe(int64(streams), metric.WithAttributes(attribute.String("backend", name), attribute.String("kind", "streams")))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("measure connections: %w", err)
	}
	return nil
}
