package verify

import (
	"regexp"
	"sort"
	"strings"
)

// The portable and strict profiles lack keywords for much of what holds; toolschema says it in words then. This file reads those words, so
// that instances keep them as an agent would. TestWords holds both sides together.

// anyDuration is a type with a JSON form of its own that is put into an Any; anyAny is put there where the contract has nothing else.
const (
	anyDuration = "google.protobuf.Duration"
	anyAny      = "google.protobuf.Any"
)

const (
	wordsBase64   = "Base64."
	wordsMask     = "Field paths in lowerCamelCase"
	wordsStruct   = "Any JSON object."
	wordsAny      = "A message of any type"
	wordsUnsigned = "Not negative"
)

// freeObject returns values for an object without keywords of its own: a google.protobuf.Struct or Any. It returns nil for all else.
func freeObject(desc string, types []string) []value {
	switch {
	case mapWords.MatchString(desc):
		return nil
	case strings.Contains(desc, wordsAny):
		out := []value{}
		for _, t := range types {
			rest := ""
			switch t {
			case anyDuration:
				rest = `,"value":"1.5s"`
			case anyAny:
				rest = `,"value":{}`
			}
			out = append(out, raw(`{"@type":`+quoted("type.googleapis.com/"+t)+rest+`}`))
		}
		return out
	case strings.Contains(desc, wordsStruct):
		return []value{raw(`{}`), exact(`{"a":null,"":true,"b":[1.5,"x",{"c":[]}],"ü":"\n"}`)}
	}
	return nil
}

var groupStart = regexp.MustCompile(`Set (at most|exactly) one of |At most one is set of `)

// groupsInWords reads "Set exactly one of a, b.", with names of properties only.
func groupsInWords(desc string, props map[string]any) (out []group) {
	names := make([]string, 0, len(props))
	for name := range props {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return len(names[i]) > len(names[j]) }) // the longest that fits is the name
	for _, at := range groupStart.FindAllStringSubmatchIndex(desc, -1) {
		g := group{required: at[2] >= 0 && desc[at[2]:at[3]] == "exactly"}
		rest := desc[at[1]:]
		for {
			name := nameAt(rest, names)
			if name == "" { // left out of the schema
				name = rest
				if i := strings.IndexAny(rest, ",."); i >= 0 {
					name = rest[:i]
				}
			}
			rest = rest[len(name):]
			if _, ok := props[name]; ok {
				g.members = append(g.members, name)
			}
			var more bool
			if rest, more = strings.CutPrefix(rest, ", "); !more {
				break
			}
		}
		if len(g.members) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func nameAt(text string, names []string) string {
	for _, name := range names {
		if rest, ok := strings.CutPrefix(text, name); ok && (strings.HasPrefix(rest, ", ") || strings.HasPrefix(rest, ".")) {
			return name
		}
	}
	return ""
}

var mapWords = regexp.MustCompile(`(?s)Map: keys are (strings|"true" or "false"|decimal digits|decimal integers)(?:, each value is (.*))?`)

// textKeys are keys of a map with string keys.
var textKeys = []string{"a", "", "ключ", "a.b[0]", `q"uo\te`, "@type"}

// keysOf returns keys that a map takes, told by its keywords where it has them, else by words.
func keysOf(names map[string]any, desc string) []string {
	if enum := stringsOf(names["enum"]); len(enum) > 0 {
		return enum
	}
	keys := textKeys
	if m := mapWords.FindStringSubmatch(desc); m != nil {
		keys = keysInWords(m[1])
	}
	if len(names) == 0 {
		return keys
	}
	var out []string
	fit := leavesOf(withType(names, "string"), "")
	for _, k := range keys {
		for _, v := range keep([]value{exact(quoted(k))}, names) {
			out = append(out, unquoted(v.leaf))
		}
	}
	if len(out) == 0 {
		for _, v := range fit {
			out = append(out, unquoted(v.leaf))
		}
	}
	return out
}

func keysInWords(words string) []string {
	switch words {
	case "decimal digits":
		return []string{"0", "1", "4294967295"}
	case "decimal integers":
		return []string{"0", "-1", "2147483647", "-2147483648"}
	case "strings":
		return textKeys
	}
	return []string{"true", "false"}
}

// mapInWords returns keys and values of a map that is described in words alone. No values means that it is none, or that the words do not
// tell a value that is sure to be taken.
func mapInWords(desc string) (keys []string, leaves []value) {
	m := mapWords.FindStringSubmatch(desc)
	if m == nil {
		return nil, nil
	}
	is := func(start string) bool { return strings.HasPrefix(m[2], start) }
	switch {
	case is("one of "):
		first, _, _ := strings.Cut(strings.TrimPrefix(m[2], "one of "), ".")
		for _, name := range strings.Split(first, ", ") {
			leaves = append(leaves, raw(quoted(name)))
		}
	case is("a boolean"):
		leaves = []value{exact("true"), exact("false")}
	case is("an integer"):
		leaves = []value{exact("1"), exact("0")}
	case is("a number"):
		leaves = []value{exact("1.5"), exact("0")}
	case is("a 64-bit integer"), is("a string (int64"), is("a string (uint64"):
		leaves = []value{exact(`"9007199254740993"`), exact(`"0"`)}
	case is("a base64 string"), is("a string (Base64"):
		leaves = []value{raw(`"AP8="`), raw(`""`)}
	case is("a string (RFC 3339"):
		leaves = []value{raw(`"2026-01-31T08:30:00Z"`)}
	case is("a string (Seconds"):
		leaves = []value{raw(`"1.5s"`)}
	case is("a string (Field paths"):
		leaves = []value{raw(`"name,size.width"`)}
	case is("a string"):
		leaves = []value{exact(`"a"`), exact(`""`), exact(`"日本"`)}
	case is("an object (A message of any type"):
	case is("an object"):
		leaves = []value{raw(`{}`)}
	case is("any JSON value"):
		leaves = []value{exact(`"a"`), exact(`1.5`), raw(`null`), raw(`{}`), raw(`[]`)}
	case is("an array"):
		leaves = []value{raw(`[]`)}
	case is("null"):
		leaves = []value{raw(`null`)}
	}
	return keysInWords(m[1]), leaves
}

var (
	enumSamples = regexp.MustCompile(`One of [0-9]+ names of the enum [a-zA-Z0-9_.]+, such as ([a-zA-Z0-9_, ]+)\.`)
	enumAbsent  = regexp.MustCompile(`A name of the enum [a-zA-Z0-9_.]+, which the contract does not hold\.`)
)

// enumInWords returns names of an enum that is too long to be listed; listed is false when desc tells of none.
func enumInWords(desc string) (out []value, told bool) {
	if enumAbsent.MatchString(desc) {
		return nil, true
	}
	m := enumSamples.FindStringSubmatch(desc)
	if m == nil {
		return nil, false
	}
	for _, name := range strings.Split(m[1], ", ") {
		out = append(out, raw(quoted(name)))
	}
	return out, true
}
