package interceptors

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// The numbers of toolway.v1.AuditRecord's fields.
const (
	recordCallID             = 1
	recordTraceID            = 2
	recordRequestID          = 3
	recordDoor               = 4
	recordProtocolVersion    = 5
	recordPeer               = 6
	recordBackend            = 7
	recordMethod             = 8
	recordTool               = 9
	recordDefinitionHash     = 10
	recordPrincipal          = 11
	recordTenant             = 12
	recordAuthentication     = 13
	recordScopes             = 14
	recordApprovalID         = 15
	recordIdempotencyKeyHash = 16
	recordArgumentsHash      = 17
	recordArguments          = 18
	recordArgumentsCut       = 19
	recordRequests           = 20
	recordStartedAt          = 21
	recordDeadline           = 22
	recordLatency            = 23
	recordOutcome            = 24
	recordCode               = 25
	recordReason             = 26
	recordDomain             = 27
	recordMessage            = 28
	recordToolError          = 29
	recordResultHash         = 30
	recordResultBytes        = 31
	recordResults            = 32
	recordResultURI          = 33
	recordSideEffectID       = 34
	recordAttempts           = 35
	recordSteps              = 36
)

// The numbers of AuditAttempt's fields, and of AuditStep's.
const (
	attemptTarget  = 1
	attemptAt      = 2
	attemptTook    = 3
	attemptCode    = 4
	attemptOutcome = 5
	attemptWhy     = 6
	attemptBackend = 7

	stepName    = 1
	stepAt      = 2
	stepTook    = 3
	stepVerdict = 4
	stepDetail  = 5
)

// methodRecord is the part of a record that all calls of a method have in common.
func methodRecord(m *catalog.Method) audit.Record {
	var w recordWriter
	w.text(recordBackend, m.Backend.Name)
	w.text(recordMethod, m.FullMethod[1:])
	w.text(recordTool, m.Tool.Name)
	w.text(recordDefinitionHash, m.Hash())
	return audit.Record(w)
}

// record writes the record of a call that is over.
func (s *audited) record(ctx context.Context, b *scratch, c *call.Call, end *ending, took time.Duration) audit.Record {
	w := &b.record
	*w = (*w)[:0]
	w.text(recordCallID, c.ID)
	*w = append(*w, s.facts.record...)
	w.text(recordTraceID, c.TraceID)
	if vs := c.Forward["x-request-id"]; len(vs) > 0 && vs[0] != c.ID {
		w.text(recordRequestID, vs[0])
	}
	w.text(recordDoor, string(c.Door))
	w.text(recordProtocolVersion, c.Protocol)
	if c.Peer != nil {
		w.address(c.Peer)
	} else if p, ok := peer.FromContext(ctx); ok && p.Addr != nil && p.Addr.Network() != call.DoorNetwork {
		w.address(p.Addr)
	}
	if p := c.Principal; p != nil {
		w.text(recordPrincipal, p.ID)
		w.text(recordTenant, p.Tenant)
		w.text(recordAuthentication, p.How)
		if scopes := c.Method.Policy.Scopes; len(scopes) > 0 && len(p.Missing(scopes)) == 0 {
			for _, scope := range scopes {
				w.text(recordScopes, scope)
			}
		}
	}
	w.text(recordApprovalID, c.Approval)
	if c.Key != "" {
		sum := sha256.Sum256([]byte(c.Key))
		w.hash(recordIdempotencyKeyHash, sum[:])
	}
	w.time(recordStartedAt, c.Start)
	if !c.Deadline.IsZero() {
		w.time(recordDeadline, c.Deadline)
	}
	w.milliseconds(recordLatency, took)
	end.record(w)
	s.recordMessages(b, c)
	w.text(recordResultURI, c.ResultURI)
	w.attempts(c)
	w.steps(c, took)
	return audit.Record(*w)
}

// recordMessages adds what the stream has seen.
func (s *audited) recordMessages(b *scratch, c *call.Call) {
	if !s.facts.kind.Client && s.seen == nil {
		if f := c.Received(); f != nil {
			s.capture(f, b)
		}
	}
	w := &b.record
	if seen := s.seen; seen != nil {
		w.hash(recordArgumentsHash, seen.sum())
		w.bytes(recordArguments, seen.arguments)
		w.flag(recordArgumentsCut, seen.cut.More > 0 || len(seen.cut.Places) > 0)
	}
	w.number(recordRequests, s.requests)
	switch {
	case s.resultHash.hash != nil:
		w.hash(recordResultHash, s.resultHash.hash.Sum(nil))
	case s.results > 0:
		w.hash(recordResultHash, s.resultSum[:])
	}
	w.number(recordResultBytes, s.resultBytes)
	w.number(recordResults, s.results)
	w.text(recordSideEffectID, s.sideEffect)
}

// ending is how a call ended.
type ending struct {
	outcome   toolwayv1.AuditRecord_Outcome
	code      codes.Code
	toolError bool
	// Of the error, whether a backend's or the mesh's.
	reason, domain, message string
}

// endOf returns how a call ended that returned err.
func endOf(ctx context.Context, c *call.Call, err error) ending {
	if err == nil {
		return ending{outcome: toolwayv1.AuditRecord_OUTCOME_OK}
	}
	st := status.Convert(err)
	e := ending{code: st.Code()}
	for _, d := range st.Proto().GetDetails() {
		if info := (&errdetails.ErrorInfo{}); d.MessageIs(info) && d.UnmarshalTo(info) == nil {
			e.reason, e.domain = info.GetReason(), info.GetDomain()
			break
		}
	}
	if e.code == codes.OK || e.reason == call.ResultFull && e.domain == call.Domain {
		e.outcome = toolwayv1.AuditRecord_OUTCOME_OK
		return e
	}
	e.toolError = c.Door == call.MCP
	e.outcome = outcomeOf(ctx, c, e.domain)
	if e.domain == call.Domain && e.code != codes.InvalidArgument {
		e.message = st.Message()
	}
	return e
}

func (e *ending) record(w *recordWriter) {
	w.number(recordOutcome, int64(e.outcome))
	w.text(recordCode, codeName(e.code))
	w.text(recordReason, e.reason)
	w.text(recordDomain, e.domain)
	w.text(recordMessage, e.message)
	w.flag(recordToolError, e.toolError)
}

// outcomeOf says what is known about the backend of a call that did not end well.
func outcomeOf(ctx context.Context, c *call.Call, domain string) toolwayv1.AuditRecord_Outcome {
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
	if domain == call.Domain && !local || ctx.Err() != nil {
		return toolwayv1.AuditRecord_OUTCOME_UNKNOWN
	}
	return toolwayv1.AuditRecord_OUTCOME_FAILED
}

// recordWriter is a record that is being written. What is empty is left out, as proto3 has it.
type recordWriter []byte

// maxText bounds a text in a record.
const maxText = 1 << 10

func short(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// text adds a text, which is cut if it is long, and mended if it is no UTF-8.
func (w *recordWriter) text(field protowire.Number, s string) {
	if s != "" {
		*w = protowire.AppendString(protowire.AppendTag(*w, field, protowire.BytesType), short(s))
	}
}

// bytes adds a text that is known to be valid.
func (w *recordWriter) bytes(field protowire.Number, b []byte) {
	if len(b) > 0 {
		*w = protowire.AppendBytes(protowire.AppendTag(*w, field, protowire.BytesType), b)
	}
}

// hash adds a hash as hexadecimals.
func (w *recordWriter) hash(field protowire.Number, sum []byte) {
	*w = protowire.AppendVarint(protowire.AppendTag(*w, field, protowire.BytesType), uint64(hex.EncodedLen(len(sum)))) //nolint:gosec // a length
	*w = hex.AppendEncode(*w, sum)
}

func (w *recordWriter) number(field protowire.Number, n int64) {
	if n != 0 {
		*w = protowire.AppendVarint(protowire.AppendTag(*w, field, protowire.VarintType), uint64(n)) //nolint:gosec // two's complement is the encoding
	}
}

func (w *recordWriter) flag(field protowire.Number, set bool) {
	if set {
		w.number(field, 1)
	}
}

// milliseconds adds a time as milliseconds, rounded to a tenth of a microsecond, so that JSON stays short.
func (w *recordWriter) milliseconds(field protowire.Number, d time.Duration) {
	if tenths := (d + 50) / 100; tenths != 0 {
		ms := float64(tenths) / 10000
		*w = protowire.AppendFixed64(protowire.AppendTag(*w, field, protowire.Fixed64Type), math.Float64bits(ms))
	}
}

// time adds a google.protobuf.Timestamp.
func (w *recordWriter) time(field protowire.Number, t time.Time) {
	begin := w.open(field)
	w.number(1, t.Unix())
	w.number(2, int64(t.Nanosecond()))
	w.close(begin)
}

// address adds where the call came from.
func (w *recordWriter) address(a net.Addr) {
	if tcp, ok := a.(*net.TCPAddr); ok { // its String makes two texts
		if ip, ok := netip.AddrFromSlice(tcp.IP); ok {
			begin := w.open(recordPeer)
			*w = netip.AddrPortFrom(ip.Unmap().WithZone(tcp.Zone), uint16(tcp.Port)).AppendTo(*w) //nolint:gosec // a port
			w.close(begin)
			return
		}
	}
	w.text(recordPeer, a.String())
}

// open begins a message, or a text, of up to some kilobytes. What is written until close is in it.
func (w *recordWriter) open(field protowire.Number) (begin int) {
	*w = append(protowire.AppendTag(*w, field, protowire.BytesType), 0)
	return len(*w)
}

// close sets the length, for which open has left the one byte that mostly is enough.
func (w *recordWriter) close(begin int) {
	size := uint64(len(*w) - begin) //nolint:gosec // a length
	if size < 1<<7 {
		(*w)[begin-1] = byte(size)
		return
	}
	more := protowire.SizeVarint(size) - 1
	var room [binary.MaxVarintLen64]byte
	*w = append(*w, room[:more]...)
	copy((*w)[begin+more:], (*w)[begin:])
	binary.PutUvarint((*w)[begin-1:], size)
}

// attempts adds the tries at a backend.
func (w *recordWriter) attempts(c *call.Call) {
	for i := range c.Attempts {
		a := &c.Attempts[i]
		begin := w.open(recordAttempts)
		w.text(attemptTarget, a.Target)
		w.milliseconds(attemptAt, a.Start)
		w.milliseconds(attemptTook, a.End-a.Start)
		w.text(attemptCode, codeName(a.Code))
		w.text(attemptOutcome, string(a.Outcome))
		w.text(attemptWhy, a.Why)
		w.text(attemptBackend, a.Backend)
		w.close(begin)
	}
}

// steps adds the policies' steps. Those that stand outside of audit are not over yet.
func (w *recordWriter) steps(c *call.Call, took time.Duration) {
	for i := range c.Steps {
		s := &c.Steps[i]
		back := s.Back
		if back == 0 {
			back = took
		}
		begin := w.open(recordSteps)
		w.text(stepName, s.Name)
		w.milliseconds(stepAt, s.At)
		w.milliseconds(stepTook, back-s.At)
		decided := s.Decided()
		w.text(stepVerdict, decided.Verdict)
		w.text(stepDetail, decided.Detail)
		w.close(begin)
	}
}
