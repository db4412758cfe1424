package mesh

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/lock"
)

// judge returns what says which definitions must not be served; nil without a lock.
func (c *Config) judge() (func(*catalog.Method) string, error) {
	if c.Lock == "" {
		return nil, nil
	}
	f, err := lock.Read(c.Lock)
	if err != nil {
		return nil, err
	}
	return f.Judge(), nil
}

// measureQuarantine counts the quarantined tools of each backend, whenever somebody reads the metrics.
func (m *Mesh) measureQuarantine() error {
	if m.config.Lock == "" {
		return nil
	}
	_, err := m.telemetry.meterProvider().Meter("toolway").Int64ObservableGauge("toolway.tools.quarantined",
		metric.WithDescription("Tools that are not served because their definition is not the one that was reviewed."), metric.WithUnit("{tool}"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			s := m.catalog.Snapshot()
			counts := map[string]int64{}
			for _, t := range s.Methods() {
				if t.Quarantine != "" {
					counts[t.Backend.Name]++
				}
			}
			for _, b := range s.Backends() {
				if b.Name != own {
					o.Observe(counts[b.Name], metric.WithAttributes(attribute.String("backend", b.Name)))
				}
			}
			return nil
		}))
	return err
}
