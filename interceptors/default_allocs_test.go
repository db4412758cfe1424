//go:build !race

package interceptors_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// TestDefaultChainAllocations holds the chain of a plain method to six allocations. The race detector has pools forget, so it is not for it.
func TestDefaultChainAllocations(t *testing.T) {
	const most = 6 // and former
	m := method(t, "UnaryCall")
	wire := marshal(t, &testpb.SimpleRequest{ResponseSize: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	least := func(chain ...interceptors.Policy) float64 { // of several, since what else goes on counts too
		h := interceptors.Chain(reflect, chain...)
		best := 1e9
		for range 5 {
			best = min(best, testing.AllocsPerRun(200, func() {
				s := call.NewStream(ctx, call.New(m, call.GRPC), call.One(call.NewFrame(nil, wire)), func(*call.Frame) error { return nil }, nil)
				if err := h(s); err != nil {
					t.Error(err)
				}
			}))
		}
		return best
	}
	if got := least(interceptors.Default(meshDefaults())...) - least(); got > most {
		t.Errorf("the default chain makes %v allocations a call, and made %d, which is the most that it may: find the new ones with go test ./interceptors -run xxx -bench Chain -memprofile m -memprofilerate 1", got, most)
	}
}

// TestStreamMessagesAllocateNothing holds what the default chain does for each message of a stream to no allocation.
func TestStreamMessagesAllocateNothing(t *testing.T) {
	m := method(t, "StreamingOutputCall")
	wire := marshal(t, &testpb.StreamingOutputCallRequest{})
	reply := call.NewFrame(nil, marshal(t, &testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte("some text")}}))
	of := func(messages int) float64 {
		h := interceptors.Chain(func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(&call.Frame{}); err != nil {
				return err
			}
			for range messages {
				if err := stream.SendMsg(reply); err != nil {
					return err
				}
			}
			return nil
		}, interceptors.Default(meshDefaults())...)
		best := 1e9
		for range 5 {
			best = min(best, testing.AllocsPerRun(100, func() {
				s := call.NewStream(context.Background(), call.New(m, call.GRPC), call.One(call.NewFrame(nil, wire)), func(*call.Frame) error { return nil }, nil)
				if err := h(s); err != nil {
					t.Error(err)
				}
			}))
		}
		return best
	}
	if few, many := of(10), of(1010); many-few > 10 {
		t.Errorf("a stream of 1,010 messages makes %v allocations, one of 10 makes %v", many, few)
	}
}
