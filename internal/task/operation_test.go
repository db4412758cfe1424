package task_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/task"
)

// operations is a backend whose method Build answers with an operation, which is done after some looks at it.
type operations struct {
	mu        sync.Mutex
	builds    int
	looks     int
	doneAfter int // looks; never if it is 0
	cancelled bool
	fails     bool
	asked     chan string
}

// raw is the codec of a server that takes and gives bytes.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = raw{}

func (o *operations) handle(_ any, s grpc.ServerStream) error {
	var in []byte
	if err := s.RecvMsg(&in); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(s)
	o.mu.Lock()
	defer o.mu.Unlock()
	out := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "operations/7")
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "Build":
		o.builds++
	case "CancelOperation":
		o.cancelled, out = true, nil
	case "GetOperation":
		if !strings.Contains(string(in), "operations/7") {
			return status.Errorf(codes.NotFound, "no operation %q", in)
		}
		o.looks++
		select {
		case o.asked <- "":
		default:
		}
		done := o.doneAfter > 0 && o.looks >= o.doneAfter
		if done || o.cancelled {
			out = protowire.AppendVarint(protowire.AppendTag(out, 3, protowire.VarintType), 1)
		}
		failure := &statusProto{code: int32(codes.DataLoss), message: "torn"}
		if o.cancelled {
			failure.code = int32(codes.Canceled)
		}
		if o.cancelled || done && o.fails {
			out = protowire.AppendBytes(protowire.AppendTag(out, 4, protowire.BytesType), failure.wire())
		}
	}
	return s.SendMsg(&out)
}

type statusProto struct {
	code    int32
	message string
}

func (s *statusProto) wire() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(s.code)) //nolint:gosec // a code
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), s.message)
}

// newOperations returns a fixture with that backend. Its contract is what the real google.longrunning has, as far as it matters.
func newOperations(t *testing.T, o *operations) *fixture {
	t.Helper()
	str := func(name string, n int32) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	method := func(name, in, out string) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: &in, OutputType: &out}
	}
	done := str("done", 3)
	done.Type = descriptorpb.FieldDescriptorProto_TYPE_BOOL.Enum()
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(emptypb.File_google_protobuf_empty_proto),
		{
			Name: proto.String("google/longrunning/operations.proto"), Package: proto.String("google.longrunning"), Syntax: proto.String("proto3"), Dependency: []string{"google/protobuf/empty.proto"},
			MessageType: []*descriptorpb.DescriptorProto{
				{Name: proto.String("Operation"), Field: []*descriptorpb.FieldDescriptorProto{str("name", 1), done}},
				{Name: proto.String("GetOperationRequest"), Field: []*descriptorpb.FieldDescriptorProto{str("name", 1)}},
				{Name: proto.String("CancelOperationRequest"), Field: []*descriptorpb.FieldDescriptorProto{str("name", 1)}},
			},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Operations"), Method: []*descriptorpb.MethodDescriptorProto{
				method("GetOperation", ".google.longrunning.GetOperationRequest", ".google.longrunning.Operation"),
				method("CancelOperation", ".google.longrunning.CancelOperationRequest", ".google.protobuf.Empty"),
			}}},
		},
		{
			Name: proto.String("build.proto"), Package: proto.String("build.v1"), Syntax: proto.String("proto3"), Dependency: []string{"google/longrunning/operations.proto", "google/protobuf/empty.proto"},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Builds"), Method: []*descriptorpb.MethodDescriptorProto{
				method("Build", ".google.protobuf.Empty", ".google.longrunning.Operation"),
			}}},
		},
	}}
	f := &fixture{t: t, server: &server{}, log: discard}
	f.serve(func(grpc.ServiceRegistrar) {}, grpc.UnknownServiceHandler(o.handle), grpc.ForceServerCodecV2(raw{}))
	var err error
	if f.snapshot, err = catalog.Static("b", set); err != nil {
		t.Fatal(err)
	}
	f.open()
	return f
}

const build = "/build.v1.Builds/Build"

func TestOperationIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := &operations{doneAfter: 3}
	f := newOperations(t, o)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id, err := f.submit(tasks, alice, build, &emptypb.Empty{}, "")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := f.ended(tasks, alice, id)
	replies, err := tasks.Result(t.Context(), alice, id)
	if err != nil || got.State != task.Completed || len(replies) != 1 {
		t.Fatalf("task %+v with %q, %v", got, replies, err)
	}
	if text, err := tasks.JSON(got, replies); err != nil || string(text) != `{"name":"operations/7","done":true}` {
		t.Errorf("answer %s, %v: want the operation as it is when it is done", text, err)
	}
}

func TestOperationFails(t *testing.T) {
	t.Parallel()
	f := newOperations(t, &operations{doneAfter: 1, fails: true})
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id, err := f.submit(tasks, alice, build, &emptypb.Empty{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := f.ended(tasks, alice, id); got.State != task.Failed || got.Err.Code() != codes.DataLoss {
		t.Errorf("task %+v: want the operation's error", got)
	}
}

func TestOperationIsCancelled(t *testing.T) {
	t.Parallel()
	o := &operations{asked: make(chan string, 1)}
	f := newOperations(t, o)
	tasks := f.tasks(task.Config{})
	f.start(tasks)
	id, err := f.submit(tasks, alice, build, &emptypb.Empty{}, "")
	if err != nil {
		t.Fatal(err)
	}
	f.wait(o.asked, "made")
	if _, err := tasks.Cancel(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	got, _ := f.ended(tasks, alice, id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if got.State != task.Cancelled || !o.cancelled {
		t.Errorf("task %+v, cancelled at the backend: %v", got, o.cancelled)
	}
}

// A worker that is lost while an operation is under way leaves it to another, which asks for it, and does not make the call again.
func TestOperationOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	o := &operations{asked: make(chan string, 1)}
	f := newOperations(t, o)
	tasks := f.tasks(task.Config{Lease: 2 * time.Second})
	lost := tasks.Start(f.runs(tasks))
	id, err := f.submit(tasks, alice, build, &emptypb.Empty{}, "")
	if err != nil {
		t.Fatal(err)
	}
	f.wait(o.asked, "made")
	lost.Abandon()
	o.mu.Lock()
	o.doneAfter = 1
	o.mu.Unlock()
	f.start(tasks)
	got, _ := f.ended(tasks, alice, id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if got.State != task.Completed || o.builds != 1 {
		t.Errorf("task %+v after %d calls: want it completed after one", got, o.builds)
	}
}
