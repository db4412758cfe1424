package call_test

import (
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a buffer pool that poisons what comes back and knows how much is out.
type counting struct{ out atomic.Int64 }

func (c *counting) Get(n int) *[]byte {
	c.out.Add(1)
	b := make([]byte, n)
	return &b
}

func (c *counting) Put(b *[]byte) {
	c.out.Add(-1)
	all := (*b)[:cap(*b)]
	for i := range all {
		all[i] = 0xdb
	}
}

// pooled returns data in buffers of the pool, each large enough to be pooled.
func (c *counting) pooled(data ...[]byte) mem.BufferSlice {
	var out mem.BufferSlice
	for _, d := range data {
		b := c.Get(max(len(d), 4096))
		*b = (*b)[:copy(*b, d)]
		out = append(out, mem.NewBuffer(b, c))
	}
	return out
}

// method returns a method of gRPC's interoperability service.
func method(t testing.TB, name string) *catalog.Method {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	for i := range testpb.File_grpc_testing_test_proto.Imports().Len() {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(testpb.File_grpc_testing_test_proto.Imports().Get(i)))
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(testpb.File_grpc_testing_test_proto))
	snap, err := catalog.Static("b", set)
	if err != nil {
		t.Fatal(err)
	}
	m := snap.Method("/grpc.testing.TestService/" + name)
	if m == nil {
		t.Fatalf("no method %q", name)
	}
	return m
}
