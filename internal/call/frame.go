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
// bytes past the return of SendMsg, or past Release, calls Buffers and takes a reference of its own, or copies.
type Frame struct {
	data mem.BufferSlice
	flat []byte
	desc protoreflect.MessageDescriptor
	msg  proto.Message
	err  error
}

// NewFrame returns a frame that owns wire, which must not be changed afterwards. desc may be nil if nobody will look inside.
func NewFrame(desc protoreflect.MessageDescriptor, wire []byte) *Frame {
	return &Frame{desc: desc, data: mem.BufferSlice{mem.SliceBuffer(wire)}, flat: wire}
}

// Set makes f hold the bytes of data, taking over one reference, and forgets what it held.
func (f *Frame) Set(desc protoreflect.MessageDescriptor, data mem.BufferSlice) {
	f.Release()
	*f = Frame{desc: desc, data: data}
}

// Describe tells f which message it holds.
func (f *Frame) Describe(desc protoreflect.MessageDescriptor) { f.desc = desc }

// Len is the number of wire bytes.
func (f *Frame) Len() int { return f.data.Len() }

// Buffers returns the wire bytes without copying. The reference stays f's.
func (f *Frame) Buffers() mem.BufferSlice { return f.data }

// Bytes returns the wire bytes as one slice, valid until Release, copying only if they came in several buffers.
func (f *Frame) Bytes() []byte {
	if f.flat == nil {
		switch len(f.data) {
		case 0:
			f.flat = []byte{}
		case 1:
			f.flat = f.data[0].ReadOnlyData()
		default:
			f.flat = f.data.Materialize()
		}
	}
	return f.flat
}

// Release drops the frame's reference to its bytes. It may be called more than once.
func (f *Frame) Release() {
	f.data.Free()
	f.data, f.flat, f.msg, f.err = nil, nil, nil, nil
}

// Message returns the decoded message. It decodes once; later calls return the same message, which must not be changed.
func (f *Frame) Message() (proto.Message, error) {
	if f.msg == nil && f.err == nil {
		f.msg, f.err = decode(f.desc, f.Bytes())
	}
	return f.msg, f.err
}

// ProtoReflect returns the decoded message, or an empty one if the bytes are malformed: ask Message first where that matters.
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

// decode parses wire bytes from outside. dynamicpb of protobuf v1.36.12 panics on some map entries, hence the recover.
func decode(desc protoreflect.MessageDescriptor, wire []byte) (msg proto.Message, err error) {
	if desc == nil {
		return nil, errors.New("message of unknown type")
	}
	defer func() {
		if r := recover(); r != nil {
			msg, err = nil, fmt.Errorf("malformed %s: %v", desc.FullName(), r)
		}
	}()
	m := dynamicpb.NewMessage(desc)
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(wire, m); err != nil {
		return nil, fmt.Errorf("malformed %s: %w", desc.FullName(), err)
	}
	return m, nil
}

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

// Marshal returns the bytes of a frame without copying, or encodes another message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		f.data.Ref()
		return f.data, nil
	}
	return protoCodec.Marshal(v)
}

// Unmarshal hands the bytes to a frame without copying, or decodes into another message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*Frame); ok {
		data.Ref()
		f.Set(f.desc, data)
		return nil
	}
	return protoCodec.Unmarshal(data, v)
}
