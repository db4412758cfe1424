package call

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// keepBytes is the largest request that is kept until the call's end although nobody peeked at it, so that the log can show it.
const keepBytes = 4 << 10

// single is the request of a call that has only one: peeked at most once, delivered once.
type single struct {
	frame     Frame // valid if kept
	kept      bool
	err       error
	peeked    bool
	delivered bool
}

// peek returns the request, which receive reads if nobody has yet.
func (s *single) peek(receive func(any) error) (*Frame, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.peeked:
		return &s.frame, nil
	case s.delivered:
		return nil, errors.New("peek at the request: it has been received already")
	}
	s.peeked = true
	if s.err = receive(&s.frame); s.err != nil {
		return nil, s.err
	}
	s.kept = true
	return &s.frame, nil
}

// deliver gives m the request: the peeked one, or what receive reads. After it there is only io.EOF, or the error that there was.
func (s *single) deliver(m any, receive func(any) error) error {
	switch {
	case s.err != nil:
		return s.err
	case s.delivered:
		return io.EOF
	}
	s.delivered = true
	f, isFrame := m.(*Frame)
	if s.peeked {
		if !isFrame {
			return unmarshal(&s.frame, m)
		}
		s.frame.data.Ref()
		f.Release()
		*f = s.frame
		return nil
	}
	s.err = receive(m)
	if s.err == nil && isFrame && f.Len() <= keepBytes {
		f.data.Ref()
		s.frame, s.kept = *f, true
	}
	return s.err
}

// look returns the request if it is at hand.
func (s *single) look() *Frame {
	if !s.kept {
		return nil
	}
	return &s.frame
}

func (s *single) release() {
	if s.kept {
		s.frame.Release()
	}
}

// unmarshal decodes f into a message that is no frame.
func unmarshal(f *Frame, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "receive into %T: not a protobuf message", m)
	}
	if err := unmarshalBytes(f.Bytes(), msg); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// noTypes resolves nothing: extensions stay unknown fields. Types of this process must not decide how a backend's bytes are read.
var noTypes = new(protoregistry.Types)

// unmarshalBytes decodes bytes from outside. dynamicpb of protobuf v1.36.12 panics on some map entries, hence the recover.
func unmarshalBytes(wire []byte, msg proto.Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = malformed(msg.ProtoReflect().Descriptor(), r)
		}
	}()
	if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: noTypes}).Unmarshal(wire, msg); err != nil {
		return malformed(msg.ProtoReflect().Descriptor(), err)
	}
	return nil
}

func malformed(desc protoreflect.MessageDescriptor, why any) error {
	return &malformedError{name: desc.FullName(), why: why}
}
