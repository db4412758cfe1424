package call

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Handler runs one call: the whole chain, then the backend. The stream's context carries the *Call. The error is the call's status;
// messages and headers have gone through the stream by then, and the trailer is complete. It returns only when nothing touches the
// stream any more.
type Handler func(stream grpc.ServerStream) error

// Stream is a grpc.ServerStream in memory, for doors that do not speak gRPC. It is synchronous: SendMsg runs the door's function on the
// chain's goroutine, so a slow reader slows the backend. It has no locks; RecvMsg and SendMsg may run on two goroutines, as in gRPC.
type Stream struct {
	ctx       callContext
	call      *Call
	requests  func() (*Frame, error)
	message   func(*Frame) error
	onHeader  func(metadata.MD) error
	header    metadata.MD
	trailer   metadata.MD
	committed bool
	replied   bool
	single    single
	stopped   atomic.Bool
	onStop    func()
}

// NewStream returns a stream for the call c. requests returns the next request frame, which it hands over, and io.EOF after the last;
// message is given each reply, borrowed; header, which may be nil, is called once, when the header is sent: before the first reply, or
// earlier. It is not called if the call ends without either; Header has what was set then.
//
// The context gets the call, its forwarded metadata as incoming metadata, a grpc.ServerTransportStream, and the call's peer; if it has none, that of
// ctx, else one that names the door. A requests function that may block must return when ctx is done; see OnStop for the other case.
func NewStream(ctx context.Context, c *Call, requests func() (*Frame, error), message func(*Frame) error, header func(metadata.MD) error) *Stream {
	s := &Stream{call: c, requests: requests, message: message, onHeader: header}
	s.ctx = callContext{ctx, c, s}
	c.base = s
	return s
}

// One returns the requests function of a call with a single request.
func One(f *Frame) func() (*Frame, error) {
	return func() (*Frame, error) {
		if f == nil {
			return nil, io.EOF
		}
		one := f
		f = nil
		return one, nil
	}
}

// OnStop registers what makes a blocked requests function return early, when the backend has ended the call and wants no more requests:
// until it returns, the handler does not. f runs on another goroutine than requests, at most once. Doors whose requests never block need
// none. It must be called before the handler runs.
func (s *Stream) OnStop(f func()) { s.onStop = f }

// Context returns the call's context.
func (s *Stream) Context() context.Context { return &s.ctx }

// SetHeader merges md into the header, unless it has been sent.
func (s *Stream) SetHeader(md metadata.MD) error {
	if len(md) == 0 {
		return nil
	}
	if s.committed {
		return status.Error(codes.Internal, "set header after it was sent")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader sends the header, once.
func (s *Stream) SendHeader(md metadata.MD) error {
	if s.committed {
		return status.Error(codes.Internal, "send header after it was sent")
	}
	if err := s.SetHeader(md); err != nil {
		return err
	}
	return s.commit()
}

func (s *Stream) commit() error {
	if s.committed {
		return nil
	}
	s.committed = true
	if s.onHeader == nil {
		return nil
	}
	return s.onHeader(s.header)
}

// SetTrailer merges md into the trailer.
func (s *Stream) SetTrailer(md metadata.MD) {
	if len(md) > 0 {
		s.trailer = metadata.Join(s.trailer, md)
	}
}

// Header returns the header set so far.
func (s *Stream) Header() metadata.MD { return s.header }

// Trailer returns the trailer; it is complete once the handler has returned.
func (s *Stream) Trailer() metadata.MD { return s.trailer }

// SendMsg gives the door one reply.
func (s *Stream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if s.replied && !s.call.Method.Kind().Server {
		return errTwoReplies
	}
	f, ok := m.(*Frame)
	switch {
	case !ok:
		msg, ok := m.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "send %T: not a protobuf message", m)
		}
		wire, err := proto.Marshal(msg)
		if err != nil {
			return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
		}
		f = NewFrame(s.call.Method.Desc.Output(), wire)
	case f.err != nil:
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", f.err)
	default:
		f.Describe(s.call.Method.Desc.Output())
	}
	if err := s.commit(); err != nil {
		return err
	}
	s.replied = true
	return s.message(f)
}

// RecvMsg takes the next request, or io.EOF.
func (s *Stream) RecvMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if s.call.Method.Kind().Client {
		return s.receive(m)
	}
	return s.single.deliver(m, s.receiveOnly)
}

func (s *Stream) receiveOnly(m any) error {
	err := s.receive(m)
	if errors.Is(err, io.EOF) {
		return errNoRequest
	}
	return err
}

func (s *Stream) receive(m any) error {
	if s.stopped.Load() {
		return errStopped
	}
	in, err := s.requests()
	if err != nil {
		if s.stopped.Load() {
			return errStopped
		}
		return err
	}
	in.Describe(s.call.Method.Desc.Input())
	if f, ok := m.(*Frame); ok {
		f.Release()
		*f = *in
		return nil
	}
	defer in.Release()
	return unmarshal(in, m)
}

func (s *Stream) peek() (*Frame, error) {
	return s.single.peek(s.receiveOnly)
}

func (s *Stream) look() *Frame { return s.single.look() }

func (s *Stream) stopRequests() {
	if s.stopped.Swap(true) {
		return
	}
	if s.onStop != nil {
		s.onStop()
	}
}

func (s *Stream) release() { s.single.release() }

// transportStream is what grpc.SetHeader, grpc.SetTrailer and grpc.Method find in the context.
type transportStream Stream

// Method returns the full method.
func (t *transportStream) Method() string { return t.call.Method.FullMethod }

// SetHeader is the stream's.
func (t *transportStream) SetHeader(md metadata.MD) error { return (*Stream)(t).SetHeader(md) }

// SendHeader is the stream's.
func (t *transportStream) SendHeader(md metadata.MD) error { return (*Stream)(t).SendHeader(md) }

// SetTrailer is the stream's.
func (t *transportStream) SetTrailer(md metadata.MD) error {
	(*Stream)(t).SetTrailer(md)
	return nil
}
