package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestSlowReaderSlowsItsBackendAlone has a reader that takes one message and no more for a while, as events and over gRPC: its backend can send what the
// sockets and windows between hold, and no more, while another reader of the same backend gets all of its own stream. Then it reads on and
// misses nothing.
func TestSlowReaderSlowsItsBackendAlone(t *testing.T) {
	t.Parallel()
	const (
		messages = 1500
		size     = 16 << 10
		held     = 1000 // the kernel's buffers on loopback are megabytes
	)
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	watch := func(ctx context.Context, t *testing.T, id string) func() int32 {
		t.Helper()
		stream, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC)).Watch(ctx, &probev1.WatchRequest{Id: id, Plan: &probev1.Plan{Count: messages, Size: size}})
		if err != nil {
			t.Fatal(err)
		}
		return func() int32 {
			m, err := stream.Recv()
			if err != nil || len(m.GetText()) != size {
				t.Fatalf("message with %d bytes, %v", len(m.GetText()), err)
			}
			return m.GetIndex()
		}
	}
	for _, door := range []struct {
		name string
		open func(ctx context.Context, t *testing.T, id string) (next func() int32)
	}{{"grpc", watch}, {"events", func(ctx context.Context, t *testing.T, id string) func() int32 {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", mesh.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /v1/probe/%s/events?plan.count=%d&plan.size=%d HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", id, messages, size); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		return func() int32 {
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				data, ok := strings.CutPrefix(line, "data: ")
				if !ok {
					continue
				}
				var m struct {
					Index int32
					Text  string
				}
				if err := json.Unmarshal([]byte(data), &m); err != nil || len(m.Text) != size {
					t.Fatalf("%.100s: %v", data, err)
				}
				return m.Index
			}
		}
	}}} {
		t.Run(door.name, func(t *testing.T) {
			ctx := patience(t)
			slow := door.open(ctx, t, "slow-"+door.name)
			if got := slow(); got != 0 {
				t.Fatalf("first message %d", got)
			}
			call := mustSee(ctx, t, server, "slow-"+door.name)
			other := watch(ctx, t, "other-"+door.name)
			for i := range int32(messages) {
				if got := other(); got != i {
					t.Fatalf("the other reader got message %d, want %d", got, i)
				}
			}
			if n := call.Sent(); n > held {
				t.Errorf("the backend has sent %d messages of %d KiB to a reader who has taken one", n, size>>10)
			}
			for i := int32(1); i < messages; i++ {
				if got := slow(); got != i {
					t.Fatalf("the slow reader got message %d, want %d", got, i)
				}
			}
		})
	}
}
