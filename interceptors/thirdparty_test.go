package interceptors_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	validateinterceptor "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// validated is a service whose request has a name of at least three letters.
func validated(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	opts := &descriptorpb.FieldOptions{}
	proto.SetExtension(opts, validate.E_Field, validate.FieldRules_builder{String: validate.StringRules_builder{MinLen: proto.Uint64(3)}.Build()}.Build())
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("v.proto"), Package: proto.String("v"), Syntax: proto.String("proto3"), Dependency: []string{"buf/validate/validate.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("name"), JsonName: proto.String("name"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: opts}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Do"), InputType: proto.String(".v.M"), OutputType: proto.String(".v.M")},
			{Name: proto.String("Chat"), InputType: proto.String(".v.M"), OutputType: proto.String(".v.M"), ClientStreaming: proto.Bool(true), ServerStreaming: proto.Bool(true)}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestThirdPartyInterceptors puts interceptors of go-grpc-middleware, made for generated code, into the chain of calls that carry bytes.
func TestThirdPartyInterceptors(t *testing.T) {
	snap := snapshot(t, validated(t))
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	logger := logging.LoggerFunc(func(_ context.Context, _ logging.Level, msg string, fields ...any) {
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "grpc.method" || fields[i] == "grpc.code" {
				msg += " " + fields[i+1].(string)
			}
		}
		lines = append(lines, msg)
	})
	own := slices.DeleteFunc(interceptors.Default(interceptors.Options{Logger: discard()}), func(p interceptors.Policy) bool { return p.Name == "validate" })
	chain := slices.Concat(own, []interceptors.Policy{
		interceptors.Every("logging", logging.StreamServerInterceptor(logger, logging.WithLogOnEvents(logging.StartCall, logging.FinishCall, logging.PayloadReceived))),
		interceptors.Every("recovery", recovery.StreamServerInterceptor(recovery.WithRecoveryHandler(func(any) error { return status.Error(codes.DataLoss, "recovered") }))),
		interceptors.Every("validate", validateinterceptor.StreamServerInterceptor(validator))})
	named := func(name string) []byte {
		m := dynamicpb.NewMessage(snap.Method("/v.S/Do").Desc.Input())
		m.Set(m.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString(name))
		return marshal(t, m)
	}
	for _, door := range []call.Door{call.MCP, call.HTTP} {
		for _, method := range []string{"Do", "Chat"} {
			for _, c := range []struct {
				name string
				wire []byte
				want codes.Code
			}{
				{"valid", named("abcd"), codes.OK},
				{"invalid", named("ab"), codes.InvalidArgument},
				{"panic", named("panic"), codes.DataLoss},
			} {
				t.Run(string(door)+"/"+method+"/"+c.name, func(t *testing.T) {
					lines = nil
					final := func(srv any, s grpc.ServerStream) error {
						if c.name == "panic" {
							panic("x")
						}
						return echo(srv, s)
					}
					replies, err := run(t.Context(), call.New(snap.Method("/v.S/"+method), door), c.wire, final, chain...)
					if status.Code(err) != c.want || c.want == codes.OK && (len(replies) != 1 || string(replies[0]) != string(c.wire)) {
						t.Errorf("%x, %v, want %v", replies, err, c.want)
					}
					if log := strings.Join(lines, "\n"); !strings.Contains(log, "finished call "+method+" "+c.want.String()) || c.name == "valid" && !strings.Contains(log, "request received") {
						t.Errorf("log of the third party:\n%s", log)
					}
				})
			}
		}
	}
}
