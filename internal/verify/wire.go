package verify

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wires makes the wire bytes of messages, as a server may answer them: every edge of every field once, then random ones. What ProtoJSON
// cannot write (a time out of its range, a Value with nothing in it) is not made.
type wires struct {
	rng    *rand.Rand
	types  []string
	made   map[protoreflect.FieldDescriptor]int // how many of a field's edges were made
	all    []protoreflect.FieldDescriptor       // that the message reaches
	random bool
	budget int
	// endless says that the last message lacks a required field, since required fields led back to their own message.
	endless bool
}

const maxMessageDepth = 6

func newWires(md protoreflect.MessageDescriptor, anyTypes []string, seed uint64) *wires {
	w := &wires{rng: rand.New(rand.NewPCG(seed, 6)), types: anyTypes, made: map[protoreflect.FieldDescriptor]int{}}
	seen := map[protoreflect.FullName]bool{}
	for todo := []protoreflect.MessageDescriptor{md}; len(todo) > 0; {
		md, todo = todo[0], todo[1:]
		if seen[md.FullName()] {
			continue
		}
		seen[md.FullName()] = true
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			w.all = append(w.all, fd)
			if fd.Message() != nil {
				todo = append(todo, fd.Message())
			}
		}
	}
	return w
}

// covered says whether every edge that can be reached was made. Fields deep down are not waited for.
func (w *wires) covered() bool {
	for _, fd := range w.all {
		if fd.Message() == nil && w.made[fd] > 0 && w.made[fd] < edges(fd) {
			return false
		}
	}
	return true
}

// next returns the next message.
func (w *wires) next(md protoreflect.MessageDescriptor, random bool) []byte {
	w.random, w.budget, w.endless = random, 1500, false
	return w.message(nil, md, 0)
}

func (w *wires) message(b []byte, md protoreflect.MessageDescriptor, depth int) []byte {
	if out, known := w.wellKnown(b, md, depth); known {
		return out
	}
	set := map[protoreflect.OneofDescriptor]protoreflect.FieldDescriptor{}
	for i := range md.Oneofs().Len() {
		od := md.Oneofs().Get(i)
		if !od.IsSynthetic() {
			set[od] = w.member(od)
		}
	}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if m := fd.Message(); m != nil && (m.IsPlaceholder() || fd.IsMap() && fd.MapValue().Message() != nil && fd.MapValue().Message().IsPlaceholder()) {
			continue
		}
		if chosen, in := set[fd.ContainingOneof()]; in && fd.ContainingOneof() != nil && chosen != fd {
			continue
		}
		if fd.Cardinality() != protoreflect.Required && !w.adds(fd, depth) {
			continue
		}
		b = w.field(b, fd, depth)
	}
	return b
}

// member decides which field of a oneof is set; nil is none.
func (w *wires) member(od protoreflect.OneofDescriptor) protoreflect.FieldDescriptor {
	fields := od.Fields()
	if !w.random {
		for i := range fields.Len() {
			if fd := fields.Get(i); w.made[fd] == 0 || fd.Message() == nil && w.made[fd] < edges(fd) {
				return fd
			}
		}
	}
	i := w.rng.IntN(fields.Len() + 1)
	if i == fields.Len() {
		return nil
	}
	return fields.Get(i)
}

func (w *wires) adds(fd protoreflect.FieldDescriptor, depth int) bool {
	w.budget--
	switch {
	case w.budget <= 0 || depth >= maxMessageDepth && fd.Message() != nil:
		return false
	case !w.random && fd.Message() == nil && w.made[fd] < edges(fd):
		return true
	}
	return w.rng.IntN(3) > 0
}

func (w *wires) field(b []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	switch {
	case depth > 40:
		w.endless = true
		return b
	case fd.IsMap():
		for range w.rng.IntN(4) {
			entry := w.single(nil, fd.MapKey(), depth)
			entry = w.single(entry, fd.MapValue(), depth)
			b = protowire.AppendTag(b, fd.Number(), protowire.BytesType)
			b = protowire.AppendBytes(b, entry)
		}
		w.made[fd]++
		return b
	case fd.IsList():
		return w.list(b, fd, depth)
	}
	return w.single(b, fd, depth)
}

func (w *wires) list(b []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	n := w.rng.IntN(4)
	if fd.Message() == nil && !w.random {
		n = min(max(n, edges(fd)-w.made[fd]), 40)
	}
	w.made[fd]++
	packable := fd.Kind() != protoreflect.StringKind && fd.Kind() != protoreflect.BytesKind && fd.Message() == nil
	if !packable || w.rng.IntN(4) == 0 { // readers take both forms, whatever the contract says
		for range n {
			b = w.single(b, fd, depth)
		}
		return b
	}
	var packed []byte
	for range n {
		packed, _ = w.scalar(packed, fd)
	}
	if n > 0 {
		b = protowire.AppendTag(b, fd.Number(), protowire.BytesType)
		b = protowire.AppendBytes(b, packed)
	}
	return b
}

// single appends one value with its tag.
func (w *wires) single(b []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		w.made[fd]++
		b = protowire.AppendTag(b, fd.Number(), protowire.BytesType)
		return protowire.AppendBytes(b, w.message(nil, fd.Message(), depth+1))
	case protoreflect.GroupKind:
		w.made[fd]++
		b = protowire.AppendTag(b, fd.Number(), protowire.StartGroupType)
		b = w.message(b, fd.Message(), depth+1)
		return protowire.AppendTag(b, fd.Number(), protowire.EndGroupType)
	}
	v, t := w.scalar(nil, fd)
	return append(protowire.AppendTag(b, fd.Number(), t), v...)
}

var (
	edgeTexts   = []string{"", "a", "über 日本 😀", "a\n\t\\\"\u0000\u2028", "long €" + strings.Repeat("x", 2000), "2026-01-31T08:30:00Z", "12"}
	edgeInt32   = []int32{0, 1, -1, math.MinInt32, math.MaxInt32}
	edgeUint32  = []uint32{0, 1, math.MaxUint32}
	edgeInt64   = []int64{0, 1, -1, math.MinInt64, math.MaxInt64, 9007199254740993}
	edgeUint64  = []uint64{0, 1, math.MaxUint64, 9007199254740993}
	edgeFloat   = []float64{0, 1.5, -2.25, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, math.SmallestNonzeroFloat32, math.Copysign(0, -1), 0.1}
	edgeDouble  = []float64{0, 1.5, -2.25, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, math.Copysign(0, -1), 0.1, 1e21}
	mostEnums   = 64
	unknownEnum = protoreflect.EnumNumber(math.MaxInt32 - 7)
)

// edges is how many values of fd are to be made at least.
func edges(fd protoreflect.FieldDescriptor) int {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return 2
	case protoreflect.EnumKind:
		return min(fd.Enum().Values().Len(), mostEnums) + 1
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return len(edgeInt32)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return len(edgeUint32)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return len(edgeInt64)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return len(edgeUint64)
	case protoreflect.FloatKind:
		return len(edgeFloat)
	case protoreflect.DoubleKind:
		return len(edgeDouble)
	case protoreflect.StringKind, protoreflect.BytesKind:
		return len(edgeTexts)
	}
	return 0
}

// edge returns the next value of a list of edges.
func edge[T any](w *wires, fd protoreflect.FieldDescriptor, vs []T) T {
	i := w.made[fd] % len(vs)
	if w.random {
		i = w.rng.IntN(len(vs))
	}
	w.made[fd]++
	return vs[i]
}

// scalar appends one value without tag, and returns its wire type.
func (w *wires) scalar(b []byte, fd protoreflect.FieldDescriptor) ([]byte, protowire.Type) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protowire.AppendVarint(b, protowire.EncodeBool(edge(w, fd, []bool{true, false}))), protowire.VarintType
	case protoreflect.EnumKind:
		return protowire.AppendVarint(b, uint64(int64(w.enum(fd)))), protowire.VarintType
	case protoreflect.Int32Kind:
		return protowire.AppendVarint(b, uint64(int64(edge(w, fd, edgeInt32)))), protowire.VarintType
	case protoreflect.Sint32Kind:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(int64(edge(w, fd, edgeInt32)))), protowire.VarintType
	case protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(b, uint32(edge(w, fd, edgeInt32))), protowire.Fixed32Type
	case protoreflect.Uint32Kind:
		return protowire.AppendVarint(b, uint64(edge(w, fd, edgeUint32))), protowire.VarintType
	case protoreflect.Fixed32Kind:
		return protowire.AppendFixed32(b, edge(w, fd, edgeUint32)), protowire.Fixed32Type
	case protoreflect.Int64Kind:
		return protowire.AppendVarint(b, uint64(edge(w, fd, edgeInt64))), protowire.VarintType
	case protoreflect.Sint64Kind:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(edge(w, fd, edgeInt64))), protowire.VarintType
	case protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(b, uint64(edge(w, fd, edgeInt64))), protowire.Fixed64Type
	case protoreflect.Uint64Kind:
		return protowire.AppendVarint(b, edge(w, fd, edgeUint64)), protowire.VarintType
	case protoreflect.Fixed64Kind:
		return protowire.AppendFixed64(b, edge(w, fd, edgeUint64)), protowire.Fixed64Type
	case protoreflect.FloatKind:
		return protowire.AppendFixed32(b, math.Float32bits(float32(edge(w, fd, edgeFloat)))), protowire.Fixed32Type
	case protoreflect.DoubleKind:
		return protowire.AppendFixed64(b, math.Float64bits(edge(w, fd, edgeDouble))), protowire.Fixed64Type
	}
	return protowire.AppendString(b, edge(w, fd, edgeTexts)), protowire.BytesType
}

// enum returns each number of the enum in turn, and one that has no name where that is allowed.
func (w *wires) enum(fd protoreflect.FieldDescriptor) protoreflect.EnumNumber {
	vs := fd.Enum().Values()
	n := edges(fd)
	i := w.made[fd] % n
	if w.random {
		i = w.rng.IntN(n)
	}
	w.made[fd]++
	switch {
	case i < vs.Len() && i < n-1:
		return vs.Get(i).Number()
	case fd.Enum().FullName() == "google.protobuf.NullValue" || vs.Len() > 0 && fd.Enum().IsClosed():
		return vs.Get(vs.Len() - 1).Number()
	}
	return unknownEnum
}

// wellKnown appends a message whose JSON form does not take every value.
func (w *wires) wellKnown(b []byte, md protoreflect.MessageDescriptor, depth int) ([]byte, bool) {
	short, ok := strings.CutPrefix(string(md.FullName()), "google.protobuf.")
	if !ok {
		return b, false
	}
	type instant struct{ seconds, nanos int64 }
	appendInstant := func(t instant) []byte {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(t.seconds))
		return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(t.nanos))
	}
	pick := func(n int) int { return w.rng.IntN(n) }
	switch short {
	case "Timestamp":
		ts := []instant{{0, 0}, {-62135596800, 0}, {253402300799, 999999999}, {1769848200, 5000}, {-1, 120000000}}
		return appendInstant(ts[pick(len(ts))]), true
	case "Duration":
		ds := []instant{{0, 0}, {315576000000, 0}, {-315576000000, 0}, {0, -1}, {1, 999999999}, {-1, -500000000}}
		return appendInstant(ds[pick(len(ds))]), true
	case "FieldMask":
		paths := []string{"a", "foo_bar", "a.b_c.d"}
		for range pick(3) {
			b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), paths[pick(len(paths))])
		}
		return b, true
	case "Value":
		return w.jsonValue(b, md, depth), true
	case "Any":
		if len(w.types) == 0 || pick(3) == 0 {
			return b, true
		}
		return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), "type.googleapis.com/"+w.types[pick(len(w.types))]), true
	}
	return b, false
}

// jsonValue appends a google.protobuf.Value, which has exactly one field, and no number that JSON lacks.
func (w *wires) jsonValue(b []byte, md protoreflect.MessageDescriptor, depth int) []byte {
	kinds := 6
	if depth >= maxMessageDepth {
		kinds = 4
	}
	switch w.rng.IntN(kinds) {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 0)
	case 1:
		numbers := []float64{0, 1.5, -2.25, math.MaxFloat64, 9007199254740991}
		return protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), math.Float64bits(numbers[w.rng.IntN(len(numbers))]))
	case 2:
		return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), edgeTexts[w.rng.IntN(len(edgeTexts))])
	case 3:
		return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(w.rng.IntN(2)))
	case 4:
		return w.single(b, md.Fields().ByNumber(5), depth)
	}
	return w.single(b, md.Fields().ByNumber(6), depth)
}
