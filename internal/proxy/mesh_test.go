package proxy_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poison is a buffer pool that overwrites what comes back, so that a use after release shows as wrong bytes.
type poison struct{}

func (poison) Get(n int) *[]byte { b := make([]byte, n); return &b }

func (poison) Put(b *[]byte) {
	all := (*b)[:cap(*b)]
	if len(all) == 0 {
		return
	}
	all[0] = 0xdb
	for n := 1; n < len(all); n *= 2 {
		copy(all[n:], all[:n])
	}
}

// setOf returns the files of the descriptors with all that they import.
func setOf(files ...protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
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
	return set
}

func static(t testing.TB, name string, files ...protoreflect.FileDescriptor) *catalog.Catalog {
	t.Helper()
	snap, err := catalog.Static(name, setOf(files...))
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Fixed(snap)
}

// listen serves s on loopback until the test ends.
func listen(t testing.TB, s interface{ Serve(net.Listener) error }, stop func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return l.Addr().String()
}

// client connects to addr as any program would, but with the poisoning pool.
func client(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), experimental.WithBufferPool(poison{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256 << 20)), grpc.WithDisableServiceConfig(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// mesh is a gRPC door before one backend.
type mesh struct {
	door   *grpc.ClientConn
	addr   string
	conn   *dial.Conn
	server *proxy.Server
}

type meshOptions struct {
	targets  []string
	dial     dial.Config
	proxy    proxy.Config
	chain    []grpc.StreamServerInterceptor
	locals   map[string]*backend.Local
	catalog  proxy.Snapshots
	defaults interceptors.Options
}

func newMesh(t testing.TB, o meshOptions) *mesh {
	t.Helper()
	m := &mesh{}
	if o.catalog == nil {
		o.catalog = static(t, "echo", testpb.File_grpc_testing_test_proto)
	}
	if len(o.targets) > 0 {
		o.dial.Name, o.dial.Targets = "echo", o.targets
		o.dial.Options = append(o.dial.Options, experimental.WithBufferPool(poison{}))
		var err error
		if m.conn, err = dial.Open(o.dial); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.conn.Close() })
	}
	router := backend.New(func(string) *dial.Conn { return m.conn }, o.locals, backend.Options{})
	if o.defaults.Logger == nil {
		o.defaults.Logger = slog.New(slog.DiscardHandler)
	}
	o.proxy.Catalog = o.catalog
	o.proxy.Handler = interceptors.Chain(router.Handle, append(interceptors.Default(o.defaults), o.policies()...)...)
	o.proxy.Options = append(o.proxy.Options, experimental.BufferPool(poison{}))
	s := proxy.New(o.proxy)
	m.server = s
	m.addr = listen(t, s, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
	})
	m.door = client(t, m.addr)
	return m
}

// startBackend serves the interoperability service and returns its address.
func startBackend(t testing.TB, impl testpb.TestServiceServer, opts ...grpc.ServerOption) string {
	t.Helper()
	s := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(256 << 20), experimental.BufferPool(poison{}), grpc.WaitForHandlers(true)}, opts...)...)
	testpb.RegisterTestServiceServer(s, impl)
	return listen(t, s, s.Stop)
}

// policies are the chain's, each for every method.
func (o *meshOptions) policies() []interceptors.Policy {
	var out []interceptors.Policy
	for _, ic := range o.chain {
		out = append(out, interceptors.Every("test", ic))
	}
	return out
}
