// Package backend is where the chain ends: it hands each call to the connection of the backend that owns its method, or to a service
// compiled into the mesh.
package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

// Router hands calls to backends. It is safe for concurrent use.
type Router struct {
	conns  func(backend string) *dial.Conn
	locals map[string]*Local
}

// New returns a router that finds a backend's connection with conns, which returns nil for a backend it does not know and is called for
// every call, so connections may change. locals are the backends that are compiled in, by name; they are asked first.
func New(conns func(backend string) *dial.Conn, locals map[string]*Local) *Router {
	return &Router{conns: conns, locals: locals}
}

// Handle is the chain's final grpc.StreamHandler. The backend gets the exact kind of call, the messages byte for byte, the deadline, and
// as metadata what call.Forward holds and what interceptors have put into the context's outgoing metadata, nothing else. Header, trailer
// and status come back as the backend sent them. It fails fast with UNAVAILABLE while the backend is down.
func (r *Router) Handle(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	c := call.FromContext(ctx)
	name := c.Method.Backend.Name
	if l := r.locals[name]; l != nil {
		return l.handle(c, stream)
	}
	var conn *dial.Conn
	if r.conns != nil {
		conn = r.conns(name)
	}
	if conn == nil {
		return call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", fmt.Sprintf("backend %q has no connection", name),
			"backend", name, "hint", "the backend has just been added or removed; call again in a moment")
	}
	if err := conn.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return unavailable(c, err.Error())
	}
	ctx = outgoing(ctx, c)
	if kind := c.Method.Kind(); kind == (catalog.Kind{}) {
		return unary(ctx, c, conn, stream)
	}
	return streaming(ctx, c, conn, stream)
}

// outgoing returns the context of the call to the backend.
func outgoing(ctx context.Context, c *call.Call) context.Context {
	if added, ok := metadata.FromOutgoingContext(ctx); ok {
		return metadata.NewOutgoingContext(ctx, metadata.Join(c.Forward, added))
	}
	return metadata.NewOutgoingContext(ctx, c.Forward)
}

// attempt is one try at one backend: what comes and goes, in one allocation.
type attempt struct {
	request, reply  call.Frame
	header, trailer metadata.MD
	peer            peer.Peer
	options         [4]grpc.CallOption
}

var forceCodec = grpc.ForceCodecV2(call.Codec{})

// unary makes the call with ClientConn.Invoke, which needs no goroutine. The header arrives together with the reply.
func unary(ctx context.Context, c *call.Call, conn *dial.Conn, stream grpc.ServerStream) error {
	a := new(attempt)
	defer a.release()
	if err := stream.RecvMsg(&a.request); err != nil {
		return err
	}
	if err := malformed(&a.request); err != nil {
		return err
	}
	a.options = [...]grpc.CallOption{forceCodec, grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer)}
	c.Sent = true // until shown otherwise
	err := conn.Invoke(ctx, c.Method.FullMethod, &a.request, &a.reply, a.options[:]...)
	a.request.Release()
	if a.peer.Addr == nil {
		c.Sent = false // no stream was ever made
		return failed(ctx, c, err)
	}
	if err != nil {
		return a.end(ctx, c, stream, err)
	}
	if err := stream.SetHeader(call.Reply(a.header)); err != nil {
		return err
	}
	stream.SetTrailer(call.Reply(a.trailer))
	a.reply.Describe(c.Method.Desc.Output())
	return stream.SendMsg(&a.reply)
}

// end passes on header, trailer and status of a unary call that failed: trailers-only if it came so.
func (a *attempt) end(ctx context.Context, c *call.Call, stream grpc.ServerStream, err error) error {
	if a.header != nil {
		if err := stream.SendHeader(call.Reply(a.header)); err != nil {
			return err
		}
	}
	stream.SetTrailer(call.Reply(a.trailer))
	if a.header == nil && len(a.trailer) == 0 {
		return failed(ctx, c, err)
	}
	return broken(ctx, c, err, a.trailer)
}

func (a *attempt) release() {
	a.request.Release()
	a.reply.Release()
}

// failed returns the status of a call to which no backend has answered anything. A connection that is closed while it is used, because its
// backend was taken out, is CANCELLED to grpc-go; but the caller has cancelled nothing.
func failed(ctx context.Context, c *call.Call, err error) error {
	if code := status.Code(err); ctx.Err() == nil && (code == codes.Unavailable || code == codes.Canceled) {
		return unavailable(c, status.Convert(err).Message())
	}
	return late(c, err)
}

// broken returns the status of a call whose backend has answered something. That the connection broke then is told as before the answer; a status
// that the backend sent stays as it is. grpc-go gives no other sign of which it is than its own words, without trailer and details.
func broken(ctx context.Context, c *call.Call, err error, trailer metadata.MD) error {
	st := status.Convert(err)
	if ctx.Err() == nil && len(trailer) == 0 && len(st.Proto().GetDetails()) == 0 && (st.Code() == codes.Unavailable || st.Code() == codes.Canceled) && dial.Lost(st.Message()) {
		return unavailable(c, st.Message())
	}
	return late(c, err)
}

// late puts a deadline that has passed on the way, which grpc-go tells in terms of its transport, into words. A status that the backend sent
// stays as it is.
func late(c *call.Call, err error) error {
	st := status.Convert(err)
	if st.Code() != codes.DeadlineExceeded || st.Message() != context.DeadlineExceeded.Error() && !strings.Contains(st.Message(), "RST_STREAM") {
		return err
	}
	name := c.Method.Backend.Name
	return call.Error(codes.DeadlineExceeded, "DEADLINE_EXCEEDED", fmt.Sprintf("backend %q did not finish within the deadline, after %v", name, time.Since(c.Start).Round(time.Millisecond)),
		"backend", name, "hint", "give the call more time, or ask for less; whether it took effect is not known")
}

func unavailable(c *call.Call, why string) error {
	hint := dial.Explain(why)
	switch {
	case c.Sent:
		hint = "the connection broke while the call was under way: whether it took effect is not known, so look before you repeat it"
	case hint == "":
		hint = "the backend is down or cannot be reached; call again when it is back"
	}
	name := c.Method.Backend.Name
	return call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", fmt.Sprintf("backend %q is unavailable: %s", name, dial.Cause(why)),
		"backend", name, "hint", hint)
}

// streaming makes a call of any kind but unary.
func streaming(ctx context.Context, c *call.Call, conn *dial.Conn, stream grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := c.Method.StreamDesc()
	var first call.Frame
	defer first.Release()
	if !desc.ClientStreams {
		if err := stream.RecvMsg(&first); err != nil {
			return err
		}
		if err := malformed(&first); err != nil {
			return err
		}
	}
	out, err := conn.NewStream(ctx, desc, c.Method.FullMethod, forceCodec)
	if err != nil {
		return failed(ctx, c, err)
	}
	c.Sent = true
	if !desc.ClientStreams {
		if err := out.SendMsg(&first); err != nil && !errors.Is(err, io.EOF) { // half-closes too
			return err
		}
		first.Release()
		return replies(ctx, c, out, stream)
	}

	sent := make(chan sending, 1)
	go func() {
		var s sending
		defer func() {
			if r := recover(); r != nil {
				s.panicked = fmt.Errorf("%v\n\n%s", r, debug.Stack())
			}
			sent <- s
			if s.err != nil || s.panicked != nil {
				cancel() // the backend cannot go on either
			}
		}()
		s.err = requests(out, stream)
	}()
	err = replies(ctx, c, out, stream)
	var s sending
	select {
	case s = <-sent:
	default: // the backend or the caller has ended the call; that the rest of the requests found no taker is of no interest
		cancel()
		c.StopRequests()
		s = <-sent
		s.err = nil
	}
	if s.panicked != nil {
		panic(s.panicked) // on the chain's goroutine, where it is recovered and logged
	}
	if s.err != nil && status.Code(err) == codes.Canceled && stream.Context().Err() == nil {
		return s.err // why the call was cancelled
	}
	return err
}

type sending struct {
	err      error
	panicked error
}

// requests sends what the caller sends, one message in hand, until the caller or the backend has had enough.
func requests(out grpc.ClientStream, stream grpc.ServerStream) error {
	var f call.Frame
	defer f.Release()
	for {
		switch err := stream.RecvMsg(&f); {
		case errors.Is(err, io.EOF):
			return out.CloseSend()
		case err != nil:
			return err
		}
		if err := malformed(&f); err != nil {
			return err
		}
		err := out.SendMsg(&f)
		f.Release()
		if errors.Is(err, io.EOF) {
			return nil // the status comes with the replies
		}
		if err != nil {
			return err
		}
	}
}

// malformed refuses a request that an interceptor has looked into and could not read: it has decided about nothing.
func malformed(f *call.Frame) error {
	if err := f.Err(); err != nil {
		return call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	return nil
}

// replies passes on header, messages, trailer and status, each as soon as it is there, one message in hand.
func replies(ctx context.Context, c *call.Call, out grpc.ClientStream, stream grpc.ServerStream) error {
	header, err := out.Header()
	if err == nil && header != nil {
		if err := stream.SendHeader(call.Reply(header)); err != nil {
			return err
		}
	}
	var f call.Frame
	defer f.Release()
	output := c.Method.Desc.Output()
	for {
		err := out.RecvMsg(&f)
		if err == nil {
			f.Describe(output)
			err := stream.SendMsg(&f)
			f.Release()
			if err != nil {
				return err
			}
			if c.Method.Desc.IsStreamingServer() {
				continue
			}
		}
		trailer := out.Trailer()
		stream.SetTrailer(call.Reply(trailer))
		if err == nil || errors.Is(err, io.EOF) {
			return nil
		}
		if header == nil && len(trailer) == 0 {
			return failed(ctx, c, err)
		}
		return broken(ctx, c, err, trailer)
	}
}
