package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/apart"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/dial"
)

var forceCodec = grpc.ForceCodecV2(call.Codec{})

// attempt is the innermost grpc.Streamer: one try at one backend, whose error is a *call.Failure. A unary attempt is made by the RecvMsg or
// Header that asks for its reply, on the goroutine that asks. The connection that it is given is of no interest.
func (r *Router) attempt(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c := call.FromContext(ctx)
	if !desc.ClientStreams && !desc.ServerStreams {
		return &invocation{r: r, ctx: ctx, c: c}, nil
	}
	i := c.BeginAttempt(call.Target(ctx, c))
	conn, ctx, failure := r.prepare(ctx, c)
	if failure != nil {
		c.EndAttempt(i, "", status.Code(failure.Err), failure.Outcome)
		return nil, failure
	}
	var out grpc.ClientStream
	var err error
	apart.Run(func() { out, err = conn.OpenStream(ctx, desc, c.Method.FullMethod, forceCodec) })
	if err != nil {
		f := notOpened(ctx, c, conn.Name(), err)
		c.EndAttempt(i, "", status.Code(f.Err), f.Outcome)
		return nil, f
	}
	c.MarkSent()
	return &opened{ClientStream: out, r: r, c: c, backend: conn.Name(), index: i}, nil
}

// prepare finds the connection of an attempt, and returns the context with what the backend is to get as metadata.
func (r *Router) prepare(ctx context.Context, c *call.Call) (*dial.Conn, context.Context, *call.Failure) {
	name := call.Target(ctx, c)
	var conn *dial.Conn
	if r.conns != nil {
		conn = r.conns(name)
	}
	if conn == nil {
		return nil, nil, &call.Failure{Outcome: call.NotExecuted, Err: call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", fmt.Sprintf("backend %q has no connection", name),
			"backend", name, "hint", "the backend has just been added or removed; call again in a moment")}
	}
	added, ok := metadata.FromOutgoingContext(ctx)
	out := call.Sendable(c.Forward)
	if ok {
		out = metadata.Join(out, added)
	}
	if r.options.Credentials != nil {
		pairs, err := r.options.Credentials.Credential(ctx, c)
		if err != nil {
			return nil, nil, &call.Failure{Outcome: call.NotExecuted, Err: err}
		}
		if len(pairs) > 0 {
			out = withCredentials(out, pairs)
		}
	}
	if len(out) == 0 && !ok {
		return conn, ctx, nil
	}
	return conn, metadata.NewOutgoingContext(ctx, out), nil
}

// reachable waits until a unary call would not wait for its connection.
func reachable(ctx context.Context, c *call.Call, conn *dial.Conn) *call.Failure {
	err := conn.Ready(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &call.Failure{Outcome: call.NotExecuted, Err: status.FromContextError(ctx.Err()).Err()}
	}
	return &call.Failure{Outcome: call.NotExecuted, Err: unavailable(c, conn.Name(), err.Error())}
}

// withCredentials returns md with the credentials' keys replaced: nothing from elsewhere can stand beside them.
func withCredentials(md metadata.MD, pairs []string) metadata.MD {
	out := make(metadata.MD, len(md)+len(pairs)/2)
	for k, vs := range md {
		out[k] = vs
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = []string{pairs[i+1]}
	}
	return out
}

// invocation is one unary attempt, as a stream. It uses ClientConn.Invoke, which needs no goroutine; the header arrives with the reply.
type invocation struct {
	r   *Router
	ctx context.Context
	c   *call.Call

	request, reply  call.Frame
	header, trailer metadata.MD
	peer            peer.Peer
	options         [4]grpc.CallOption
	ran, delivered  bool
	err             error
}

// run makes the attempt, once.
func (a *invocation) run() {
	if a.ran {
		return
	}
	a.ran = true
	c := a.c
	i := c.BeginAttempt(call.Target(a.ctx, c))
	conn, ctx, failure := a.r.prepare(a.ctx, c)
	if failure == nil {
		failure = reachable(ctx, c, conn)
	}
	if failure == nil {
		a.options = [...]grpc.CallOption{forceCodec, grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer)}
		err := conn.Invoke(ctx, c.Method.FullMethod, &a.request, &a.reply, a.options[:]...)
		if err != nil {
			failure = a.failed(ctx, conn.Name(), err)
		}
	}
	a.request.Release()
	if failure == nil {
		c.MarkSent()
		c.EndAttempt(i, a.r.targets.text(a.peer.Addr), codes.OK, call.Answered)
		return
	}
	if failure.Outcome != call.NotExecuted {
		c.MarkSent()
	}
	a.err = failure
	c.EndAttempt(i, a.r.targets.text(a.peer.Addr), status.Code(failure.Err), failure.Outcome)
}

func (a *invocation) failed(ctx context.Context, backend string, err error) *call.Failure {
	if errors.Is(err, io.EOF) {
		return unwritten(a.c, backend)
	}
	if a.peer.Addr == nil { // no stream was ever made
		return notSent(ctx, a.c, backend, err)
	}
	return broken(ctx, a.c, backend, err, a.header, a.trailer)
}

// pass hands header, reply, trailer and status on to the caller: trailers-only if it came so.
func (a *invocation) pass(c *call.Call, stream grpc.ServerStream) error {
	if a.err != nil {
		return refuse(a, stream, a.err)
	}
	if err := stream.SetHeader(call.Reply(a.header)); err != nil {
		return err
	}
	stream.SetTrailer(call.Reply(a.trailer))
	a.reply.Describe(c.Method.Desc.Output())
	return stream.SendMsg(&a.reply)
}

func (a *invocation) release() {
	a.request.Release()
	a.reply.Release()
}

// Context returns the attempt's.
func (a *invocation) Context() context.Context { return a.ctx }

// SendMsg keeps the request until the reply is asked for.
func (a *invocation) SendMsg(m any) error {
	f, ok := m.(*call.Frame)
	if !ok {
		return errNoFrame
	}
	a.request.Release()
	a.request = f.Retain()
	return nil
}

// CloseSend has nothing to do.
func (a *invocation) CloseSend() error { return nil }

// Header makes the attempt and returns the header, nil if there was none.
func (a *invocation) Header() (metadata.MD, error) {
	a.run()
	return a.header, nil
}

// Trailer returns the trailer once the attempt has been made.
func (a *invocation) Trailer() metadata.MD { return a.trailer }

// RecvMsg makes the attempt and gives the reply, then io.EOF.
func (a *invocation) RecvMsg(m any) error {
	a.run()
	if a.err != nil {
		return a.err
	}
	if a.delivered {
		return io.EOF
	}
	a.delivered = true
	f, ok := m.(*call.Frame)
	if !ok {
		return errNoFrame
	}
	f.Release()
	*f, a.reply = a.reply, call.Frame{}
	return nil
}

// errNoFrame is a programmer's error: an interceptor of attempts has sent something else in a message's place.
var errNoFrame = status.Error(codes.Internal, "the messages of an attempt are *call.Frame")

// opened is an attempt that is a stream.
type opened struct {
	grpc.ClientStream
	r       *Router
	c       *call.Call
	backend string
	index   int
	header  metadata.MD
	ended   bool
}

// Header waits for the header. Its error is what RecvMsg will return.
func (s *opened) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	s.header = md
	if err != nil {
		return md, s.end(err)
	}
	return md, nil
}

// RecvMsg takes the next message; the error is a *call.Failure, or io.EOF.
func (s *opened) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		return s.end(err)
	}
	if !s.c.Method.Desc.IsStreamingServer() {
		_ = s.end(io.EOF)
	}
	return nil
}

func (s *opened) end(err error) error {
	if s.header == nil && !s.ended {
		s.header, _ = s.ClientStream.Header()
	}
	if errors.Is(err, io.EOF) {
		if s.header == nil && len(s.Trailer()) == 0 && !s.ended {
			f := unwritten(s.c, s.backend)
			s.note(codes.Unavailable, f.Outcome)
			return f
		}
		s.note(codes.OK, call.Answered)
		return err
	}
	f := broken(s.Context(), s.c, s.backend, err, s.header, s.Trailer())
	s.note(status.Code(f.Err), f.Outcome)
	return f
}

func (s *opened) note(code codes.Code, o call.Outcome) {
	if s.ended {
		return
	}
	s.ended = true
	var target string
	if p, ok := peer.FromContext(s.Context()); ok {
		target = s.r.targets.text(p.Addr)
	}
	s.c.EndAttempt(s.index, target, code, o)
}

// addresses are the texts of addresses, made once for each connection: a transport has the same net.Addr for all its calls.
type addresses struct {
	texts sync.Map // net.Addr → string
	size  atomic.Int64
}

const maxAddresses = 1 << 10

func (as *addresses) text(a net.Addr) string {
	if a == nil {
		return ""
	}
	if t, ok := as.texts.Load(a); ok {
		return t.(string)
	}
	t := a.String()
	if as.size.Add(1) > maxAddresses { // connections have come and gone
		as.texts.Clear()
		as.size.Store(0)
	}
	as.texts.Store(a, t)
	return t
}
