package interceptors_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

// BenchmarkOnce is the cost of idempotency alone, over the bare stream: for a call without a key, for the first with one, and for a replay;
// "template" is a replay whose key is made of the request.
func BenchmarkOnce(b *testing.B) {
	snap := contract(b, onceContract)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	final := func(_ any, s grpc.ServerStream) error {
		call.FromContext(s.Context()).MarkSent()
		return s.SendMsg(call.NewFrame(nil, []byte("\n\x017")))
	}
	for _, c := range []struct{ name, method, key string }{
		{"bare", "Place", ""}, {"no key", "Place", ""}, {"first", "Place", "new"}, {"replay", "Place", "same"}, {"template", "Keyed", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := snap.Method("/shop.v1.Shop/" + c.method)
			wire := requestOf(b, m, `{"id":"7","lines":{"a":1,"b":2}}`)
			chain := []interceptors.Policy{interceptors.Idempotency(interceptors.Options{Logger: discard(), Idempotency: interceptors.IdempotencyOptions{Store: interceptors.NewKeyMemory(4<<30, 0)}})}
			if c.name == "bare" {
				chain = nil
			}
			h := interceptors.Chain(final, chain...)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				one := call.New(m, call.GRPC)
				switch c.key {
				case "new":
					n++
					one.Forward = metadata.MD{"idempotency-key": {strconv.Itoa(n)}}
				case "same":
					one.Forward = metadata.MD{"idempotency-key": {"k"}}
				}
				s := call.NewStream(ctx, one, call.One(call.NewFrame(nil, wire)), func(*call.Frame) error { return nil }, nil)
				if err := h(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
