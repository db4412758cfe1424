package interceptors

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
)

// draft is a record with what it points to, in one allocation.
type draft struct {
	record            toolwayv1.AuditRecord
	started, deadline timestamppb.Timestamp
	steps             [12]toolwayv1.AuditStep
	stepList          [12]*toolwayv1.AuditStep
	attempt           [1]toolwayv1.AuditAttempt
	attemptList       [1]*toolwayv1.AuditAttempt
}

// maxText bounds a text in a record.
const maxText = 1 << 10

func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// record makes the record of a call that is over.
func (s *audited) record(ctx context.Context, c *call.Call, st *status.Status, took time.Duration) *toolwayv1.AuditRecord {
	d := new(draft)
	r := &d.record
	m := c.Method
	r.CallId, r.TraceId, r.Door, r.ProtocolVersion = c.ID, c.TraceID, string(c.Door), text(c.Protocol)
	r.Backend, r.Method, r.Tool, r.DefinitionHash = m.Backend.Name, m.FullMethod[1:], m.Tool.Name, m.Hash()
	if vs := c.Forward["x-request-id"]; len(vs) > 0 && vs[0] != c.ID {
		r.RequestId = text(vs[0])
	}
	if c.Peer != nil {
		r.Peer = text(c.Peer.String())
	} else if p, ok := peer.FromContext(ctx); ok && c.Door == call.GRPC && p.Addr != nil { // of the other doors it would only name the door
		r.Peer = text(p.Addr.String())
	}
	if p := c.Principal; p != nil {
		r.Principal, r.Tenant, r.Authentication = text(p.ID), text(p.Tenant), p.How
		if len(p.Missing(m.Policy.Scopes)) == 0 {
			r.Scopes = m.Policy.Scopes
		}
	}
	r.ApprovalId, r.ResultUri = text(c.Approval), text(c.ResultURI)
	if c.Key != "" {
		sum := sha256.Sum256([]byte(c.Key))
		r.IdempotencyKeyHash = hexadecimals(sum[:])
	}
	d.started.Seconds, d.started.Nanos = c.Start.Unix(), int32(c.Start.Nanosecond())
	r.StartedAt, r.LatencyMs = &d.started, milliseconds(took)
	if !c.Deadline.IsZero() {
		d.deadline.Seconds, d.deadline.Nanos = c.Deadline.Unix(), int32(c.Deadline.Nanosecond())
		r.Deadline = &d.deadline
	}
	s.fill(r, c)
	ended(ctx, r, c, st)
	d.addSteps(c, took)
	d.addAttempts(c)
	return r
}

// fill adds what the stream has seen.
func (s *audited) fill(r *toolwayv1.AuditRecord, c *call.Call) {
	if !s.facts.kind.Client && !s.argumentsRead {
		if f := c.Received(); f != nil {
			s.requests = 1
			s.capture(f)
		}
	}
	var arguments, result []byte
	switch {
	case s.requestHash.hash != nil:
		arguments = s.requestHash.hash.Sum(nil)
	case s.argumentsRead:
		arguments = s.argumentsSum[:]
	}
	r.Arguments, r.ArgumentsCut, r.Requests = s.arguments, s.cut.More > 0 || len(s.cut.Places) > 0, s.requests
	switch {
	case s.resultHash.hash != nil:
		result = s.resultHash.hash.Sum(nil)
	case s.results > 0:
		result = s.resultSum[:]
	}
	r.ArgumentsHash, r.ResultHash = hexadecimalPair(arguments, result)
	r.ResultBytes, r.Results, r.SideEffectId = s.resultBytes, s.results, text(s.sideEffect)
}

// ended adds how the call ended.
func ended(ctx context.Context, r *toolwayv1.AuditRecord, c *call.Call, st *status.Status) {
	r.Code = codeName(st.Code())
	if st.Code() == codes.OK {
		r.Outcome = toolwayv1.AuditRecord_OUTCOME_OK
		return
	}
	for _, d := range st.Proto().GetDetails() {
		if info := (&errdetails.ErrorInfo{}); d.MessageIs(info) && d.UnmarshalTo(info) == nil {
			r.Reason, r.Domain = text(info.GetReason()), text(info.GetDomain())
			break
		}
	}
	if r.Reason == call.ResultFull && r.Domain == call.Domain {
		r.Outcome = toolwayv1.AuditRecord_OUTCOME_OK
		return
	}
	r.ToolError = c.Door == call.MCP
	r.Outcome = outcomeOf(ctx, r, c)
	if r.Domain == call.Domain && st.Code() != codes.InvalidArgument {
		r.Message = text(st.Message())
	}
}

// outcomeOf says what is known about the backend of a call that did not end well.
func outcomeOf(ctx context.Context, r *toolwayv1.AuditRecord, c *call.Call) toolwayv1.AuditRecord_Outcome {
	if !c.Sent {
		return toolwayv1.AuditRecord_OUTCOME_REFUSED
	}
	if n := len(c.Attempts); n > 0 {
		switch c.Attempts[n-1].Outcome {
		case call.Answered:
			return toolwayv1.AuditRecord_OUTCOME_FAILED
		case call.Unknown:
			return toolwayv1.AuditRecord_OUTCOME_UNKNOWN
		}
	}
	local := c.Method.Service.Mesh || c.Method.Service.Infrastructure // then the mesh's errors are the backend's
	if r.GetDomain() == call.Domain && !local || ctx.Err() != nil {
		return toolwayv1.AuditRecord_OUTCOME_UNKNOWN
	}
	return toolwayv1.AuditRecord_OUTCOME_FAILED
}

// addSteps adds the policies' steps. Those that stand outside of audit are not over yet.
func (d *draft) addSteps(c *call.Call, took time.Duration) {
	list := d.stepList[:0]
	for i := range c.Steps {
		from := &c.Steps[i]
		var to *toolwayv1.AuditStep
		if i < len(d.steps) {
			to = &d.steps[i]
		} else {
			to = new(toolwayv1.AuditStep)
		}
		back := from.Back
		if back == 0 {
			back = took
		}
		to.Name, to.Verdict, to.Detail = from.Name, from.Verdict, text(from.Detail)
		to.AtMs, to.TookMs = milliseconds(from.At), milliseconds(back-from.At)
		list = append(list, to)
	}
	d.record.Steps = list
}

// addAttempts adds the attempts, of which there is one mostly.
func (d *draft) addAttempts(c *call.Call) {
	n := len(c.Attempts)
	if n == 0 {
		return
	}
	all, list := d.attempt[:], d.attemptList[:]
	if n > len(all) {
		all, list = make([]toolwayv1.AuditAttempt, n), make([]*toolwayv1.AuditAttempt, n)
	}
	for i, from := range c.Attempts {
		to := &all[i]
		to.Backend, to.Target, to.Code, to.Outcome, to.Why = from.Backend, from.Target, codeName(from.Code), string(from.Outcome), text(from.Why)
		to.AtMs, to.TookMs = milliseconds(from.Start), milliseconds(from.End-from.Start)
		list[i] = to
	}
	d.record.Attempts = list
}

// milliseconds rounds to a tenth of a microsecond, so that JSON stays short.
func milliseconds(d time.Duration) float64 { return math.Round(float64(d)/100) / 10000 }

func hexadecimals(sum []byte) string {
	var out [2 * sha256.Size]byte
	return string(hex.AppendEncode(out[:0], sum))
}

// hexadecimalPair is hexadecimals for two hashes, in one allocation.
func hexadecimalPair(a, b []byte) (first, second string) {
	var out [4 * sha256.Size]byte
	text := string(hex.AppendEncode(hex.AppendEncode(out[:0], a), b))
	return text[:2*len(a)], text[2*len(a):]
}
