package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"go.uber.org/goleak"
	_ "google.golang.org/genproto/googleapis/api/annotations" // google/api/annotations.proto for the test's own contract
	_ "google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	_ "github.com/toolway/toolway/gen/toolway/v1" // toolway/v1/options.proto, likewise
	"github.com/toolway/toolway/interceptors"
	backends "github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const library = "/library.v1.Library/"

// librarySet is testdata/library.proto with everything it imports.
var librarySet = sync.OnceValues(func() (*descriptorpb.FileDescriptorSet, error) { return compileSet("library.proto") })

// compileSet compiles a file of testdata with everything it imports.
func compileSet(file string) (*descriptorpb.FileDescriptorSet, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{"testdata"}},
			protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
				fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
				return protocompile.SearchResult{Desc: fd}, err
			}),
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(context.Background(), file)
	if err != nil {
		return nil, err
	}
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(fd protoreflect.FileDescriptor)
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
	add(files[0])
	// Options come back as the type of their own registry; a round trip makes them those of this program.
	wire, err := proto.Marshal(set)
	if err != nil {
		return nil, err
	}
	out := &descriptorpb.FileDescriptorSet{}
	return out, proto.Unmarshal(wire, out)
}

func librarySnapshot(t testing.TB) *catalog.Snapshot {
	t.Helper()
	set, err := librarySet()
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Static("library", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// corpus loads one of the shared descriptor sets.
func corpus(t testing.TB, name string) *catalog.Snapshot {
	t.Helper()
	wire, err := os.ReadFile(filepath.Join("..", "..", "shared", "descriptors", name+".binpb"))
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(wire, set); err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Static(name, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// backend is a real gRPC server that answers any method of a snapshot. It records unary requests and answers them with the empty message,
// unless a method has a handler of its own.
type backend struct {
	snapshot *catalog.Snapshot
	handle   map[string]grpc.StreamHandler

	mu      sync.Mutex
	request string // JSON of the last unary request
	method  string
	md      metadata.MD
}

func (b *backend) serve(srv any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	if h := b.handle[full]; h != nil {
		return h(srv, stream)
	}
	m := b.snapshot.Method(full)
	if m == nil {
		return status.Errorf(codes.Unimplemented, "no method %q", full)
	}
	in := dynamicpb.NewMessage(m.Desc.Input())
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: dynamicpb.NewTypes(m.Backend.Files)}.Marshal(in)
	if err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	b.mu.Lock()
	b.request, b.method, b.md = string(text), full, md
	b.mu.Unlock()
	return stream.SendMsg(dynamicpb.NewMessage(m.Desc.Output()))
}

// last returns what the last unary call brought.
func (b *backend) last() (method, request string, md metadata.MD) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.method, b.request, b.md
}

// start serves b over an in-memory listener and returns a handler that forwards to it.
func (b *backend) start(t testing.TB) call.Handler {
	t.Helper()
	lis := bufconn.Listen(64 << 10)
	return b.startOn(t, lis, dial.Config{Name: "library", Targets: []string{"passthrough:///backend"}, IgnoreHealth: true,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }})
}

// startOnSocket is start over a loopback socket. It also returns a client of its own.
func (b *backend) startOnSocket(t testing.TB) (call.Handler, *grpc.ClientConn) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := b.startOn(t, lis, dial.Config{Name: "library", Targets: []string{lis.Addr().String()}, IgnoreHealth: true}, grpc.ForceServerCodecV2(call.Codec{}))
	direct, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	return h, direct
}

func (b *backend) startOn(t testing.TB, lis net.Listener, c dial.Config, o ...grpc.ServerOption) call.Handler {
	t.Helper()
	server := grpc.NewServer(append(o, grpc.UnknownServiceHandler(b.serve))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	conn, err := dial.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	router := backends.New(func(string) *dial.Conn { return conn }, nil, backends.Options{})
	return interceptors.Chain(router.Handle, interceptors.Default(interceptors.Options{Logger: slog.New(slog.DiscardHandler)})...)
}

// newGateway starts a backend and puts a gateway before it.
func newGateway(t testing.TB, b *backend, edit func(*gateway.Config)) *gateway.Gateway {
	t.Helper()
	if b.snapshot == nil {
		b.snapshot = librarySnapshot(t)
	}
	c := gateway.Config{Catalog: catalog.Fixed(b.snapshot), Handler: b.start(t), Logger: slog.New(slog.NewTextHandler(newTestLog(t), nil))}
	if edit != nil {
		edit(&c)
	}
	return gateway.New(c)
}

// testLog writes to a test's log while the test runs: handlers of HTTP/2 may outlive their server's Close.
type testLog struct {
	t testing.TB

	mu   sync.Mutex
	over bool
}

func newTestLog(t testing.TB) *testLog {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// do sends one request without a socket.
func do(g http.Handler, method, target, body string, header ...string) *http.Response {
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, src)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result()
}

func text(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return string(b)
}

// unreachable is the handler of tests whose requests never become calls.
func unreachable(grpc.ServerStream) error { return status.Error(codes.Internal, "call was made") }
