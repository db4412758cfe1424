package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/proxy"

	"log/slog"
)

// bench returns clients of a backend, direct and through the mesh, with grpc-go's own buffer pools.
func bench(b *testing.B) map[string]testpb.TestServiceClient {
	b.Helper()
	serve := func(s interface{ Serve(net.Listener) error }, stop func()) string { return listen(b, s, stop) }
	s := grpc.NewServer(grpc.NumStreamWorkers(8))
	testpb.RegisterTestServiceServer(s, &impl{
		unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
		},
		output: func(in *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			out := &testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}
			for range in.GetResponseParameters()[0].GetSize() {
				if err := s.Send(out); err != nil {
					return err
				}
			}
			return nil
		},
	})
	addr := serve(s, s.Stop)
	conn, err := dial.Open(dial.Config{Name: "echo", Targets: []string{addr}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	router := backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{})
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	p := proxy.New(proxy.Config{Catalog: static(b, "echo", testpb.File_grpc_testing_test_proto), Handler: interceptors.Chain(router.Handle, interceptors.Default(interceptors.Options{Logger: log})...)})
	door := serve(p, func() { p.Stop(context.Background()) })
	out := map[string]testpb.TestServiceClient{}
	for name, addr := range map[string]string{"direct": addr, "mesh": door} {
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cc.Close() })
		out[name] = testpb.NewTestServiceClient(cc)
	}
	return out
}

// BenchmarkProxyUnary has caller, mesh and backend in one process: the figures of "mesh" hold all three, and only ratios mean something.
func BenchmarkProxyUnary(b *testing.B) {
	clients := bench(b)
	in := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 100)}}
	for _, name := range []string{"direct", "mesh"} {
		for _, callers := range []int{1, 16} {
			b.Run(name+"/"+map[int]string{1: "1 caller", 16: "16 callers"}[callers], func(b *testing.B) {
				b.ReportAllocs()
				var wg sync.WaitGroup
				for i := range callers {
					n := b.N / callers
					if i == 0 {
						n += b.N % callers
					}
					wg.Go(func() {
						for range n {
							if _, err := clients[name].UnaryCall(context.Background(), in); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkProxyStream counts messages of one server stream.
func BenchmarkProxyStream(b *testing.B) {
	clients := bench(b)
	for _, name := range []string{"direct", "mesh"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 100)}, ResponseParameters: []*testpb.ResponseParameters{{Size: int32(b.N)}}}
			stream, err := clients[name].StreamingOutputCall(context.Background(), in)
			if err != nil {
				b.Fatal(err)
			}
			for {
				if _, err := stream.Recv(); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
