package toolschema

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func numberRules(n *node, kind protoreflect.Name, m protoreflect.Message) (zeroFails bool) {
	var lo, hi protoreflect.Value
	var loOpen, hiOpen bool
	get := func(name protoreflect.Name) (protoreflect.Value, bool) {
		fd := m.Descriptor().Fields().ByName(name)
		if fd == nil || !m.Has(fd) {
			return protoreflect.Value{}, false
		}
		return m.Get(fd), true
	}
	if v, ok := get("gt"); ok {
		lo, loOpen = v, true
	}
	if v, ok := get("gte"); ok {
		lo = v
	}
	if v, ok := get("lt"); ok {
		hi, hiOpen = v, true
	}
	if v, ok := get("lte"); ok {
		hi = v
	}
	num := number{n: n, float: kind == "float" || kind == "double", wide: strings.HasSuffix(string(kind), "64")}
	switch {
	case lo.IsValid() && hi.IsValid() && compare(hi, lo) < 0 || lo.IsValid() && hi.IsValid() && compare(hi, lo) == 0 && (loOpen || hiOpen):
		n.say("Must be " + boundWords(lo, loOpen, "more than ", "at least ") + " or " + boundWords(hi, hiOpen, "less than ", "at most ") + ".")
		zeroFails = !beyond(lo, loOpen, -1) && !beyond(hi, hiOpen, 1)
		num.special(false, false, lo, hi)
	default:
		if lo.IsValid() {
			num.low(lo, loOpen)
			zeroFails = zeroFails || !beyond(lo, loOpen, -1)
		}
		if hi.IsValid() {
			num.high(hi, hiOpen)
			zeroFails = zeroFails || !beyond(hi, hiOpen, 1)
		}
		num.special(lo.IsValid(), hi.IsValid(), lo, hi)
	}
	if v, ok := get("const"); ok {
		num.only([]protoreflect.Value{v})
		zeroFails = zeroFails || sign(v) != 0
	}
	if v, ok := get("in"); ok {
		vs := values(v.List())
		num.only(vs)
		zeroFails = zeroFails || !slices.ContainsFunc(vs, func(v protoreflect.Value) bool { return sign(v) == 0 })
	}
	if v, ok := get("not_in"); ok {
		vs := values(v.List())
		num.never(vs)
		zeroFails = zeroFails || slices.ContainsFunc(vs, func(v protoreflect.Value) bool { return sign(v) == 0 })
	}
	if v, ok := get("finite"); ok && v.Bool() && len(n.anyOf) > 0 {
		num.finite()
	}
	return zeroFails
}

func values(l protoreflect.List) []protoreflect.Value {
	out := make([]protoreflect.Value, l.Len())
	for i := range out {
		out[i] = l.Get(i)
	}
	return out
}

// beyond says whether zero keeps the bound v; side is -1 for a lower bound and 1 for an upper one.
func beyond(v protoreflect.Value, open bool, side int) bool {
	s := sign(v) * side
	return s > 0 || s == 0 && !open
}

func sign(v protoreflect.Value) int { return compare(v, protoreflect.Value{}) }

// compare compares two numbers of one kind; an invalid one is zero. NaN equals nothing, but counts as more.
func compare(a, b protoreflect.Value) int {
	switch x := a.Interface().(type) {
	case float32, float64:
		y := 0.0
		if b.IsValid() {
			y = b.Float()
		}
		switch f := a.Float(); {
		case f < y:
			return -1
		case f == y:
			return 0
		}
		return 1
	case uint32, uint64:
		y := uint64(0)
		if b.IsValid() {
			y = b.Uint()
		}
		return cmp(a.Uint() < y, a.Uint() == y)
	case int32, int64:
		y := int64(0)
		if b.IsValid() {
			y = b.Int()
		}
		return cmp(a.Int() < y, a.Int() == y)
	default:
		_ = x
		return 0
	}
}

func cmp(less, equal bool) int {
	switch {
	case less:
		return -1
	case equal:
		return 0
	}
	return 1
}

// numberText returns a number as the call takes it.
func numberText(v protoreflect.Value) string {
	bits := 64
	switch v.Interface().(type) {
	case float32:
		bits = 32
	case float64:
	default:
		return v.String()
	}
	switch f := v.Float(); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	default:
		return strconv.FormatFloat(f, 'g', -1, bits)
	}
}

func boundWords(v protoreflect.Value, open bool, opened, closed string) string {
	if open {
		return opened + numberText(v)
	}
	return closed + numberText(v)
}

// number puts the rules of a number into its node, whichever form that has.
type number struct {
	n           *node
	float, wide bool
}

// plain returns the node that holds numbers.
func (k number) plain() *node {
	if len(k.n.anyOf) > 0 {
		return k.n.anyOf[0]
	}
	return k.n
}

func (k number) low(v protoreflect.Value, open bool) {
	words := "Must be " + boundWords(v, open, "more than ", "at least ") + "."
	switch {
	case k.wide || isSpecial(v):
		k.n.say(words)
	case k.float && open:
		k.plain().fact("exclusiveMinimum", numberText(v), words)
	case open:
		k.plain().fact("minimum", next(v, 1), words)
	default:
		k.plain().fact("minimum", numberText(v), words)
	}
}

func (k number) high(v protoreflect.Value, open bool) {
	words := "Must be " + boundWords(v, open, "less than ", "at most ") + "."
	switch {
	case k.wide || isSpecial(v):
		k.n.say(words)
	case k.float && open:
		k.plain().fact("exclusiveMaximum", numberText(v), words)
	case open:
		k.plain().fact("maximum", next(v, -1), words)
	default:
		k.plain().fact("maximum", numberText(v), words)
	}
}

// safe says whether v can stand in a schema as a number.
func safe(v protoreflect.Value) bool {
	switch n := v.Interface().(type) {
	case int64:
		return n >= -maxSafe && n <= maxSafe
	case uint64:
		return n <= maxSafe
	}
	return true
}

func isSpecial(v protoreflect.Value) bool {
	switch v.Interface().(type) {
	case float32, float64:
		return math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)
	}
	return false
}

// next returns the neighbour of a 32-bit integer; rules allow no bound without one.
func next(v protoreflect.Value, step int64) string {
	if u, ok := v.Interface().(uint32); ok {
		return strconv.FormatInt(int64(u)+step, 10)
	}
	return strconv.FormatInt(v.Int()+step, 10)
}

// special keeps of NaN and the infinities what a range lets through.
func (k number) special(low, high bool, lo, hi protoreflect.Value) {
	if len(k.n.anyOf) < 2 || !lo.IsValid() && !hi.IsValid() {
		return
	}
	var names []string
	if !high {
		names = append(names, "Infinity")
	}
	if !low {
		names = append(names, "-Infinity")
	}
	if len(names) == 0 {
		k.finite()
		return
	}
	k.n.anyOf[1].enum = names
}

func (k number) finite() {
	if len(k.n.anyOf) == 0 {
		return
	}
	only := *k.n.anyOf[0]
	only.desc = k.n.desc
	*k.n = only
}

func (k number) only(vs []protoreflect.Value) {
	var raw, names []string
	for _, v := range vs {
		if isSpecial(v) {
			k.n.say("Must be one of the values of the contract.")
			return
		}
		names = append(names, numberText(v))
		if safe(v) {
			raw = append(raw, numberText(v))
		}
		if k.wide {
			raw = append(raw, quoted(numberText(v)))
		}
	}
	raw, names = distinct(raw), distinct(names)
	k.finite()
	if k.wide && len(k.n.or) == 0 {
		k.n.enum = names
		return
	}
	k.n.exact = raw
}

func (k number) never(vs []protoreflect.Value) {
	var raw, names []string
	exact := true
	for _, v := range vs {
		names = append(names, numberText(v))
		if isSpecial(v) {
			continue
		}
		exact = exact && safe(v)
		raw = append(raw, numberText(v))
		if k.wide {
			raw = append(raw, quoted(numberText(v)))
		}
	}
	words := listWords("None of ", distinct(names))
	if len(raw) == 0 || !exact {
		k.n.say(words)
		return
	}
	k.n.fact("not", `{"enum":[`+strings.Join(distinct(raw), ",")+`]}`, words)
}
