package call_test

import (
	"bytes"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/call"
)

func request(t testing.TB, body string) []byte {
	t.Helper()
	wire, err := proto.Marshal(&testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte(body)}})
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// TestFrameReferences follows one message from a reader through a codec into a writer, and counts.
func TestFrameReferences(t *testing.T) {
	desc := (&testpb.SimpleRequest{}).ProtoReflect().Descriptor()
	wire := request(t, "hello, hello")
	for _, parts := range []int{1, 3} {
		pool := &counting{}
		var split [][]byte
		for i := range parts {
			split = append(split, wire[i*len(wire)/parts:(i+1)*len(wire)/parts])
		}
		data := pool.pooled(split...)
		var f call.Frame
		f.Describe(desc)
		if err := (call.Codec{}).Unmarshal(data, &f); err != nil {
			t.Fatal(err)
		}
		data.Free() // as grpc-go does
		if f.Len() != len(wire) || !bytes.Equal(f.Bytes(), wire) {
			t.Errorf("%d parts: Bytes() = %x, want %x", parts, f.Bytes(), wire)
		}
		m, err := f.Message()
		if err != nil {
			t.Fatal(err)
		}
		again, _ := f.Message()
		if m != again {
			t.Error("Message decodes twice")
		}
		sent, err := (call.Codec{}).Marshal(&f)
		if err != nil {
			t.Fatal(err)
		}
		kept := f.Retain()
		f.Release()
		f.Release()
		if got := sent.Materialize(); !bytes.Equal(got, wire) {
			t.Errorf("%d parts: what was sent = %x after Release, want %x", parts, got, wire)
		}
		sent.Free()
		if !bytes.Equal(kept.Bytes(), wire) {
			t.Errorf("%d parts: retained = %x, want %x", parts, kept.Bytes(), wire)
		}
		kept.Release()
		if out, err := proto.Marshal(m); err != nil || !bytes.Equal(out, wire) {
			t.Errorf("decoded message after Release: %x, %v, want %x", out, err, wire)
		}
		if n := pool.out.Load(); n != 0 {
			t.Errorf("%d parts: %d buffers are not released", parts, n)
		}
	}
}

func TestFrameAsMessage(t *testing.T) {
	wire := request(t, "x")
	f := call.NewFrame((&testpb.SimpleRequest{}).ProtoReflect().Descriptor(), wire)
	if out, err := proto.Marshal(f); err != nil || !bytes.Equal(out, wire) {
		t.Errorf("proto.Marshal(frame) = %x, %v, want %x", out, err, wire)
	}
	out := &testpb.SimpleRequest{}
	if err := (call.Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, out); err != nil || string(out.GetPayload().GetBody()) != "x" {
		t.Errorf("Codec.Unmarshal into a generated message: %v, %v", out, err)
	}
	data, err := call.Codec{}.Marshal(out)
	if err != nil || !bytes.Equal(data.Materialize(), wire) {
		t.Errorf("Codec.Marshal of a generated message: %x, %v", data.Materialize(), err)
	}
}

// withMap is message M { map<string, string> m = 6; }.
func withMap(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	str, one := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("m.proto"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{{
		Name: proto.String("M"),
		Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("m"), JsonName: proto.String("m"), Number: proto.Int32(6), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
			Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".M.MEntry")}},
		NestedType: []*descriptorpb.DescriptorProto{{Name: proto.String("MEntry"), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			Field: []*descriptorpb.FieldDescriptorProto{
				{Name: proto.String("key"), JsonName: proto.String("key"), Number: proto.Int32(1), Type: str, Label: one},
				{Name: proto.String("value"), JsonName: proto.String("value"), Number: proto.Int32(2), Type: str, Label: one}}}},
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().Get(0)
}

// TestMalformedFrame looks into frames that cannot be decoded, one of which makes dynamicpb panic: they must not be sent on.
func TestMalformedFrame(t *testing.T) {
	for name, wire := range map[string]string{
		"cut":              "\x0a\x05ab",
		"map entry (C100)": "\x32\x05\x0a\x01\x61\x08\x00",
	} {
		f := call.NewFrame(withMap(t), []byte(wire))
		if _, err := (call.Codec{}).Marshal(f); err != nil {
			t.Errorf("%s: Marshal before anybody looked: %v, want nil", name, err)
		}
		if n := 0; f.ProtoReflect().IsValid() {
			f.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { n++; return true })
			if n != 0 {
				t.Errorf("%s: ProtoReflect has %d fields, want none", name, n)
			}
		}
		if f.Err() == nil {
			t.Errorf("%s: Err() = nil", name)
		}
		if _, err := (call.Codec{}).Marshal(f); err == nil {
			t.Errorf("%s: Marshal after a look: nil, want the error", name)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x32\x05\x0a\x01\x61\x08\x00"), uint8(3))
	f.Add([]byte("\x0a\x05ab"), uint8(1))
	f.Add([]byte{}, uint8(0))
	desc := withMap(f)
	f.Fuzz(func(t *testing.T, wire []byte, cut uint8) {
		pool := &counting{}
		at := min(int(cut), len(wire))
		data := pool.pooled(wire[:at], wire[at:])
		var fr call.Frame
		fr.Describe(desc)
		if err := (call.Codec{}).Unmarshal(data, &fr); err != nil {
			t.Fatal(err)
		}
		data.Free()
		m, err := fr.Message()
		if err == nil && m == nil || err != nil && m != nil {
			t.Fatalf("Message() = %v, %v", m, err)
		}
		if err == nil && !call.WellFormed(wire) {
			t.Fatalf("%x decodes but is not well formed", wire)
		}
		fr.ProtoReflect()
		sent, merr := call.Codec{}.Marshal(&fr)
		if (merr == nil) != (err == nil) {
			t.Fatalf("Marshal: %v, Message: %v", merr, err)
		}
		fr.Release()
		if merr == nil {
			if !bytes.Equal(sent.Materialize(), wire) {
				t.Fatalf("sent %x, want %x", sent.Materialize(), wire)
			}
			sent.Free()
		}
		if n := pool.out.Load(); n != 0 {
			t.Fatalf("%d buffers are not released", n)
		}
	})
}

func FuzzWellFormed(f *testing.F) {
	f.Add([]byte("\x0a\x05ab"))
	f.Add([]byte("\x0b\x08\x01\x0c"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		if call.WellFormed(wire) && call.WellFormed(append(bytes.Clone(wire), 0x0a)) {
			t.Errorf("%x and a lone tag after it are both well formed", wire)
		}
	})
}
