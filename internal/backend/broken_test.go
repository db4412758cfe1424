package backend_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/dial"
)

// breaking sends one message, then does as it is told.
type breaking struct {
	testpb.UnimplementedTestServiceServer
	end  error
	stop chan struct{}
}

func (b *breaking) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil || b.end != nil {
		if err == nil {
			err = b.end
		}
		return err
	}
	<-b.stop
	return nil
}

// TestBrokenStream has streams that end after their first message: by the backend's own status, which passes as it is, or because the backend
// is killed, which is told as for a call that has got no message yet.
func TestBrokenStream(t *testing.T) {
	snap := snapshot(t)
	for name, c := range map[string]struct {
		end  error
		want []string // any of these: the kernel tells of a killed peer by an end of file or by a reset, as the packets fall
		own  bool
	}{
		"own": {status.Error(codes.Unavailable, "too busy"), []string{"too busy"}, true},
		"killed": {nil, []string{
			`backend "b" is unavailable: the connection was closed`,
			`backend "b" is unavailable: connection reset by peer`,
			`backend "b" is unavailable: broken pipe`,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			b := &breaking{end: c.end, stop: make(chan struct{})}
			testpb.RegisterTestServiceServer(s, b)
			var wg sync.WaitGroup
			wg.Go(func() { _ = s.Serve(l) })
			var once sync.Once
			kill := func() { once.Do(func() { wg.Go(s.Stop) }) }
			conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{l.Addr().String()}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = conn.Close()
				kill()
				close(b.stop)
				wg.Wait()
			}()
			cl := call.New(snap.Method("/grpc.testing.TestService/StreamingOutputCall"), call.MCP)
			stream := call.NewStream(t.Context(), cl, call.One(call.NewFrame(nil, nil)), func(*call.Frame) error {
				if c.end == nil {
					kill()
				}
				return nil
			}, nil)
			st := status.Convert(backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{}).Handle(nil, stream))
			if st.Code() != codes.Unavailable || !slices.Contains(c.want, st.Message()) {
				t.Fatalf("got %v %q, want UNAVAILABLE and one of %q", st.Code(), st.Message(), c.want)
			}
			if c.own {
				if len(st.Details()) != 0 {
					t.Errorf("details %v were added to the backend's own status", st.Details())
				}
				return
			}
			info, _ := st.Details()[0].(*errdetails.ErrorInfo)
			if info.GetReason() != "OUTCOME_UNKNOWN" || !strings.Contains(info.GetMetadata()["hint"], "whether it took effect is not known; look up the state") {
				t.Errorf("detail %v, want OUTCOME_UNKNOWN with the hint to look up the state", info)
			}
		})
	}
}
