package interceptors_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// snapshot returns a catalog of backend "echo" with the files and what they import.
func snapshot(t testing.TB, files ...protoreflect.FileDescriptor) *catalog.Snapshot {
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
	for _, fd := range files {
		add(fd)
	}
	s, err := catalog.Static("echo", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func method(t testing.TB, name string) *catalog.Method {
	t.Helper()
	m := snapshot(t, testpb.File_grpc_testing_test_proto).Method("/grpc.testing.TestService/" + name)
	if m == nil {
		t.Fatalf("no method %q", name)
	}
	return m
}

// run makes a call with one request through the interceptors.
func run(ctx context.Context, c *call.Call, wire []byte, final grpc.StreamHandler, chain ...interceptors.Policy) (replies [][]byte, err error) {
	s := call.NewStream(ctx, c, call.One(call.NewFrame(nil, wire)), func(f *call.Frame) error {
		replies = append(replies, bytes.Clone(f.Bytes()))
		return nil
	}, nil)
	err = interceptors.Chain(final, chain...)(s)
	return replies, err
}

// echo answers each request with itself.
func echo(_ any, s grpc.ServerStream) error {
	for {
		var f call.Frame
		if err := s.RecvMsg(&f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(call.NewFrame(nil, f.Bytes())); err != nil {
			return err
		}
		f.Release()
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logger returns a logger and what it has written.
func logger() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})), &b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
