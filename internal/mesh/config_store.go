package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/durable"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
)

// Store says where durable state is: idempotency keys, approvals, audit, large results, tasks. Without data and nats it is in memory, and ends
// with the process.
type Store struct {
	// NATS is the URL of an external cluster with JetStream, such as nats://a:4222,b:4222, which several meshes share. Default: the state
	// is in the data directory.
	NATS string `yaml:"nats"`
	// Credentials is a file with NATS credentials.
	Credentials string `yaml:"credentials"`
	// TLS is how to reach the cluster.
	TLS *TLS `yaml:"tls"`
	// Replicas is how many copies the cluster keeps. Default 1.
	Replicas int `yaml:"replicas"`
	// Prefix begins the names of all that this mesh keeps there. Meshes that share state have the same. Default "toolway".
	Prefix string `yaml:"prefix"`
	// MaxBytes bounds the disk that the data directory takes. Default 10 GiB.
	MaxBytes int64 `yaml:"max_bytes"`
	// Timeout bounds one read or write. Default 5s.
	Timeout Duration `yaml:"timeout"`
}

func (s *Store) normalise(data string) error {
	switch {
	case s.NATS == "" && (s.Credentials != "" || s.TLS != nil || s.Replicas != 0):
		return errors.New("store.credentials, tls and replicas are about a cluster, and store.nats names none: name one, or drop them")
	case s.NATS != "" && s.MaxBytes != 0:
		return errors.New("store.max_bytes is about the data directory, and the state is at store.nats: bound it there, or drop the one or the other")
	case s.MaxBytes < 0, s.Timeout < 0:
		return errors.New("store.max_bytes and timeout: a limit cannot be negative; leave it out for the default")
	case s.NATS == "" && data == "" && (s.MaxBytes != 0 || s.Prefix != "" || s.Timeout != 0):
		return errors.New("store: there is none: give a directory with data, or a cluster with store.nats")
	}
	return nil
}

// state is where the policies keep what they must remember.
type state struct {
	store     *store.Store // nil: in memory
	keys      interceptors.KeyStore
	approvals approvalStore
	objects   objectStore    // nil: large results are not kept
	audit     *durable.Audit // nil: not in the store
	closers   []func()
}

// approvalStore is what both the policy and the service need.
type approvalStore interface {
	interceptors.ApprovalStore
	meshapi.Approvals
}

// objectStore is what both the MCP door and the service need.
type objectStore interface {
	meshapi.Objects
	Put(ctx context.Context, owner object.Owner, mediaType string, data []byte) (object.Info, error)
}

// openTimeout bounds the waiting at the start, once for what the policies keep and once for tasks; the store bounds the waiting for each part.
const openTimeout = 2 * time.Minute

// openState opens the store that the configuration names, and what is kept in it; without one, or if none is wanted, the state is in memory.
func (m *Mesh) openState(ctx context.Context, none bool) error {
	c := &m.config
	if none || c.Data == "" && c.Store.NATS == "" {
		m.state = state{keys: interceptors.NewKeyMemory(c.Idempotency.MaxBytes, c.Idempotency.maxCallerBytes()), approvals: interceptors.NewApprovalMemory(c.Approvals.Max)}
		if memory := c.Results.store(); memory != nil {
			m.state.objects = memory
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conf := store.Config{URL: c.Store.NATS, Credentials: c.Store.Credentials, Replicas: c.Store.Replicas, Prefix: c.Store.Prefix, MaxBytes: c.Store.MaxBytes, Timeout: time.Duration(c.Store.Timeout), Logger: m.log}
	if conf.URL == "" {
		conf.Dir = filepath.Join(c.Data, "store")
	}
	if t := c.Store.TLS; t != nil {
		conf.CA, conf.Cert, conf.Key = t.CA, t.Cert, t.Key
	}
	s, err := store.Open(ctx, conf)
	if err != nil {
		return err
	}
	m.state.store = s
	if err := m.measureStore(); err != nil {
		return err
	}
	keys, err := durable.OpenKeys(ctx, s, c.Idempotency.MaxBytes, c.Idempotency.maxCallerBytes(), m.log)
	if err != nil {
		return fmt.Errorf("idempotency records: %w", err)
	}
	m.state.keys, m.state.closers = keys, append(m.state.closers, keys.Close)
	held, err := durable.OpenApprovals(ctx, s)
	if err != nil {
		return fmt.Errorf("approvals: %w", err)
	}
	m.state.approvals, m.state.closers = held, append(m.state.closers, held.Close)
	if !c.Results.Objects.Off {
		o := &c.Results.Objects
		if m.state.objects, err = durable.OpenObjects(ctx, s, "results", object.Limits{MaxBytes: o.MaxBytes, MaxObjectBytes: o.MaxObjectBytes, TTL: time.Duration(o.TTL)}); err != nil {
			return fmt.Errorf("large results: %w", err)
		}
	}
	if *c.Audit.Keep > 0 {
		records, err := durable.OpenAudit(ctx, s, durable.AuditOptions{
			Required: c.Audit.Required, Recent: *c.Audit.Keep, Logger: m.log,
			Retention: store.LogConfig{MaxAge: time.Duration(c.Audit.MaxAge), MaxBytes: c.Audit.MaxBytes},
		})
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		m.state.audit = records
	}
	return nil
}

// close ends the state, the store last. Audit records that wait are written first.
func (s *state) close(log *slog.Logger) {
	if s.audit != nil {
		if err := s.audit.Close(); err != nil {
			log.Error("close the audit", "error", err)
		}
	}
	for _, f := range s.closers {
		f()
	}
	if s.store != nil {
		s.store.Close()
	}
}

// measureStore says whether the store answers, whenever somebody reads the metrics.
func (m *Mesh) measureStore() error {
	_, err := m.telemetry.meterProvider().Meter("toolway").Int64ObservableGauge("toolway.store.up",
		metric.WithDescription("Whether the store of durable state answers: 1 or 0."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			n := int64(1)
			if m.state.store.Down() != "" {
				n = 0
			}
			o.Observe(n)
			return nil
		}))
	return err
}

// storeReadiness is what /readyz says of the store.
type storeReadiness struct {
	// State is "up" or "down": then calls that need the store are UNAVAILABLE, and others go on.
	State string `json:"state"`
	// Place is the directory or the cluster.
	Place string `json:"place"`
	// Why says what is wrong.
	Why string `json:"why,omitempty"`
}

// readiness returns nil without a store.
func (s *state) readiness() *storeReadiness {
	if s.store == nil {
		return nil
	}
	r := &storeReadiness{State: "up", Place: s.store.Place()}
	if r.Why = s.store.Down(); r.Why != "" {
		r.State = "down"
	}
	return r
}
