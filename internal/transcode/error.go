package transcode

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/nearmiss"
)

// Error says why JSON is not a valid form of a message. Its text is meant for the caller who wrote the JSON.
type Error struct {
	// Path is where in the JSON, as dotted JSON names, [index] and ["key"], e.g. "orders[2].price"; "" is the root.
	Path string
	// Problem says what is wrong, e.g. `unknown field "minuts"`.
	Problem string
	// Want says what was expected there, e.g. "int32"; may be empty.
	Want string
	// Suggestion is a near miss that would have been right; may be empty.
	Suggestion string
	// Member is the name of the member at Path that the message does not have, or has no longer; "" for any other problem.
	Member string
}

// Where is the path of what is wrong: Path, and behind it Member.
func (e *Error) Where() string {
	if e.Member == "" {
		return e.Path
	}
	return join(e.Path, e.Member)
}

// Error returns the one text that every door shows.
func (e *Error) Error() string {
	s := e.Problem
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Want != "" {
		s += ": want " + e.Want
	}
	if e.Suggestion != "" {
		s += `; did you mean "` + e.Suggestion + `"?`
	}
	return s
}

const (
	wantTimestamp = `a time such as "2026-01-31T12:00:00Z"`
	wantDuration  = `a duration in seconds such as "90s" or "1.5s"`
	wantMask      = `field paths in lowerCamelCase joined by commas, such as "name,owner.displayName"`
	wantAny       = `an object with "@type"`
	shownBytes    = 60 // of a refused value
	shownNames    = 12 // of the allowed ones
)

// wantOne names what a value of the field looks like.
func (f *field) wantOne() string {
	switch f.kind {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return "a whole number from -2147483648 to 2147483647 (int32)"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return "a whole number from 0 to 4294967295 (uint32)"
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return "a whole number of 64 bits (int64), plain or as a string"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "a whole number from 0 of 64 bits (uint64), plain or as a string"
	case protoreflect.FloatKind:
		return `a number up to ±3.4e38 (float), or "NaN", "Infinity", "-Infinity"`
	case protoreflect.DoubleKind:
		return `a number (double), or "NaN", "Infinity", "-Infinity"`
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BytesKind:
		return "a string of base64"
	case protoreflect.EnumKind:
		return f.enum.want()
	}
	return f.msg.wantOne()
}

func (m *Message) wantOne() string {
	switch p := m.plan(); p.known {
	case knownAny:
		return wantAny
	case knownTimestamp:
		return wantTimestamp
	case knownDuration:
		return wantDuration
	case knownWrapper:
		return p.at(p.index(1)).wantOne()
	case knownStruct:
		return "an object"
	case knownValue:
		return "any JSON value"
	case knownList:
		return "a list"
	case knownMask:
		return wantMask
	}
	return m.wantObject()
}

func (m *Message) wantObject() string { return "an object (" + string(m.desc.FullName()) + ")" }

// want fails because the value at r.pos is none of those wanted, or no JSON at all.
func (r *reader) want(want string) bool {
	start := r.pos
	if r.err != nil || !r.skip(defaultMaxDepth) {
		return false
	}
	found := r.in[start:r.pos]
	r.pos = start
	return r.fail(&Error{Problem: "invalid value " + shown(found), Want: want})
}

func (r *reader) wantScalar(f *field) bool { return r.want(f.wantOne()) }

// shown returns JSON text as an error quotes it.
func shown(text []byte) string {
	switch {
	case len(text) == 0:
		return `""`
	case text[0] == '{':
		return "{…}"
	case text[0] == '[':
		return "[…]"
	}
	return quote(string(text))
}

// quote puts text in quotes unless it has them or is a number or keyword, and bounds it.
func quote(s string) string {
	quoted := len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"'
	if len(s) > shownBytes {
		s = strings.ToValidUTF8(s[:shownBytes], "") + "…"
		if quoted {
			return s + `"`
		}
	}
	if quoted || s == "true" || s == "false" || s == "null" || s != "" && numberEnd([]byte(s)) == len(s) {
		return s
	}
	return strconv.Quote(s)
}

// unknownField says that p has no field of the name.
func (p *plan) unknownField(name string) *Error {
	for i := range p.msg.desc.ReservedNames().Len() {
		if string(p.msg.desc.ReservedNames().Get(i)) == name {
			return &Error{Problem: fmt.Sprintf("field %q was removed from %s; its name is reserved", name, p.msg.desc.FullName()), Member: name}
		}
	}
	e := &Error{Problem: "unknown field " + strconv.Quote(bounded(name)), Member: bounded(name)}
	if e.Suggestion = nearmiss.Find(name, p.bothNames()); e.Suggestion == "" {
		e.Want = p.wantFields()
	}
	return e
}

func bounded(s string) string {
	if len(s) > shownBytes {
		return strings.ToValidUTF8(s[:shownBytes], "") + "…"
	}
	return s
}

// boundedPath leaves out the middle of a path that is too long to be read.
func boundedPath(p string) string {
	if len(p) <= 4*shownBytes {
		return p
	}
	return strings.ToValidUTF8(p[:2*shownBytes], "") + "…" + strings.ToValidUTF8(p[len(p)-2*shownBytes:], "")
}

func (p *plan) jsonNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range p.fields {
			if !yield(p.fields[i].json) {
				return
			}
		}
	}
}

// bothNames yields the JSON names and then the names of the .proto file: both are accepted, and a near miss of either is one.
func (p *plan) bothNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range p.jsonNames() {
			if !yield(name) {
				return
			}
		}
		for i := range p.fields {
			if !yield(p.fields[i].desc.TextName()) {
				return
			}
		}
	}
}

func (p *plan) wantFields() string {
	if len(p.fields) == 0 {
		return "no fields"
	}
	return listed("one of ", p.jsonNames(), len(p.fields))
}

// listed joins the first names.
func listed(head string, names iter.Seq[string], total int) string {
	var b strings.Builder
	b.WriteString(head)
	n := 0
	for name := range names {
		if n == shownNames {
			fmt.Fprintf(&b, " and %d more", total-n)
			break
		}
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
		n++
	}
	return b.String()
}

func (p *plan) oneofTwice(f *field) *Error {
	od := f.desc.ContainingOneof()
	names := func(yield func(string) bool) {
		for i := range od.Fields().Len() {
			if !yield(od.Fields().Get(i).JSONName()) {
				return
			}
		}
	}
	return &Error{Problem: fmt.Sprintf("another field of the choice %q is given too", od.Name()), Want: listed("only one of ", names, od.Fields().Len())}
}

func (e *enum) valueNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range e.desc.Values().Len() {
			if !yield(string(e.desc.Values().Get(i).Name())) {
				return
			}
		}
	}
}

func (e *enum) want() string {
	if e.null {
		return "null"
	}
	return listed("one of ", e.valueNames(), e.desc.Values().Len())
}

// unknown says that the enum has no value of the name.
func (e *enum) unknown(name string) *Error {
	for i := range e.desc.ReservedNames().Len() {
		if string(e.desc.ReservedNames().Get(i)) == name {
			return &Error{Problem: fmt.Sprintf("value %q was removed from %s; its name is reserved", name, e.desc.FullName()), Want: e.want()}
		}
	}
	err := &Error{Problem: "invalid value " + strconv.Quote(bounded(name)), Want: e.want()}
	err.Suggestion = nearmiss.Find(name, e.valueNames())
	if upper := strings.ToUpper(name); err.Suggestion == "" {
		if _, ok := e.names[upper]; ok {
			err.Suggestion = upper
		}
	}
	return err
}

func (r *reader) missingType() *Error {
	e := &Error{Problem: `missing "@type"`, Want: `"@type": "type.googleapis.com/" and the full name of a message`}
	if names := r.set.messageNames(r.root); len(names) > 0 {
		e.Want += ", such as " + names[0]
	}
	return e
}

func (r *reader) unknownType(url string) *Error {
	names := r.set.messageNames(r.root)
	seq := func(yield func(string) bool) {
		for _, n := range names {
			if !yield(n) {
				return
			}
		}
	}
	e := &Error{Problem: "unknown type " + strconv.Quote(bounded(url))}
	if near := nearmiss.Find(url[strings.LastIndexByte(url, '/')+1:], seq); near != "" {
		e.Suggestion = "type.googleapis.com/" + near
	} else if len(names) > 0 {
		e.Want = listed(`"type.googleapis.com/" and one of `, seq, len(names))
	}
	return e
}

// messageNames lists the messages that an Any inside m can hold as far as m's file and its imports tell, well-known types last.
func (s *Set) messageNames(m *Message) []string {
	const most = 2000
	var own, known []string
	seen := map[string]bool{}
	var visit func(fd protoreflect.FileDescriptor)
	add := func(md protoreflect.MessageDescriptor) {
		name := string(md.FullName())
		if s.types == nil || len(own) > most || md.IsMapEntry() {
			return
		}
		if mt, err := s.types.FindMessageByName(md.FullName()); err != nil || mt == nil {
			return
		}
		if strings.HasPrefix(name, "google.protobuf.") {
			known = append(known, name)
			return
		}
		own = append(own, name)
	}
	visit = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] || len(own) > most {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Messages().Len() {
			add(fd.Messages().Get(i))
		}
		for i := range fd.Imports().Len() {
			visit(fd.Imports().Get(i).FileDescriptor)
		}
	}
	visit(m.desc.ParentFile())
	return append(own, known...)
}

// keyName returns the path segment of a map key as JSON wrote it.
func keyName(key []byte) string { return "[" + bounded(string(key)) + "]" }

// wireKeyName returns the path segment of a map key from its wire form.
func wireKeyName(f *field, b []byte) string {
	_, _, n := protowire.ConsumeTag(b)
	v, next := valueAt(b, max(n, 0), len(b), uint64(f.num), f.wire)
	if next < 0 {
		return "[]"
	}
	w := writer{in: b}
	v.bits = keyBits(f.kind, v.bits)
	return w.keyPath(&field{mapKey: f}, v)
}
