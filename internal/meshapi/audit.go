package meshapi

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// AuditScope is what readers of the audit need, AllAuditScope what those need who see every tenant's calls.
const (
	AuditScope    = "toolway:audit"
	AllAuditScope = "toolway:audit:all"
)

// Records are the records of calls that the audit service reads.
type Records interface {
	// Get returns the record of a call, or nil.
	Get(ctx context.Context, callID string) (*toolwayv1.AuditRecord, error)
	// List returns the records of a page for which keep says yes, the newest first. more is the number to go on with, 0 if there is no more. A
	// page may be short and yet have a next one.
	List(ctx context.Context, p audit.Page, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64, err error)
}

// RegisterAudit adds toolway.v1.AuditService to r.
func RegisterAudit(r grpc.ServiceRegistrar, of Records) {
	toolwayv1.RegisterAuditServiceServer(r, &auditService{records: of})
}

type auditService struct {
	toolwayv1.UnimplementedAuditServiceServer
	records Records
}

// reader returns what says which records the caller may see. The chain asks for the scope too; but who may read the audit must not depend on
// how a chain is put together.
func (s *auditService) reader(ctx context.Context) (func(*toolwayv1.AuditRecord) bool, error) {
	var p *identity.Principal
	if c := call.FromContext(ctx); c != nil {
		p = c.Principal
	}
	if !p.Has(AuditScope) {
		return nil, call.Error(codes.PermissionDenied, "SCOPE_MISSING", "the audit is for those with the scope "+strconv.Quote(AuditScope), "scopes", AuditScope,
			"hint", "ask for a credential with that scope")
	}
	if p.Has(AllAuditScope) {
		return func(*toolwayv1.AuditRecord) bool { return true }, nil
	}
	return func(r *toolwayv1.AuditRecord) bool { return r.GetTenant() == p.Tenant }, nil
}

// GetCall returns one record.
func (s *auditService) GetCall(ctx context.Context, in *toolwayv1.GetCallRequest) (*toolwayv1.GetCallResponse, error) {
	mine, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	if in.GetCallId() == "" {
		return nil, call.Error(codes.InvalidArgument, "CALL_ID_MISSING", "call_id is missing", "hint", "answers carry it as toolway-call-id")
	}
	r, err := s.records.Get(ctx, in.GetCallId())
	if err != nil {
		return nil, unreadable(err)
	}
	if r == nil || !mine(r) {
		return nil, call.Error(codes.NotFound, "CALL_NOT_FOUND", "no call "+strconv.Quote(in.GetCallId())+" is kept",
			"hint", "without a store the mesh keeps the last calls only, and each instance its own; older ones are in the audit file: toolway why --file")
	}
	return &toolwayv1.GetCallResponse{Record: r}, nil
}

// unreadable is what a reader is told while records cannot be read.
func unreadable(err error) error {
	if ended := status.FromContextError(err); ended.Code() != codes.Unknown && !errors.Is(err, store.ErrUnavailable) {
		return ended.Err()
	}
	return call.RetryAfter(call.Error(codes.Unavailable, "AUDIT_STORE_UNAVAILABLE", "the store of audit records cannot be reached", "hint", "call again; the mesh's /readyz says what is wrong"), time.Second)
}

// The bounds of one page of records.
const defaultRecords, maxRecords = 50, 500

// ListCalls returns the newest records first.
func (s *auditService) ListCalls(ctx context.Context, in *toolwayv1.ListCallsRequest) (*toolwayv1.ListCallsResponse, error) {
	mine, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	q := audit.Query{Principal: in.GetPrincipal(), Tenant: in.GetTenant(), TraceID: in.GetTraceId(), Tool: in.GetTool(), Outcome: in.GetOutcome(),
		Since: timeOf(in.GetSince()), Until: timeOf(in.GetUntil())}
	size := int(in.GetPageSize())
	if size < 0 {
		return nil, call.Error(codes.InvalidArgument, "PAGE_SIZE", "page_size is negative", "hint", "leave it out for the default")
	}
	if size == 0 {
		size = defaultRecords
	}
	var before uint64
	if token := in.GetPageToken(); token != "" {
		position, own := strings.CutPrefix(token, recordToken)
		if before, err = strconv.ParseUint(position, 36, 64); !own || err != nil || before == 0 {
			return nil, call.Error(codes.InvalidArgument, "PAGE_TOKEN", "page_token is none that ListCalls gave", "hint", "take next_page_token of the answer before")
		}
	}
	records, more, err := s.records.List(ctx, audit.Page{Before: before, Limit: min(size, maxRecords), Since: q.Since}, func(r *toolwayv1.AuditRecord) bool { return mine(r) && q.Match(r) })
	if err != nil {
		return nil, unreadable(err)
	}
	out := &toolwayv1.ListCallsResponse{Records: records}
	if more > 0 {
		out.NextPageToken = recordToken + strconv.FormatUint(more, 36)
	}
	return out, nil
}

// recordToken begins the tokens of pages, so that a word that happens to be a number is none.
const recordToken = "r."

// timeOf is a time that may be left out.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
