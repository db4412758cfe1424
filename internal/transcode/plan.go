package transcode

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// plan is a message descriptor laid out for reading and writing. It is immutable but for the extensions met so far.
type plan struct {
	msg    *Message
	known  known
	fields []field // by number
	dense  []int32 // number → index in fields, or -1
	sparse map[int32]int32
	names  map[string]int32 // JSON and proto names → index in fields
	oneofs []string
	// bits is how many bits the set of fields and oneofs met in one JSON object needs.
	bits       int
	extendable bool
	messageSet bool
	exts       atomic.Pointer[extensions]
}

// extensions holds the extension fields of one message that were met so far; their indexes follow those of plan.fields.
type extensions struct {
	fields []*field
	byNum  map[int32]int32
}

// field is one field of a plan.
type field struct {
	num      int32
	oneof    int32 // index in plan.oneofs, or -1
	kind     protoreflect.Kind
	wire     protowire.Type // of one value
	list     bool
	isMap    bool
	packed   bool // written packed
	packable bool // may be read packed
	implicit bool // zero means unset
	utf8     bool // strings are checked on the wire
	isValue  bool // null is a value: google.protobuf.Value, NullValue

	tag       string // of one value
	packedTag string
	endTag    string // of a group
	nameJSON  string // `,"name":`
	nameProto string
	key       string // `name":`, when JSON writes it without escapes
	json      string

	msg    *Message // of message, group and map fields (the entry)
	enum   *enum
	mapKey *field
	mapVal *field
	desc   protoreflect.FieldDescriptor
}

// plan returns the compiled form of m.
func (m *Message) plan() *plan {
	if p := m.compiled.Load(); p != nil {
		return p
	}
	p := compile(m)
	m.compiled.CompareAndSwap(nil, p)
	return m.compiled.Load()
}

func compile(m *Message) *plan {
	md := m.desc
	fds := md.Fields()
	p := &plan{msg: m, extendable: md.ExtensionRanges().Len() > 0, known: knownOf(md), messageSet: isMessageSet(md)}
	oneofs := map[protoreflect.Name]int32{}
	for i := range md.Oneofs().Len() {
		if od := md.Oneofs().Get(i); !od.IsSynthetic() {
			oneofs[od.Name()] = int32(len(p.oneofs))
			p.oneofs = append(p.oneofs, string(od.Name()))
		}
	}
	p.fields = make([]field, fds.Len())
	for i := range p.fields {
		compileField(m.set, fds.Get(i), &p.fields[i])
		if od := fds.Get(i).ContainingOneof(); od != nil && !od.IsSynthetic() {
			p.fields[i].oneof = oneofs[od.Name()]
		}
	}
	slices.SortFunc(p.fields, func(a, b field) int { return cmp.Compare(a.num, b.num) })
	p.bits = len(p.fields) + len(p.oneofs)
	p.indexNumbers()
	p.indexNames(fds)
	for i := range p.fields {
		if f := &p.fields[i]; f.isMap {
			entry := f.msg.plan()
			f.mapKey, f.mapVal = &entry.fields[0], &entry.fields[1]
		}
	}
	return p
}

func (p *plan) indexNumbers() {
	bound := int32(4*len(p.fields) + 64)
	size := int32(0)
	for i := range p.fields {
		if n := p.fields[i].num; n < bound {
			size = max(size, n+1)
		}
	}
	p.dense = make([]int32, size)
	for i := range p.dense {
		p.dense[i] = -1
	}
	for i := range p.fields {
		if n := p.fields[i].num; n < size {
			p.dense[n] = int32(i)
		} else {
			if p.sparse == nil {
				p.sparse = map[int32]int32{}
			}
			p.sparse[n] = int32(i)
		}
	}
}

// indexNames makes the name table. As protojson does, JSON names win over proto names, and of equal names the first declared.
func (p *plan) indexNames(fds protoreflect.FieldDescriptors) {
	p.names = make(map[string]int32, 2*len(p.fields))
	add := func(name string, fd, found protoreflect.FieldDescriptor) {
		if _, taken := p.names[name]; !taken && found == fd {
			p.names[name] = p.index(uint64(fd.Number()))
		}
	}
	for i := range fds.Len() {
		fd := fds.Get(i)
		add(fd.JSONName(), fd, fds.ByJSONName(fd.JSONName()))
		lower := strings.ToLower(fd.JSONName())
		add(lower, fd, fds.ByJSONName(lower))
	}
	for i := range fds.Len() {
		fd := fds.Get(i)
		add(fd.TextName(), fd, fds.ByTextName(fd.TextName()))
		lower := strings.ToLower(fd.TextName())
		add(lower, fd, fds.ByTextName(lower))
	}
	for i := range p.fields {
		if f := &p.fields[i]; f.key != "" && p.names[f.json] != int32(i) {
			f.key = "" // another field owns the name
		}
	}
}

// index returns the index of the declared field with the number, or -1.
func (p *plan) index(num uint64) int32 {
	if num < uint64(len(p.dense)) {
		return p.dense[num]
	}
	if p.sparse != nil && num <= uint64(protowire.MaxValidNumber) {
		if i, ok := p.sparse[int32(num)]; ok {
			return i
		}
	}
	return -1
}

// lookup is index with extensions.
func (p *plan) lookup(num uint64) int32 {
	i := p.index(num)
	if i < 0 && p.extendable && num <= uint64(protowire.MaxValidNumber) {
		return p.extension(protoreflect.FieldNumber(num))
	}
	return i
}

// at returns the field with an index that lookup returned.
func (p *plan) at(i int32) *field {
	if int(i) < len(p.fields) {
		return &p.fields[i]
	}
	return p.exts.Load().fields[int(i)-len(p.fields)]
}

// extension returns the index of the extension field with the number, or -1 when the resolver knows none.
func (p *plan) extension(num protoreflect.FieldNumber) int32 {
	if x := p.exts.Load(); x != nil {
		if i, ok := x.byNum[int32(num)]; ok {
			return i
		}
	}
	if p.msg.set.types == nil || !p.msg.desc.ExtensionRanges().Has(num) {
		return -1
	}
	xt, err := p.msg.set.types.FindExtensionByNumber(p.msg.desc.FullName(), num)
	if err != nil || xt == nil {
		return -1
	}
	return p.addExtension(xt.TypeDescriptor())
}

func (p *plan) addExtension(fd protoreflect.FieldDescriptor) int32 {
	f := new(field)
	compileField(p.msg.set, fd, f)
	for {
		old := p.exts.Load()
		next := &extensions{byNum: map[int32]int32{}}
		if old != nil {
			if i, ok := old.byNum[f.num]; ok {
				return i
			}
			next.fields = slices.Clone(old.fields)
			for n, i := range old.byNum {
				next.byNum[n] = i
			}
		}
		i := int32(len(p.fields) + len(next.fields))
		next.fields = append(next.fields, f)
		next.byNum[f.num] = i
		if p.exts.CompareAndSwap(old, next) {
			return i
		}
	}
}

func compileField(set *Set, fd protoreflect.FieldDescriptor, f *field) {
	*f = field{
		num: int32(fd.Number()), oneof: -1, kind: fd.Kind(), wire: wireOf(fd.Kind()),
		list: fd.IsList(), isMap: fd.IsMap(), packed: fd.IsPacked(),
		implicit: !fd.HasPresence() && fd.Cardinality() != protoreflect.Repeated,
		json:     fd.JSONName(), desc: fd,
	}
	f.utf8 = f.kind == protoreflect.StringKind && enforcesUTF8(fd)
	f.packable = f.list && f.wire != protowire.BytesType && f.wire != protowire.StartGroupType
	f.tag = string(protowire.AppendTag(nil, fd.Number(), f.wire))
	f.packedTag = string(protowire.AppendTag(nil, fd.Number(), protowire.BytesType))
	f.endTag = string(protowire.AppendTag(nil, fd.Number(), protowire.EndGroupType))
	f.nameJSON, f.nameProto = nameLiteral(fd.JSONName()), nameLiteral(fd.TextName())
	if f.nameJSON == `,"`+f.json+`":` {
		f.key = f.json + `":`
	}
	if md := fd.Message(); md != nil {
		f.msg = set.Message(md)
		f.isValue = md.FullName() == "google.protobuf.Value"
	}
	if ed := fd.Enum(); ed != nil {
		f.enum = set.enum(ed)
		f.isValue = f.enum.null
	}
}

// accepts reports whether a value of the wire type can be one of the field. Others count as unknown.
func (f *field) accepts(typ protowire.Type) bool {
	return typ == f.wire || f.packable && typ == protowire.BytesType
}

func nameLiteral(name string) string {
	b, _ := appendString([]byte{','}, []byte(name))
	return string(append(b, ':'))
}

func enforcesUTF8(fd protoreflect.FieldDescriptor) bool {
	if fd, ok := fd.(interface{ EnforceUTF8() bool }); ok {
		return fd.EnforceUTF8()
	}
	return fd.ParentFile().Syntax() == protoreflect.Proto3
}

func isMessageSet(md protoreflect.MessageDescriptor) bool {
	m, ok := md.(interface{ IsMessageSet() bool })
	return ok && m.IsMessageSet()
}

func wireOf(k protoreflect.Kind) protowire.Type {
	switch k {
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

// enum is an enum descriptor laid out for reading and writing.
type enum struct {
	desc  protoreflect.EnumDescriptor
	names map[string]int32
	dense []string // number → quoted name, or ""
	other map[int32]string
	first int32 // the default
	null  bool  // google.protobuf.NullValue
}

func (s *Set) enum(ed protoreflect.EnumDescriptor) *enum {
	if e, ok := s.enums.Load(ed); ok {
		return e.(*enum)
	}
	values := ed.Values()
	e := &enum{desc: ed, names: make(map[string]int32, values.Len()), null: ed.FullName() == "google.protobuf.NullValue"}
	bound := int32(2*values.Len() + 16)
	for i := range values.Len() {
		v := values.Get(i)
		num := int32(v.Number())
		if i == 0 {
			e.first = num
		}
		if _, ok := e.names[string(v.Name())]; !ok {
			e.names[string(v.Name())] = num
		}
		if e.literal(num) != "" {
			continue // an alias: the first name is written
		}
		quoted := `"` + string(v.Name()) + `"`
		if num < 0 || num >= bound {
			if e.other == nil {
				e.other = map[int32]string{}
			}
			e.other[num] = quoted
			continue
		}
		for int32(len(e.dense)) <= num {
			e.dense = append(e.dense, "")
		}
		e.dense[num] = quoted
	}
	loaded, _ := s.enums.LoadOrStore(ed, e)
	return loaded.(*enum)
}

// literal returns the quoted name of a number, or "" when it has none.
func (e *enum) literal(num int32) string {
	if uint32(num) < uint32(len(e.dense)) {
		return e.dense[num]
	}
	return e.other[num]
}

// known tells the well-known types that have a JSON form of their own.
type known uint8

const (
	plain known = iota
	knownAny
	knownTimestamp
	knownDuration
	knownWrapper
	knownStruct
	knownValue
	knownList
	knownMask
	knownEmpty
)

// knownOf recognises a well-known type by its name and the shape that its JSON form relies on.
func knownOf(md protoreflect.MessageDescriptor) known {
	if md.FullName().Parent() != "google.protobuf" {
		return plain
	}
	has := func(num protoreflect.FieldNumber, k protoreflect.Kind, list bool) bool {
		fd := md.Fields().ByNumber(num)
		return fd != nil && fd.Kind() == k && (fd.Cardinality() == protoreflect.Repeated) == list
	}
	ok, kind := false, plain
	switch md.Name() {
	case "Any":
		kind, ok = knownAny, has(1, protoreflect.StringKind, false) && has(2, protoreflect.BytesKind, false)
	case "Timestamp":
		kind, ok = knownTimestamp, has(1, protoreflect.Int64Kind, false) && has(2, protoreflect.Int32Kind, false)
	case "Duration":
		kind, ok = knownDuration, has(1, protoreflect.Int64Kind, false) && has(2, protoreflect.Int32Kind, false)
	case "BoolValue", "Int32Value", "Int64Value", "UInt32Value", "UInt64Value", "FloatValue", "DoubleValue", "StringValue", "BytesValue":
		fd := md.Fields().ByNumber(1)
		kind, ok = knownWrapper, fd != nil && fd.Message() == nil && fd.Enum() == nil && fd.Cardinality() != protoreflect.Repeated
	case "Struct":
		fd := md.Fields().ByNumber(1)
		kind, ok = knownStruct, fd != nil && fd.IsMap() && fd.MapKey().Kind() == protoreflect.StringKind && fd.MapValue().Message() != nil
	case "Value":
		kind, ok = knownValue, has(1, protoreflect.EnumKind, false) && has(2, protoreflect.DoubleKind, false) &&
			has(3, protoreflect.StringKind, false) && has(4, protoreflect.BoolKind, false) &&
			has(5, protoreflect.MessageKind, false) && has(6, protoreflect.MessageKind, false)
	case "ListValue":
		kind, ok = knownList, has(1, protoreflect.MessageKind, true)
	case "FieldMask":
		kind, ok = knownMask, has(1, protoreflect.StringKind, true)
	case "Empty":
		kind, ok = knownEmpty, md.Fields().Len() == 0
	}
	if !ok {
		return plain
	}
	return kind
}
