package proxy_test

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/dial"
)

// TestIdleStreamsAndCalls has 100 idle streams of all kinds, through the door, at a backend that allows 8 on a connection: unary calls go on. One
// stream too many is refused with a mend, and when the door stops all of them end.
func TestIdleStreamsAndCalls(t *testing.T) {
	var open sync.WaitGroup
	idle := func(s grpc.ServerStream) error {
		open.Add(1)
		defer open.Done()
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}
	addr := startBackend(t, &impl{
		unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{}, nil
		},
		output: func(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			return idle(s)
		},
		duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
			return idle(s)
		},
	}, grpc.MaxConcurrentStreams(8))
	m := newMesh(t, meshOptions{targets: []string{addr}, dial: dial.Config{MaxConnections: 16}})
	ctx := within(t)
	c := testpb.NewTestServiceClient(m.door)
	stream := func(i int) (grpc.ClientStream, error) {
		var s grpc.ClientStream
		var err error
		if i%2 == 0 {
			s, err = c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
		} else {
			s, err = c.FullDuplexCall(ctx)
		}
		if err != nil {
			return nil, err
		}
		if md, err := s.Header(); err != nil || md == nil {
			return nil, s.RecvMsg(&testpb.StreamingOutputCallResponse{})
		}
		return s, nil
	}
	streams := make([]grpc.ClientStream, 105) // 15 connections of 7: one of the eight is the health watch's
	var opening sync.WaitGroup
	for i := range streams {
		opening.Go(func() {
			var err error
			if streams[i], err = stream(i); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	opening.Wait()
	for i := range 2 {
		_, err := stream(i)
		if got := info(err).GetReason(); got != "STREAMS_FULL" || status.Code(err) != codes.Unavailable {
			t.Errorf("one stream too many: %v with %q, want UNAVAILABLE with STREAMS_FULL", err, got)
		}
		if info(err).GetMetadata()["hint"] == "" {
			t.Errorf("one stream too many: %v, without a mend", err)
		}
	}
	for range 20 {
		if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}); err != nil {
			t.Errorf("unary call beside idle streams: %v", err)
		}
	}
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	m.server.Stop(stop)
	for _, s := range streams {
		if s != nil && s.RecvMsg(&testpb.StreamingOutputCallResponse{}) == nil {
			t.Error("a stream has outlived the door")
		}
	}
	open.Wait()
}

// TestCut has streams of both kinds under way when the door is cut: their callers are told why, with details, before connections are closed; and so is
// whoever calls after that on a connection that is still there.
func TestCut(t *testing.T) {
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	began := make(chan struct{}, 8)
	addr := startBackend(t, &impl{
		output: func(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			began <- struct{}{}
			return wait(s.Context())
		},
		duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
			began <- struct{}{}
			return wait(s.Context())
		},
	})
	m := newMesh(t, meshOptions{targets: []string{addr}})
	ctx := within(t)
	c := testpb.NewTestServiceClient(m.door)
	calls := map[string]func() error{
		"server stream": func() error {
			s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"bidi": func() error {
			s, err := c.FullDuplexCall(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	var ended sync.WaitGroup
	told := func(kind string, err error) {
		if got := info(err).GetReason(); status.Code(err) != codes.Unavailable || got != "SHUTTING_DOWN" {
			t.Errorf("%s: %v with %q, want UNAVAILABLE with SHUTTING_DOWN", kind, err, got)
		}
	}
	for kind, do := range calls {
		ended.Go(func() { told(kind, do()) })
	}
	for range calls {
		<-began
	}
	m.server.Cut(call.Error(codes.Unavailable, "SHUTTING_DOWN", "the mesh is shutting down"))
	ended.Wait()
	told("after the cut", calls["bidi"]())
}
