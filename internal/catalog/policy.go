package catalog

import (
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

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
	// Task says whether calls may run as tasks.
	Task TaskSupport
	// Labels are the service's or a rule's, by which views choose.
	Labels []string
	// Doors are the only ones that expose the method; nil where the configuration does not say so for it.
	Doors *Doors
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

// terms are what shapes a method: the contract's, or those with the operator's rules laid over them.
type terms struct {
	*toolwayv1.MethodOptions
	labels []string
	// What rules say beyond the options of contracts.
	noScopes bool
	retry    *bool
	fields   []FieldRule
	doors    *Doors
	last     *Rule             // the last one laid over
	from     map[string]string // what rules have set, by the value's name in the configuration
}

// own makes the options writable.
func (o *terms) own() {
	if o.from != nil {
		return
	}
	o.from = map[string]string{}
	if o.MethodOptions == nil {
		o.MethodOptions = new(toolwayv1.MethodOptions)
		return
	}
	o.MethodOptions = proto.CloneOf(o.MethodOptions)
}

// lay lays one rule over the options.
func (o *terms) lay(r *Rule) {
	o.own()
	o.last = r
	opt := o.MethodOptions
	set := func(given bool, name string, apply func()) {
		if given {
			apply()
			o.from[name] = r.Where
		}
	}
	set(r.ToolName != nil, "tool_name", func() { opt.ToolName = *r.ToolName })
	set(r.Title != nil, "title", func() { opt.Title = *r.Title })
	set(r.Description != nil, "description", func() { opt.Description = *r.Description })
	set(r.Examples != nil, "examples", func() { opt.Examples = r.Examples })
	set(r.ReadOnly != nil, "read_only", func() { opt.ReadOnly = r.ReadOnly })
	set(r.Destructive != nil, "destructive", func() { opt.Destructive = r.Destructive })
	set(r.Idempotent != nil, "idempotent", func() { opt.Idempotent = r.Idempotent })
	set(r.OpenWorld != nil, "open_world", func() { opt.OpenWorld = r.OpenWorld })
	set(r.Timeout != nil, "timeout", func() { opt.Timeout = durationpb.New(*r.Timeout) })
	set(r.MaxTimeout != nil, "max_timeout", func() { opt.MaxTimeout = durationpb.New(*r.MaxTimeout) })
	set(r.CacheTTL != nil, "cache_ttl", func() { opt.CacheTtl = durationpb.New(*r.CacheTTL) })
	set(r.Scopes != nil, "scopes", func() { opt.Scopes, o.noScopes = r.Scopes, len(r.Scopes) == 0 })
	set(r.Approval != nil, "approval", func() { opt.Approval = toolwayv1.Approval(*r.Approval) + toolwayv1.Approval_APPROVAL_NONE })
	set(r.ApproverScope != nil, "approver_scope", func() { opt.ApproverScope = *r.ApproverScope })
	set(r.Cost != nil, "cost", func() { opt.Cost = uint32(*r.Cost) })
	set(r.Priority != nil, "priority", func() { opt.Priority = toolwayv1.Priority(*r.Priority) + toolwayv1.Priority_PRIORITY_NORMAL })
	set(r.Task != nil, "task", func() { opt.Task = toolwayv1.TaskSupport(*r.Task) + toolwayv1.TaskSupport_TASK_SUPPORT_OPTIONAL })
	set(r.Retry != nil, "retry", func() { o.retry = r.Retry })
	o.layMessages(r, set)
	set(r.Fields != nil, "fields", func() { o.fields = append(o.fields, r.Fields...) })
	set(r.SetLabels != nil, "labels", func() { o.labels = r.SetLabels })
	set(r.Doors != nil, "doors", func() { o.doors = r.Doors })
	for _, f := range r.Fields {
		o.from["fields."+f.Path] = r.Where
	}
}

// layMessages lays those values over that stand in messages of their own.
func (o *terms) layMessages(r *Rule, set func(given bool, name string, apply func())) {
	opt := o.MethodOptions
	if opt.Idempotency == nil {
		opt.Idempotency = new(toolwayv1.Idempotency)
	}
	if opt.Stream == nil {
		opt.Stream = new(toolwayv1.Stream)
	}
	if opt.ResultLimits == nil {
		opt.ResultLimits = new(toolwayv1.ResultLimits)
	}
	set(r.KeyTemplate != nil, "idempotency.key_template", func() { opt.Idempotency.KeyTemplate, opt.Idempotency.KeyField = *r.KeyTemplate, "" })
	set(r.KeyField != nil, "idempotency.key_field", func() { opt.Idempotency.KeyField, opt.Idempotency.KeyTemplate = *r.KeyField, "" })
	set(r.KeyRequired != nil, "idempotency.required", func() { opt.Idempotency.Required = *r.KeyRequired })
	set(r.CursorField != nil, "stream.cursor_field", func() { opt.Stream.CursorField = *r.CursorField })
	set(r.EventIDField != nil, "stream.event_id_field", func() { opt.Stream.EventIdField = *r.EventIDField })
	set(r.EventTypeField != nil, "stream.event_type_field", func() { opt.Stream.EventTypeField = *r.EventTypeField })
	set(r.MaxResultBytes != nil, "result_limits.max_bytes", func() { opt.ResultLimits.MaxBytes = uint32(*r.MaxResultBytes) })
	set(r.MaxResultItems != nil, "result_limits.max_items", func() { opt.ResultLimits.MaxItems = uint32(*r.MaxResultItems) })
	set(r.MaxResultDepth != nil, "result_limits.max_depth", func() { opt.ResultLimits.MaxDepth = uint32(*r.MaxResultDepth) })
}

// policyOf makes the policy of the options; it says where every value came from.
func policyOf(md protoreflect.MethodDescriptor, o terms, h Hints, ev hintEvidence) Policy {
	opt, svc := o.MethodOptions, serviceOptions(md)
	key, stream, limits := opt.GetIdempotency(), opt.GetStream(), opt.GetResultLimits()
	p := Policy{
		Scopes: opt.GetScopes(), Approval: approvalOf(opt.GetApproval()), ApproverScope: opt.GetApproverScope(), Cost: max(1, int(opt.GetCost())),
		Priority: priorityOf(opt.GetPriority()), CacheTTL: duration(opt.GetCacheTtl()), Labels: o.labels, Doors: o.doors, Task: taskSupportOf(opt.GetTask()),
		KeyTemplate: key.GetKeyTemplate(), KeyField: key.GetKeyField(), KeyRequired: key.GetRequired(),
		CursorField: stream.GetCursorField(), EventIDField: stream.GetEventIdField(), EventTypeField: stream.GetEventTypeField(),
		MaxResultBytes: int(limits.GetMaxBytes()), MaxResultItems: int(limits.GetMaxItems()), MaxResultDepth: int(limits.GetMaxDepth()),
		From: map[string]string{},
	}
	for name, present := range map[string]bool{
		"title": opt.GetTitle() != "", "description": opt.GetDescription() != "", "tool_name": opt.GetToolName() != "", "examples": len(opt.GetExamples()) > 0,
		"timeout": opt.GetTimeout() != nil, "max_timeout": opt.GetMaxTimeout() != nil, "cache_ttl": opt.GetCacheTtl() != nil,
		"scopes": len(opt.GetScopes()) > 0, "approval": opt.GetApproval() != 0, "approver_scope": opt.GetApproverScope() != "",
		"cost": opt.GetCost() > 0, "priority": opt.GetPriority() != 0, "task": opt.GetTask() != 0,
		"idempotency.key_template": p.KeyTemplate != "", "idempotency.key_field": p.KeyField != "", "idempotency.required": p.KeyRequired,
		"stream.cursor_field": p.CursorField != "", "stream.event_id_field": p.EventIDField != "", "stream.event_type_field": p.EventTypeField != "",
		"result_limits.max_bytes": p.MaxResultBytes > 0, "result_limits.max_items": p.MaxResultItems > 0, "result_limits.max_depth": p.MaxResultDepth > 0,
	} {
		if present {
			p.From[name] = "option (toolway.v1.method)." + name
		}
	}
	if len(p.Scopes) == 0 && !o.noScopes && len(svc.GetScopes()) > 0 {
		p.Scopes, p.From["scopes"] = svc.GetScopes(), "option (toolway.v1.service).scopes"
	}
	if len(o.labels) > 0 {
		p.From["labels"] = "option (toolway.v1.service).labels"
	}
	if p.ApproverScope == "" {
		p.ApproverScope = DefaultApproverScope
	}
	ev.note(p.From, o.from)
	p.retry(o, h, ev)
	maps.Copy(p.From, o.from)
	if len(p.From) == 0 {
		p.From = nil
	}
	return p
}

// retry settles Retry: by the rules, or by evidence that is no verb.
func (p *Policy) retry(o terms, h Hints, ev hintEvidence) {
	switch {
	case o.retry != nil:
		p.Retry = *o.retry
	case h.Idempotent && ev.idempotent > verbEvidence:
		p.Retry, p.From["retry"] = true, p.From["idempotent"]
	case h.ReadOnly && ev.readOnly == optionEvidence:
		p.Retry, p.From["retry"] = true, p.From["read_only"]
	}
}

func serviceOptions(md protoreflect.MethodDescriptor) *toolwayv1.ServiceOptions {
	so, _ := md.Parent().Options().(*descriptorpb.ServiceOptions)
	svc, _ := proto.GetExtension(so, toolwayv1.E_Service).(*toolwayv1.ServiceOptions)
	return svc
}

// labelsOf returns the service's labels, cleaned.
func labelsOf(md protoreflect.MethodDescriptor) []string {
	var out []string
	for _, l := range serviceOptions(md).GetLabels() {
		if l = cut(clean(l, false), maxTitle); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// ValidScope says whether a scope can be named in a challenge (RFC 6749, section 3.3): visible ASCII without quotes and backslashes.
func ValidScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
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
