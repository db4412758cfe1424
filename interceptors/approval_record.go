package interceptors

import (
	"context"
	"errors"
	"time"
)

// ApprovalState is how far an approval has come.
type ApprovalState int

// The states. A pending or approved one past its Expires is over.
const (
	// ApprovalPending waits for a decision.
	ApprovalPending ApprovalState = iota + 1
	// ApprovalApproved lets one call through.
	ApprovalApproved
	// ApprovalRefused refuses the call.
	ApprovalRefused
	// ApprovalUsed has let its call through.
	ApprovalUsed
	// ApprovalExpired was not decided, or not used, in time.
	ApprovalExpired
)

// ApprovalRecord is what is kept of a held call: who wants what, who decided, and how.
type ApprovalRecord struct {
	// ID is unguessable.
	ID string
	// Revision is the store's: it changes with every change. 0 in a record that is not stored yet.
	Revision uint64
	// Binding is the hash of tenant, principal, method and canonical request: the one call that the approval is for.
	Binding Hash
	// Confirm is true if the person at the caller's side is asked, not another principal.
	Confirm bool
	State   ApprovalState

	Tenant, Principal   string
	Method, Tool, Title string
	// CallID is that of the call that was held first, and UsedBy that of the call which was let through.
	CallID, UsedBy string
	Door           string
	// Request is the hash of the canonical request; Arguments are the request as JSON without sensitive fields, and Cut says that they are not whole.
	Request   Hash
	Arguments string
	Cut       bool
	// Scope is what whoever decides needs.
	Scope string
	// Created and Decided are times; Decided is zero until somebody has. Expires is until when a decision, or the use of one, must come.
	Created, Decided, Expires time.Time
	// DecidedBy is the principal who decided, and Comment what it said.
	DecidedBy, Comment string
}

// Now returns the state at a time: what was not decided or not used before Expires is over.
func (a *ApprovalRecord) Now(t time.Time) ApprovalState {
	if (a.State == ApprovalPending || a.State == ApprovalApproved) && !t.Before(a.Expires) {
		return ApprovalExpired
	}
	return a.State
}

// live says whether the approval still decides about a call.
func (a *ApprovalRecord) live(t time.Time) bool {
	return a.State != ApprovalUsed && t.Before(a.Expires)
}

// ApprovalStore keeps approvals: atomically, for all instances of a mesh that share it. It is safe for concurrent use. A key-value bucket
// with create, compare-and-set and expiry is enough.
type ApprovalStore interface {
	// Hold returns the live approval with a's Binding, or stores a if there is none. ErrApprovalsFull means that there is no room.
	Hold(ctx context.Context, a ApprovalRecord) (ApprovalRecord, error)
	// Swap replaces the approval with a's ID, if it still has a.Revision, and returns it as stored; else it returns ErrApprovalChanged.
	Swap(ctx context.Context, a ApprovalRecord) (ApprovalRecord, error)
}

var (
	// ErrApprovalsFull says that too many calls are held.
	ErrApprovalsFull = errors.New("no room for another approval")
	// ErrApprovalChanged says that somebody else has changed the approval, or that it is gone.
	ErrApprovalChanged = errors.New("the approval has changed")
)
