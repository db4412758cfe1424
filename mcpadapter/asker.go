package mcpadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// asker is who sent a request that is answered with calls of methods: a read, a listing, a prompt, a completion. They are the asker's own
// calls: they carry its credentials and pass the whole chain.
type asker struct {
	header   http.Header
	meta     crossing
	protocol string
	peer     net.Addr // nil: the context has it, or it is not known
	modern   bool
}

// askerOf tells it from a request and its _meta. An idempotency key does not cross: it is for one call.
func askerOf(r mcp.Request, meta mcp.Meta) asker {
	from := asker{protocol: version20250618}
	if x := r.GetExtra(); x != nil {
		from.header = x.Header
	}
	from.meta = crossingOf(meta)
	from.meta.idempotencyKey, from.meta.otherKeys = "", nil
	if v, _ := meta[mcp.MetaKeyProtocolVersion].(string); v != "" {
		from.protocol, from.modern = v, true
		return from
	}
	if s, ok := r.GetSession().(*mcp.ServerSession); ok && s != nil {
		if p := s.InitializeParams(); p != nil && p.ProtocolVersion == version20251125 {
			from.protocol = version20251125
		}
	}
	return from
}

// newCall returns a call of m by the asker.
func (a *Adapter) newCall(ctx context.Context, from asker, m *catalog.Method) *call.Call {
	c := call.New(m, call.MCP)
	c.Protocol, c.Peer = from.protocol, from.peer
	c.Forward = forward(a.conf.Rules, from.header, from.meta)
	delete(c.Forward, "idempotency-key")
	identify(ctx, c)
	return c
}

// fetch makes a unary call, bounded by limit if it is not 0, and returns the bytes of the reply and how old it is. The error is a *fetchError.
func (a *Adapter) fetch(ctx context.Context, from asker, m *catalog.Method, request []byte, limit time.Duration) ([]byte, call.Freshness, error) {
	return a.fetchBy(ctx, a.newCall(ctx, from, m), request, limit)
}

// fetchBy is fetch by the call c.
func (a *Adapter) fetchBy(ctx context.Context, c *call.Call, request []byte, limit time.Duration) ([]byte, call.Freshness, error) {
	return a.fetchWith(ctx, c, call.One(call.NewFrame(c.Method.Desc.Input(), request)), limit)
}

// fetchWith is fetch by the call c with the one request that requests returns.
func (a *Adapter) fetchWith(ctx context.Context, c *call.Call, requests func() (*call.Frame, error), limit time.Duration) ([]byte, call.Freshness, error) {
	m := c.Method
	if mayBeCached := a.conf.ServeStale && m.Policy.CacheTTL > 0; m.Backend.State == catalog.Down && !mayBeCached {
		why := call.Error(codes.Unavailable, "BACKEND_DOWN", fmt.Sprintf("backend %q is down", m.Backend.Name), "hint", "nothing was done; try again later")
		c.Refuse(why)
		err := a.conf.Handler(call.NewStream(ctx, c, call.Refused(why), func(*call.Frame) error { return why }, nil)) // so that it is observed and recorded
		return nil, call.Freshness{}, &fetchError{call: c, status: a.statusOf(ctx, c, cmp.Or(err, why))}
	}
	ctx, cancel := context.WithCancel(ctx)
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	var reply []byte
	err := a.conf.Handler(call.NewStream(ctx, c, requests, func(f *call.Frame) error {
		reply = append([]byte{}, f.Bytes()...) // it is borrowed
		return nil
	}, nil))
	if err == nil && reply == nil {
		err = status.Error(codes.Internal, "the backend ended the call without a reply")
	}
	if err != nil {
		return nil, call.Freshness{}, &fetchError{call: c, status: a.statusOf(ctx, c, err)}
	}
	return reply, c.Freshness, nil
}

// statusOf returns the status of a call that failed.
func (a *Adapter) statusOf(ctx context.Context, c *call.Call, err error) *status.Status {
	st, ok := status.FromError(err)
	if ctxErr := ctx.Err(); !ok && ctxErr != nil {
		return status.FromContextError(ctxErr)
	}
	if !ok {
		a.conf.Logger.ErrorContext(ctx, "call failed without a status", "method", c.Method.FullMethod, "call", c.ID, "error", err)
		return status.New(codes.Internal, "internal error; the mesh's log has more under call "+c.ID)
	}
	return st
}

// fetchError is a call that failed.
type fetchError struct {
	call   *call.Call
	status *status.Status
}

// Error is the status' text.
func (e *fetchError) Error() string { return e.status.Err().Error() }

// reason returns the code and text of an error of fetch.
func reason(err error) (code codes.Code, text string) {
	var f *fetchError
	if errors.As(err, &f) {
		return f.status.Code(), call.PlainText(f.status.Message())
	}
	return codes.Internal, call.PlainText(err.Error())
}
