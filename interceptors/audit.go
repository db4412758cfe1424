package interceptors

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// AuditSink keeps records of calls. It may be called concurrently.
type AuditSink interface {
	// Record keeps r. It does not change r and keeps a copy, since the bytes are used again once it has returned. ctx is the call's, which may be over: what waits
	// does so without it. An error means that the record is not kept.
	Record(ctx context.Context, r audit.Record) error
}

// AuditOptions are what Audit needs besides Options.
type AuditOptions struct {
	// Sink gets the records. Nil: no audit.
	Sink AuditSink
	// Required refuses calls with UNAVAILABLE while the sink fails: once it has failed to keep a record, calls are refused until it has kept
	// one again. That of a refused call is tried too, so the first call after the fault ends the refusals. Otherwise a failure is logged
	// and counted, and calls go on.
	Required bool
	// MaxArgumentBytes bounds the arguments in a record, as JSON. Default 4096; negative: none, only their hash.
	MaxArgumentBytes int
	// Health records successful health checks too, which load balancers make every second. Refused ones always are.
	Health bool
}

// Audit gives a record of each call, refused ones included, to a sink when the call is over. It stands outside of all that decides, so
// that it sees every decision. Records hold no secret: of a request only fields that neither the contract marks as sensitive nor whose names,
// or map keys, say that they hold a secret; of credentials and results nothing; of keys a hash.
//
// Metrics: toolway.audit.failures, records that the sink did not keep.
func Audit(o Options) Policy {
	o = o.withDefaults()
	a := &auditor{o: o.Audit, log: o.Logger}
	if a.o.MaxArgumentBytes == 0 {
		a.o.MaxArgumentBytes = 4 << 10
	}
	if o.Meter != nil {
		// The API returns a working no-op instrument beside an error, which is only about names and units.
		a.failures, _ = o.Meter.Meter(scope).Int64Counter("toolway.audit.failures", metric.WithDescription("Audit records that were not kept."), metric.WithUnit("{record}"))
	}
	return inHalves("audit", func(m *catalog.Method) *halves {
		if a.o.Sink == nil {
			return nil
		}
		ma := &methodAudit{auditor: a, facts: auditFacts(m, a.o.MaxArgumentBytes), quiet: !a.o.Health && m.Service.Desc.FullName() == "grpc.health.v1.Health"}
		return &halves{enter: ma.enter, leave: ma.leave}
	})
}

type auditor struct {
	o        AuditOptions
	log      *slog.Logger
	failures metric.Int64Counter // nil: no metrics
	failing  atomic.Bool
}

// methodAudit is what the records of one method's calls share.
type methodAudit struct {
	*auditor
	facts *methodFacts
	quiet bool
}

func (a *methodAudit) enter(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
	s := &audited{ServerStream: stream, facts: a.facts}
	if err := a.refusal(); err != nil {
		c.Decide("audit", "refused", "records cannot be kept")
		a.finish(stream.Context(), c, s, err)
		return nil, err
	}
	return s, nil
}

func (a *methodAudit) leave(c *call.Call, inner grpc.ServerStream, err error) error {
	if s, ok := inner.(*audited); ok { // as enter returned it
		a.finish(s.Context(), c, s, err)
	}
	return err
}

// refusal is why no call may run now, or nil.
func (a *auditor) refusal() error {
	if !a.o.Required || !a.failing.Load() {
		return nil
	}
	return call.Error(codes.Unavailable, "AUDIT_UNAVAILABLE", "the mesh cannot keep a record of the call, and makes none without",
		"hint", "nothing was done; call again later, and tell the operator if it stays")
}

// errPanic is how a call ends that panics.
var errPanic = status.Error(codes.Internal, "panic")

func (a *methodAudit) finish(ctx context.Context, c *call.Call, s *audited, err error) {
	if a.quiet && err == nil {
		return
	}
	took := time.Since(c.Start)
	end := endOf(ctx, c, err)
	b := scratches.Get().(*scratch)
	err = a.o.Sink.Record(ctx, s.record(ctx, b, c, &end, took))
	b.release()
	if (err != nil) != a.failing.Load() {
		a.failing.Store(err != nil)
	}
	if err != nil {
		a.lost(ctx, c, end.code, err)
	}
}

// lost tells of a record that was not kept.
func (a *auditor) lost(ctx context.Context, c *call.Call, code codes.Code, err error) {
	if a.failures != nil {
		a.failures.Add(ctx, 1)
	}
	principal := ""
	if c.Principal != nil {
		principal = short(c.Principal.ID)
	}
	a.log.LogAttrs(ctx, slog.LevelError, "a call is not in the audit", slog.String("call_id", c.ID), slog.String("method", c.Method.FullMethod),
		slog.String("principal", principal), slog.String("code", codeName(code)), slog.Any("error", err))
}
