//go:build !race

package proxy_test

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/proxy"
)

// TestDoorAllocations holds a unary call through the door to what it costs now, with the chain, the audit and the attempts of a mesh on stock: what
// caller, mesh and backend in one process allocate for it, less what caller and backend do without the mesh. A bare proxy on grpc-go makes 144. The race
// detector has pools forget, so it is not for it.
func TestDoorAllocations(t *testing.T) {
	const former, slack = 169, 3 // what is on the wire together is not the same in every run
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, &impl{unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
	}})
	addr := listen(t, s, s.Stop)
	conn, err := dial.Open(dial.Config{Name: "echo", Targets: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	log := slog.New(slog.DiscardHandler)
	policies, _ := interceptors.DefaultAttempts(interceptors.AttemptOptions{Logger: log})
	router := backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{Attempts: interceptors.Attempts(policies...)})
	chain := interceptors.Default(interceptors.Options{Logger: log, Audit: interceptors.AuditOptions{Sink: audit.NewRing(100)}})
	p := proxy.New(proxy.Config{Catalog: static(t, "echo", testpb.File_grpc_testing_test_proto), Handler: interceptors.Chain(router.Handle, chain...)})
	door := listen(t, p, func() { p.Stop(context.Background()) })

	in := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 100)}}
	least := func(addr string) float64 { // of several, since what else goes on counts too
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		c := testpb.NewTestServiceClient(cc)
		best := 1e9
		for range 8 {
			best = min(best, testing.AllocsPerRun(200, func() {
				if _, err := c.UnaryCall(context.Background(), in); err != nil {
					t.Error(err)
				}
			}))
		}
		return best
	}
	got := least(door) - least(addr)
	t.Logf("%v allocations a call", got)
	if got > former+slack {
		t.Errorf("the gRPC door makes %v allocations a unary call, and made %d: find the new ones with go test ./internal/proxy -run xxx -bench Unary/mesh -memprofile m -memprofilerate 1, or raise the figure here and say why", got, former)
	}
}
