package call

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// What grpc-go itself says when a call has another number of messages than its method.
var (
	errNoRequest   = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	errTwoRequests = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	errTwoReplies  = status.Error(codes.Internal, "cardinality violation: more than one response message for non-server-streaming RPC")
	errNoReply     = status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")

	errStopped = status.Error(codes.Canceled, "the call has ended; no more requests are read")
)

// Accepted is the stream of a gRPC server's unknown-service handler, made into that of one known method: the context carries the call,
// frames know their message, and the number of messages is checked, which grpc-go does only for methods that it knows.
type Accepted struct {
	grpc.ServerStream
	ctx     context.Context
	call    *Call
	run     func(func())
	single  single
	replied bool

	reader *reader // of client-streaming calls
}

// Accept returns ss as the stream of the call c, whose context is ctx, that of ss or one made from it. On client-streaming calls a goroutine
// reads from ss, since nothing else can end a read from a gRPC stream before its handler has returned: run starts it, as sync.WaitGroup.Go does,
// and whoever owns run waits for it. It ends soon after the gRPC handler has returned.
func Accept(ctx context.Context, c *Call, ss grpc.ServerStream, run func(func())) *Accepted {
	s := &Accepted{ServerStream: ss, ctx: NewContext(ctx, c), call: c, run: run}
	if c.Method.Kind().Client {
		s.reader = &reader{stop: make(chan struct{})}
	}
	c.base = s
	return s
}

// End takes the error of the chain and returns the call's: that a reply is missing is found out here.
func (s *Accepted) End(err error) error {
	s.stopRequests()
	if err == nil && !s.replied && !s.call.Method.Kind().Server {
		return errNoReply
	}
	return err
}

// Context returns the context with the call in it.
func (s *Accepted) Context() context.Context { return s.ctx }

// SendMsg sends one reply. A second one is refused unless the method streams replies.
func (s *Accepted) SendMsg(m any) error {
	if s.replied && !s.call.Method.Kind().Server {
		return errTwoReplies
	}
	s.replied = true
	if f, ok := m.(*Frame); ok && f.err == nil {
		f.Describe(s.call.Method.Desc.Output())
	}
	return s.ServerStream.SendMsg(m)
}

// SetHeader merges md into the header.
func (s *Accepted) SetHeader(md metadata.MD) error {
	if len(md) == 0 {
		return nil
	}
	return s.ServerStream.SetHeader(md)
}

// RecvMsg takes the next request, or io.EOF.
func (s *Accepted) RecvMsg(m any) error {
	if s.call.Method.Kind().Client {
		return s.reader.receive(s, m)
	}
	return s.single.deliver(m, s.receiveOnly)
}

// receiveOnly reads the one request and the end that must follow it.
func (s *Accepted) receiveOnly(m any) error {
	if err := s.ServerStream.RecvMsg(m); errors.Is(err, io.EOF) {
		return errNoRequest
	} else if err != nil {
		return err
	}
	if f, ok := m.(*Frame); ok {
		f.Describe(s.call.Method.Desc.Input())
	}
	var more Frame
	err := s.ServerStream.RecvMsg(&more)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	more.Release()
	return errTwoRequests
}

func (s *Accepted) peek() (*Frame, error) { return s.single.peek(s.receiveOnly) }

func (s *Accepted) look() *Frame { return s.single.look() }

func (s *Accepted) stopRequests() {
	if s.reader != nil {
		s.reader.close()
	}
}

func (s *Accepted) release() { s.single.release() }

// reader reads requests from the gRPC stream on a goroutine of its own, one at a time and only when asked, so that flow control is kept.
type reader struct {
	once    sync.Once
	stop    chan struct{}
	want    chan struct{}
	got     chan error
	in      Frame // belongs to the goroutine between want and got
	started bool
	err     error
}

func (r *reader) close() { r.once.Do(func() { close(r.stop) }) }

// receive takes the next request, or the error that ended them, or returns when the reader is closed.
func (r *reader) receive(s *Accepted, m any) error {
	if r.err != nil {
		return r.err
	}
	if !r.started {
		r.started = true
		r.want, r.got = make(chan struct{}), make(chan error)
		s.run(func() { r.loop(s.ServerStream) })
	}
	select {
	case <-r.stop:
		return errStopped
	case r.want <- struct{}{}:
	}
	select {
	case <-r.stop:
		return errStopped
	case r.err = <-r.got:
	}
	if r.err != nil {
		return r.err
	}
	r.in.Describe(s.call.Method.Desc.Input())
	if f, ok := m.(*Frame); ok {
		f.Release()
		*f, r.in = r.in, Frame{}
		return nil
	}
	defer r.in.Release()
	return unmarshal(&r.in, m)
}

func (r *reader) loop(ss grpc.ServerStream) {
	for {
		select {
		case <-r.stop:
			return
		case <-r.want:
		}
		err := ss.RecvMsg(&r.in)
		select {
		case <-r.stop:
			r.in.Release()
			return
		case r.got <- err:
		}
		if err != nil {
			return
		}
	}
}
