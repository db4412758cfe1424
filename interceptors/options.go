package interceptors

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/rules"
)

// Options are what the default chain needs. The zero value works: it logs to slog's default logger, and neither traces nor measures.
type Options struct {
	// Logger gets a line for each call and the internals of errors. Default slog.Default(). Its handler decides between JSON and text.
	Logger *slog.Logger
	// Tracer starts a span for each call. Nil: no spans; the caller's trace context passes unchanged.
	Tracer trace.TracerProvider
	// Meter counts and times calls. Nil: no metrics.
	Meter metric.MeterProvider

	// Authenticator says who calls, where the door has not. Nil: everybody is identity.Anonymous, who may do everything.
	Authenticator call.Authenticator

	// Timeout is the deadline of a unary call that brings none, unless the method says otherwise. Default 60 seconds.
	Timeout time.Duration
	// MaxTimeout caps the deadline of any unary call, unless the method says otherwise. Default 10 minutes.
	MaxTimeout time.Duration
	// StreamTimeout and MaxStreamTimeout are the same for calls with a stream on either side. Default 0, none: a stream may stay open.
	StreamTimeout, MaxStreamTimeout time.Duration
	// Reserve is kept from the caller's deadline for the way back: the backend gets what remains after it. Default 5 milliseconds;
	// negative means none.
	Reserve time.Duration

	// Rules are the operator's rules, tenancy among them. Nil: none.
	Rules *rules.Set
	// Audit says where records of calls go. The zero value: nowhere.
	Audit AuditOptions
	// Idempotency says where idempotency keys are kept.
	Idempotency IdempotencyOptions
	// Approval says where approvals are kept.
	Approval ApprovalOptions
	// Task says who takes calls that run as tasks.
	Task TaskOptions
	// Limits protect the mesh and its backends from too many calls.
	Limits LimitOptions
	// Cache bounds the cache of replies.
	Cache CacheOptions
	// DataFlow says which backend's data must not go to which.
	DataFlow DataFlowOptions

	// Address is where the gRPC door can be reached, for the grpcurl lines in the log. Default "127.0.0.1:7070".
	Address string
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.MaxTimeout == 0 {
		o.MaxTimeout = 10 * time.Minute
	}
	switch {
	case o.Reserve == 0:
		o.Reserve = 5 * time.Millisecond
	case o.Reserve < 0:
		o.Reserve = 0
	}
	if o.Address == "" {
		o.Address = "127.0.0.1:7070"
	}
	return o
}
