package interceptors

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// scope names what traces and measures.
const scope = "github.com/toolway/toolway/interceptors"

// Observe logs, traces and measures each call.
//
// The log has one line for a call, whose level goes by the outcome: a fault of the mesh or a backend is an error, a call that came too
// late or too often a warning, all else information, and successful health checks and reflection are for debugging.
//
// Call.TraceID is set from the caller's traceparent, else from the call's ID. With a tracer each call is a span below the caller's, and the
// backend gets the span's trace context in place of the caller's. Without one the caller's passes as it came, and none is made up: a
// backend would take an unsampled parent for a decision.
//
// Metrics: toolway.calls (by door, method, code), toolway.call.duration (seconds, the same), toolway.calls.in_flight (by door),
// toolway.attempts (by backend, code, outcome). A span has an event for each attempt at a backend.
func Observe(o Options) Policy {
	o = o.withDefaults()
	ob := &observer{log: o.Logger.Handler()}
	var here [1]uintptr
	runtime.Callers(1, here[:])
	ob.pc = here[0]
	if o.Tracer != nil {
		ob.tracer = o.Tracer.Tracer(scope)
	}
	if o.Meter != nil {
		ob.meter = newMeasures(o.Meter.Meter(scope))
	}
	return inHalves("observe", func(m *catalog.Method) *halves {
		mo := &methodObserver{observer: ob, log: ob.log.WithAttrs([]slog.Attr{slog.String("method", m.FullMethod), slog.String("backend", m.Backend.Name)})}
		if ob.meter != nil {
			mo.meter = ob.meter.of(m)
		}
		return &halves{enter: mo.enter, leave: mo.leave}
	})
}

type observer struct {
	log    slog.Handler
	pc     uintptr      // where lines come from, for handlers that say it: a slog.Logger would look it up for each
	tracer trace.Tracer // nil: no spans
	meter  *measures    // nil: no metrics
}

// methodObserver observes the calls of one method. Its log has been told what its lines have in common: a record takes five more facts without
// allocating.
type methodObserver struct {
	*observer
	log   slog.Handler
	meter *methodMeasures // nil: no metrics
}

func (ob *methodObserver) enter(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
	if ob.tracer == nil {
		c.TraceID = traceID(c)
	} else {
		stream = &withContext{stream, ob.start(stream.Context(), c)}
	}
	if ob.meter != nil {
		ob.meter.begin(c)
	}
	return stream, nil
}

func (ob *methodObserver) leave(c *call.Call, stream grpc.ServerStream, err error) error {
	ctx := stream.Context()
	var span trace.Span
	if ob.tracer != nil {
		span = trace.SpanFromContext(ctx)
	}
	st, _ := status.FromError(err)
	ob.finish(ctx, c, span, st.Code(), st.Message())
	return err
}

func (ob *methodObserver) finish(ctx context.Context, c *call.Call, span trace.Span, code codes.Code, message string) {
	now := time.Now()
	took := now.Sub(c.Start)
	if ob.meter != nil {
		ob.meter.end(ctx, c, code, took, span != nil && span.SpanContext().IsSampled())
	}
	if span != nil {
		if span.IsRecording() {
			span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
			tellAttempts(span, c)
			if level(c, code) >= slog.LevelWarn {
				span.SetStatus(otelcodes.Error, message)
			}
		}
		span.End()
	}
	lvl := level(c, code)
	if !ob.log.Enabled(ctx, lvl) {
		return
	}
	attrs := [7]slog.Attr{
		slog.String("door", string(c.Door)), slog.String("code", codeName(code)), slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.String("trace_id", c.TraceID), slog.String("call_id", c.ID),
	}
	n := 5
	if len(c.Attempts) > 1 { // the usual case is not worth a word
		attrs[n] = slog.Int("attempts", len(c.Attempts))
		n++
	}
	if code != codes.OK {
		attrs[n] = slog.String("message", excerpt(message))
		n++
	}
	r := slog.NewRecord(now, lvl, "call", ob.pc)
	r.AddAttrs(attrs[:n]...)
	_ = ob.log.Handle(ctx, r) // as slog.Logger does: there is nowhere to tell that the log cannot be written
}

// tellAttempts adds an event for each attempt to the call's span.
func tellAttempts(span trace.Span, c *call.Call) {
	for _, a := range c.Attempts {
		span.AddEvent("attempt", trace.WithTimestamp(c.Start.Add(a.Start)), trace.WithAttributes(
			attribute.String("toolway.backend", a.Backend), attribute.String("server.address", a.Target), attribute.String("toolway.outcome", string(a.Outcome)),
			attribute.String("rpc.grpc.status_code", codeName(a.Code)), attribute.Int64("toolway.attempt.duration_us", (a.End-a.Start).Microseconds()), attribute.String("toolway.why", a.Why)))
	}
}

// maxLogged bounds a status message in the log.
const maxLogged = 1 << 10

// excerpt is the beginning of a status message, of which a line that waits to be written does not hold on to the rest.
func excerpt(message string) string {
	if len(message) <= maxLogged {
		return message
	}
	return strings.Clone(message[:maxLogged])
}

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// codeName is the canonical name of google.rpc.Code, as every language but Go writes it.
func codeName(code codes.Code) string {
	if int(code) < len(codeNames) {
		return codeNames[code]
	}
	return code.String()
}

// level is the log level of an outcome.
func level(c *call.Call, code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Canceled:
		if c.Method.Service.Infrastructure { // reflection and health watches end by the caller going away
			return slog.LevelDebug
		}
		return slog.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// traceID returns the trace id of the caller's W3C traceparent, else the call's ID if that can be one, else a new one.
func traceID(c *call.Call) string {
	if vs := c.Forward["traceparent"]; len(vs) == 1 {
		if id, ok := parseTraceparent(vs[0]); ok {
			return id
		}
	}
	if len(c.ID) == 32 && hexadecimal(c.ID) && !zero(c.ID) {
		return c.ID
	}
	return call.NewID()
}

// parseTraceparent returns the trace id of a header of the form version-traceid-parentid-flags (W3C Trace Context, section 3.2).
func parseTraceparent(v string) (string, bool) {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(v) < length || v[2] != '-' || v[35] != '-' || v[52] != '-' || v[:2] == "ff" || len(v) > length && (v[:2] == "00" || v[length] != '-') {
		return "", false
	}
	id, parent := v[3:35], v[36:52]
	if !hexadecimal(v[:2]) || !hexadecimal(id) || !hexadecimal(parent) || !hexadecimal(v[53:55]) || zero(id) || zero(parent) {
		return "", false
	}
	return id, true
}

func hexadecimal(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zero(s string) bool { return strings.Trim(s, "0") == "" }

var propagator = propagation.TraceContext{}

// start starts the call's span, which is in the context that it returns, and puts its context where backends see it.
func (ob *observer) start(ctx context.Context, c *call.Call) context.Context {
	ctx = propagator.Extract(ctx, carrier{c.Forward})
	service, method, _ := strings.Cut(strings.TrimPrefix(c.Method.FullMethod, "/"), "/")
	ctx, span := ob.tracer.Start(ctx, c.Method.FullMethod[1:], trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.Start), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
		attribute.String("toolway.door", string(c.Door)), attribute.String("toolway.call_id", c.ID), attribute.String("toolway.backend", c.Method.Backend.Name)))
	sc := span.SpanContext()
	if !sc.HasTraceID() {
		c.TraceID = traceID(c)
		return ctx
	}
	c.TraceID = sc.TraceID().String()
	if c.Forward == nil {
		c.Forward = metadata.MD{}
	}
	delete(c.Forward, "tracestate")
	propagator.Inject(ctx, carrier{c.Forward})
	return ctx
}

// carrier shows metadata to OpenTelemetry.
type carrier struct{ md metadata.MD }

// Get returns the first value of a key.
func (c carrier) Get(key string) string {
	if vs := c.md[key]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// Set replaces the values of a key.
func (c carrier) Set(key, value string) { c.md[key] = []string{value} }

// Keys lists the keys.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c.md))
	for k := range c.md {
		keys = append(keys, k)
	}
	return keys
}
