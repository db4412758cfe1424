package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/proxy"
)

// impl is a backend made of functions.
type impl struct {
	testpb.UnimplementedTestServiceServer
	unary  func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	input  func(grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error
	output func(*testpb.StreamingOutputCallRequest, grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error
	duplex func(grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error
}

func (i *impl) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (i *impl) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return i.unary(ctx, in)
}

func (i *impl) StreamingInputCall(s grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	return i.input(s)
}

func (i *impl) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	return i.output(in, s)
}

func (i *impl) FullDuplexCall(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	return i.duplex(s)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// info returns the ErrorInfo of a status.
func info(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i
		}
	}
	return nil
}

func TestUnknownMethod(t *testing.T) {
	var out bytes.Buffer
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, &impl{})}, proxy: proxy.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}})
	for _, c := range []struct{ method, message, hint string }{
		{"/grpc.testing.TestServise/EmptyCall", `unknown service "grpc.testing.TestServise"; did you mean "grpc.testing.TestService"?`, `did you mean "grpc.testing.TestService"?`},
		{"/grpc.testing.TestService/EmptyCal", `unknown method "EmptyCal" of service "grpc.testing.TestService"; did you mean "EmptyCall"?`, `did you mean "EmptyCall"?`},
		{"/a.b.Nothing/Like", `unknown service "a.b.Nothing"`, "list what there is with: grpcurl ADDRESS list"},
	} {
		err := m.door.Invoke(within(t), c.method, &testpb.Empty{}, &testpb.Empty{})
		if st := status.Convert(err); st.Code() != codes.Unimplemented || st.Message() != c.message {
			t.Errorf("%s: %v, want UNIMPLEMENTED %q", c.method, err, c.message)
		}
		if got := info(err).GetMetadata()["hint"]; got != c.hint {
			t.Errorf("%s: hint = %q, want %q", c.method, got, c.hint)
		}
	}
	m.server.Stop(within(t))
	if n := strings.Count(out.String(), "code=UNIMPLEMENTED"); n != 3 {
		t.Errorf("%d refusals are logged, want 3:\n%s", n, out.String())
	}
}

func TestCardinality(t *testing.T) {
	called := atomic.Int32{}
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, &impl{
		unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			called.Add(1)
			return &testpb.SimpleResponse{}, nil
		},
		output: func(*testpb.StreamingOutputCallRequest, grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			called.Add(1)
			return nil
		},
	})}})
	for _, method := range []string{"UnaryCall", "StreamingOutputCall"} {
		for _, c := range []struct {
			requests int
			want     string
		}{
			{0, "cardinality violation: received no request message from non-client-streaming RPC"},
			{2, "cardinality violation: received multiple request messages for non-client-streaming RPC"},
		} {
			stream, err := m.door.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/grpc.testing.TestService/"+method)
			if err != nil {
				t.Fatal(err)
			}
			for range c.requests {
				if err := stream.SendMsg(&testpb.SimpleRequest{}); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			_ = stream.CloseSend()
			err = stream.RecvMsg(&testpb.SimpleResponse{})
			if st := status.Convert(err); st.Code() != codes.Internal || st.Message() != c.want {
				t.Errorf("%s with %d requests: %v, want INTERNAL %q", method, c.requests, err, c.want)
			}
		}
	}
	if n := called.Load(); n != 0 {
		t.Errorf("the backend was called %d times, want 0", n)
	}
}

// TestTwoReplies has a backend that answers a unary call twice, which no generated server can.
func TestTwoReplies(t *testing.T) {
	for _, replies := range []int{0, 2} {
		s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			for range replies {
				if err := stream.SendMsg(&testpb.SimpleResponse{}); err != nil {
					return err
				}
			}
			return nil
		}))
		m := newMesh(t, meshOptions{targets: []string{listen(t, s, s.Stop)}})
		for _, method := range []string{"UnaryCall", "StreamingInputCall"} {
			stream, err := m.door.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/grpc.testing.TestService/"+method)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.SendMsg(&testpb.SimpleRequest{})
			_ = stream.CloseSend()
			for err == nil {
				err = stream.RecvMsg(&testpb.SimpleResponse{})
			}
			if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "cardinality violation") {
				t.Errorf("%s with %d replies: %v, want INTERNAL about cardinality", method, replies, err)
			}
		}
	}
}

func TestContentSubtype(t *testing.T) {
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, &impl{})}})
	// grpc-go's own codec sent under another name.
	err := m.door.Invoke(within(t), "/grpc.testing.TestService/EmptyCall", &testpb.Empty{}, &testpb.Empty{}, grpc.ForceCodecV2(jsonNamed{}))
	if status.Code(err) != codes.Unimplemented || info(err).GetReason() != "CONTENT_SUBTYPE" {
		t.Errorf("application/grpc+json: %v, want UNIMPLEMENTED with reason CONTENT_SUBTYPE", err)
	}
}

type jsonNamed struct{ call.Codec }

func (jsonNamed) Name() string { return "json" }

func TestMetadata(t *testing.T) {
	got := make(chan metadata.MD, 10)
	m := newMesh(t, meshOptions{
		proxy: proxy.Config{Rules: call.NewRules([]string{"x-acme-*", "authorization", "x-user-id"})},
		targets: []string{startBackend(t, &impl{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			got <- md
			return &testpb.SimpleResponse{}, nil
		}})}})
	ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer x", "Cookie", "a=b", "X-User-Id", "admin", "x_user_id", "admin",
		"authorization-bin", "x", "grpc-previous-rpc-attempts", "3", "x-forwarded-for", "1.2.3.4", "x-acme-team", "blue", "X-Acme-Blob-Bin", "\x00\xff",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "idempotency-key", "k", "other", "o")
	if err := m.door.Invoke(ctx, "/grpc.testing.TestService/UnaryCall", &testpb.SimpleRequest{}, &testpb.SimpleResponse{}); err != nil {
		t.Fatal(err)
	}
	md := <-got
	for k, want := range map[string]string{"x-acme-team": "blue", "x-acme-blob-bin": "\x00\xff", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "idempotency-key": "k"} {
		if v := md.Get(k); len(v) != 1 || v[0] != want {
			t.Errorf("backend got %s = %q, want %q", k, v, want)
		}
		delete(md, k)
	}
	for k, v := range md {
		switch k {
		case ":authority", "content-type", "grpc-accept-encoding":
		case "user-agent":
			if !strings.HasPrefix(v[0], "toolway") {
				t.Errorf("user-agent = %q, want toolway's", v)
			}
		default:
			t.Errorf("backend got %s = %q, want it not to cross", k, v)
		}
	}
}

// wire counts what comes over the wire of a client.
type wire struct{ compressed, length atomic.Int64 }

func (w *wire) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (w *wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (w *wire) HandleConn(context.Context, stats.ConnStats)                       {}
func (w *wire) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		w.compressed.Add(int64(in.CompressedLength))
		w.length.Add(int64(in.Length))
	}
}

func TestCompressionPerHop(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 100_000)
	echo := &impl{unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
	}}
	for _, c := range []struct {
		name       string
		always     bool
		request    bool
		compressed bool
	}{{"plain", false, false, false}, {"compressed request", false, true, true}, {"always", true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, meshOptions{targets: []string{startBackend(t, echo)}, proxy: proxy.Config{CompressReplies: c.always}})
			w := &wire{}
			cc := client(t, m.addr, grpc.WithStatsHandler(w))
			var opts []grpc.CallOption
			if c.request {
				opts = append(opts, grpc.UseCompressor(gzip.Name))
			}
			out := &testpb.SimpleResponse{}
			if err := cc.Invoke(within(t), "/grpc.testing.TestService/UnaryCall", &testpb.SimpleRequest{Payload: &testpb.Payload{Body: body}}, out, opts...); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.GetPayload().GetBody(), body) {
				t.Error("reply differs")
			}
			if got := w.compressed.Load() < w.length.Load(); got != c.compressed {
				t.Errorf("reply compressed = %v (%d of %d bytes), want %v", got, w.compressed.Load(), w.length.Load(), c.compressed)
			}
		})
	}
}

func TestMessageLimits(t *testing.T) {
	m := newMesh(t, meshOptions{
		targets: []string{startBackend(t, &impl{
			unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				return &testpb.SimpleResponse{Payload: &testpb.Payload{Body: make([]byte, in.GetResponseSize())}}, nil
			},
			duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
				for {
					if _, err := s.Recv(); err != nil {
						return err
					}
				}
			},
		})},
		proxy: proxy.Config{MaxRecvBytes: 1 << 20}, dial: dial.Config{MaxRecvBytes: 2 << 20}})
	unary := func(in *testpb.SimpleRequest, opts ...grpc.CallOption) error {
		return m.door.Invoke(within(t), "/grpc.testing.TestService/UnaryCall", in, &testpb.SimpleResponse{}, opts...)
	}
	if err := unary(&testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 2<<20)}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("large request: %v, want RESOURCE_EXHAUSTED", err)
	}
	// 16 MiB of zeros are 16 KiB on the wire: the limit holds for what they become.
	if err := unary(&testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 16<<20)}}, grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gzip bomb: %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := unary(&testpb.SimpleRequest{ResponseSize: 3 << 20}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("large reply: %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := unary(&testpb.SimpleRequest{ResponseSize: 1 << 20}); err != nil {
		t.Errorf("after the refusals: %v", err)
	}
	// In the middle of a stream the reason must come through, not the cancellation that follows from it.
	stream, err := testpb.NewTestServiceClient(m.door).FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&testpb.StreamingOutputCallRequest{})
	_ = stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 2<<20)}})
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("large message in a stream: %v, want RESOURCE_EXHAUSTED", err)
	}
}

// TestBackendEndsFirst ends calls at the backend while the caller goes on sending nothing or anything: the handler must return.
func TestBackendEndsFirst(t *testing.T) {
	for name, wantErr := range map[string]error{"ok": nil, "error": status.Error(codes.Aborted, "enough")} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{}, 10)
			m := newMesh(t, meshOptions{
				targets: []string{startBackend(t, &impl{
					duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
						if _, err := s.Recv(); err != nil {
							return err
						}
						return wantErr
					},
					input: func(s grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
						if wantErr != nil {
							return wantErr
						}
						return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: 7})
					},
				})},
				chain: []grpc.StreamServerInterceptor{func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
					defer func() { ended <- struct{}{} }()
					return h(srv, s)
				}}})
			tc := testpb.NewTestServiceClient(m.door)
			duplex, err := tc.FullDuplexCall(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := duplex.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
				t.Fatal(err)
			}
			_, err = duplex.Recv()
			if wantErr == nil && !errors.Is(err, io.EOF) || wantErr != nil && status.Code(err) != status.Code(wantErr) {
				t.Errorf("duplex ended with %v, want %v", err, wantErr)
			}
			wait(t, ended, "the handler to return")

			input, err := tc.StreamingInputCall(within(t))
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				err = input.Send(&testpb.StreamingInputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 1000)}})
			}
			out, err := input.CloseAndRecv()
			if status.Code(err) != status.Code(wantErr) || wantErr == nil && out.GetAggregatedPayloadSize() != 7 {
				t.Errorf("input ended with %v, %v, want %v", out, err, wantErr)
			}
			wait(t, ended, "the handler to return")
		})
	}
}

// TestFlowControl has a reader that does not read: the backend must be held up, not the mesh filled.
func TestFlowControl(t *testing.T) {
	sent := atomic.Int64{}
	const size, most = 64 << 10, 800
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, &impl{
		output: func(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			for range most {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: make([]byte, size)}}); err != nil {
					return err
				}
				sent.Add(1)
			}
			return nil
		},
	})}})
	stream, err := testpb.NewTestServiceClient(m.door).StreamingOutputCall(within(t), &testpb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// The backend stops when all windows are full; it is at rest when it has not moved for a while.
	for last := int64(-1); ; time.Sleep(200 * time.Millisecond) {
		if now := sent.Load(); now == last {
			break
		} else {
			last = now
		}
	}
	if n := sent.Load(); n > most/2 {
		t.Errorf("the backend has sent %d of %d messages to a reader that does not read", n, most)
	}
	n := 1
	for ; err == nil; n++ {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) || n-1 != most {
		t.Errorf("got %d messages and %v, want %d and EOF", n-1, err, most)
	}
}

func TestBackendDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	m := newMesh(t, meshOptions{targets: []string{addr}})
	for range 3 {
		err = m.door.Invoke(within(t), "/grpc.testing.TestService/EmptyCall", &testpb.Empty{}, &testpb.Empty{})
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("got %v, want UNAVAILABLE", err)
		}
		if i := info(err); i.GetReason() != "BACKEND_UNAVAILABLE" || i.GetDomain() != "toolway" || i.GetMetadata()["backend"] != "echo" || !strings.Contains(i.GetMetadata()["hint"], "nothing listens") {
			t.Errorf("ErrorInfo = %v", i)
		}
	}
	// It heals by itself.
	l, err = net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, &impl{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	defer func() {
		s.Stop()
		<-served
	}()
	ctx := within(t)
	for m.door.Invoke(ctx, "/grpc.testing.TestService/EmptyCall", &testpb.Empty{}, &testpb.Empty{}) != nil {
		if ctx.Err() != nil {
			t.Fatal("the backend is back, but calls still fail")
		}
		m.conn.WaitForStateChange(ctx, m.conn.GetState())
	}
}

// TestBackendDiesDuringCall has the connection break after the request was received: nobody may say that nothing happened.
func TestBackendDiesDuringCall(t *testing.T) {
	received := make(chan struct{}, 1)
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, &impl{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		received <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	var sent atomic.Bool
	m := newMesh(t, meshOptions{targets: []string{listen(t, s, s.Stop)}, chain: []grpc.StreamServerInterceptor{
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			err := h(srv, stream)
			sent.Store(call.FromContext(stream.Context()).Sent)
			return err
		}}})
	go func() {
		<-received
		s.Stop()
	}()
	err := m.door.Invoke(within(t), "/grpc.testing.TestService/UnaryCall", &testpb.SimpleRequest{}, &testpb.SimpleResponse{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(info(err).GetMetadata()["hint"], "not known") {
		t.Errorf("got %v %v, want UNAVAILABLE with a hint that the outcome is not known", err, info(err))
	}
	if !sent.Load() {
		t.Error("Call.Sent = false, want true")
	}
}

func TestStopIsBounded(t *testing.T) {
	s := &scripted{cancelled: make(chan struct{}, 10)}
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, s)}})
	wire, _ := proto.Marshal(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("hang ")}})
	k := kinds[3]
	stream, err := m.door.NewStream(within(t), &k.desc, k.method, grpc.ForceCodecV2(call.Codec{}))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.SendMsg(call.NewFrame(nil, wire))
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	m.server.Stop(ctx)
	wait(t, s.cancelled, "the backend's call to be cancelled")
}
