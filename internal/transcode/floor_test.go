package transcode_test

import (
	"io"
	"math"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

// atom is one value of a message whose text takes formatting or escaping.
type atom struct {
	kind byte // 's'tring, 'i'nteger, quoted 'l'ong, 'f'loat, 't'imestamp
	bits int64
	text []byte
}

// atoms lists the values of a message in the order in which they are written.
func atoms(all []atom, m protoreflect.Message) []atom {
	if m.Descriptor().FullName() == "google.protobuf.Timestamp" {
		fds := m.Descriptor().Fields()
		return append(all, atom{kind: 't', bits: m.Get(fds.ByNumber(1)).Int()*1e9 + m.Get(fds.ByNumber(2)).Int()})
	}
	one := func(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch fd.Kind() {
		case protoreflect.StringKind:
			all = append(all, atom{kind: 's', text: []byte(v.String())})
		case protoreflect.Int32Kind:
			all = append(all, atom{kind: 'i', bits: v.Int()})
		case protoreflect.Int64Kind:
			all = append(all, atom{kind: 'l', bits: v.Int()})
		case protoreflect.DoubleKind:
			all = append(all, atom{kind: 'f', bits: int64(math.Float64bits(v.Float()))})
		case protoreflect.MessageKind:
			all = atoms(all, v.Message())
		}
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		switch v := m.Get(fd); {
		case !m.Has(fd):
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				one(fd.MapKey(), k.Value())
				one(fd.MapValue(), v)
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				one(fd, v.List().Get(i))
			}
		default:
			one(fd, v)
		}
	}
	return all
}

// floor appends the text of the values and nothing else.
func floor(out []byte, all []atom) []byte {
	for i := range all {
		switch a := &all[i]; a.kind {
		case 's':
			out, _ = transcode.AppendString(out, a.text)
		case 'i':
			out = strconv.AppendInt(out, a.bits, 10)
		case 'l':
			out = append(strconv.AppendInt(append(out, '"'), a.bits, 10), '"')
		case 'f':
			out = transcode.AppendFloat(out, math.Float64frombits(uint64(a.bits)), 64)
		case 't':
			out = transcode.AppendTimestamp(out, a.bits/1e9, int32(a.bits%1e9))
		}
	}
	return out
}

// BenchmarkFloor compares writing JSON with the formatting of numbers and the escaping of strings alone, turn by turn, so that a busy
// machine slows both. The figure is how many times the floor AppendJSON takes, and WriteJSON.
func BenchmarkFloor(b *testing.B) {
	for _, s := range shapes(b) {
		msg, err := s.set.decode(s.md, s.wire)
		if err != nil {
			b.Fatal(err)
		}
		all := atoms(nil, msg)
		m := s.set.codec.Message(s.md)
		buf := make([]byte, 0, 4*len(s.json))
		b.Run(s.name, func(b *testing.B) {
			turns := 1 + 200_000/len(s.json)
			best := [3]time.Duration{math.MaxInt64, math.MaxInt64, math.MaxInt64}
			for b.Loop() {
				for i, f := range []func() error{
					func() error { floor(buf, all); return nil },
					func() error { _, err := m.AppendJSON(buf, s.wire, transcode.WriteOptions{}); return err },
					func() error { return m.WriteJSON(io.Discard, s.wire, transcode.WriteOptions{}) },
				} {
					start := time.Now()
					for range turns {
						if err := f(); err != nil {
							b.Fatal(err)
						}
					}
					best[i] = min(best[i], time.Since(start)/time.Duration(turns))
				}
			}
			b.ReportMetric(float64(best[0].Nanoseconds()), "floor-ns")
			b.ReportMetric(float64(best[1])/float64(best[0]), "append/floor")
			b.ReportMetric(float64(best[2])/float64(best[0]), "write/floor")
		})
	}
}
