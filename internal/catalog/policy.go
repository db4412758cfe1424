package catalog

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Policy is what calls of a method meet: the contract's options, laid over by the operator's configuration.
type Policy struct {
	// Scopes are what a caller needs, all of them.
	Scopes []string
	// Approval says who must agree to a call, and ApproverScope what whoever approves needs.
	Approval      Approval
	ApproverScope string
	// Cost is what a call takes from the caller's rate limit; at least 1.
	Cost int
	// Priority is the order in which calls are kept under overload.
	Priority Priority
	// CacheTTL is how long a result may be reused; 0 means never.
	CacheTTL time.Duration
	// Retry says that an attempt whose outcome is not known may be repeated without a key: by option, idempotency_level or configuration,
	// never from an HTTP verb or a name.
	Retry bool
	// KeyTemplate and KeyField make an idempotency key of the request; "" where the contract has none. KeyRequired refuses calls without one.
	KeyTemplate, KeyField string
	KeyRequired           bool
	// CursorField, EventIDField and EventTypeField are field paths of a stream's request and responses; "" where the contract has none.
	CursorField, EventIDField, EventTypeField string
	// MaxResultBytes, MaxResultItems and MaxResultDepth bound one result as JSON; 0 leaves the bound to the operator.
	MaxResultBytes, MaxResultItems, MaxResultDepth int
	// Labels are the service's, by which views choose.
	Labels []string
	// From says where a value that is not the default came from, by the value's name in the configuration: "scopes" → "option
	// (toolway.v1.method).scopes".
	From map[string]string
}

// Approval says who must agree to a call.
type Approval int

// The kinds of approval, each stricter than the one before.
const (
	// ApprovalNone asks nobody.
	ApprovalNone Approval = iota
	// ApprovalConfirm asks the person at the caller's side.
	ApprovalConfirm
	// ApprovalApprover asks another principal.
	ApprovalApprover
)

// String returns "none", "confirm" or "approver".
func (a Approval) String() string { return [...]string{"none", "confirm", "approver"}[a] }

// Priority is the order in which calls are kept under overload.
type Priority int

// The priorities; the lowest is shed first.
const (
	PriorityLow Priority = iota - 1
	PriorityNormal
	PriorityHigh
)

// String returns "low", "normal" or "high".
func (p Priority) String() string { return [...]string{"low", "normal", "high"}[p+1] }

// DefaultApproverScope is what whoever approves needs, unless the contract or the operator says otherwise.
const DefaultApproverScope = "toolway:approve"

// policyOf reads the contract's options. The configuration is laid over it when a snapshot is built.
func policyOf(md protoreflect.MethodDescriptor, opt *toolwayv1.MethodOptions) Policy {
	so, _ := md.Parent().Options().(*descriptorpb.ServiceOptions)
	svc, _ := proto.GetExtension(so, toolwayv1.E_Service).(*toolwayv1.ServiceOptions)
	p := Policy{
		Scopes: opt.GetScopes(), Approval: approvalOf(opt.GetApproval()), ApproverScope: opt.GetApproverScope(), Cost: max(1, int(opt.GetCost())),
		Priority: priorityOf(opt.GetPriority()), Labels: svc.GetLabels(),
		KeyTemplate: opt.GetIdempotency().GetKeyTemplate(), KeyField: opt.GetIdempotency().GetKeyField(), KeyRequired: opt.GetIdempotency().GetRequired(),
		CursorField: opt.GetStream().GetCursorField(), EventIDField: opt.GetStream().GetEventIdField(), EventTypeField: opt.GetStream().GetEventTypeField(),
		MaxResultBytes: int(opt.GetResultLimits().GetMaxBytes()), MaxResultItems: int(opt.GetResultLimits().GetMaxItems()), MaxResultDepth: int(opt.GetResultLimits().GetMaxDepth()),
	}
	if len(p.Scopes) == 0 {
		p.Scopes = svc.GetScopes()
	}
	if p.ApproverScope == "" {
		p.ApproverScope = DefaultApproverScope
	}
	level := methodOptions(md).GetIdempotencyLevel()
	p.Retry = opt.GetIdempotent() || opt.GetReadOnly() || (opt == nil || opt.Idempotent == nil) && level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
	if opt.GetReadOnly() || level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		p.CacheTTL = duration(opt.GetCacheTtl())
	}
	return p
}

func approvalOf(a toolwayv1.Approval) Approval {
	switch a {
	case toolwayv1.Approval_APPROVAL_CONFIRM:
		return ApprovalConfirm
	case toolwayv1.Approval_APPROVAL_APPROVER:
		return ApprovalApprover
	}
	return ApprovalNone
}

func priorityOf(p toolwayv1.Priority) Priority {
	switch p {
	case toolwayv1.Priority_PRIORITY_LOW:
		return PriorityLow
	case toolwayv1.Priority_PRIORITY_HIGH:
		return PriorityHigh
	}
	return PriorityNormal
}
