package interceptors

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/rules"
)

// Rules decides about each call by the operator's rules and by tenancy: before the request is known as far as that goes, then about the
// request, and about each message of a request stream. A refusal is PERMISSION_DENIED with the reason POLICY_DENIED, the rule's name and its
// message. Who may not know of a method gets the answer for one that is not there, and Call.Hidden tells the door to give its own.
func Rules(o Options) Policy {
	o = o.withDefaults()
	return inHalves("rules", func(m *catalog.Method) *halves {
		of := o.Rules.For(m)
		if of == nil {
			return nil
		}
		r := &ruled{rules: of, log: o.Logger}
		if m.Kind().Client && of.LooksAtRequest() {
			return &halves{around: r.intercept}
		}
		return &halves{enter: r.enter}
	})
}

// Visibility returns what a set of rules lets principals know of; nil, which shows everything, for no set. As in Authenticate, everybody
// is identity.Anonymous where there is no authenticator.
func Visibility(s *rules.Set, auth call.Authenticator) call.Visibility {
	if s == nil {
		return nil
	}
	v := visibility{set: s}
	if auth == nil {
		v.nobody = identity.Anonymous
	}
	return v
}

type visibility struct {
	set    *rules.Set
	nobody *identity.Principal
}

// Visible says whether p may know of m.
func (v visibility) Visible(p *identity.Principal, d call.Door, m *catalog.Method) bool {
	if p == nil {
		p = v.nobody
	}
	return v.set.Visible(p, string(d), m)
}

// ruled is what the rules say about one method.
type ruled struct {
	rules *rules.Method
	log   *slog.Logger
}

func (r *ruled) enter(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
	ctx := stream.Context()
	in, d, err := r.before(ctx, c)
	if err != nil {
		return nil, err
	}
	if r.rules.LooksAtRequest() {
		msg, err := requestMessage(stream)
		if err != nil {
			return nil, err
		}
		in.Request = msg
		if d = r.rules.Message(&in, d); !d.Allowed {
			return nil, r.refuse(ctx, c, d)
		}
	}
	c.Decide("rules", "allowed", d.Rule)
	return stream, nil
}

// before decides as far as the request does not matter.
func (r *ruled) before(ctx context.Context, c *call.Call) (rules.Input, rules.Decision, error) {
	in := rules.Input{Principal: c.Principal, Door: string(c.Door), Now: time.Now()}
	d := r.rules.Before(&in)
	if !d.Allowed && !d.Open {
		return in, d, r.refuse(ctx, c, d)
	}
	return in, d, nil
}

// intercept is for calls that stream requests, each of which is looked at.
func (r *ruled) intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	c := call.FromContext(ctx)
	in, d, err := r.before(ctx, c)
	if err != nil {
		return err
	}
	s := &ruledStream{ServerStream: stream, ruled: r, before: d, in: in}
	c.Decide("rules", "allowed", d.Rule)
	err = handler(srv, s)
	if s.denied != nil { // here, since RecvMsg may run on another goroutine
		return r.refuse(ctx, c, *s.denied)
	}
	return err
}

// requestMessage returns the only request of a call, decoded.
func requestMessage(stream grpc.ServerStream) (proto.Message, error) {
	f, err := call.Request(stream)
	if err != nil {
		return nil, err
	}
	return decoded(f)
}

func decoded(f *call.Frame) (proto.Message, error) {
	msg, err := f.Message()
	if err != nil {
		return nil, call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	return msg, nil
}

// refuse notes the decision and returns the call's status.
func (r *ruled) refuse(ctx context.Context, c *call.Call, d rules.Decision) error {
	if d.Err != nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "a rule cannot be decided", slog.String("rule", d.Rule), slog.String("method", c.Method.FullMethod),
			slog.String("call_id", c.ID), slog.Any("error", d.Err))
	}
	detail := d.Message
	if d.Rule != "" {
		detail = d.Rule + ": " + detail
	}
	if d.Hidden {
		c.Hidden = true
		c.Decide("rules", "hidden", detail)
		return call.Error(codes.Unimplemented, "UNKNOWN_METHOD", "unknown method", "hint", "list what there is")
	}
	c.Decide("rules", "denied", detail)
	if d.Rule == "" {
		return call.Error(codes.PermissionDenied, "POLICY_DENIED", d.Message, "hint", "the operator's rules do not allow this; repeating the call does not help")
	}
	return call.Error(codes.PermissionDenied, "POLICY_DENIED", d.Message, "rule", d.Rule, "hint", "the operator's rules do not allow this; repeating the call does not help")
}

// ruledStream asks the rules about each message of a request stream.
type ruledStream struct {
	grpc.ServerStream
	*ruled
	before rules.Decision
	in     rules.Input
	denied *rules.Decision
}

// RecvMsg gives no message that the rules deny, and none after one that they did.
func (s *ruledStream) RecvMsg(m any) error {
	if s.denied != nil {
		return errDenied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return errDenied
	}
	if f, ok := m.(*call.Frame); ok {
		var err error
		if msg, err = decoded(f); err != nil {
			return err
		}
	}
	s.in.Request, s.in.Now = msg, time.Now()
	if d := s.rules.Message(&s.in, s.before); !d.Allowed {
		s.denied = &d
		return errDenied
	}
	return nil
}

// errDenied ends the reading of requests; the call's own status says more.
var errDenied = call.Error(codes.PermissionDenied, "POLICY_DENIED", "the operator's rules do not allow this message")
