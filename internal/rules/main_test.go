package rules_test

import (
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

func snapshot(t testing.TB) *catalog.Snapshot {
	t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	add(testpb.File_grpc_testing_test_proto)
	add(logsv1.File_agentops_logs_v1_logs_proto)
	s, err := catalog.Static("echo", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func method(t testing.TB, name string) *catalog.Method {
	t.Helper()
	m := snapshot(t).Method(name)
	if m == nil {
		t.Fatalf("no method %q", name)
	}
	return m
}

const (
	unary  = "/grpc.testing.TestService/UnaryCall"
	duplex = "/grpc.testing.TestService/FullDuplexCall"
	search = "/agentops.logs.v1.LogService/SearchLogs"
)

// request is a message as the chain has it: decoded with the backend's own types.
func request(t testing.TB, m *catalog.Method, of proto.Message) proto.Message {
	t.Helper()
	wire, err := proto.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := call.NewFrame(m.Desc.Input(), wire).Message()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}
