// Package interceptors holds the policies of a call, one a file. Each is a grpc.StreamServerInterceptor, so any third party's plugs in too.
package interceptors

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Policy is one policy of the chain.
type Policy struct {
	// Name is the policy's in audit, metrics and documents.
	Name string
	// For returns the interceptor for the calls of a method, or nil if the policy has nothing to do for them. It is asked when a method is
	// first called in a snapshot; what it returns is used by many calls at once.
	For func(m *catalog.Method) grpc.StreamServerInterceptor
	// quick says that nothing can take time in the policy itself, so that its step needs no reading of the clock: neither before the call goes on to
	// the next policy, nor after it has come back.
	quick bool
	// halves is For of a policy that may be in halves; nil for others.
	halves func(m *catalog.Method) *halves
}

// Every returns a policy that has the same interceptor for all methods.
func Every(name string, ic grpc.StreamServerInterceptor) Policy {
	return Policy{Name: name, For: func(*catalog.Method) grpc.StreamServerInterceptor { return ic }}
}

// Default returns the policies that calls pass, outermost first, in DESIGN.md's order. What the options leave out is not in it.
func Default(o Options) []Policy {
	o = o.withDefaults()
	return []Policy{
		quick(Recover(o)),
		quick(InFlight(o)),
		quick(Observe(o)), // its line may wait for the log, but what a call has passed is recorded by then
		quick(Audit(o)),   // the same
		quick(Deadline(o)),
		Resume(o),
		quick(Errors(o)),
		Authenticate(o),
		quick(Authorise(o)),
		Rules(o),
		Shed(o),
		RateLimits(o),
		Bulkheads(o),
		Quarantine(o),
		Validate(o),
		DataFlow(o),
		Idempotency(o),
		Approval(o),
		Task(o),
		Cache(o),
		Redact(o),
	}
}

func quick(p Policy) Policy {
	p.quick = true
	return p
}

// Chain returns a handler that runs the policies, first one outermost, then final. Which of them have something to do for a method is
// settled once per method and snapshot. A call that its door refuses passes the policies and ends with the refusal. Every interceptor is told the method's real name and kind.
func Chain(final grpc.StreamHandler, policies ...Policy) call.Handler {
	ch := &chain{final: final, policies: policies}
	return func(stream grpc.ServerStream) error {
		c := call.FromContext(stream.Context())
		if c == nil {
			return errNoCall
		}
		defer c.Finish()
		return ch.handlerOf(c)(nil, stream)
	}
}

type chain struct {
	final    grpc.StreamHandler
	policies []Policy
}

// refusals is a chain as the key of what refused calls pass.
type refusals chain

// handlerOf returns the handler of a call's method. It is not inlined, since the frame of what it is called by is on the stack of every call that waits.
//
//go:noinline
func (ch *chain) handlerOf(c *call.Call) grpc.StreamHandler {
	var h any
	if c.Refusal() != nil {
		h = c.Method.Memo((*refusals)(ch), func() any { return compile(c.Method, refuse, ch.policies) })
	} else {
		h = c.Method.Memo(ch, func() any { return compile(c.Method, ch.final, ch.policies) })
	}
	return h.(grpc.StreamHandler) // as compile made it
}

// link is a policy in the chain of one method.
type link struct {
	halves
	info  *grpc.StreamServerInfo // of the method
	stage call.Stage
	rest  grpc.StreamHandler // what is behind it, for around
}

// of returns the policy's link for the calls of m, or nil.
func (p *Policy) of(m *catalog.Method) *link {
	if p.halves != nil {
		if h := p.halves(m); h != nil {
			return &link{halves: *h}
		}
		return nil
	}
	if ic := p.For(m); ic != nil {
		return &link{halves: halves{around: ic}}
	}
	return nil
}

// compile returns the handler of one method's calls.
func compile(m *catalog.Method, final grpc.StreamHandler, policies []Policy) grpc.StreamHandler {
	// The real name and kind from the descriptor, not what gRPC's unknown-service handler says.
	info := &grpc.StreamServerInfo{FullMethod: m.FullMethod, IsClientStream: m.Kind().Client, IsServerStream: m.Kind().Server}
	var links []*link
	read := true // the clock, when the call gets to the next one
	for _, p := range policies {
		if l := p.of(m); l != nil {
			l.info, l.stage = info, call.Stage{Name: p.Name, In: read, Out: !p.quick}
			links = append(links, l)
			read = !p.quick
		}
	}
	if n := len(links); n > 0 {
		links[n-1].stage.Out = true // what is behind it takes time
	}
	return handler(links, final)
}

// handler returns the handler that has a call pass the links, then final.
func handler(links []*link, final grpc.StreamHandler) grpc.StreamHandler {
	switch {
	case len(links) == 0:
		return final
	case links[0].enter != nil:
		return newStretch(links, final)
	}
	return links[0].before(handler(links[1:], final))
}

// before returns the handler that runs the policy as an interceptor, then next.
func (l *link) before(next grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		c := call.FromContext(stream.Context())
		if c == nil {
			return errNoCall
		}
		step := c.Enter(&l.stage)
		err := l.around(srv, stream, l.info, next)
		c.Leave(step)
		return err
	}
}

// refuse stands where a backend would, for calls that their door refuses.
func refuse(_ any, stream grpc.ServerStream) error {
	c := call.FromContext(stream.Context())
	if c == nil {
		return errNoCall
	}
	return c.Refusal()
}

// errNoCall is a programmer's error: a door or an interceptor has replaced the stream's context by one that does not descend from it.
var errNoCall = status.Error(codes.Internal, "the stream's context carries no call")
