package interceptors

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// ApprovalOptions are what Approval needs. The zero value works.
type ApprovalOptions struct {
	// Store keeps the approvals. Default: NewApprovalMemory(0).
	Store ApprovalStore
	// Pending is how long an approval waits for a decision. Default 15 minutes.
	Pending time.Duration
	// URL is where approvals can be seen, such as "https://mesh.example.com": callers are told URL/v1/approvals/ID. "" tells them none.
	URL string
}

func (o ApprovalOptions) withDefaults() ApprovalOptions {
	if o.Store == nil {
		o.Store = NewApprovalMemory(0)
	}
	if o.Pending <= 0 {
		o.Pending = 15 * time.Minute
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	return o
}

// Approval holds calls until somebody has agreed to them, as their method's policy says.
//
// "approver": another principal agrees. Until then the call is FAILED_PRECONDITION, reason APPROVAL_REQUIRED, with the approval's id and URL.
// Once it is approved, the same request of the same principal goes through, once. If it is refused, the call is PERMISSION_DENIED, reason
// APPROVAL_REFUSED.
//
// "confirm": the person at the caller's side agrees. Where the client can ask (Call.Asker), it is asked during the call. Else the call
// is FAILED_PRECONDITION, reason CONFIRMATION_REQUIRED, with an id, and goes through when it comes again with the id as Call.Confirm.
//
// Calls by command (call.CLI) are not held: whoever runs `toolway tools call` reaches the backend without a mesh too.
//
// An approval is for one tenant, principal, method and canonical request. It is used up before the call is dispatched, and given back only
// if it is proved that no backend has executed the call, or the backend asks for more input first.
func Approval(o Options) Policy {
	o = o.withDefaults()
	p := &approvals{ApprovalOptions: o.Approval.withDefaults(), log: o.Logger}
	return Policy{Name: approvalName, For: p.forMethod}
}

const approvalName = "approval"

type approvals struct {
	ApprovalOptions
	log *slog.Logger
}

func (p *approvals) forMethod(m *catalog.Method) grpc.StreamServerInterceptor {
	switch {
	case m.Policy.Approval == catalog.ApprovalNone:
		return nil
	case m.Kind().Client:
		return refuseStream
	}
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := call.FromContext(stream.Context())
		if c.Door == call.CLI { // in a process of its own, which nobody else could approve at
			c.Decide(approvalName, "allowed", "the operator calls by command")
			return handler(srv, stream)
		}
		a, err := p.admit(stream, c)
		if err != nil {
			return err
		}
		err = handler(srv, stream)
		if err != nil && (c.Outcome() == call.NotExecuted || asksForInput(status.Convert(err))) {
			p.giveBack(stream.Context(), c, a)
		}
		return err
	}
}

// refuseStream refuses calls that stream requests: nobody can agree to what has not been said.
func refuseStream(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
	c := call.FromContext(stream.Context())
	c.Decide(approvalName, "refused", "a request stream cannot be approved")
	return call.Error(codes.FailedPrecondition, "APPROVAL_IMPOSSIBLE", "calls of "+nameOf(c.Method)+" need approval and stream their requests: there is no one request to agree to",
		"hint", "this is the operator's or the contract's to mend: toolway check says how")
}

// useTries is how often a call looks again when its approval was used by another.
const useTries = 4

// admit returns the used approval that lets the call through, or why it may not go through.
func (p *approvals) admit(stream grpc.ServerStream, c *call.Call) (ApprovalRecord, error) {
	want, err := p.record(stream, c)
	if err != nil {
		return want, err
	}
	ctx := stream.Context()
	for range useTries {
		want.ID = rand.Text()
		a, err := p.Store.Hold(ctx, want)
		if err != nil {
			return a, p.unkept(c, err)
		}
		c.Approval = a.ID
		if a.Confirm {
			err = p.confirmed(ctx, c, &a)
		} else {
			err = p.approved(c, &a)
		}
		if err != nil {
			return a, err
		}
		a.State, a.UsedBy = ApprovalUsed, c.ID
		a, err = p.Store.Swap(ctx, a)
		if err == nil {
			c.Decide(approvalName, "allowed", "approval "+a.ID+" by "+a.DecidedBy)
			return a, nil
		}
		if !errors.Is(err, ErrApprovalChanged) {
			return a, p.unkept(c, err)
		}
	}
	return want, p.unkept(c, ErrApprovalChanged)
}

// record returns the approval that the call needs.
func (p *approvals) record(stream grpc.ServerStream, c *call.Call) (ApprovalRecord, error) {
	request, err := requestHash(c, stream)
	if err != nil {
		return ApprovalRecord{}, err
	}
	if err := reviewable(stream, c); err != nil {
		return ApprovalRecord{}, err
	}
	now := time.Now()
	tenant, principal := who(c.Principal)
	m := c.Method
	a := ApprovalRecord{
		Confirm: m.Policy.Approval == catalog.ApprovalConfirm, State: ApprovalPending,
		Tenant: tenant, Principal: principal, Method: nameOf(m), Tool: m.Tool.Name, Title: m.Tool.Title,
		CallID: c.ID, Door: string(c.Door), Request: request, Scope: m.Policy.ApproverScope, Created: now, Expires: now.Add(p.Pending),
	}
	kind := m.Policy.Approval.String()
	a.Binding = hashOf(tenant, principal, m.FullMethod, string(request[:]), kind)
	a.Arguments, a.Cut = shownArguments(stream, m)
	return a, nil
}

// reviewable refuses a request with fields that the contract does not have: whoever agrees could not see them, and the backend may know them.
func reviewable(stream grpc.ServerStream, c *call.Call) error {
	f, err := call.Request(stream)
	if err != nil {
		return err
	}
	m, err := f.Message()
	if err != nil {
		return call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	if !holdsUnknown(m.ProtoReflect()) {
		return nil
	}
	c.Decide(approvalName, "refused", "the request has fields that the contract does not know")
	return call.Error(codes.InvalidArgument, "UNKNOWN_FIELDS", "the request has fields that the contract of "+nameOf(c.Method)+" does not know, and nobody can agree to what cannot be shown",
		"hint", "leave them out, or have the operator load the contract that has them; nothing was done")
}

// holdsUnknown says whether a message has unknown fields, at any depth. What is in a google.protobuf.Any whose type is not known is not shown as
// part of the arguments at all, and the approval says so.
func holdsUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		fields := m.Descriptor().Fields()
		in, err := (&anypb.Any{TypeUrl: m.Get(fields.ByNumber(1)).String(), Value: m.Get(fields.ByNumber(2)).Bytes()}).UnmarshalNew()
		return err == nil && holdsUnknown(in.ProtoReflect())
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
					found = holdsUnknown(e.Message())
					return !found
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = holdsUnknown(v.List().Get(i).Message())
			}
		default:
			found = holdsUnknown(v.Message())
		}
		return !found
	})
	return found
}

// nameOf is the method as people write it.
func nameOf(m *catalog.Method) string { return strings.TrimPrefix(m.FullMethod, "/") }

// maxApprovalArguments bounds the arguments that an approver is shown.
const maxApprovalArguments = 4 << 10

// shownArguments returns the request as JSON without what is sensitive, and whether it is not whole.
func shownArguments(stream grpc.ServerStream, m *catalog.Method) (text string, cut bool) {
	f, err := call.Request(stream)
	if err != nil || f.Len() > 16*maxApprovalArguments {
		return "", true
	}
	msg, err := f.Message()
	if err != nil {
		return "", true
	}
	msg = proto.Clone(msg)
	redact(msg.ProtoReflect(), m.Sensitive(toolschema.Input))
	spaced, err := (protojson.MarshalOptions{AllowPartial: true}).Marshal(msg)
	var b bytes.Buffer // protojson's spacing is random
	if err != nil || json.Compact(&b, spaced) != nil {
		return "", true
	}
	if b.Len() > maxApprovalArguments {
		return strings.ToValidUTF8(string(b.Bytes()[:maxApprovalArguments]), ""), true
	}
	return b.String(), false
}

// approved says whether another principal has agreed.
func (p *approvals) approved(c *call.Call, a *ApprovalRecord) error {
	switch a.State {
	case ApprovalApproved:
		return nil
	case ApprovalRefused:
		c.Decide(approvalName, "refused", "approval "+a.ID+" was refused by "+a.DecidedBy)
		text := "the call was refused by " + a.DecidedBy
		if a.Comment != "" {
			text += ": " + a.Comment
		}
		return call.Error(codes.PermissionDenied, "APPROVAL_REFUSED", text, "approval_id", a.ID, "decided_by", a.DecidedBy, "comment", a.Comment,
			"hint", "do something else, or talk to whoever refused; the same call can be held anew after "+a.Expires.UTC().Format(time.RFC3339))
	}
	c.Decide(approvalName, "held", "approval "+a.ID+" is pending")
	pairs := []string{"approval_id", a.ID, "expires", a.Expires.UTC().Format(time.RFC3339),
		"hint", "make the same call again, with the same arguments, once it is approved; nothing was done"}
	text := fmt.Sprintf("calls of %s need approval: somebody else with the scope %q has to approve %s", a.Method, a.Scope, a.ID)
	if p.URL != "" {
		pairs = append(pairs, "url", p.URL+"/v1/approvals/"+a.ID)
	}
	return precondition(call.Error(codes.FailedPrecondition, "APPROVAL_REQUIRED", text, pairs...), "APPROVAL", a, "somebody else with the scope "+a.Scope+" approves the call")
}

// confirmed says whether the person at the caller's side has agreed.
func (p *approvals) confirmed(ctx context.Context, c *call.Call, a *ApprovalRecord) error {
	a.DecidedBy, a.Decided = a.Principal, time.Now()
	if c.Confirm == a.ID {
		return nil
	}
	if c.Asker == nil {
		c.Decide(approvalName, "held", "confirmation "+a.ID+" is pending")
		return confirmationRequired(a)
	}
	answer, err := c.Asker.Ask(ctx, call.Question{ID: a.ID, Text: question(c.Method, a)})
	switch {
	case err != nil:
		c.Decide(approvalName, "held", "the person at the caller's side is asked")
		return err
	case answer == call.Yes:
		return nil
	case answer == call.NoAnswer:
		c.Decide(approvalName, "held", "the person at the caller's side has not answered")
		return confirmationRequired(a)
	}
	c.Decide(approvalName, "refused", "the person at the caller's side has declined")
	a.State, a.UsedBy = ApprovalUsed, c.ID // the same call later is asked about anew
	if _, err := p.Store.Swap(ctx, *a); err != nil && !errors.Is(err, ErrApprovalChanged) {
		return p.unkept(c, err)
	}
	return call.Error(codes.PermissionDenied, "CONFIRMATION_DECLINED", "the person at the caller's side has declined the call", "hint", "do not repeat it unless you are asked to; nothing was done")
}

func confirmationRequired(a *ApprovalRecord) error {
	return precondition(call.Error(codes.FailedPrecondition, "CONFIRMATION_REQUIRED", "calls of "+a.Method+" need the word of the person at the caller's side", "confirm", a.ID,
		"expires", a.Expires.UTC().Format(time.RFC3339),
		"hint", "ask the person, then make the same call again with the id under confirm as metadata or header toolway-confirm, or as _meta io.toolway/confirm over MCP; nothing was done"),
		"CONFIRMATION", a, "the person at the caller's side agrees to the call")
}

// question is what a person is asked.
func question(m *catalog.Method, a *ApprovalRecord) string {
	arguments := a.Arguments
	if a.Cut {
		arguments += " … (not all is shown)"
	}
	return fmt.Sprintf("Run %q (%s) at %q with these arguments? %s", m.Tool.Title, a.Method, m.Backend.Name, arguments)
}

// precondition adds a google.rpc.PreconditionFailure to a status.
func precondition(err error, kind string, a *ApprovalRecord, what string) error {
	st, convErr := status.Convert(err).WithDetails(&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: kind, Subject: a.ID, Description: what}}})
	if convErr != nil {
		return err
	}
	return st.Err()
}

// giveBack makes the approval usable again: nothing was done.
func (p *approvals) giveBack(ctx context.Context, c *call.Call, a ApprovalRecord) {
	a.State, a.UsedBy = ApprovalApproved, ""
	if a.Confirm {
		a.State, a.DecidedBy, a.Decided = ApprovalPending, "", time.Time{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if _, err := p.Store.Swap(ctx, a); err != nil {
		p.log.Error("give an approval back", "approval", a.ID, "call_id", c.ID, "error", err)
		return
	}
	c.Decide(approvalName, "given back", "nothing was done, so approval "+a.ID+" stays good")
}

// unkept refuses a call whose approval cannot be kept or looked up.
func (p *approvals) unkept(c *call.Call, err error) error {
	c.Decide(approvalName, "refused", "the approval cannot be kept")
	if errors.Is(err, ErrApprovalsFull) {
		return call.RetryAfter(call.Error(codes.ResourceExhausted, "APPROVALS_FULL", "too many calls wait for approval", "hint", "wait until some are decided; nothing was done"), time.Minute)
	}
	p.log.Error("hold a call for approval", "method", c.Method.FullMethod, "call_id", c.ID, "error", err)
	return call.RetryAfter(call.Error(codes.Unavailable, "APPROVAL_STORE_UNAVAILABLE", "the store of approvals cannot be reached", "hint", "call again; nothing was done"), time.Second)
}
