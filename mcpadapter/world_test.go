package mcpadapter_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	_ "google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
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
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

func TestMain(m *testing.M) {
	// The search library keeps its workers for as long as the program runs.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

const shopProto = `
syntax = "proto3";
package shop.v1;
import "google/api/httpbody.proto";
import "toolway/v1/content.proto";

// Keeps orders.
service Orders {
  // Gets an order.
  rpc Get(GetRequest) returns (Order);
  // Watches orders.
  rpc Watch(WatchRequest) returns (stream Order);
  // Takes in orders.
  rpc Import(stream Order) returns (Summary);
  // Answers each order.
  rpc Chat(stream Order) returns (stream Order);
  // Says what is wrong with an order.
  rpc Judge(GetRequest) returns (Verdict);
  // Fetches a picture.
  rpc Picture(GetRequest) returns (google.api.HttpBody);
  // Shows an order.
  rpc Show(GetRequest) returns (toolway.v1.ToolResult);
  // Follows an order.
  rpc Follow(WatchRequest) returns (stream toolway.v1.ToolEvent);
  // Cancels an order, if the person agrees.
  rpc Cancel(GetRequest) returns (Order);
}

message GetRequest {
  int64 id = 1;
  // What the backend does: "missing", "hang", "plain", or nothing.
  string act = 2;
}

message WatchRequest {
  int32 count = 1;
  // Breaks after so many.
  int32 break_after = 2;
  // Waits for the end of the call after the last one.
  bool hang = 3;
  // How long the note of an order is.
  int32 note_bytes = 4;
}

message Order {
  int64 id = 1;
  string note = 2;
}

message Summary {
  int32 count = 1;
  int64 sum = 2;
}

message Verdict {
  string error = 1;
}
`

// world is a real gRPC server on an in-memory listener, and a door in front of it.
type world struct {
	t       *testing.T
	catalog *mutableCatalog
	adapter *mcpadapter.Adapter
	// hung and ended count the backend calls that hang, and those whose hanging was ended by cancellation.
	hung, ended chan struct{}
	// seen is the metadata that the last call brought to the backend.
	seen atomic.Pointer[metadata.MD]
}

// mutableCatalog is a catalog whose snapshot a test can change, without a change feed.
type mutableCatalog struct {
	current atomic.Pointer[catalog.Snapshot]
}

func (c *mutableCatalog) Snapshot() *catalog.Snapshot { return c.current.Load() }

func compile(t testing.TB, source string) *descriptorpb.FileDescriptorSet {
	t.Helper()
	c := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"shop.proto": source})},
			protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
				fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
				return protocompile.SearchResult{Desc: fd}, err
			}),
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(context.Background(), "shop.proto")
	if err != nil {
		t.Fatal(err)
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
	return set
}

func snapshotOf(t *testing.T, source string) *catalog.Snapshot {
	t.Helper()
	s, err := catalog.Static("shop", compile(t, source))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(t *testing.T, change func(*mcpadapter.Config)) *world {
	t.Helper()
	w := &world{t: t, catalog: &mutableCatalog{}, hung: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	snapshot := snapshotOf(t, shopProto)
	w.catalog.current.Store(snapshot)

	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(call.Codec{}), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(ss)
		md, _ := metadata.FromIncomingContext(ss.Context())
		w.seen.Store(&md)
		return w.backend(snapshot.Method(full), ss)
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	conf := mcpadapter.Config{
		Catalog: w.catalog,
		Handler: interceptors.Chain(forwardTo(conn)),
		Logger:  slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		Version: "v0.0.0-test",
	}
	if change != nil {
		change(&conf)
	}
	w.adapter = mcpadapter.New(conf)
	t.Cleanup(func() {
		if err := w.adapter.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return w
}

// forwardTo is the simplest final handler: one attempt on one connection.
func forwardTo(conn *grpc.ClientConn) grpc.StreamHandler {
	return func(_ any, ss grpc.ServerStream) error {
		c := call.FromContext(ss.Context())
		ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ss.Context(), c.Forward))
		defer cancel()
		c.Sent = true
		cs, err := conn.NewStream(ctx, c.Method.StreamDesc(), c.Method.FullMethod, grpc.ForceCodecV2(call.Codec{}))
		if err != nil {
			return err
		}
		for {
			f := &call.Frame{}
			if err := ss.RecvMsg(f); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if err := cs.SendMsg(f); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		if err := cs.CloseSend(); err != nil {
			return err
		}
		if c.Method.Kind().Server {
			if header, err := cs.Header(); err == nil && header != nil { // there is none before an error
				if err := ss.SendHeader(nil); err != nil {
					return err
				}
			}
		}
		for {
			f := &call.Frame{}
			if err := cs.RecvMsg(f); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := ss.SendMsg(f); err != nil {
				return err
			}
			f.Release()
			if !c.Method.Kind().Server {
				return nil
			}
		}
	}
}

// backend is what the server does.
func (w *world) backend(m *catalog.Method, ss grpc.ServerStream) error {
	if m == nil {
		return status.Error(codes.Unimplemented, "no such method")
	}
	in := func() (protoreflect.Message, error) {
		f := &call.Frame{}
		if err := ss.RecvMsg(f); err != nil {
			return nil, err
		}
		msg := dynamicpb.NewMessage(m.Desc.Input())
		return msg, proto.Unmarshal(f.Bytes(), msg)
	}
	out := func(format string, pairs ...any) error {
		msg := dynamicpb.NewMessage(m.Desc.Output())
		if err := protojson.Unmarshal([]byte(sprintf(format, pairs...)), msg); err != nil {
			return err
		}
		return ss.SendMsg(msg)
	}
	field := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	hang := func() error {
		w.hung <- struct{}{}
		<-ss.Context().Done()
		w.ended <- struct{}{}
		return status.FromContextError(ss.Context().Err()).Err()
	}
	switch m.Desc.Name() {
	case "Get", "Judge", "Picture":
		req, err := in()
		if err != nil {
			return err
		}
		id := field(req, "id").Int()
		switch act := field(req, "act").String(); act {
		case "missing":
			st, err := status.New(codes.NotFound, "order not found").WithDetails(
				&errdetails.ErrorInfo{Reason: "ORDER_UNKNOWN", Domain: "shop.example.com", Metadata: map[string]string{"id": "7"}},
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "id", Description: "no such order"}}},
				&errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)},
			)
			if err != nil {
				return err
			}
			return st.Err()
		case "hang":
			return hang()
		case "plain":
			return errors.New("a plain error")
		case "unavailable":
			return status.Error(codes.Unavailable, "try another day")
		}
		switch m.Desc.Name() {
		case "Judge":
			return out(`{"error":"none"}`)
		case "Picture":
			return out(`{"contentType":"image/png","data":"iVBORw=="}`)
		}
		return out(`{"id":"%d","note":"fine"}`, id)
	case "Show":
		if _, err := in(); err != nil {
			return err
		}
		return ss.SendMsg(shown)
	case "Follow":
		if _, err := in(); err != nil {
			return err
		}
		for _, event := range followed {
			if err := ss.SendMsg(event); err != nil {
				return err
			}
		}
		return nil
	case "Cancel":
		req, err := in()
		if err != nil {
			return err
		}
		order, err := cancelled(ss.Context(), field(req, "id").Int(), field(req, "act").String())
		if err != nil {
			return err
		}
		return out(`{"id":"1","note":"%s"}`, order)
	case "Watch":
		req, err := in()
		if err != nil {
			return err
		}
		note := strings.Repeat("n", int(field(req, "note_bytes").Int()))
		for i := range field(req, "count").Int() {
			if n := field(req, "break_after").Int(); n > 0 && i == n {
				return status.Error(codes.Aborted, "the stream broke")
			}
			if err := out(`{"id":"%d","note":"%s"}`, i+1, note); err != nil {
				return err
			}
		}
		if field(req, "hang").Bool() {
			return hang()
		}
		return nil
	case "Import", "Chat":
		count, sum := 0, int64(0)
		for {
			req, err := in()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			count++
			sum += field(req, "id").Int()
			if m.Desc.Name() == "Chat" {
				if err := out(`{"id":"%d","note":"got"}`, field(req, "id").Int()); err != nil {
					return err
				}
			}
		}
		if m.Desc.Name() == "Chat" {
			return nil
		}
		return out(`{"count":%d,"sum":"%d"}`, count, sum)
	}
	return status.Error(codes.Unimplemented, "no such method")
}

// serve puts the door on a loopback listener and returns its URL.
func (w *world) serve() string {
	w.t.Helper()
	server := httptest.NewServer(w.adapter.HTTPHandler())
	w.t.Cleanup(server.Close)
	return server.URL
}

// pipe starts ServeStdio and returns both ends and a function that waits for its return.
func (w *world) pipe(ctx context.Context) (in *io.PipeWriter, out *io.PipeReader, wait func() error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := w.adapter.ServeStdio(ctx, inR, outW)
		_ = outW.Close()
		_ = inR.Close()
		done <- err
	}()
	return inW, outR, func() error { return <-done }
}

// door is one way to reach the adapter with the SDK's client.
type door struct {
	name    string
	version string
	stdio   bool
	session bool
	sdkOnly bool
}

var doors = []door{
	{name: "http 2025-06-18", version: "2025-06-18"},
	{name: "http 2025-11-25", version: "2025-11-25"},
	{name: "http 2025-11-25 sessions", version: "2025-11-25", session: true},
	{name: "http 2026-07-28", version: "2026-07-28"},
	{name: "stdio 2025-06-18", version: "2025-06-18", stdio: true},
	{name: "stdio 2025-11-25", version: "2025-11-25", stdio: true},
	{name: "stdio 2026-07-28", version: "2026-07-28", stdio: true},
	{name: "http 2025-11-25 sdk", version: "2025-11-25", sdkOnly: true},
	{name: "http 2026-07-28 sdk", version: "2026-07-28", sdkOnly: true},
	{name: "stdio 2025-11-25 sdk", version: "2025-11-25", stdio: true, sdkOnly: true},
}

// forDoors runs f with a client on a world of its own, once per transport and version.
func forDoors(t *testing.T, change func(*mcpadapter.Config), options func() *mcp.ClientOptions, f func(t *testing.T, w *world, c *mcp.ClientSession, d door)) {
	for _, d := range doors {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, func(c *mcpadapter.Config) {
				c.Sessions = d.session
				if d.sdkOnly {
					mcpadapter.SDKOnly(c)
				}
				if change != nil {
					change(c)
				}
			})
			var o *mcp.ClientOptions
			if options != nil {
				o = options()
			}
			f(t, w, w.connect(d, o), d)
		})
	}
}

// connect connects the SDK's client.
func (w *world) connect(d door, o *mcp.ClientOptions) *mcp.ClientSession {
	w.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	var transport mcp.Transport
	wait := func() error { return nil }
	if d.stdio {
		in, out, w := w.pipe(context.Background())
		wait = w
		transport = &mcp.IOTransport{Reader: out, Writer: in}
	} else {
		transport = &mcp.StreamableClientTransport{Endpoint: w.serve()}
	}
	session, err := client.Connect(w.t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: d.version})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = session.Close()
		if err := wait(); err != nil {
			w.t.Errorf("ServeStdio() = %v, want nil", err)
		}
	})
	return session
}

// await fails the test if nothing comes.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s did not happen within a minute", what)
		panic("unreachable")
	}
}
