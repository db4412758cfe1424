//go:build !race

package backend_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/dial"
)

// TestAttemptAllocations holds what a unary attempt costs beyond the gRPC call itself, bare and with the guards of a mesh on stock. The race
// detector has pools forget, so it is not for it.
func TestAttemptAllocations(t *testing.T) {
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
	m := snapshot(t).Method("/grpc.testing.TestService/UnaryCall")
	wire, err := proto.Marshal(&testpb.SimpleRequest{Payload: payload("a")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	least := func(f func() error) float64 { // of several, since what else goes on counts too
		best := 1e9
		for range 8 {
			best = min(best, testing.AllocsPerRun(200, func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}))
		}
		return best
	}
	through := func(final grpc.StreamHandler) float64 {
		return least(func() error {
			c := call.New(m, call.GRPC)
			defer c.Finish()
			return final(nil, call.NewStream(ctx, c, call.One(call.NewFrame(nil, wire)), func(*call.Frame) error { return nil }, nil))
		})
	}
	bare := through(func(_ any, s grpc.ServerStream) error {
		var request, reply call.Frame
		defer reply.Release()
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		defer request.Release()
		if err := conn.Invoke(s.Context(), m.FullMethod, &request, &reply, grpc.ForceCodecV2(call.Codec{})); err != nil {
			return err
		}
		return s.SendMsg(&reply)
	})
	conns := func(string) *dial.Conn { return conn }
	policies, _ := interceptors.DefaultAttempts(interceptors.AttemptOptions{})
	for _, c := range []struct {
		name          string
		options       backend.Options
		former, slack float64
	}{
		{"unguarded", backend.Options{}, 15, 2},
		{"guarded", backend.Options{Attempts: interceptors.Attempts(policies...)}, 18, 2},
	} {
		got := through(backend.New(conns, nil, c.options).Handle) - bare
		t.Logf("%s: %v allocations", c.name, got)
		if got > c.former+c.slack {
			t.Errorf("an attempt, %s, makes %v allocations beyond the gRPC call, and made %v: find the new ones with -memprofile, or raise the figure here and say why", c.name, got, c.former)
		}
	}
}
