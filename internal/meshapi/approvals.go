package meshapi

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// Approvals is the store of approvals, as the service needs it. *interceptors.ApprovalMemory is one.
type Approvals interface {
	// Get returns an approval; false means that there is none.
	Get(ctx context.Context, id string) (interceptors.ApprovalRecord, bool, error)
	// List returns the approvals that changed after a revision, in the order of their changes, and a channel that is closed at the next change.
	List(ctx context.Context, after uint64) ([]interceptors.ApprovalRecord, <-chan struct{}, error)
	// Swap replaces the approval with a's ID, if it still has a.Revision, else returns interceptors.ErrApprovalChanged.
	Swap(ctx context.Context, a interceptors.ApprovalRecord) (interceptors.ApprovalRecord, error)
}

// ApprovalOptions are what the approval service needs.
type ApprovalOptions struct {
	// Store has the approvals. Required.
	Store Approvals
	// Use is how long an approved call may be made. Default 5 minutes.
	Use time.Duration
	// Refusal is how long a refused call stays refused before it can be held anew. Default 15 minutes.
	Refusal time.Duration
	// Self lets a caller without credentials decide about its own calls, if it is on this machine. It is for trying things out: where
	// nobody is authenticated, everybody is the same principal.
	Self bool
	// Logger gets a line for each decision. Default: none.
	Logger *slog.Logger
}

// RegisterApprovals adds toolway.v1.ApprovalService to r.
func RegisterApprovals(r grpc.ServiceRegistrar, o ApprovalOptions) {
	o.Use = cmp.Or(o.Use, 5*time.Minute)
	o.Refusal = cmp.Or(o.Refusal, 15*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	toolwayv1.RegisterApprovalServiceServer(r, &approvals{ApprovalOptions: o})
}

type approvals struct {
	toolwayv1.UnimplementedApprovalServiceServer
	ApprovalOptions
}

// principalOf returns who calls; nobody is a principal without an id or scopes.
func principalOf(ctx context.Context) *identity.Principal {
	if c := call.FromContext(ctx); c != nil && c.Principal != nil {
		return c.Principal
	}
	return &identity.Principal{}
}

// sees says whether p may know of a: those of its tenant that it asked for, or may decide about.
func sees(p *identity.Principal, a *interceptors.ApprovalRecord) bool {
	return p.Tenant == a.Tenant && (p.ID == a.Principal || p.Has(a.Scope))
}

// find returns an approval that the caller may see.
func (s *approvals) find(ctx context.Context, id string) (interceptors.ApprovalRecord, error) {
	a, ok, err := s.Store.Get(ctx, id)
	switch {
	case err != nil:
		return a, s.unreachable(err)
	case !ok || !sees(principalOf(ctx), &a):
		return a, call.Error(codes.NotFound, "APPROVAL_NOT_FOUND", fmt.Sprintf("approval %q is not known", id), "hint", "list the approvals; old ones are dropped")
	}
	return a, nil
}

func (s *approvals) unreachable(err error) error {
	s.Logger.Error("read approvals", "error", err)
	return call.RetryAfter(call.Error(codes.Unavailable, "APPROVAL_STORE_UNAVAILABLE", "the store of approvals cannot be reached", "hint", "call again"), time.Second)
}

// GetApproval returns one approval.
func (s *approvals) GetApproval(ctx context.Context, in *toolwayv1.GetApprovalRequest) (*toolwayv1.GetApprovalResponse, error) {
	a, err := s.find(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	return &toolwayv1.GetApprovalResponse{Approval: shown(&a)}, nil
}

const (
	defaultApprovals = 50
	maxApprovals     = 500
	maxComment       = 1000
	// approvalToken begins the tokens of pages, so that a word that happens to be a number is none.
	approvalToken = "a."
)

// ListApprovals returns approvals, the newest first.
func (s *approvals) ListApprovals(ctx context.Context, in *toolwayv1.ListApprovalsRequest) (*toolwayv1.ListApprovalsResponse, error) {
	size := int(in.GetPageSize())
	if size < 0 || size > maxApprovals {
		return nil, call.Error(codes.InvalidArgument, "PAGE_SIZE", fmt.Sprintf("page_size is %d: want 0 to %d", size, maxApprovals))
	}
	size = cmp.Or(size, defaultApprovals)
	before := int64(1<<63 - 1)
	if token := in.GetPageToken(); token != "" {
		position, own := strings.CutPrefix(token, approvalToken)
		var err error
		if before, err = strconv.ParseInt(position, 36, 64); !own || err != nil || before <= 0 {
			return nil, call.Error(codes.InvalidArgument, "PAGE_TOKEN", "page_token is not one that this method has given", "hint", "begin again without it")
		}
	}
	all, _, err := s.Store.List(ctx, 0)
	if err != nil {
		return nil, s.unreachable(err)
	}
	p, now, out := principalOf(ctx), time.Now(), &toolwayv1.ListApprovalsResponse{}
	slices.SortFunc(all, func(a, b interceptors.ApprovalRecord) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	last := before
	for i := range all {
		a := &all[i]
		if at := a.Created.UnixNano(); at >= before || !sees(p, a) || in.GetState() != 0 && heldState(a.Now(now)) != in.GetState() {
			continue
		} else if len(out.Approvals) >= size && at != last { // those of one instant stay together
			out.NextPageToken = approvalToken + strconv.FormatInt(last, 36)
			break
		} else {
			last = at
		}
		out.Approvals = append(out.Approvals, shown(a))
	}
	return out, nil
}

// Approve lets the held call through.
func (s *approvals) Approve(ctx context.Context, in *toolwayv1.ApproveRequest) (*toolwayv1.ApproveResponse, error) {
	a, err := s.decide(ctx, in.GetId(), in.GetComment(), interceptors.ApprovalApproved, s.Use)
	return &toolwayv1.ApproveResponse{Approval: a}, err
}

// Refuse turns the held call away.
func (s *approvals) Refuse(ctx context.Context, in *toolwayv1.RefuseRequest) (*toolwayv1.RefuseResponse, error) {
	a, err := s.decide(ctx, in.GetId(), in.GetComment(), interceptors.ApprovalRefused, s.Refusal)
	return &toolwayv1.RefuseResponse{Approval: a}, err
}

// decide sets the state of a pending approval, if the caller may.
func (s *approvals) decide(ctx context.Context, id, comment string, state interceptors.ApprovalState, holds time.Duration) (*toolwayv1.HeldCall, error) {
	if len([]rune(comment)) > maxComment {
		return nil, call.Error(codes.InvalidArgument, "COMMENT_TOO_LONG", fmt.Sprintf("comment has more than %d characters", maxComment))
	}
	for {
		a, err := s.find(ctx, id)
		if err != nil {
			return nil, err
		}
		p, now := principalOf(ctx), time.Now()
		if err := s.mayDecide(ctx, p, &a); err != nil {
			return nil, err
		}
		switch at := a.Now(now); {
		case at == state && a.DecidedBy == p.ID:
			return shown(&a), nil // said again
		case at != interceptors.ApprovalPending:
			text := fmt.Sprintf("approval %q is %s", id, words[at])
			if a.DecidedBy != "" {
				text += " by " + a.DecidedBy
			}
			return nil, call.Error(codes.FailedPrecondition, "APPROVAL_DECIDED", text, "state", words[at], "hint", "the caller has to make the call again to have it held anew")
		}
		a.State, a.DecidedBy, a.Comment, a.Decided, a.Expires = state, p.ID, comment, now, now.Add(holds)
		a, err = s.Store.Swap(ctx, a)
		switch {
		case errors.Is(err, interceptors.ErrApprovalChanged):
			continue
		case err != nil:
			return nil, s.unreachable(err)
		}
		if a.DecidedBy == a.Principal {
			s.Logger.Warn("a caller without credentials has decided about its own call; authenticate callers, or set approvals.self: false", "approval", a.ID, "method", a.Method, "decision", words[state])
		} else {
			s.Logger.Info("approval decided", "approval", a.ID, "method", a.Method, "decision", words[state], "by", a.DecidedBy, "for", a.Principal)
		}
		return shown(&a), nil
	}
}

// mayDecide says why the caller may not decide about a.
func (s *approvals) mayDecide(ctx context.Context, p *identity.Principal, a *interceptors.ApprovalRecord) error {
	switch {
	case a.Confirm:
		return call.Error(codes.FailedPrecondition, "CONFIRMATION", "the person at the caller's side is asked about this call; nobody decides about it here")
	case !p.Has(a.Scope):
		return call.Error(codes.PermissionDenied, identity.InsufficientScope, fmt.Sprintf("the caller lacks the scope %q that deciding about %s needs", a.Scope, a.Method),
			"scopes", a.Scope, "hint", "get credentials with this scope, or ask somebody who has them")
	case p.ID == a.Principal && !s.trying(ctx, p):
		return call.Error(codes.PermissionDenied, "SELF_APPROVAL", "whoever makes a call does not decide about it", "hint", "another principal with the scope "+a.Scope+" has to decide")
	}
	return nil
}

// trying says whether nobody is authenticated here and the caller is on this machine, where it may decide about its own calls.
func (s *approvals) trying(ctx context.Context, p *identity.Principal) bool {
	return s.Self && p.How == identity.Anonymous.How && local(ctx)
}

// local says whether the caller is on this machine.
func local(ctx context.Context) bool {
	if c := call.FromContext(ctx); c != nil && c.Door == call.CLI {
		return true
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	if p.Addr.Network() == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// WatchApprovals sends the pending approvals, then what changes.
func (s *approvals) WatchApprovals(in *toolwayv1.WatchApprovalsRequest, stream grpc.ServerStreamingServer[toolwayv1.WatchApprovalsResponse]) error {
	ctx := stream.Context()
	p, after, first := principalOf(ctx), in.GetAfterRevision(), in.GetAfterRevision() == 0
	if !first {
		all, _, err := s.Store.List(ctx, 0)
		if err != nil {
			return s.unreachable(err)
		}
		if n := len(all); n == 0 || all[n-1].Revision < after { // the revision of a store that is gone
			after, first = 0, true
		}
	}
	for {
		changed, next, err := s.Store.List(ctx, after)
		if err != nil {
			return s.unreachable(err)
		}
		now := time.Now()
		for i := range changed {
			a := &changed[i]
			after = a.Revision
			if !sees(p, a) || first && a.Now(now) != interceptors.ApprovalPending {
				continue
			}
			if err := stream.Send(&toolwayv1.WatchApprovalsResponse{Approval: shown(a)}); err != nil {
				return err
			}
		}
		first = false
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var words = map[interceptors.ApprovalState]string{
	interceptors.ApprovalPending: "pending", interceptors.ApprovalApproved: "approved", interceptors.ApprovalRefused: "refused",
	interceptors.ApprovalUsed: "used", interceptors.ApprovalExpired: "expired",
}

func heldState(s interceptors.ApprovalState) toolwayv1.HeldCall_State {
	switch s {
	case interceptors.ApprovalPending:
		return toolwayv1.HeldCall_STATE_PENDING
	case interceptors.ApprovalApproved:
		return toolwayv1.HeldCall_STATE_APPROVED
	case interceptors.ApprovalRefused:
		return toolwayv1.HeldCall_STATE_REFUSED
	case interceptors.ApprovalUsed:
		return toolwayv1.HeldCall_STATE_USED
	case interceptors.ApprovalExpired:
		return toolwayv1.HeldCall_STATE_EXPIRED
	}
	return toolwayv1.HeldCall_STATE_UNSPECIFIED
}

// shown is an approval as callers see it.
func shown(a *interceptors.ApprovalRecord) *toolwayv1.HeldCall {
	out := &toolwayv1.HeldCall{
		Id: a.ID, State: heldState(a.Now(time.Now())), Method: a.Method, Tool: a.Tool, Title: a.Title, Principal: a.Principal, Tenant: a.Tenant,
		Arguments: a.Arguments, ArgumentsCut: a.Cut, ArgumentsHash: hex.EncodeToString(a.Request[:]), Scope: a.Scope, CallId: a.CallID, Door: a.Door,
		CreatedAt: timestamppb.New(a.Created), ExpiresAt: timestamppb.New(a.Expires), DecidedBy: a.DecidedBy, Comment: a.Comment,
		UsedByCallId: a.UsedBy, Confirmation: a.Confirm, Revision: a.Revision,
	}
	if !a.Decided.IsZero() {
		out.DecidedAt = timestamppb.New(a.Decided)
	}
	return out
}
