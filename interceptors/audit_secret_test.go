package interceptors_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb" // linked in, so that protoregistry has the file
	_ "google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// canary is what no record may hold.
const canary = "hunter2-canary"

// vault is a service whose request can hold secrets in every way that there is.
func vault(t testing.TB) *catalog.Method {
	t.Helper()
	str, raw, msg := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum(), descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	field := func(name string, n int32, typ *descriptorpb.FieldDescriptorProto_Type, label *descriptorpb.FieldDescriptorProto_Label, of string, o *descriptorpb.FieldOptions) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), JsonName: proto.String(name), Number: proto.Int32(n), Type: typ, Label: label, Options: o}
		if of != "" {
			f.TypeName = proto.String(of)
		}
		return f
	}
	own := &descriptorpb.FieldOptions{}
	proto.SetExtension(own, toolwayv1.E_Field, &toolwayv1.FieldOptions{Sensitive: true})
	entry := func(name string, typ *descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: proto.String(name), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, str, one, "", nil), field("value", 2, typ, one, of, nil)}}
	}
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("vault.proto"), Package: proto.String("vault"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/any.proto", "google/protobuf/struct.proto", "toolway/v1/options.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
			field("shown", 1, str, one, "", nil), field("marked", 2, str, one, "", &descriptorpb.FieldOptions{DebugRedact: proto.Bool(true)}), field("pin", 3, raw, one, "", own),
			field("user_password", 4, str, one, "", nil), field("api_keys", 5, str, many, "", nil), field("child", 6, msg, one, ".vault.M", nil), field("kids", 7, msg, many, ".vault.M", nil),
			field("labels", 8, msg, many, ".vault.M.LabelsEntry", nil), field("byname", 9, msg, many, ".vault.M.BynameEntry", nil), field("any", 10, msg, one, ".google.protobuf.Any", nil),
			field("extra", 11, msg, one, ".google.protobuf.Struct", nil), field("secrets", 12, msg, many, ".vault.M", nil)},
			NestedType: []*descriptorpb.DescriptorProto{entry("LabelsEntry", str, ""), entry("BynameEntry", msg, ".vault.M")}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Do"), InputType: proto.String(".vault.M"), OutputType: proto.String(".vault.M")},
			{Name: proto.String("Chat"), InputType: proto.String(".vault.M"), OutputType: proto.String(".vault.M"), ClientStreaming: proto.Bool(true), ServerStreaming: proto.Bool(true)}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot(t, fd).Method("/vault.S/Do")
}

// fillVault puts the canary wherever a secret can be, as far as choices says, and "visible" beside it.
func fillVault(m protoreflect.Message, choices *[]byte, depth int) {
	next := func() byte {
		if len(*choices) == 0 {
			return 0
		}
		c := (*choices)[0]
		*choices = (*choices)[1:]
		return c
	}
	fields := m.Descriptor().Fields()
	set := func(n protoreflect.FieldNumber, v any) { m.Set(fields.ByNumber(n), protoreflect.ValueOf(v)) }
	set(1, "visible")
	bits := next()
	for i, put := range []func(){
		func() { set(2, canary) },
		func() { set(3, []byte(canary)) },
		func() { set(4, canary) },
		func() { m.Mutable(fields.ByNumber(5)).List().Append(protoreflect.ValueOf(canary)) },
		func() {
			labels := m.Mutable(fields.ByNumber(8)).Map()
			labels.Set(protoreflect.ValueOf("Auth-Token").MapKey(), protoreflect.ValueOf(canary))
			labels.Set(protoreflect.ValueOf("team").MapKey(), protoreflect.ValueOf("visible"))
		},
		func() {
			a := m.Mutable(fields.ByNumber(10)).Message()
			a.Set(a.Descriptor().Fields().ByNumber(1), protoreflect.ValueOf("type.example/"+canary))
			a.Set(a.Descriptor().Fields().ByNumber(2), protoreflect.ValueOf([]byte(canary)))
		},
		func() {
			fs := m.Mutable(fields.ByNumber(11)).Message()
			values := fs.Mutable(fs.Descriptor().Fields().ByNumber(1)).Map()
			for _, key := range []string{"password", "city"} {
				v := values.NewValue()
				text := map[string]string{"password": canary, "city": "visible"}[key]
				v.Message().Set(v.Message().Descriptor().Fields().ByName("string_value"), protoreflect.ValueOf(text))
				values.Set(protoreflect.ValueOf(key).MapKey(), v)
			}
		},
		func() { m.SetUnknown(protoreflect.RawFields("\x9a\x3f\x0e" + canary)) },
	} {
		if bits&(1<<i) != 0 {
			put()
		}
	}
	if depth > 4 {
		return
	}
	bits = next()
	if bits&1 != 0 {
		fillVault(m.Mutable(fields.ByNumber(6)).Message(), choices, depth+1)
	}
	for range int(bits>>1) & 3 {
		fillVault(m.Mutable(fields.ByNumber(7)).List().AppendMutable().Message(), choices, depth+1)
	}
	if bits&8 != 0 {
		byname := m.Mutable(fields.ByNumber(9)).Map()
		for _, key := range []string{"cookie", "plain"} {
			v := byname.NewValue()
			fillVault(v.Message(), choices, depth+1)
			byname.Set(protoreflect.ValueOf(key).MapKey(), v)
		}
	}
	if bits&16 != 0 {
		fillVault(m.Mutable(fields.ByNumber(12)).List().AppendMutable().Message(), choices, depth+1)
	}
}

// FuzzAuditHoldsNoSecret fills a request with secrets where the fuzzer says, adds credentials, and looks for them in the record.
func FuzzAuditHoldsNoSecret(f *testing.F) {
	f.Add([]byte{255, 255, 255, 255, 255, 255}, []byte(nil), uint8(0))
	f.Add([]byte{255, 1, 255, 8, 127, 1, 63}, []byte("\x0a\x03abc"), uint8(1))
	f.Add(bytes.Repeat([]byte{255, 9}, 40), []byte{0x32, 0xff}, uint8(2))
	f.Add(bytes.Repeat([]byte{16, 16, 255}, 20), []byte{0x0b}, uint8(3))
	do := vault(f)
	f.Fuzz(func(t *testing.T, choices, tail []byte, how uint8) {
		if bytes.Contains(tail, []byte("canary")) || bytes.Contains(choices, []byte("canary")) {
			return // the fuzzer has put it where it may be
		}
		in := dynamicpb.NewMessage(do.Desc.Input())
		fillVault(in, &choices, 0)
		wire := append(marshal(t, in), tail...)
		m := do
		if how&1 != 0 {
			m = do.Service.Methods[0] // Chat
		}
		c := call.New(m, call.HTTP)
		c.Credentials = call.Credentials{Bearer: canary, APIKey: canary}
		c.Key = canary
		c.Forward = metadata.MD{"baggage": {canary}}
		final := echo
		if how&2 != 0 {
			final = func(_ any, s grpc.ServerStream) error {
				if err := s.RecvMsg(&call.Frame{}); err != nil {
					return err
				}
				return call.Error(codes.InvalidArgument, "BAD", "cannot read "+canary)
			}
		}
		sink := &records{}
		_, _ = run(t.Context(), c, wire, final, audited(sink)...) // the bytes may be malformed
		line, err := audit.AppendJSON(nil, sink.last(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))[:12], "canary"} {
			if strings.Contains(string(line), form) {
				t.Fatalf("record holds a secret: %s", line)
			}
		}
		if len(tail) == 0 && !strings.Contains(string(line), "visible") && !sink.last(t).GetArgumentsCut() {
			t.Fatalf("record holds no arguments: %s", line)
		}
	})
}
