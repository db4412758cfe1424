package toolschema

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// maxSafe is the greatest whole number that a schema may hold: JavaScript rounds greater ones, and a model API refuses them.
const maxSafe = 1<<53 - 1

// bound sets a bound that is a keyword where it is small enough, and always has words.
func (n *node) bound(key string, v uint64, words string) {
	s := strconv.FormatUint(v, 10)
	if v > maxSafe {
		n.say(fmt.Sprintf(words, s))
		return
	}
	n.fact(key, s, fmt.Sprintf(words, s))
}

// distinct returns the values without those that came before: validators refuse an "enum" that holds one twice.
func distinct[T comparable](vs []T) []T {
	seen, out := make(map[T]bool, len(vs)), make([]T, 0, len(vs))
	for _, v := range vs {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// texts returns the values as JSON can hold them, each once.
func texts(vs []string) []string {
	out := make([]string, len(vs))
	for i, s := range vs {
		out[i] = strings.ToValidUTF8(s, "\ufffd")
	}
	return distinct(out)
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
		n.enum = texts(r.GetIn())
		zeroFails = zeroFails || !slices.Contains(r.GetIn(), "")
	}
	if not := texts(r.GetNotIn()); len(not) > 0 {
		n.fact("not", `{"enum":[`+strings.Join(rawStrings(not), ",")+`]}`, listWords("None of ", quotedAll(not)))
		zeroFails = zeroFails || slices.Contains(r.GetNotIn(), "")
	}
	if r.Len != nil {
		n.bound("minLength", r.GetLen(), "Exactly %s characters.")
		if n.has("minLength") {
			n.set("maxLength", strconv.FormatUint(r.GetLen(), 10))
		}
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
		n.enum = distinct(n.enum)
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
