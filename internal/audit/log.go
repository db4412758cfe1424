package audit

import (
	"context"
	"log/slog"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Log returns a sink that writes a line for each record to log: who did what, and how it ended. The rest is in the other sinks.
func Log(log *slog.Logger) Sink { return logged{log} }

type logged struct{ log *slog.Logger }

// Record writes one line.
func (l logged) Record(ctx context.Context, rec Record) error {
	r, err := rec.Decode()
	if err != nil {
		return err
	}
	attrs := [...]slog.Attr{
		slog.String("call_id", r.GetCallId()), slog.String("trace_id", r.GetTraceId()), slog.String("door", r.GetDoor()), slog.String("method", r.GetMethod()),
		slog.String("principal", r.GetPrincipal()), slog.String("tenant", r.GetTenant()), slog.String("outcome", Word(r.GetOutcome())), slog.String("code", r.GetCode()),
		slog.String("arguments_hash", r.GetArgumentsHash()), slog.String("approval_id", r.GetApprovalId()), slog.String("reason", r.GetReason()),
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "audit", attrs[:]...)
	return nil
}

// Word is an outcome as people write it: "ok", "refused", "failed", "unknown".
func Word(o toolwayv1.AuditRecord_Outcome) string {
	switch o {
	case toolwayv1.AuditRecord_OUTCOME_OK:
		return "ok"
	case toolwayv1.AuditRecord_OUTCOME_REFUSED:
		return "refused"
	case toolwayv1.AuditRecord_OUTCOME_FAILED:
		return "failed"
	case toolwayv1.AuditRecord_OUTCOME_UNKNOWN:
		return "unknown"
	}
	return ""
}
