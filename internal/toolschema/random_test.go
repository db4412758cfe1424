package toolschema_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// randomizer fills messages of any descriptor with values that ProtoJSON can write.
type randomizer struct {
	*rand.Rand
	// unknownEnums sets enum numbers without a name now and then.
	unknownEnums bool
	// left is how many messages may still be nested.
	left int
}

// top returns a message of md with at most some hundred messages in it.
func (r *randomizer) top(md protoreflect.MessageDescriptor) *dynamicpb.Message {
	r.left = 200
	return r.message(md, 4)
}

func newRandomizer(seed uint64) *randomizer {
	return &randomizer{Rand: rand.New(rand.NewPCG(seed, 7)), unknownEnums: true}
}

// message returns a message of md; deeper ones are emptier.
func (r *randomizer) message(md protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(md)
	if r.left--; r.left < 0 {
		depth = min(depth, 0)
	}
	if r.wellKnown(m, depth) {
		return m
	}
	inOneof := map[protoreflect.Name]bool{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if od := fd.ContainingOneof(); od != nil && !od.IsSynthetic() {
			if inOneof[od.Name()] || r.IntN(3) > 0 {
				continue
			}
			inOneof[od.Name()] = true
		}
		if fd.Cardinality() != protoreflect.Required && r.IntN(3) == 0 {
			continue
		}
		if fd.Message() != nil && !fd.IsMap() && (depth <= 0 && fd.Cardinality() != protoreflect.Required || depth < -20 || fd.Message().IsPlaceholder()) {
			continue
		}
		r.field(m, fd, depth)
	}
	return m
}

func (r *randomizer) field(m *dynamicpb.Message, fd protoreflect.FieldDescriptor, depth int) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() != nil && (depth <= 0 || fd.MapValue().Message().IsPlaceholder()) {
			return
		}
		mp := m.Mutable(fd).Map()
		for range r.IntN(3) {
			mp.Set(r.scalar(fd.MapKey()).MapKey(), r.value(fd.MapValue(), depth))
		}
	case fd.IsList():
		l := m.Mutable(fd).List()
		for range r.IntN(3) {
			l.Append(r.value(fd, depth))
		}
	default:
		m.Set(fd, r.value(fd, depth))
	}
}

func (r *randomizer) value(fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	if fd.Message() != nil {
		return protoreflect.ValueOfMessage(r.message(fd.Message(), depth-1))
	}
	return r.scalar(fd)
}

var texts = []string{"", "a", "foo", "über", "日本", "a b\nc", `q"uo\te`, "x@example.com", "😀"}

func (r *randomizer) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		vs := fd.Enum().Values()
		if vs.Len() == 0 || r.unknownEnums && r.IntN(8) == 0 && fd.Enum().FullName() != "google.protobuf.NullValue" {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.Int32()))
		}
		return protoreflect.ValueOfEnum(vs.Get(r.IntN(vs.Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(pick[int32](r, 0, 1, -1, math.MinInt32, math.MaxInt32, int32(r.Uint32())))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(pick[uint32](r, 0, 1, math.MaxUint32, r.Uint32()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(pick[int64](r, 0, 1, -1, math.MinInt64, math.MaxInt64, 1915883588174806058))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(pick[uint64](r, 0, 1, math.MaxUint64, r.Uint64()))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(pick[float64](r, 0, 1.5, -2, math.NaN(), math.Inf(1), math.Inf(-1))))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(pick[float64](r, 0, 1.5, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(pick(r, texts...)))
	default:
		return protoreflect.ValueOfString(pick(r, texts...))
	}
}

func pick[T any](r *randomizer, vs ...T) T { return vs[r.IntN(len(vs))] }

// wellKnown fills the types whose JSON form does not take every value.
func (r *randomizer) wellKnown(m *dynamicpb.Message, depth int) bool {
	md := m.Descriptor()
	short, ok := strings.CutPrefix(string(md.FullName()), "google.protobuf.")
	if !ok {
		return false
	}
	set := func(name protoreflect.Name, v any) { m.Set(md.Fields().ByName(name), protoreflect.ValueOf(v)) }
	switch short {
	case "Timestamp":
		set("seconds", r.Int64N(253402300799))
		set("nanos", pick[int32](r, 0, 1, 5000, 120000000))
	case "Duration":
		set("seconds", r.Int64N(315576000000))
		set("nanos", pick[int32](r, 0, 1, 5000, 120000000))
	case "FieldMask":
		l := m.Mutable(md.Fields().ByName("paths")).List()
		for range r.IntN(3) {
			l.Append(protoreflect.ValueOfString(pick(r, "a", "foo_bar", "a.b_c")))
		}
	case "Value":
		r.jsonValue(m, depth)
	case "Any":
		if r.IntN(2) == 0 {
			inner := dynamicpb.NewMessage(md)
			b, err := proto.Marshal(inner)
			if err != nil {
				panic(err)
			}
			set("type_url", "type.googleapis.com/google.protobuf.Any")
			set("value", b)
		}
	default:
		return false
	}
	return true
}

func (r *randomizer) jsonValue(m *dynamicpb.Message, depth int) {
	fds := m.Descriptor().Fields()
	kind := pick[protoreflect.Name](r, "null_value", "number_value", "string_value", "bool_value", "struct_value", "list_value")
	if depth <= 0 && strings.HasSuffix(string(kind), "t_value") {
		kind = "bool_value"
	}
	fd := fds.ByName(kind)
	switch kind {
	case "number_value":
		m.Set(fd, protoreflect.ValueOfFloat64(r.Float64()))
	case "null_value":
		m.Set(fd, protoreflect.ValueOfEnum(0))
	default:
		m.Set(fd, r.value(fd, depth))
	}
}
