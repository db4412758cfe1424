package backend_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is compiled in in one test and behind a connection in another.
type service struct {
	testpb.UnimplementedTestServiceServer
}

func (service) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "1"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "1"))
	return &testpb.SimpleResponse{Payload: in.GetPayload(), Username: strings.Join(md["x-request-id"], ","), OauthScope: strings.Join(md["authorization"], ",")}, nil
}

func (service) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	for range 3 {
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
	return status.Error(codes.Aborted, "after three")
}

func (service) FullDuplexCall(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

func snapshot(t *testing.T) *catalog.Snapshot {
	t.Helper()
	l := backend.NewLocal()
	testpb.RegisterTestServiceServer(l, service{})
	set, err := l.Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Static("b", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// routers are a router to the service compiled in and one to it over a connection.
func routers(t *testing.T) map[string]*backend.Router {
	t.Helper()
	local := backend.NewLocal()
	testpb.RegisterTestServiceServer(local, service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, service{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		wg.Wait()
	})
	return map[string]*backend.Router{
		"local":      backend.New(nil, map[string]*backend.Local{"b": local}, backend.Options{}),
		"connection": backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{}),
	}
}

func payload(body string) *testpb.Payload { return &testpb.Payload{Body: []byte(body)} }

func TestInMemoryCalls(t *testing.T) {
	snap := snapshot(t)
	for name, r := range routers(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				method   string
				requests []proto.Message
				replies  int
				code     codes.Code
			}{
				{"UnaryCall", []proto.Message{&testpb.SimpleRequest{Payload: payload("a")}}, 1, codes.OK},
				{"StreamingOutputCall", []proto.Message{&testpb.StreamingOutputCallRequest{Payload: payload("a")}}, 3, codes.Aborted},
				{"FullDuplexCall", []proto.Message{&testpb.StreamingOutputCallRequest{Payload: payload("a")}, &testpb.StreamingOutputCallRequest{Payload: payload("b")}}, 2, codes.OK},
				{"StreamingInputCall", []proto.Message{&testpb.StreamingInputCallRequest{}}, 0, codes.Unimplemented},
			} {
				cl := call.New(snap.Method("/grpc.testing.TestService/"+c.method), call.MCP)
				cl.Forward = metadata.Pairs("x-request-id", "7")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				next := 0
				var replies []proto.Message
				var header metadata.MD
				s := call.NewStream(ctx, cl, func() (*call.Frame, error) {
					if next == len(c.requests) {
						return nil, io.EOF
					}
					next++
					wire, err := proto.Marshal(c.requests[next-1])
					return call.NewFrame(nil, wire), err
				}, func(f *call.Frame) error {
					m, err := f.Message()
					replies = append(replies, m)
					return err
				}, func(md metadata.MD) error { header = md; return nil })
				err := r.Handle(nil, s)
				if status.Code(err) != c.code || len(replies) != c.replies {
					t.Errorf("%s: %d replies, %v, want %d and %v", c.method, len(replies), err, c.replies, c.code)
				}
				if !cl.Sent {
					t.Errorf("%s: Sent = false", c.method)
				}
				if c.method != "UnaryCall" {
					continue
				}
				if header["x-header"] == nil || s.Trailer()["x-trailer"] == nil {
					t.Errorf("header %v, trailer %v", header, s.Trailer())
				}
				wire, _ := proto.Marshal(replies[0])
				out := &testpb.SimpleResponse{}
				if err := proto.Unmarshal(wire, out); err != nil || out.GetUsername() != "7" {
					t.Errorf("reply %v, %v: want the request id that was forwarded", out, err)
				}
			}
		})
	}
}

// TestLocalSeesOnlyWhatCrosses has a compiled-in service behind a gRPC door, whose context holds all that the caller sent.
func TestLocalSeesOnlyWhatCrosses(t *testing.T) {
	snap := snapshot(t)
	cl := call.New(snap.Method("/grpc.testing.TestService/UnaryCall"), call.GRPC)
	cl.Forward = metadata.Pairs("x-request-id", "7")
	var out testpb.SimpleResponse
	s := call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), func(f *call.Frame) error { return proto.Unmarshal(f.Bytes(), &out) }, nil)
	err := routers(t)["local"].Handle(nil, &withIncoming{s, metadata.NewIncomingContext(s.Context(), metadata.Pairs("authorization", "Bearer x"))})
	if err != nil || out.GetOauthScope() != "" || out.GetUsername() != "7" {
		t.Errorf("reply %v, %v: want no authorization", &out, err)
	}
}

type withIncoming struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *withIncoming) Context() context.Context { return s.ctx }

// TestInterceptorsMayAddMetadata checks that what an interceptor puts into the outgoing context reaches the backend too.
func TestInterceptorsMayAddMetadata(t *testing.T) {
	cl := call.New(snapshot(t).Method("/grpc.testing.TestService/UnaryCall"), call.HTTP)
	cl.Forward = metadata.Pairs("x-request-id", "7")
	var out testpb.SimpleResponse
	s := call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), func(f *call.Frame) error { return proto.Unmarshal(f.Bytes(), &out) }, nil)
	err := routers(t)["connection"].Handle(nil, &withIncoming{s, metadata.AppendToOutgoingContext(s.Context(), "authorization", "Bearer minted")})
	if err != nil || out.GetOauthScope() != "Bearer minted" || out.GetUsername() != "7" {
		t.Errorf("reply %v, %v: want the minted credential and the request id", &out, err)
	}
}

func TestNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	snap := snapshot(t)
	for name, r := range map[string]*backend.Router{"down": backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{}), "none": backend.New(func(string) *dial.Conn { return nil }, nil, backend.Options{})} {
		for _, m := range []string{"UnaryCall", "StreamingOutputCall", "FullDuplexCall"} {
			cl := call.New(snap.Method("/grpc.testing.TestService/"+m), call.HTTP)
			err := r.Handle(nil, call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), nil, nil))
			if status.Code(err) != codes.Unavailable || cl.Sent || len(status.Convert(err).Details()) != 1 {
				t.Errorf("%s, %s: %v with %v, Sent = %v, want UNAVAILABLE and not sent", name, m, err, status.Convert(err).Details(), cl.Sent)
			}
		}
	}
}

// TestWithdrawn pins that a call of a tool whose backend is down gets the same reason as over MCP, and a hint when to come back.
func TestWithdrawn(t *testing.T) {
	conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	m := snapshot(t).Method("/grpc.testing.TestService/UnaryCall")
	for state, want := range map[catalog.State]string{catalog.Up: "BACKEND_UNAVAILABLE", catalog.Down: "TOOL_UNAVAILABLE"} {
		m.Backend.State = state
		cl := call.New(m, call.HTTP)
		err := backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{}).Handle(nil, call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), nil, nil))
		var reason string
		retry := false
		for _, d := range status.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				reason = d.GetReason()
			case *errdetails.RetryInfo:
				retry = d.GetRetryDelay().AsDuration() == call.WithdrawnRetry
			}
		}
		if reason != want || retry != (state == catalog.Down) {
			t.Errorf("backend %v: reason %q, RetryInfo %t, want %q", state, reason, retry, want)
		}
	}
}

// TestMalformedRequestIsNotSent has an interceptor that looks into a request and cannot read it.
func TestMalformedRequestIsNotSent(t *testing.T) {
	snap := snapshot(t)
	for name, r := range routers(t) {
		for _, m := range []string{"UnaryCall", "StreamingOutputCall", "FullDuplexCall"} {
			cl := call.New(snap.Method("/grpc.testing.TestService/"+m), call.HTTP)
			s := call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, []byte("\x0a\xff"))), func(*call.Frame) error { return nil }, nil)
			err := r.Handle(nil, &looking{s})
			if c := status.Code(err); c != codes.InvalidArgument && (name != "local" || c != codes.Internal) {
				t.Errorf("%s, %s: %v, want INVALID_ARGUMENT", name, m, err)
			}
		}
	}
}

type looking struct{ grpc.ServerStream }

func (s *looking) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if f, ok := m.(proto.Message); ok && err == nil {
		f.ProtoReflect()
	}
	return err
}

// TestLocalDeadline has a compiled-in service that waits for a request which never comes.
func TestLocalDeadline(t *testing.T) {
	cl := call.New(snapshot(t).Method("/grpc.testing.TestService/FullDuplexCall"), call.HTTP)
	unblock := make(chan struct{})
	s := call.NewStream(t.Context(), cl, func() (*call.Frame, error) {
		<-unblock
		return nil, io.EOF
	}, nil, nil)
	s.OnStop(func() { close(unblock) })
	ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	if err := routers(t)["local"].Handle(nil, &withIncoming{s, ctx}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DEADLINE_EXCEEDED", err)
	}
}

// TestClosedConnection has a backend taken out: the caller has cancelled nothing.
func TestClosedConnection(t *testing.T) {
	conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	r := backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{})
	for _, m := range []string{"UnaryCall", "FullDuplexCall"} {
		cl := call.New(snapshot(t).Method("/grpc.testing.TestService/"+m), call.HTTP)
		if err := r.Handle(nil, call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), nil, nil)); status.Code(err) != codes.Unavailable || cl.Sent {
			t.Errorf("%s: %v, Sent = %v, want UNAVAILABLE and not sent", m, err, cl.Sent)
		}
	}
}

func TestRegisterService(t *testing.T) {
	l := backend.NewLocal()
	testpb.RegisterTestServiceServer(l, service{})
	if got := l.Services(); len(got) != 1 || got[0] != "grpc.testing.TestService" {
		t.Errorf("Services() = %q", got)
	}
	for name, f := range map[string]func(){
		"twice":      func() { testpb.RegisterTestServiceServer(l, service{}) },
		"wrong type": func() { backend.NewLocal().RegisterService(&testpb.TestService_ServiceDesc, struct{}{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
