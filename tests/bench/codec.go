package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"

	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/tests/internal/probe"
)

// codec compares ours with protojson, on generated and on dynamic messages, in one goroutine and turn by turn.
func codec(ctx context.Context, rounds int, turn time.Duration, doc *document, found results) error {
	t := &table{title: fmt.Sprintf("Codec, median of %d turns of %v each", rounds, turn), head: []string{
		"", "ours: µs", "MB/s", "allocations", "dynamicpb + protojson ÷ ours", "allocations", "generated + protojson ÷ ours", "allocations",
	}}
	server := probe.New()
	for _, of := range []struct {
		name    string
		entries int32
	}{{"small", 0}, {"medium", mediumEntries}, {"large", largeEntries}} {
		reply, err := server.Search(ctx, &probev1.SearchRequest{Count: max(1, of.entries)})
		if err != nil {
			return err
		}
		var m proto.Message = reply
		if of.entries == 0 { // five scalar fields
			e := reply.GetEntries()[0]
			m = &probev1.Entry{Severity: e.GetSeverity(), Service: e.GetService(), Message: "ring twice, please", TraceId: e.GetTraceId()[:16], DurationUs: 12345}
		}
		for _, to := range []string{"JSON", "wire"} {
			fs, size, err := codecs(m, to)
			if err != nil {
				return err
			}
			took, allocs, err := turns(fs, rounds, turn)
			if err != nil {
				return fmt.Errorf("codec, %s to %s: %w", of.name, to, err)
			}
			name := fmt.Sprintf("%s (%s) to %s", of.name, sizeOf(size), to)
			t.add(name, fmt.Sprintf("%.2f", took[0]*1e6), fmt.Sprintf("%.0f", float64(size)/took[0]/1e6), fmt.Sprintf("%.0f", allocs[0]),
				ratio(took[1], took[0]), fmt.Sprintf("%.0f", allocs[1]), ratio(took[2], took[0]), fmt.Sprintf("%.0f", allocs[2]))
			found["codec "+of.name+" to "+to] = took[1] / took[0]
			found["codec allocations"] += allocs[0]
		}
	}
	return doc.putTables("codec", t)
}

func sizeOf(n int) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.0f KB", float64(n)/1000)
}

// codecs are ours, dynamicpb with protojson, and generated code with protojson, in one direction; size is that of the JSON.
func codecs(m proto.Message, to string) (fs []func() error, size int, err error) {
	wire, err := proto.Marshal(m)
	if err != nil {
		return nil, 0, err
	}
	md := m.ProtoReflect().Descriptor()
	ours := transcode.NewSet(protoregistry.GlobalTypes).Message(md)
	text, err := ours.AppendJSON(nil, wire, transcode.WriteOptions{})
	if err != nil {
		return nil, 0, err
	}
	buf := make([]byte, 0, 4*len(text))
	dynamic := func() proto.Message { return dynamicpb.NewMessage(md) }
	generated := func() proto.Message { return m.ProtoReflect().New().Interface() }
	if to == "JSON" {
		by := func(empty func() proto.Message) func() error {
			return func() error {
				in := empty()
				if err := proto.Unmarshal(wire, in); err != nil {
					return err
				}
				_, err := protojson.MarshalOptions{}.MarshalAppend(buf, in)
				return err
			}
		}
		return []func() error{func() error {
			_, err := ours.AppendJSON(buf, wire, transcode.WriteOptions{})
			return err
		}, by(dynamic), by(generated)}, len(text), nil
	}
	by := func(empty func() proto.Message) func() error {
		return func() error {
			in := empty()
			if err := protojson.Unmarshal(text, in); err != nil {
				return err
			}
			_, err := proto.MarshalOptions{}.MarshalAppend(buf, in)
			return err
		}
	}
	return []func() error{func() error {
		_, err := ours.AppendWire(buf, text, transcode.ReadOptions{})
		return err
	}, by(dynamic), by(generated)}, len(text), nil
}

// turns runs functions turn by turn, and returns the median of the seconds of processor time that each takes once, the collector's included, and
// what it allocates. Wall-clock time would tell more of what else the machine does.
func turns(fs []func() error, rounds int, turn time.Duration) (took, allocs []float64, err error) {
	all := make([][]float64, len(fs))
	counts := make([]int, len(fs))
	for i, f := range fs {
		counts[i] = 1
		for used := time.Duration(0); used < turn/4; counts[i] *= 2 {
			if used, _, err = repeat(f, counts[i]); err != nil {
				return nil, nil, err
			}
		}
		allocs = append(allocs, math.Inf(1))
	}
	for range rounds {
		for i, f := range fs {
			used, made, err := repeat(f, counts[i])
			if err != nil {
				return nil, nil, err
			}
			all[i] = append(all[i], used.Seconds()/float64(counts[i]))
			allocs[i] = min(allocs[i], float64(made/uint64(counts[i])))
		}
	}
	for _, v := range all {
		took = append(took, median(v))
	}
	return took, allocs, nil
}

// repeat calls f and says what processor time this process took meanwhile, and how many objects it allocated.
func repeat(f func() error, times int) (used time.Duration, allocs uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from, err := ownCPU()
	if err != nil {
		return 0, 0, err
	}
	for range times {
		if err := f(); err != nil {
			return 0, 0, err
		}
	}
	to, err := ownCPU()
	if err != nil {
		return 0, 0, err
	}
	runtime.ReadMemStats(&after)
	return to - from, after.Mallocs - before.Mallocs, nil
}
