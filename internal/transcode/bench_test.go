package transcode_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// shape is one of the shapes of PERFORMANCE.md.
type shape struct {
	name string
	set  *descriptorSet
	md   protoreflect.MessageDescriptor
	json []byte
	wire []byte
}

func shapes(t testing.TB) []shape {
	set := compileProto(t, logProto)
	small := `{"orderId":"ord-2026-000123","quantity":3,"price":149.95,"express":true,"customerNote":"ring twice, please"}`
	reply := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"entries":[`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"time":"2026-11-%02dT12:%02d:07.%03dZ","severity":%q,"service":"checkout-%d","message":"payment %d accepted after retry; upstream said \"ok\" in time, no further action is needed by anyone on call",`+
				`"traceId":"4bf92f3577b34da6a3ce929d0e0e%04x","durationUs":"%d","labels":{"env":"production","region":"eu-central-1","zone":"b","pod":"checkout-7d9f-%d"},"shards":[1,22,%d]}`,
				1+i%28, i%60, i%999+1, []string{"DEBUG", "INFO", "WARNING", "ERROR"}[i%4], i%7, i, i%65536, 1000+i*37, i, i+300)
		}
		fmt.Fprintf(&b, `],"nextPageToken":"cGFnZS0y","total":%d}`, n)
		return b.String()
	}
	var all []shape
	for _, s := range []struct{ name, message, json string }{
		{"small", "bench.Small", small}, {"medium", "bench.SearchReply", reply(50)}, {"large", "bench.SearchReply", reply(3000)},
	} {
		md := set.message(t, protoreflect.FullName(s.message))
		msg, err := set.oracleWire(md, []byte(s.json), transcode.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wire, err := set.marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shape{name: s.name, set: set, md: md, json: []byte(s.json), wire: wire})
	}
	return all
}

// BenchmarkToJSON turns wire bytes into JSON; ours next to dynamicpb with protojson.
func BenchmarkToJSON(b *testing.B) {
	for _, s := range shapes(b) {
		b.Run(s.name+"/direct", func(b *testing.B) {
			m := s.set.codec.Message(s.md)
			buf := make([]byte, 0, 4*len(s.json))
			run(b, len(s.json), func() error {
				_, err := m.AppendJSON(buf, s.wire, transcode.WriteOptions{})
				return err
			})
		})
		b.Run(s.name+"/dynamic", func(b *testing.B) {
			o := protojson.MarshalOptions{Resolver: s.set.types}
			buf := make([]byte, 0, 4*len(s.json))
			run(b, len(s.json), func() error {
				msg := dynamicpb.NewMessage(s.md)
				if err := proto.Unmarshal(s.wire, msg); err != nil {
					return err
				}
				_, err := o.MarshalAppend(buf, msg)
				return err
			})
		})
	}
}

// BenchmarkToWire turns JSON into wire bytes; ours next to dynamicpb with protojson.
func BenchmarkToWire(b *testing.B) {
	for _, s := range shapes(b) {
		b.Run(s.name+"/direct", func(b *testing.B) {
			m := s.set.codec.Message(s.md)
			buf := make([]byte, 0, 4*len(s.json))
			run(b, len(s.json), func() error {
				_, err := m.AppendWire(buf, s.json, transcode.ReadOptions{})
				return err
			})
		})
		b.Run(s.name+"/dynamic", func(b *testing.B) {
			o := protojson.UnmarshalOptions{Resolver: s.set.types}
			buf := make([]byte, 0, 4*len(s.json))
			run(b, len(s.json), func() error {
				msg := dynamicpb.NewMessage(s.md)
				if err := o.Unmarshal(s.json, msg); err != nil {
					return err
				}
				_, err := proto.MarshalOptions{}.MarshalAppend(buf, msg)
				return err
			})
		})
	}
}

// BenchmarkCanonical brings wire bytes into canonical form and checks them.
func BenchmarkCanonical(b *testing.B) {
	for _, s := range shapes(b) {
		m := s.set.codec.Message(s.md)
		buf := make([]byte, 0, 4*len(s.wire))
		b.Run(s.name+"/canonical", func(b *testing.B) {
			run(b, len(s.wire), func() error {
				_, err := m.AppendCanonical(buf, s.wire)
				return err
			})
		})
		b.Run(s.name+"/check", func(b *testing.B) {
			run(b, len(s.wire), func() error { return m.Check(s.wire) })
		})
	}
}

// BenchmarkCompile compiles every message of a large set, one a time.
func BenchmarkCompile(b *testing.B) {
	set := loadSet(b, "googleapis-core")
	all := set.messages()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(all) == 0 {
			set.codec = transcode.NewSet(set.types)
		}
		_ = set.codec.Message(all[i%len(all)]).Check(nil)
	}
}

func run(b *testing.B, size int, f func() error) {
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSteadyState asserts that nothing is allocated once the buffers are there.
func TestSteadyState(t *testing.T) {
	for _, s := range shapes(t) {
		m := s.set.codec.Message(s.md)
		buf := make([]byte, 0, 4*len(s.json))
		for name, f := range map[string]func() error{
			"AppendJSON":      func() error { _, err := m.AppendJSON(buf, s.wire, transcode.WriteOptions{}); return err },
			"AppendWire":      func() error { _, err := m.AppendWire(buf, s.json, transcode.ReadOptions{}); return err },
			"AppendCanonical": func() error { _, err := m.AppendCanonical(buf, s.wire); return err },
			"Check":           func() error { return m.Check(s.wire) },
		} {
			rounds := 1 + 1000000/len(s.json)
			if raceEnabled {
				rounds = 1
			}
			if n := testing.AllocsPerRun(min(rounds, 50), func() {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}); n >= 1 && !raceEnabled {
				t.Errorf("%s of the %s shape: %v allocations, want none", name, s.name, n)
			}
		}
	}
}
