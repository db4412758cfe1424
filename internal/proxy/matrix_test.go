package proxy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	validateinterceptor "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
)

// scripted is a backend that does what the first request's payload says.
type scripted struct {
	testpb.UnimplementedTestServiceServer
	cancelled chan struct{} // gets a value when a call that hangs is cancelled
}

func (s *scripted) run(ctx context.Context, stream grpc.ServerStream, script string, reply func() error) error {
	trailer := metadata.Pairs("x-trailer", "1", "x-trailer", "2", "endpoint-load-metrics-bin", "\x01\x02\xff", "echo-bin", "\x00\x01")
	set := func(md metadata.MD) {
		if stream != nil {
			stream.SetTrailer(md)
			return
		}
		_ = grpc.SetTrailer(ctx, md)
	}
	switch script {
	case "ok", "large", "unknown":
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "a", "x-header", "b", "header-bin", "\xfe"))
		set(trailer)
		return reply()
	case "bare":
		return reply()
	case "trailers-only":
		set(trailer)
		return detailed()
	case "trailers-only-bare":
		return status.Error(codes.NotFound, "nö\n%")
	case "header-then-error":
		_ = grpc.SendHeader(ctx, metadata.Pairs("x-header", "early"))
		set(trailer)
		return detailed()
	case "empty-header-then-error":
		_ = grpc.SendHeader(ctx, nil)
		return status.Error(codes.DataLoss, "lost")
	case "reply-then-error":
		if err := reply(); err != nil {
			return err
		}
		set(trailer)
		return detailed()
	case "strange-code":
		return status.Error(codes.Code(77), "seventy-seven")
	case "hang":
		_ = grpc.SendHeader(ctx, metadata.Pairs("x-header", "hanging"))
		<-ctx.Done()
		s.cancelled <- struct{}{}
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Errorf(codes.InvalidArgument, "no script %q", script)
}

func detailed() error {
	st, err := status.New(codes.FailedPrecondition, "not like this").WithDetails(
		&errdetails.ErrorInfo{Reason: "WHY", Domain: "example.com", Metadata: map[string]string{"k": "v"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "a.b", Description: "no"}}})
	if err != nil {
		return err
	}
	return st.Err()
}

func (s *scripted) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	var out *testpb.SimpleResponse
	err := s.run(ctx, nil, scriptOf(in.GetPayload()), func() error {
		out = &testpb.SimpleResponse{Payload: in.GetPayload(), Username: "u"}
		out.ProtoReflect().SetUnknown(in.ProtoReflect().GetUnknown())
		return nil
	})
	if err == nil && out == nil {
		out = &testpb.SimpleResponse{}
	}
	return out, err
}

func (s *scripted) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	return s.run(stream.Context(), stream, scriptOf(in.GetPayload()), func() error {
		for range 3 {
			out := &testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}
			out.ProtoReflect().SetUnknown(in.ProtoReflect().GetUnknown())
			if err := stream.Send(out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *scripted) StreamingInputCall(stream grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	return s.run(stream.Context(), stream, scriptOf(first.GetPayload()), func() error {
		size, unknown := len(first.GetPayload().GetBody()), first.ProtoReflect().GetUnknown()
		for {
			in, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			size += len(in.GetPayload().GetBody())
		}
		out := &testpb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)}
		out.ProtoReflect().SetUnknown(unknown)
		return stream.SendAndClose(out)
	})
}

func (s *scripted) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	return s.run(stream.Context(), stream, scriptOf(in.GetPayload()), func() error {
		for {
			out := &testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}
			out.ProtoReflect().SetUnknown(in.ProtoReflect().GetUnknown())
			if err := stream.Send(out); err != nil {
				return err
			}
			if in, err = stream.Recv(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

func scriptOf(p *testpb.Payload) string {
	script, _, _ := strings.Cut(string(p.GetBody()), " ")
	return script
}

// kind is one of the four call kinds and how it is called by hand.
type kind struct {
	name    string
	method  string
	desc    grpc.StreamDesc
	request func(p *testpb.Payload) proto.Message
	send    int
}

var kinds = []kind{
	{"unary", "/grpc.testing.TestService/UnaryCall", grpc.StreamDesc{}, func(p *testpb.Payload) proto.Message { return &testpb.SimpleRequest{Payload: p} }, 1},
	{"server stream", "/grpc.testing.TestService/StreamingOutputCall", grpc.StreamDesc{ServerStreams: true}, func(p *testpb.Payload) proto.Message { return &testpb.StreamingOutputCallRequest{Payload: p} }, 1},
	{"client stream", "/grpc.testing.TestService/StreamingInputCall", grpc.StreamDesc{ClientStreams: true}, func(p *testpb.Payload) proto.Message { return &testpb.StreamingInputCallRequest{Payload: p} }, 3},
	{"bidi", "/grpc.testing.TestService/FullDuplexCall", grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, func(p *testpb.Payload) proto.Message { return &testpb.StreamingOutputCallRequest{Payload: p} }, 3},
}

// seen is all that a caller can see of a call.
type seen struct {
	Header   metadata.MD
	NoHeader bool
	Messages []string // hash and length
	Trailer  metadata.MD
	Code     codes.Code
	Message  string
	Details  string
}

// callRaw makes a call with messages as bytes and returns what there was to see.
func callRaw(ctx context.Context, cc *grpc.ClientConn, k kind, wire []byte) (seen, error) {
	var out seen
	stream, err := cc.NewStream(ctx, &k.desc, k.method, grpc.ForceCodecV2(call.Codec{}))
	if err != nil {
		return out, err
	}
	go func() {
		for range k.send {
			if stream.SendMsg(call.NewFrame(nil, wire)) != nil {
				return
			}
		}
		_ = stream.CloseSend()
	}()
	header, err := stream.Header()
	out.Header, out.NoHeader = header, header == nil && err == nil
	for {
		var f call.Frame
		err := stream.RecvMsg(&f)
		if err == nil {
			out.Messages = append(out.Messages, fmt.Sprintf("%x %d", sha256.Sum256(f.Bytes()), f.Len()))
			f.Release()
			if k.desc.ServerStreams {
				continue
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		st := status.Convert(err)
		out.Trailer, out.Code, out.Message = stream.Trailer(), st.Code(), st.Message()
		out.Details = fmt.Sprint(st.Details())
		return out, nil
	}
}

// TestMatrix compares what a caller sees through the mesh with a direct call.
func TestMatrix(t *testing.T) { matrix(t) }

// TestMatrixWithThirdParties has interceptors in the chain that look into every message. Still no byte may change.
func TestMatrixWithThirdParties(t *testing.T) {
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	payloads := atomic.Int64{}
	log := logging.LoggerFunc(func(_ context.Context, _ logging.Level, msg string, _ ...any) {
		if strings.Contains(msg, "sent") || strings.Contains(msg, "received") {
			payloads.Add(1)
		}
	})
	matrix(t, logging.StreamServerInterceptor(log, logging.WithLogOnEvents(logging.PayloadReceived, logging.PayloadSent)),
		validateinterceptor.StreamServerInterceptor(validator), recovery.StreamServerInterceptor())
	if payloads.Load() == 0 {
		t.Error("the third party has logged no message")
	}
}

func matrix(t *testing.T, chain ...grpc.StreamServerInterceptor) {
	s := &scripted{cancelled: make(chan struct{}, 100)}
	addr := startBackend(t, s)
	direct := client(t, addr)
	m := newMesh(t, meshOptions{targets: []string{addr}, chain: chain})
	large := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // 3 MiB
	for _, k := range kinds {
		for _, script := range []string{"ok", "bare", "large", "unknown", "trailers-only", "trailers-only-bare", "header-then-error", "empty-header-then-error", "reply-then-error", "strange-code"} {
			t.Run(k.name+"/"+script, func(t *testing.T) {
				body := []byte(script + " ")
				if script == "large" {
					body = append(body, large...)
				}
				msg := k.request(&testpb.Payload{Body: body})
				if script == "unknown" {
					u := protowire.AppendTag(nil, 1999, protowire.BytesType)
					u = protowire.AppendString(u, "from the future")
					u = protowire.AppendTag(u, 2000, protowire.VarintType)
					msg.ProtoReflect().SetUnknown(protowire.AppendVarint(u, 1<<63))
				}
				wire, err := proto.Marshal(msg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				want, err := callRaw(ctx, direct, k, wire)
				if err != nil {
					t.Fatal(err)
				}
				got, err := callRaw(ctx, m.door, k, wire)
				if err != nil {
					t.Fatal(err)
				}
				if id := got.Trailer["toolway-call-id"]; (len(id) == 1) != (got.Code != codes.OK) {
					t.Errorf("the mesh's call id is %q with %v, want one where a call has failed", id, got.Code)
				}
				delete(got.Trailer, "toolway-call-id")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("through the mesh differs from direct (-direct +mesh):\n%.2000s", diff)
				}
				if script == "ok" && (len(got.Messages) == 0 || got.Trailer["endpoint-load-metrics-bin"] == nil) {
					t.Errorf("got %v, want a reply and the load report", got)
				}
			})
		}
	}
}

func TestDeadline(t *testing.T) {
	s := &scripted{cancelled: make(chan struct{}, 100)}
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, s)}})
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			wire, _ := proto.Marshal(k.request(&testpb.Payload{Body: []byte("hang ")}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := callRaw(ctx, m.door, k, wire)
			if err != nil {
				t.Fatal(err)
			}
			if got.Code != codes.DeadlineExceeded {
				t.Errorf("got %v %q, want DEADLINE_EXCEEDED", got.Code, got.Message)
			}
			wait(t, s.cancelled, "the backend's call to end")
		})
	}
}

func TestCancelReachesBackend(t *testing.T) {
	s := &scripted{cancelled: make(chan struct{}, 100)}
	m := newMesh(t, meshOptions{targets: []string{startBackend(t, s)}})
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := m.door.NewStream(ctx, &k.desc, k.method)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(k.request(&testpb.Payload{Body: []byte("hang ")})); err != nil {
				t.Fatal(err)
			}
			if k.name != "unary" { // a unary call's header comes with the reply
				if h, err := stream.Header(); err != nil || len(h["x-header"]) != 1 {
					t.Fatalf("Header() = %v, %v, want the header before the first message", h, err)
				}
				cancel()
			} else {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			wait(t, s.cancelled, "the backend's call to be cancelled")
			for err == nil {
				err = stream.RecvMsg(&testpb.SimpleResponse{})
			}
			if status.Code(err) != codes.Canceled {
				t.Errorf("got %v, want CANCELLED", err)
			}
		})
	}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for %s", what)
	}
}
