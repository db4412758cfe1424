package interceptors_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// TestSecretsStayOutOfTheLog has secrets at every depth of a request that fails.
func TestSecretsStayOutOfTheLog(t *testing.T) {
	str, one, many := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	field := func(name string, n int32, typ *descriptorpb.FieldDescriptorProto_Type, label *descriptorpb.FieldDescriptorProto_Label, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), JsonName: proto.String(name), Number: proto.Int32(n), Type: typ, Label: label}
		if of != "" {
			f.TypeName = proto.String(of)
		}
		return f
	}
	marked := field("note", 3, str, one, "")
	marked.Options = &descriptorpb.FieldOptions{DebugRedact: proto.Bool(true)}
	msg := descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("s.proto"), Package: proto.String("s"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
			field("name", 1, str, one, ""), field("user_password", 2, str, one, ""), marked, field("child", 4, msg, one, ".s.M"), field("kids", 5, msg, many, ".s.M"), field("api_keys", 6, str, many, "")}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{{Name: proto.String("Do"), InputType: proto.String(".s.M"), OutputType: proto.String(".s.M")}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := snapshot(t, fd).Method("/s.S/Do")
	if m == nil {
		t.Fatal("no method")
	}
	desc := m.Desc.Input()
	set := func(msg protoreflect.Message, name, v string) {
		msg.Set(desc.Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOfString(v))
	}
	fill := func(msg protoreflect.Message) {
		set(msg, "name", "visible")
		set(msg, "user_password", "hunter2")
		set(msg, "note", "hunter2")
		msg.Mutable(desc.Fields().ByName("api_keys")).List().Append(protoreflect.ValueOfString("hunter2"))
		msg.SetUnknown(protoreflect.RawFields("\x9a\x3f\x07hunter2"))
	}
	in := dynamicpb.NewMessage(desc)
	fill(in)
	fill(in.Mutable(desc.Fields().ByName("child")).Message())
	kids := in.Mutable(desc.Fields().ByName("kids")).List()
	fill(kids.AppendMutable().Message())
	log, out := logger()
	_, _ = run(t.Context(), call.New(m, call.HTTP), marshal(t, in), func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&call.Frame{}); err != nil {
			return err
		}
		return errors.New("broken")
	}, interceptors.Errors(interceptors.Options{Logger: log}))
	if strings.Contains(out.String(), "hunter2") || strings.Count(out.String(), "visible") != 3 || !strings.Contains(out.String(), "REDACTED") {
		t.Errorf("log = %s", out)
	}
}
