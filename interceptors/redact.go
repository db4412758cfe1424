package interceptors

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// Redacted stands for a string that is kept out of results.
const Redacted = "[redacted]"

// Redact keeps the fields that the contract or the operator calls redact_result out of replies, at every door: a string becomes Redacted, all
// else is left out, whole maps too; a field that proto2 requires becomes its zero value. It works on the wire bytes, in one pass, and is the
// one exception besides result limits to messages passing untouched. What the contract does not know, unknown fields and the contents of a
// google.protobuf.Any, passes. A reply that cannot be read is refused, since it cannot be redacted.
func Redact(Options) Policy {
	return inHalves("redact", func(m *catalog.Method) *halves {
		set := m.Sensitive(toolschema.Output)
		if !set.Redacts() {
			return nil
		}
		return &halves{enter: func(_ *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
			return &redactedStream{stream, m, set}, nil
		}}
	})
}

type redactedStream struct {
	grpc.ServerStream
	method *catalog.Method
	set    *catalog.FieldSet
}

// SendMsg sends m without what is kept out.
func (s *redactedStream) SendMsg(m any) error {
	wire, err := wireOf(m)
	if err != nil {
		return err
	}
	r := redactor{out: make([]byte, 0, len(wire)+len(Redacted))}
	if !r.message(wire, s.set, maxDepth) {
		return call.Error(codes.Internal, "MALFORMED_REPLY", "the backend's reply is malformed, and fields of it are to be redacted",
			"hint", "the backend did its work, only its reply cannot be shown; do not repeat a call that changes something")
	}
	return s.ServerStream.SendMsg(call.NewFrame(s.method.Desc.Output(), r.out))
}

// wireOf returns the bytes of a message, borrowed if it is a frame.
func wireOf(m any) ([]byte, error) {
	if f, ok := m.(*call.Frame); ok {
		return f.Bytes(), nil
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, call.Error(codes.Internal, "NO_MESSAGE", "a reply is no protobuf message")
	}
	return proto.Marshal(msg)
}

// maxDepth is how deep messages may be nested, as in protobuf's own decoders.
const maxDepth = protowire.DefaultRecursionLimit

type redactor struct{ out []byte }

// message appends a message without what set keeps out. It is false if the bytes are malformed.
func (r *redactor) message(wire []byte, set *catalog.FieldSet, depth int) bool {
	if depth == 0 {
		return false
	}
	done := 0 // wire[done:i] goes out as it is
	for i := 0; i < len(wire); {
		num, typ, tag := protowire.ConsumeTag(wire[i:])
		if tag < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[i+tag:])
		if size < 0 {
			return false
		}
		next := i + tag + size
		if mark := set.Mark(num); mark != nil && (mark.Redact || mark.Within.Redacts()) {
			r.out = append(r.out, wire[done:i]...)
			done = next
			if mark.Redact {
				r.placeholder(mark.Field, typ)
			} else if !r.within(mark, num, typ, wire[i+tag:next], depth) {
				return false
			}
		}
		i = next
	}
	r.out = append(r.out, wire[done:]...)
	return true
}

// placeholder appends what stands for a field that is kept out.
func (r *redactor) placeholder(fd protoreflect.FieldDescriptor, typ protowire.Type) {
	text := fd.Kind() == protoreflect.StringKind && typ == protowire.BytesType
	if !text && fd.Cardinality() != protoreflect.Required {
		return
	}
	r.out = protowire.AppendTag(r.out, fd.Number(), typ)
	switch typ {
	case protowire.VarintType:
		r.out = append(r.out, 0)
	case protowire.Fixed32Type:
		r.out = protowire.AppendFixed32(r.out, 0)
	case protowire.Fixed64Type:
		r.out = protowire.AppendFixed64(r.out, 0)
	case protowire.StartGroupType:
		r.out = protowire.AppendTag(r.out, fd.Number(), protowire.EndGroupType)
	default:
		if !text {
			r.out = append(r.out, 0)
			return
		}
		r.out = protowire.AppendString(r.out, Redacted)
	}
}

// within appends a field whose message, or map entry, holds something that is kept out.
func (r *redactor) within(mark *catalog.FieldMark, num protowire.Number, typ protowire.Type, value []byte, depth int) bool {
	delimited := mark.Field.Kind() == protoreflect.GroupKind
	switch {
	case typ == protowire.BytesType && !delimited:
		body, _ := protowire.ConsumeBytes(value)
		if mark.Field.IsMap() {
			return r.sized(num, func() bool { return r.entry(mark.Within, body, depth) })
		}
		return r.sized(num, func() bool { return r.message(body, mark.Within, depth-1) })
	case typ == protowire.StartGroupType && delimited:
		body, _ := protowire.ConsumeGroup(num, value)
		r.out = protowire.AppendTag(r.out, num, protowire.StartGroupType)
		ok := r.message(body, mark.Within, depth-1)
		r.out = protowire.AppendTag(r.out, num, protowire.EndGroupType)
		return ok
	}
	return true // of another type than the contract says, and so unknown to every reader: it is left out
}

// entry appends a map entry, whose value is a message.
func (r *redactor) entry(set *catalog.FieldSet, wire []byte, depth int) bool {
	const value = 2
	for len(wire) > 0 {
		num, typ, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[tag:])
		if size < 0 {
			return false
		}
		if num == value && typ == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(wire[tag:])
			if !r.sized(num, func() bool { return r.message(body, set, depth-1) }) {
				return false
			}
		} else {
			r.out = append(r.out, wire[:tag+size]...)
		}
		wire = wire[tag+size:]
	}
	return true
}

// sized appends a field of the bytes that body appends, with their number before them.
func (r *redactor) sized(num protowire.Number, body func() bool) bool {
	r.out = protowire.AppendTag(r.out, num, protowire.BytesType)
	start := len(r.out)
	if !body() {
		return false
	}
	n := len(r.out) - start
	prefix := protowire.SizeVarint(uint64(n))
	for range prefix {
		r.out = append(r.out, 0)
	}
	copy(r.out[start+prefix:], r.out[start:start+n])
	_ = protowire.AppendVarint(r.out[:start], uint64(n)) // there is room
	return true
}
