package transcode_test

import (
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// generator makes random wire bytes for a descriptor. A calm one writes as encoders do; others repeat, split, reorder and override
// fields, mix packed with unpacked, and add unknown fields and wrong wire types.
type generator struct {
	*rand.Rand
	calm bool
	// anyTypes are put into google.protobuf.Any.
	anyTypes []protoreflect.MessageDescriptor
	budget   int
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) message(md protoreflect.MessageDescriptor, depth int) []byte {
	if b, ok := g.known(md, depth); ok {
		return b
	}
	var parts [][]byte
	oneofs := map[protoreflect.Name]bool{}
	fds := md.Fields()
	keep := 60
	if n := fds.Len(); n > 20 {
		keep = 900 / n
	}
	for i := range fds.Len() {
		fd := fds.Get(i)
		if !g.chance(keep) || depth <= 0 && fd.Message() != nil && !g.chance(10) || g.budget <= 0 {
			continue
		}
		if od := fd.ContainingOneof(); od != nil && !od.IsSynthetic() {
			if oneofs[od.Name()] && (g.calm || !g.chance(30)) {
				continue
			}
			oneofs[od.Name()] = true
		}
		g.budget--
		parts = append(parts, g.field(fd, depth)...)
		if !g.calm && g.chance(15) {
			parts = append(parts, g.field(fd, depth)...)
		}
		if !g.calm && g.chance(3) {
			parts = append(parts, g.stray(fd.Number()))
		}
	}
	if !g.calm {
		if g.chance(20) {
			parts = append(parts, g.stray(protowire.Number(1+g.IntN(3000))))
		}
		if g.chance(30) {
			g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
	}
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// stray returns a field of a random wire type.
func (g *generator) stray(num protowire.Number) []byte {
	switch g.IntN(5) {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), g.Uint64())
	case 1:
		return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), g.Uint32())
	case 2:
		return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), g.Uint64())
	case 3:
		b := protowire.AppendTag(nil, num, protowire.StartGroupType)
		if g.chance(50) {
			b = append(b, g.stray(protowire.Number(1+g.IntN(10)))...)
		}
		return protowire.AppendTag(b, num, protowire.EndGroupType)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), nil)
}

// field returns the records of one field.
func (g *generator) field(fd protoreflect.FieldDescriptor, depth int) [][]byte {
	if fd.IsMap() {
		return g.entries(fd, depth)
	}
	n := 1
	if fd.IsList() {
		n = g.IntN(4)
	}
	packed := fd.IsPacked()
	if !g.calm && g.chance(20) && packable(fd) {
		packed = !packed
	}
	var parts [][]byte
	if packed {
		var body []byte
		for range n {
			body = g.value(body, fd, depth)
		}
		parts = append(parts, protowire.AppendBytes(protowire.AppendTag(nil, fd.Number(), protowire.BytesType), body))
		if g.calm || !g.chance(20) {
			return parts
		}
	}
	for range n {
		parts = append(parts, g.value(protowire.AppendTag(nil, fd.Number(), wireType(fd)), fd, depth))
	}
	return parts
}

func packable(fd protoreflect.FieldDescriptor) bool {
	t := wireType(fd)
	return fd.IsList() && t != protowire.BytesType && t != protowire.StartGroupType
}

func wireType(fd protoreflect.FieldDescriptor) protowire.Type {
	switch fd.Kind() {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

func (g *generator) entries(fd protoreflect.FieldDescriptor, depth int) [][]byte {
	var parts [][]byte
	for range g.IntN(4) {
		var body []byte
		key := func() {
			k := fd.MapKey()
			body = g.value(protowire.AppendTag(body, 1, wireType(k)), k, depth)
		}
		val := func() {
			v := fd.MapValue()
			body = g.value(protowire.AppendTag(body, 2, wireType(v)), v, depth)
		}
		shape := g.IntN(12)
		if g.calm {
			shape = 0
		}
		switch shape {
		case 7:
			val()
			key()
		case 8:
			key()
			val()
			val()
		case 9:
			key()
		case 10:
			val()
		case 11:
			key()
			body = append(body, g.stray(protowire.Number(3+g.IntN(4)))...)
			val()
		default:
			key()
			val()
		}
		parts = append(parts, protowire.AppendBytes(protowire.AppendTag(nil, fd.Number(), protowire.BytesType), body))
	}
	return parts
}

var edgeInts = []int64{0, 1, -1, 2, 127, 128, math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1}

var edgeFloats = []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e-7, 1e21, 1e20, 123456789.125, math.MaxFloat32, math.SmallestNonzeroFloat32,
	math.MaxFloat64, math.SmallestNonzeroFloat64, math.NaN(), math.Inf(1), math.Inf(-1), 1 << 53, 1<<24 + 1}

var edgeStrings = []string{"", "a", "plain text", "quote\" slash\\ /", "tab\tnl\n\r\b\f\x00\x1f\x7f", "ünïcode €", "😀 beyond", "\u2028<>&", "a long ascii string with more than eight bytes",
	"längerer Text mit Umlauten und \"Anführung\"", "1", "true", "@type", "[1]"}

func (g *generator) string() string { return edgeStrings[g.IntN(len(edgeStrings))] }

// value appends one value without its tag.
func (g *generator) value(b []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	n := edgeInts[g.IntN(len(edgeInts))]
	if g.chance(30) {
		n = int64(g.Uint64()) >> g.IntN(64)
	}
	f := edgeFloats[g.IntN(len(edgeFloats))]
	if g.chance(30) {
		f = math.Float64frombits(g.Uint64())
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if g.calm {
			n &= 1
		}
		return protowire.AppendVarint(b, uint64(n))
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		num := int64(values.Get(g.IntN(values.Len())).Number())
		if g.chance(15) {
			num = int64(int32(n))
		}
		return protowire.AppendVarint(b, uint64(num))
	case protoreflect.Sint32Kind:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(int64(int32(n))))
	case protoreflect.Sint64Kind:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(n))
	case protoreflect.Int32Kind:
		if g.calm {
			n = int64(int32(n))
		}
		return protowire.AppendVarint(b, uint64(n))
	case protoreflect.Uint32Kind:
		if g.calm {
			n = int64(uint32(n))
		}
		return protowire.AppendVarint(b, uint64(n))
	case protoreflect.Int64Kind, protoreflect.Uint64Kind:
		return protowire.AppendVarint(b, uint64(n))
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(b, uint32(n))
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(b, uint64(n))
	case protoreflect.FloatKind:
		return protowire.AppendFixed32(b, math.Float32bits(float32(f)))
	case protoreflect.DoubleKind:
		return protowire.AppendFixed64(b, math.Float64bits(f))
	case protoreflect.StringKind:
		s := g.string()
		if !g.calm && g.chance(2) {
			s += "\xff"
		}
		return protowire.AppendString(b, s)
	case protoreflect.BytesKind:
		return protowire.AppendBytes(b, []byte(g.string()))
	case protoreflect.GroupKind:
		return protowire.AppendTag(append(b, g.message(fd.Message(), depth-1)...), fd.Number(), protowire.EndGroupType)
	}
	return protowire.AppendBytes(b, g.message(fd.Message(), depth-1))
}

// known makes well-known types that have a JSON form, now and then one that has none.
func (g *generator) known(md protoreflect.MessageDescriptor, depth int) ([]byte, bool) {
	if md.FullName().Parent() != "google.protobuf" || !g.calm && g.chance(10) {
		return nil, false
	}
	varint := func(b []byte, num protowire.Number, v int64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
	}
	nanos := []int64{0, 1, 1000, 1000000, 999999999, 120000000, 5}[g.IntN(7)]
	switch md.Name() {
	case "Timestamp":
		seconds := []int64{0, 1, -1, -62135596800, 253402300799, 951782400, 951868800, g.Int64N(253402300799)}[g.IntN(8)]
		return varint(varint(nil, 1, seconds), 2, nanos), true
	case "Duration":
		seconds := []int64{0, 1, 90, 315576000000, g.Int64N(315576000000)}[g.IntN(5)]
		if g.chance(30) {
			seconds, nanos = -seconds, -nanos
		}
		return varint(varint(nil, 1, seconds), 2, nanos), true
	case "FieldMask":
		var b []byte
		for range g.IntN(3) {
			b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), []string{"a", "foo_bar", "a.b_c", "x1"}[g.IntN(4)])
		}
		return b, true
	case "Any":
		if g.chance(10) || len(g.anyTypes) == 0 || depth <= 0 {
			return nil, true
		}
		inner := g.anyTypes[g.IntN(len(g.anyTypes))]
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "type.googleapis.com/"+string(inner.FullName()))
		return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), g.message(inner, depth-1)), true
	case "Value":
		fds := md.Fields()
		fd := fds.Get(g.IntN(fds.Len()))
		if depth <= 0 || g.budget <= 0 {
			fd = fds.ByNumber(3)
		}
		g.budget--
		if fd.Kind() == protoreflect.DoubleKind {
			return protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), math.Float64bits(1.5)), true
		}
		return g.value(protowire.AppendTag(nil, fd.Number(), wireType(fd)), fd, depth), true
	}
	return nil, false
}
