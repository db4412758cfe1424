package call_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
)

// wrapper is a stream as third-party interceptors make them.
type wrapper struct {
	grpc.ServerStream
	received int
}

func (w *wrapper) RecvMsg(m any) error {
	w.received++
	return w.ServerStream.RecvMsg(m)
}

func TestStreamContext(t *testing.T) {
	c := call.New(method(t, "UnaryCall"), call.MCP)
	c.Forward = metadata.Pairs("x-request-id", "7")
	s := call.NewStream(t.Context(), c, call.One(nil), nil, nil)
	ctx := s.Context()
	if call.FromContext(ctx) != c {
		t.Error("the context does not carry the call")
	}
	if m, ok := grpc.Method(ctx); !ok || m != "/grpc.testing.TestService/UnaryCall" {
		t.Errorf("grpc.Method = %q, %v", m, ok)
	}
	if md, _ := metadata.FromIncomingContext(ctx); len(md["x-request-id"]) != 1 {
		t.Errorf("incoming metadata = %v", md)
	}
	if p, ok := peer.FromContext(ctx); !ok || p.Addr.String() != "mcp" {
		t.Errorf("peer = %v, %v, want the door", p, ok)
	}
	if err := grpc.SetHeader(ctx, metadata.Pairs("a", "1")); err != nil {
		t.Error(err)
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("b", "2")); err != nil {
		t.Error(err)
	}
	if s.Header()["a"] == nil || s.Trailer()["b"] == nil {
		t.Errorf("header %v, trailer %v", s.Header(), s.Trailer())
	}
}

func TestStreamHeader(t *testing.T) {
	var headers []metadata.MD
	var replies int
	s := call.NewStream(t.Context(), call.New(method(t, "StreamingOutputCall"), call.HTTP), call.One(nil),
		func(*call.Frame) error { replies++; return nil }, func(md metadata.MD) error { headers = append(headers, md); return nil })
	_ = s.SetHeader(metadata.Pairs("a", "1"))
	for range 2 {
		if err := s.SendMsg(&testpb.StreamingOutputCallResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	if replies != 2 || len(headers) != 1 || headers[0]["a"] == nil {
		t.Errorf("%d replies, headers %v", replies, headers)
	}
	if err := s.SetHeader(metadata.Pairs("late", "1")); status.Code(err) != codes.Internal {
		t.Errorf("SetHeader after the header: %v, want INTERNAL", err)
	}
	if err := s.SendHeader(nil); status.Code(err) != codes.Internal {
		t.Errorf("SendHeader after the header: %v, want INTERNAL", err)
	}
}

func TestStreamRefusesTwoReplies(t *testing.T) {
	s := call.NewStream(t.Context(), call.New(method(t, "UnaryCall"), call.HTTP), call.One(nil), func(*call.Frame) error { return nil }, nil)
	if err := s.SendMsg(&testpb.SimpleResponse{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&testpb.SimpleResponse{}); status.Code(err) != codes.Internal {
		t.Errorf("second reply: %v, want INTERNAL", err)
	}
	if err := s.SendMsg("text"); status.Code(err) != codes.Internal {
		t.Errorf("no message: %v, want INTERNAL", err)
	}
}

func TestRequestPeeksOnce(t *testing.T) {
	wire := request(t, "peek")
	for _, typed := range []bool{false, true} {
		pool := &counting{}
		var in call.Frame
		in.Set(nil, pool.pooled(wire))
		c := call.New(method(t, "UnaryCall"), call.HTTP)
		w := &wrapper{ServerStream: call.NewStream(t.Context(), c, call.One(&in), nil, nil)}
		f, err := call.Request(w)
		if err != nil || !bytes.Equal(f.Bytes(), wire) {
			t.Fatalf("Request = %v, %v", f, err)
		}
		if again, err := call.Request(w); again != f || err != nil {
			t.Errorf("second Request = %p, %v, want the same frame", again, err)
		}
		if m, err := f.Message(); err != nil || m.ProtoReflect().Descriptor().FullName() != "grpc.testing.SimpleRequest" {
			t.Errorf("peeked message: %v, %v", m, err)
		}
		if typed {
			out := &testpb.SimpleRequest{}
			if err := w.RecvMsg(out); err != nil || string(out.GetPayload().GetBody()) != "peek" {
				t.Errorf("RecvMsg = %v, %v", out, err)
			}
		} else {
			var out call.Frame
			if err := w.RecvMsg(&out); err != nil || !bytes.Equal(out.Bytes(), wire) {
				t.Errorf("RecvMsg = %x, %v", out.Bytes(), err)
			}
			out.Release()
		}
		if !bytes.Equal(f.Bytes(), wire) {
			t.Error("the peeked request is gone after it was delivered")
		}
		if w.received != 1 {
			t.Errorf("the wrapper saw %d RecvMsg, want 1", w.received)
		}
		if err := w.RecvMsg(&call.Frame{}); !errors.Is(err, io.EOF) {
			t.Errorf("RecvMsg after the request: %v, want EOF", err)
		}
		c.Finish()
		if n := pool.out.Load(); n != 0 {
			t.Errorf("%d buffers are not released", n)
		}
	}
}

func TestRequestRefusals(t *testing.T) {
	if _, err := call.Request(call.NewStream(t.Context(), call.New(method(t, "FullDuplexCall"), call.HTTP), call.One(nil), nil, nil)); err == nil {
		t.Error("Request of a bidi call: nil, want an error")
	}
	s := call.NewStream(t.Context(), call.New(method(t, "UnaryCall"), call.HTTP), call.One(call.NewFrame(nil, nil)), nil, nil)
	if err := s.RecvMsg(&call.Frame{}); err != nil {
		t.Fatal(err)
	}
	if _, err := call.Request(s); err == nil {
		t.Error("Request after RecvMsg: nil, want an error")
	}
	s = call.NewStream(t.Context(), call.New(method(t, "UnaryCall"), call.HTTP), call.One(nil), nil, nil)
	if _, err := call.Request(s); status.Code(err) != codes.Internal {
		t.Errorf("Request without one: %v, want INTERNAL", err)
	}
	if err := s.RecvMsg(&call.Frame{}); status.Code(err) != codes.Internal {
		t.Errorf("RecvMsg without a request: %v, want INTERNAL", err)
	}
}

func TestReceived(t *testing.T) {
	for size, kept := range map[int]bool{10: true, 100_000: false} {
		c := call.New(method(t, "UnaryCall"), call.HTTP)
		s := call.NewStream(t.Context(), c, call.One(call.NewFrame(nil, make([]byte, size))), nil, nil)
		if c.Received() != nil {
			t.Error("Received before RecvMsg")
		}
		if err := s.RecvMsg(&call.Frame{}); err != nil {
			t.Fatal(err)
		}
		if got := c.Received(); (got != nil) != kept {
			t.Errorf("Received of %d bytes = %v, want kept = %v", size, got, kept)
		}
	}
}

func TestStreamCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := call.NewStream(ctx, call.New(method(t, "FullDuplexCall"), call.HTTP), call.One(nil), nil, nil)
	cancel()
	if err := s.RecvMsg(&call.Frame{}); status.Code(err) != codes.Canceled {
		t.Errorf("RecvMsg: %v, want CANCELLED", err)
	}
	if err := s.SendMsg(&testpb.SimpleResponse{}); status.Code(err) != codes.Canceled {
		t.Errorf("SendMsg: %v, want CANCELLED", err)
	}
}

// TestOnStop has a door whose requests block until the call is over.
func TestOnStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		c := call.New(method(t, "FullDuplexCall"), call.HTTP)
		s := call.NewStream(t.Context(), c, func() (*call.Frame, error) {
			<-unblock
			return nil, io.ErrUnexpectedEOF
		}, nil, nil)
		s.OnStop(func() { close(unblock) })
		got := make(chan error)
		go func() { got <- s.RecvMsg(&call.Frame{}) }()
		synctest.Wait()
		c.StopRequests()
		c.StopRequests()
		if err := <-got; status.Code(err) != codes.Canceled {
			t.Errorf("RecvMsg: %v, want CANCELLED", err)
		}
	})
}

func TestNewID(t *testing.T) {
	a, b := call.NewID(), call.NewID()
	if len(a) != 32 || a == b {
		t.Errorf("NewID() = %q, %q", a, b)
	}
}
