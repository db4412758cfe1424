package call

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	_ "google.golang.org/grpc/encoding/proto" // registers the codec that protoCodec names
)

// Frame is one message as wire bytes. It is a proto.Message too, so that interceptors made for generated messages work: it decodes
// itself, once, when somebody looks inside. A Frame is not safe for concurrent use.
//
// A stream's RecvMsg gives the frame a reference to the bytes, which Release drops; SendMsg borrows the frame. Whoever keeps the
// bytes past the return of SendMsg, or past Release, calls Retain or copies. The decoded message is a copy: it outlives the bytes.
//
// A frame that somebody looked into and that turned out to be malformed is refused when it is sent on, so that nobody has decided
// about an empty message in its place.
type Frame struct {
	data mem.BufferSlice
	flat []byte
	desc protoreflect.MessageDescriptor
	msg  proto.Message
	err  error
}

// NewFrame returns a frame that owns wire, which must not be changed afterwards. desc may be nil if nobody will look inside.
func NewFrame(desc protoreflect.MessageDescriptor, wire []byte) *Frame {
	whole := &struct { // the frame and the list of its one buffer, in one allocation
		frame Frame
		data  [1]mem.Buffer
	}{frame: Frame{desc: desc, flat: wire}}
	whole.data[0] = mem.SliceBuffer(wire)
	whole.frame.data = whole.data[:]
	return &whole.frame
}

// Set makes f hold the bytes of data, taking over one reference, and forgets what it held.
func (f *Frame) Set(desc protoreflect.MessageDescriptor, data mem.BufferSlice) {
	f.Release()
	f.desc, f.data = desc, data
}

// Describe tells f which message it holds. What was decoded as another message is forgotten.
func (f *Frame) Describe(desc protoreflect.MessageDescriptor) {
	if f.desc != desc {
		f.desc, f.msg, f.err = desc, nil, nil
	}
}

// Len is the number of wire bytes.
func (f *Frame) Len() int { return f.data.Len() }

// Buffers returns the wire bytes without copying. The reference stays f's; the slice is valid until Bytes, Message or Release is called.
func (f *Frame) Buffers() mem.BufferSlice { return f.data }

// Retain returns a frame with a reference of its own to the same bytes: it stays valid when f is released, and is to be released itself.
func (f *Frame) Retain() Frame {
	f.data.Ref()
	return *f
}

// Bytes returns the wire bytes as one slice, valid until Release and not to be changed. It copies only if they came in several buffers.
func (f *Frame) Bytes() []byte {
	if f.flat != nil {
		return f.flat
	}
	switch len(f.data) {
	case 0:
	case 1:
		f.flat = f.data[0].ReadOnlyData()
	default:
		whole := f.data.MaterializeToBuffer(mem.DefaultBufferPool())
		f.data.Free()
		f.data = mem.BufferSlice{whole}
		f.flat = whole.ReadOnlyData()
	}
	if f.flat == nil {
		f.flat = []byte{}
	}
	return f.flat
}

// Release drops the frame's reference to its bytes. It may be called more than once. The frame keeps its description and can be used again.
func (f *Frame) Release() {
	f.data.Free()
	f.data, f.flat, f.msg, f.err = nil, nil, nil, nil
}

// Message returns the decoded message. It decodes once; later calls return the same message, which must not be changed.
// Extensions stay unknown fields.
func (f *Frame) Message() (proto.Message, error) {
	if f.msg == nil && f.err == nil {
		f.msg, f.err = decode(f.desc, f.Bytes())
	}
	return f.msg, f.err
}

// Err says why the bytes are malformed, if somebody has looked and they are.
func (f *Frame) Err() error { return f.err }

// ProtoReflect returns the decoded message, or an empty one if the bytes are malformed: ask Message first where that matters.
// A malformed frame is refused when it is sent on.
func (f *Frame) ProtoReflect() protoreflect.Message {
	msg, err := f.Message()
	if err != nil {
		if f.desc == nil {
			return (*emptypb.Empty)(nil).ProtoReflect()
		}
		return dynamicpb.NewMessage(f.desc)
	}
	return msg.ProtoReflect()
}

// decode parses wire bytes from outside.
func decode(desc protoreflect.MessageDescriptor, wire []byte) (proto.Message, error) {
	if desc == nil {
		return nil, errors.New("message of unknown type")
	}
	m := dynamicpb.NewMessage(desc)
	if err := unmarshalBytes(wire, m); err != nil {
		return nil, err
	}
	return m, nil
}

type malformedError struct {
	name protoreflect.FullName
	why  any
}

func (e *malformedError) Error() string { return fmt.Sprintf("malformed %s: %v", e.name, e.why) }

// WellFormed says whether wire is a sequence of whole fields. It does not look inside nested messages.
func WellFormed(wire []byte) bool {
	for len(wire) > 0 {
		_, _, n := protowire.ConsumeField(wire)
		if n < 0 {
			return false
		}
		wire = wire[n:]
	}
	return true
}

// Codec is the gRPC codec of a door or backend connection: frames pass as they are, other messages as protobuf, under protobuf's own name.
// It is safe for concurrent use.
type Codec struct{}

var protoCodec = encoding.GetCodecV2("proto")

// Name is protobuf's, so that the content-subtype on the wire is the usual one.
func (Codec) Name() string { return "proto" }

// Marshal returns the bytes of a frame without copying, or encodes another message. It refuses a frame that is known to be malformed.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*Frame)
	if !ok {
		return protoCodec.Marshal(v)
	}
	if f.err != nil {
		return nil, f.err
	}
	f.data.Ref()
	return f.data, nil
}

// Unmarshal hands the bytes to a frame without copying, or decodes into another message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return protoCodec.Unmarshal(data, v)
	}
	data.Ref()
	f.Set(f.desc, data)
	return nil
}
