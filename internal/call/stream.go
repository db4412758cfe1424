package call

import (
	"context"
	"io"

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
	ctx       context.Context
	requests  func() (*Frame, error)
	message   func(*Frame) error
	onHeader  func(metadata.MD) error
	header    metadata.MD
	trailer   metadata.MD
	committed bool
}

// NewStream returns a stream for the call c. requests returns the next request frame, which it hands over, and io.EOF after the last;
// message is given each reply, borrowed; header, which may be nil, is called once, before the first reply or at the end.
// The context gets the call, its forwarded metadata as incoming metadata, and a grpc.ServerTransportStream.
func NewStream(ctx context.Context, c *Call, requests func() (*Frame, error), message func(*Frame) error, header func(metadata.MD) error) *Stream {
	s := &Stream{requests: requests, message: message, onHeader: header}
	ctx = NewContext(ctx, c)
	ctx = metadata.NewIncomingContext(ctx, c.Forward)
	s.ctx = grpc.NewContextWithServerTransportStream(ctx, (*transportStream)(s))
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

// Context returns the call's context.
func (s *Stream) Context() context.Context { return s.ctx }

// SetHeader merges md into the header, unless it has been sent.
func (s *Stream) SetHeader(md metadata.MD) error {
	if s.committed {
		return status.Error(codes.Internal, "set header after it was sent")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader sends the header, once.
func (s *Stream) SendHeader(md metadata.MD) error {
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
func (s *Stream) SetTrailer(md metadata.MD) { s.trailer = metadata.Join(s.trailer, md) }

// Header returns the header set so far.
func (s *Stream) Header() metadata.MD { return s.header }

// Trailer returns the trailer; it is complete once the handler has returned.
func (s *Stream) Trailer() metadata.MD { return s.trailer }

// SendMsg gives the door one reply.
func (s *Stream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := s.commit(); err != nil {
		return err
	}
	f, ok := m.(*Frame)
	if !ok {
		msg, ok := m.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "send %T: not a protobuf message", m)
		}
		wire, err := proto.Marshal(msg)
		if err != nil {
			return status.Errorf(codes.Internal, "encode %T: %v", m, err)
		}
		f = NewFrame(msg.ProtoReflect().Descriptor(), wire)
	}
	return s.message(f)
}

// RecvMsg takes the next request, or io.EOF.
func (s *Stream) RecvMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	in, err := s.requests()
	if err != nil {
		return err
	}
	if f, ok := m.(*Frame); ok {
		f.Release()
		*f = *in
		return nil
	}
	defer in.Release()
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "receive into %T: not a protobuf message", m)
	}
	if err := proto.Unmarshal(in.Bytes(), msg); err != nil {
		return status.Errorf(codes.Internal, "decode %T: %v", m, err)
	}
	return nil
}

// transportStream is what grpc.SetHeader, grpc.SetTrailer and grpc.Method find in the context.
type transportStream Stream

func (t *transportStream) Method() string                  { return FromContext(t.ctx).Method.FullMethod }
func (t *transportStream) SetHeader(md metadata.MD) error  { return (*Stream)(t).SetHeader(md) }
func (t *transportStream) SendHeader(md metadata.MD) error { return (*Stream)(t).SendHeader(md) }
func (t *transportStream) SetTrailer(md metadata.MD) error {
	(*Stream)(t).SetTrailer(md)
	return nil
}
