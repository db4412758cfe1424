package toolschema

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fact sets a keyword with the words that replace it where a profile lacks the keyword.
func (n *node) fact(key, raw, words string) {
	n.set(key, raw)
	for i := range n.facts {
		if n.facts[i].key == key {
			n.facts[i].words = words
		}
	}
}

func (n *node) bound(key string, v uint64, words string) {
	s := strconv.FormatUint(v, 10)
	n.fact(key, s, fmt.Sprintf(words, s))
}

// atLeast raises a lower bound to one.
func (n *node) atLeast(key, words string) {
	for _, f := range n.facts {
		if f.key == key && f.raw != "0" {
			return
		}
	}
	n.bound(key, 1, words)
}

func listWords(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return what + someNames(names, 20) + "."
}

func quotedAll(names []string) []string {
	out := make([]string, len(names))
	for i, s := range names {
		out[i] = quoted(shorten(visible(s), 100))
	}
	return out
}

// format is what a string format of buf.validate is elsewhere.
type format struct{ name, pattern, words string }

const ipWithPrefix = "an IP address with prefix length, such as 10.0.0.1/24"

var formats = map[string]format{
	"email":                 {name: "email", words: "an e-mail address"},
	"hostname":              {name: "hostname", words: "a host name"},
	"ip":                    {words: "an IP address"},
	"ipv4":                  {name: "ipv4", words: "an IPv4 address"},
	"ipv6":                  {name: "ipv6", words: "an IPv6 address"},
	"uri":                   {name: "uri", words: "an absolute URI"},
	"uri_ref":               {name: "uri-reference", words: "a URI or a relative reference"},
	"address":               {words: "a host name or an IP address"},
	"uuid":                  {pattern: `^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`, words: "a UUID"},
	"tuuid":                 {pattern: `^[0-9a-fA-F]{32}$`, words: "a UUID without hyphens"},
	"ulid":                  {pattern: `^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$`, words: "a ULID"},
	"ip_with_prefixlen":     {words: ipWithPrefix},
	"ipv4_with_prefixlen":   {words: ipWithPrefix},
	"ipv6_with_prefixlen":   {words: "an IPv6 address with prefix length"},
	"ip_prefix":             {words: "an IP prefix, such as 10.0.0.0/8"},
	"ipv4_prefix":           {words: "an IPv4 prefix, such as 10.0.0.0/8"},
	"ipv6_prefix":           {words: "an IPv6 prefix"},
	"host_and_port":         {words: "a host and port, such as example.com:443"},
	"protobuf_fqn":          {words: "a full protobuf name, such as foo.v1.Bar"},
	"protobuf_dot_fqn":      {words: "a full protobuf name with a leading dot"},
	"HTTP_HEADER_NAME":      {words: "an HTTP header name"},
	"HTTP_HEADER_VALUE":     {words: "an HTTP header value"},
	"well_known_regex":      {words: "a well-known form"},
	"KNOWN_REGEX_NOT_KNOWN": {words: "a well-known form"},
}

func stringRules(n *node, r *validate.StringRules) (zeroFails bool) {
	if r == nil {
		return false
	}
	if r.Const != nil {
		n.enum = []string{r.GetConst()}
		zeroFails = r.GetConst() != ""
	}
	if len(r.GetIn()) > 0 {
		n.enum = slices.Clone(r.GetIn())
		zeroFails = zeroFails || !slices.Contains(r.GetIn(), "")
	}
	if len(r.GetNotIn()) > 0 {
		n.fact("not", `{"enum":[`+strings.Join(rawStrings(r.GetNotIn()), ",")+`]}`, listWords("None of ", quotedAll(r.GetNotIn())))
		zeroFails = zeroFails || slices.Contains(r.GetNotIn(), "")
	}
	if r.Len != nil {
		n.bound("minLength", r.GetLen(), "Exactly %s characters.")
		n.set("maxLength", strconv.FormatUint(r.GetLen(), 10))
	}
	if r.MinLen != nil {
		n.bound("minLength", r.GetMinLen(), "At least %s characters.")
	}
	if r.MaxLen != nil {
		n.bound("maxLength", r.GetMaxLen(), "At most %s characters.")
	}
	byteWords(n, r.LenBytes, r.MinBytes, r.MaxBytes, "bytes in UTF-8")
	zeroFails = zeroFails || r.GetLen() > 0 || r.GetMinLen() > 0 || r.GetMinBytes() > 0 || r.GetLenBytes() > 0
	zeroFails = patterns(n, r) || zeroFails
	if r.NotContains != nil {
		n.say("Must not contain " + quoted(visible(r.GetNotContains())) + ".")
		zeroFails = zeroFails || r.GetNotContains() == ""
	}
	if name, on := wellKnownFormat(r.ProtoReflect()); on {
		f := formats[name]
		switch {
		case f.pattern != "" && !n.has("pattern"):
			n.fact("pattern", quoted(f.pattern), "Must be "+f.words+".")
		case f.name != "":
			n.fact("format", quoted(f.name), "Must be "+f.words+".")
		default:
			n.say("Must be " + f.words + ".")
		}
		zeroFails = zeroFails || name != "uri_ref" && name != "HTTP_HEADER_VALUE" && name != "KNOWN_REGEX_NOT_KNOWN"
	}
	return zeroFails
}

// patterns states the rules on the text of a string; the first becomes the pattern keyword, the others words.
func patterns(n *node, r *validate.StringRules) (zeroFails bool) {
	put := func(pattern string, ok bool, words string) {
		if ok && !n.has("pattern") {
			n.fact("pattern", quoted(pattern), words)
			return
		}
		n.say(words)
	}
	if r.Pattern != nil {
		pattern, ok := ecma(r.GetPattern())
		put(pattern, ok, "Pattern (RE2): "+shorten(visible(r.GetPattern()), 300))
		if re, err := regexp.Compile(r.GetPattern()); err == nil && !re.MatchString("") {
			zeroFails = true
		}
	}
	for _, part := range []struct {
		text          *string
		before, after string
		words         string
	}{{r.Prefix, "^", "", "Starts with "}, {r.Suffix, "", "$", "Ends with "}, {r.Contains, "", "", "Contains "}} {
		if part.text == nil || *part.text == "" {
			continue
		}
		zeroFails = true
		pattern, ok := ecma(part.before + regexp.QuoteMeta(*part.text) + part.after)
		put(pattern, ok, part.words+quoted(visible(*part.text))+".")
	}
	return zeroFails
}

func rawStrings(names []string) []string {
	out := make([]string, len(names))
	for i, s := range names {
		out[i] = quoted(s)
	}
	return out
}

// wellKnownFormat returns the name of the format that is switched on.
func wellKnownFormat(m protoreflect.Message) (string, bool) {
	fd := m.WhichOneof(m.Descriptor().Oneofs().ByName("well_known"))
	switch {
	case fd == nil:
		return "", false
	case fd.Kind() == protoreflect.BoolKind:
		return string(fd.Name()), m.Get(fd).Bool()
	case fd.Kind() == protoreflect.EnumKind:
		switch validate.KnownRegex(m.Get(fd).Enum()) {
		case validate.KnownRegex_KNOWN_REGEX_HTTP_HEADER_NAME:
			return "HTTP_HEADER_NAME", true
		case validate.KnownRegex_KNOWN_REGEX_HTTP_HEADER_VALUE:
			return "HTTP_HEADER_VALUE", true
		}
		return "KNOWN_REGEX_NOT_KNOWN", true
	}
	return "", false
}

func byteWords(n *node, exactly, least, most *uint64, unit string) {
	if exactly != nil {
		n.say(fmt.Sprintf("Exactly %d %s.", *exactly, unit))
	}
	if least != nil {
		n.say(fmt.Sprintf("At least %d %s.", *least, unit))
	}
	if most != nil {
		n.say(fmt.Sprintf("At most %d %s.", *most, unit))
	}
}

func bytesRules(n *node, r *validate.BytesRules) (zeroFails bool) {
	if r == nil {
		return false
	}
	byteWords(n, r.Len, r.MinLen, r.MaxLen, "bytes before encoding")
	zeroFails = r.GetLen() > 0 || r.GetMinLen() > 0
	if r.Const != nil {
		n.enum = []string{base64.StdEncoding.EncodeToString(r.GetConst())}
		zeroFails = zeroFails || len(r.GetConst()) > 0
	}
	if len(r.GetIn()) > 0 {
		n.enum, zeroFails = nil, true
		for _, v := range r.GetIn() {
			n.enum = append(n.enum, base64.StdEncoding.EncodeToString(v))
			zeroFails = zeroFails && len(v) > 0
		}
	}
	var not []string
	for _, v := range r.GetNotIn() {
		not = append(not, base64.StdEncoding.EncodeToString(v))
		zeroFails = zeroFails || len(v) == 0
	}
	n.say(listWords("None of ", not))
	if r.Pattern != nil {
		n.say("The bytes match (RE2): " + shorten(visible(r.GetPattern()), 300))
		if re, err := regexp.Compile(r.GetPattern()); err == nil && !re.MatchString("") {
			zeroFails = true
		}
	}
	for _, part := range []struct {
		v     []byte
		words string
	}{{r.GetPrefix(), "The bytes start with "}, {r.GetSuffix(), "The bytes end with "}, {r.GetContains(), "The bytes contain "}} {
		if len(part.v) > 0 {
			n.say(part.words + fmt.Sprintf("0x%x", part.v) + ".")
			zeroFails = true
		}
	}
	if name, on := wellKnownFormat(r.ProtoReflect()); on {
		n.say("The bytes are " + formats[name].words + " in binary.")
		zeroFails = true
	}
	return zeroFails
}

func enumRules(n *node, ed protoreflect.EnumDescriptor, r *validate.EnumRules) (zeroFails bool) {
	if r == nil || n.kind == "null" {
		return false
	}
	allowed := func(e protoreflect.EnumNumber) bool {
		return (r.Const == nil || r.GetConst() == int32(e)) &&
			(len(r.GetIn()) == 0 || slices.Contains(r.GetIn(), int32(e))) &&
			!slices.Contains(r.GetNotIn(), int32(e)) &&
			(!r.GetDefinedOnly() || ed.Values().ByNumber(e) != nil)
	}
	named := r.Const != nil || len(r.GetIn()) > 0 || r.GetDefinedOnly()
	if named || len(r.GetNotIn()) > 0 {
		numbers := r.GetIn()
		if r.Const != nil {
			numbers = []int32{r.GetConst()}
		}
		keepNumbers(n, ed, allowed, named, numbers...)
		if len(r.GetNotIn()) > 0 && len(n.anyOf) > 1 && !named {
			var not []string
			for _, v := range r.GetNotIn() {
				not = append(not, strconv.Itoa(int(v)))
			}
			n.anyOf[1].set("not", `{"enum":[`+strings.Join(not, ",")+`]}`)
		}
	}
	return !allowed(0)
}

// keepNumbers keeps the names whose numbers are allowed; named says that no other number is.
func keepNumbers(n *node, ed protoreflect.EnumDescriptor, allowed func(protoreflect.EnumNumber) bool, named bool, more ...int32) {
	var names, numbers []string
	seen := map[int32]bool{}
	number := func(e protoreflect.EnumNumber) {
		if !seen[int32(e)] && allowed(e) {
			numbers = append(numbers, strconv.Itoa(int(e)))
		}
		seen[int32(e)] = true
	}
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		number(v.Number())
		if allowed(v.Number()) {
			names = append(names, string(v.Name()))
		}
	}
	for _, v := range more {
		number(protoreflect.EnumNumber(v))
	}
	byName := n
	if len(n.anyOf) > 1 {
		byName = n.anyOf[0]
		if named {
			n.anyOf[1].exact = numbers
		} else if !allowed(0) && !n.anyOf[1].has("not") {
			n.anyOf[1].set("not", `{"enum":[0]}`)
		}
	}
	switch {
	case len(names) == 0:
		n.say("No name is allowed by the contract.")
	case len(names) <= maxEnumNames:
		byName.enum = names
	}
}

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

func numberText(v protoreflect.Value) string {
	switch v.Interface().(type) {
	case float32:
		return strconv.FormatFloat(v.Float(), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return v.String()
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
		raw = append(raw, numberText(v))
		names = append(names, numberText(v))
		if k.wide {
			raw = append(raw, quoted(numberText(v)))
		}
	}
	k.finite()
	if k.wide && len(k.n.or) == 0 {
		k.n.enum = names
		return
	}
	k.n.exact = raw
}

func (k number) never(vs []protoreflect.Value) {
	var raw, names []string
	for _, v := range vs {
		names = append(names, numberText(v))
		if isSpecial(v) {
			continue
		}
		raw = append(raw, numberText(v))
		if k.wide {
			raw = append(raw, quoted(numberText(v)))
		}
	}
	if len(raw) == 0 {
		k.n.say(listWords("None of ", names))
		return
	}
	k.n.fact("not", `{"enum":[`+strings.Join(raw, ",")+`]}`, listWords("None of ", names))
}

// timeRules tells the rules of a duration or timestamp in words.
func timeRules(n *node, m protoreflect.Message) {
	text := func(v protoreflect.Value) string {
		switch t := v.Message().Interface().(type) {
		case *durationpb.Duration:
			return t.AsDuration().String()
		case *timestamppb.Timestamp:
			return t.AsTime().Format(time.RFC3339Nano)
		}
		return ""
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"const", "Must be "}, {"gt", "Must be more than "}, {"gte", "Must be at least "}, {"lt", "Must be less than "}, {"lte", "Must be at most "}, {"within", "Must be this close to now: "}} {
		fd := m.Descriptor().Fields().ByName(part.name)
		if fd == nil || !m.Has(fd) || fd.Message() == nil {
			continue
		}
		n.say(part.words + text(m.Get(fd)) + ".")
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"lt_now", "Must be in the past."}, {"gt_now", "Must be in the future."}} {
		if fd := m.Descriptor().Fields().ByName(part.name); fd != nil && m.Get(fd).Bool() {
			n.say(part.words)
		}
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"in", "One of "}, {"not_in", "None of "}} {
		fd := m.Descriptor().Fields().ByName(part.name)
		if fd == nil || !m.Has(fd) {
			continue
		}
		var names []string
		for _, v := range values(m.Get(fd).List()) {
			names = append(names, text(v))
		}
		n.say(listWords(part.words, names))
	}
}
