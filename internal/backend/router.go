// Package backend is where the chain ends: it hands each call to the connection of the backend that owns its method, or to a service
// compiled into the mesh.
package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

// Options are what a router can do besides forwarding. The zero value forwards.
type Options struct {
	// Attempts returns what guards the attempts at a method's backend, such as retries and a breaker: it is called in place of attempt, which makes
	// one. Nil, or nil for a method: nothing, and calls go straight to the connection. It is asked when a method is first called in a snapshot.
	Attempts func(m *catalog.Method, attempt grpc.Streamer) grpc.Streamer
	// Credentials tells backends who calls, innermost of all. Nil: nobody does.
	Credentials Credentials
}

// Credentials tell a backend on whose behalf the mesh calls it.
type Credentials interface {
	// Credential returns metadata, as key, value pairs, for one attempt of the call c at the backend that call.Target names. It is asked for each
	// attempt, perhaps by several goroutines at once; c is to be read only. An error, a status, ends the attempt before anything is sent.
	Credential(ctx context.Context, c *call.Call) ([]string, error)
}

// Router hands calls to backends. It is safe for concurrent use.
type Router struct {
	conns   func(backend string) *dial.Conn
	locals  map[string]*Local
	options Options
	targets addresses
}

// New returns a router that finds a backend's connection with conns, which returns nil for a backend it does not know and is called for
// every attempt, so connections may change. locals are the backends that are compiled in, by name; they are asked first, and have no attempts.
func New(conns func(backend string) *dial.Conn, locals map[string]*Local, o Options) *Router {
	return &Router{conns: conns, locals: locals, options: o}
}

// Handle is the chain's final grpc.StreamHandler. The backend gets the exact kind of call, the messages byte for byte, the deadline, and
// as metadata what call.Forward holds, what interceptors have put into the context's outgoing metadata, and credentials, nothing else.
// Header, trailer and status come back as the backend sent them. It fails fast with UNAVAILABLE while the backend is down.
func (r *Router) Handle(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	c := call.FromContext(ctx)
	if l := r.locals[c.Method.Backend.Name]; l != nil {
		return l.handle(c, stream)
	}
	if c.Method.Kind() != (catalog.Kind{}) {
		return r.streaming(ctx, c, stream)
	}
	return r.one(ctx, c, stream)
}

// one makes a unary call.
func (r *Router) one(ctx context.Context, c *call.Call, stream grpc.ServerStream) error {
	defer c.EndAttempts()
	if guard := r.guard(c.Method); guard != nil {
		return call.Bare(r.guarded(ctx, c, guard, stream))
	}
	return call.Bare(r.unary(ctx, c, stream))
}

type guardKey struct{ r *Router }

// guard returns what guards the attempts of a method's calls, or nil.
func (r *Router) guard(m *catalog.Method) grpc.Streamer {
	if r.options.Attempts == nil {
		return nil
	}
	guard, _ := m.Memo(guardKey{r}, func() any { return r.options.Attempts(m, r.attempt) }).(grpc.Streamer)
	return guard
}

// unary makes the one attempt of a call without guards.
func (r *Router) unary(ctx context.Context, c *call.Call, stream grpc.ServerStream) error {
	a := &invocation{r: r, ctx: ctx, c: c}
	defer a.release()
	if err := stream.RecvMsg(&a.request); err != nil {
		return err
	}
	if err := malformed(&a.request); err != nil {
		return err
	}
	a.run()
	return a.pass(c, stream)
}

// guarded makes a unary call whose attempts are guarded.
func (r *Router) guarded(ctx context.Context, c *call.Call, guard grpc.Streamer, stream grpc.ServerStream) error {
	var f call.Frame
	defer f.Release()
	if err := stream.RecvMsg(&f); err != nil {
		return err
	}
	if err := malformed(&f); err != nil {
		return err
	}
	out, err := guard(ctx, unaryDesc, r.owner(c), c.Method.FullMethod)
	if err != nil {
		return err
	}
	if err := out.SendMsg(&f); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f.Release()
	if err := out.RecvMsg(&f); err != nil {
		return refuse(out, stream, err)
	}
	header, err := out.Header()
	if err != nil {
		return err
	}
	if err := stream.SetHeader(call.Reply(header)); err != nil {
		return err
	}
	stream.SetTrailer(call.Reply(out.Trailer()))
	f.Describe(c.Method.Desc.Output())
	return stream.SendMsg(&f)
}

// owner returns the connection of the backend that owns the call's method, for interceptors that want to know the target; nil if there is none.
func (r *Router) owner(c *call.Call) *grpc.ClientConn {
	if r.conns == nil {
		return nil
	}
	if conn := r.conns(c.Method.Backend.Name); conn != nil {
		return conn.ClientConn
	}
	return nil
}

var unaryDesc = &grpc.StreamDesc{}

// refuse passes on header and trailer of a unary call that failed: trailers-only if it came so.
func refuse(out grpc.ClientStream, stream grpc.ServerStream, err error) error {
	if header, headerErr := out.Header(); headerErr == nil && header != nil {
		if err := stream.SendHeader(call.Reply(header)); err != nil {
			return err
		}
	}
	stream.SetTrailer(call.Reply(out.Trailer()))
	return err
}

// streaming makes a call of any kind but unary.
func (r *Router) streaming(ctx context.Context, c *call.Call, stream grpc.ServerStream) error {
	defer c.EndAttempts()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Method.Kind().Client {
		return call.Bare(r.both(ctx, cancel, c, stream))
	}
	out, err := r.ask(ctx, c, stream)
	if err == nil {
		err = replies(c, out, stream)
	}
	return call.Bare(err)
}

// open begins the attempt of a call that is no unary one.
func (r *Router) open(ctx context.Context, c *call.Call) (grpc.ClientStream, error) {
	desc := c.Method.StreamDesc()
	guard := r.guard(c.Method)
	if guard == nil {
		return r.attempt(ctx, desc, nil, c.Method.FullMethod)
	}
	return guard(ctx, desc, r.owner(c), c.Method.FullMethod)
}

// ask sends the one request of a call with many replies.
func (r *Router) ask(ctx context.Context, c *call.Call, stream grpc.ServerStream) (grpc.ClientStream, error) {
	var f call.Frame
	defer f.Release()
	if err := stream.RecvMsg(&f); err != nil {
		return nil, err
	}
	if err := malformed(&f); err != nil {
		return nil, err
	}
	out, err := r.open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := out.SendMsg(&f); err != nil && !errors.Is(err, io.EOF) { // half-closes too
		return nil, err
	}
	return out, nil
}

// both makes a call that streams requests.
func (r *Router) both(ctx context.Context, cancel context.CancelFunc, c *call.Call, stream grpc.ServerStream) error {
	out, err := r.open(ctx, c)
	if err != nil {
		return err
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
	err = replies(c, out, stream)
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
func replies(c *call.Call, out grpc.ClientStream, stream grpc.ServerStream) error {
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
		stream.SetTrailer(call.Reply(out.Trailer()))
		if err == nil || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}
