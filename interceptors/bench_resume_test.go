package interceptors_test

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// BenchmarkResume is what the cursor of one message costs.
func BenchmarkResume(b *testing.B) {
	m := contract(b, feedProto).Method("/feed.v1.Feed/Watch")
	f := call.NewFrame(m.Desc.Output(), fromJSON(b, m.Response(), `{"text":"a text of some length, as messages have","meta":{"seq":123456}}`))
	s := call.NewStream(b.Context(), call.New(m, call.GRPC), call.One(call.NewFrame(nil, nil)), func(*call.Frame) error { return nil }, nil)
	final := func(_ any, s grpc.ServerStream) error {
		for b.Loop() {
			if err := s.SendMsg(f); err != nil {
				return err
			}
		}
		return nil
	}
	b.ReportAllocs()
	if err := interceptors.Chain(final, interceptors.Resume(interceptors.Options{}))(s); err != nil {
		b.Fatal(err)
	}
}
