package catalog

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/toolschema"
)

// FieldSet holds the marked fields of one message type, and those whose messages reach marked fields. It may lead back to itself, as messages
// do, and never changes. A nil FieldSet holds nothing: whoever looks at a message need not look below it.
//
// What the contract does not know, unknown fields and the contents of a google.protobuf.Any, is in no FieldSet.
type FieldSet struct {
	marks              []FieldMark // sorted by number
	sensitive, redacts bool
	labels             []string
}

// FieldMark is how the values of one field are handled.
type FieldMark struct {
	Field protoreflect.FieldDescriptor
	// Sensitive keeps the value out of logs and audit.
	Sensitive bool
	// Redact keeps the value out of results too. It implies Sensitive.
	Redact bool
	// Label is the kind of data, such as "pii"; "" where the field has none.
	Label string
	// Within holds the marked fields of the field's message, or of a map's values; nil where there is none.
	Within *FieldSet
}

// Mark returns the mark of a field number, or nil.
func (s *FieldSet) Mark(number protoreflect.FieldNumber) *FieldMark {
	if s == nil {
		return nil
	}
	for i := range s.marks { // few
		if s.marks[i].Field.Number() == number {
			return &s.marks[i]
		}
	}
	return nil
}

// Marks returns all marks in the order of the field numbers. The slice must not be changed.
func (s *FieldSet) Marks() []FieldMark {
	if s == nil {
		return nil
	}
	return s.marks
}

// Sensitive says whether the set, or a set within it, has a sensitive field.
func (s *FieldSet) Sensitive() bool { return s != nil && s.sensitive }

// Redacts says whether the set, or a set within it, has a field that is kept out of results.
func (s *FieldSet) Redacts() bool { return s != nil && s.redacts }

// Labels returns the labels of the set and the sets within it, sorted.
func (s *FieldSet) Labels() []string {
	if s == nil {
		return nil
	}
	return s.labels
}

// Paths returns the paths of all marked fields with their marks, in order of the field numbers, fields with dots between. A set that leads
// back to itself is followed once. It is for showing, and bounded: the same type may be reached in very many ways.
func (s *FieldSet) Paths() []FieldPath {
	var out []FieldPath
	steps := 0
	var walk func(s *FieldSet, prefix string, above []*FieldSet)
	walk = func(s *FieldSet, prefix string, above []*FieldSet) {
		if steps++; s == nil || slices.Contains(above, s) || steps > maxPathSteps {
			return
		}
		above = append(above, s)
		for _, m := range s.marks {
			path := prefix + string(m.Field.Name())
			if m.Sensitive || m.Label != "" {
				out = append(out, FieldPath{Path: path, Mark: m})
			}
			walk(m.Within, path+".", above)
		}
	}
	walk(s, "", nil)
	return out
}

// FieldPath is a marked field and where it is.
type FieldPath struct {
	Path string
	Mark FieldMark
}

// maxPathSteps bounds the work of Paths.
const maxPathSteps = 10_000

// Sensitive returns the marked fields of the requests or the responses: by the standard option debug_redact, by (toolway.v1.field), or by
// the operator's configuration. It is nil when there are none, and made once.
func (m *Method) Sensitive(d toolschema.Direction) *FieldSet {
	if d == toolschema.Output {
		return m.marked[1]
	}
	return m.marked[0]
}

// markOf reads the field's own options.
func markOf(fd protoreflect.FieldDescriptor) FieldMark {
	std, _ := fd.Options().(*descriptorpb.FieldOptions)
	own, _ := proto.GetExtension(std, toolwayv1.E_Field).(*toolwayv1.FieldOptions)
	return FieldMark{
		Field: fd, Label: clean(own.GetDataLabel(), false), Redact: own.GetRedactResult(),
		Sensitive: std.GetDebugRedact() || own.GetSensitive() || own.GetRedactResult(),
	}
}

// messageFields returns the fields of md, and the extensions of it that the contract has.
type messageFields struct {
	extensions map[protoreflect.FullName][]protoreflect.FieldDescriptor
}

func (f messageFields) of(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	return append(byNumber(md), f.extensions[md.FullName()]...)
}

// within returns the message that a field's values are, looking through maps, or nil.
func within(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

// fieldSets finds the marked fields of every message of a contract, in time linear in the contract.
func fieldSets(files *Files) map[protoreflect.FullName]*FieldSet {
	var messages []protoreflect.MessageDescriptor
	fields := messageFields{map[protoreflect.FullName][]protoreflect.FieldDescriptor{}}
	extend := func(xs protoreflect.ExtensionDescriptors) {
		for i := range xs.Len() {
			name := xs.Get(i).ContainingMessage().FullName()
			fields.extensions[name] = append(fields.extensions[name], xs.Get(i))
		}
	}
	var collect func(ms protoreflect.MessageDescriptors)
	collect = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			messages = append(messages, ms.Get(i))
			extend(ms.Get(i).Extensions())
			collect(ms.Get(i).Messages())
		}
	}
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		extend(fd.Extensions())
		collect(fd.Messages())
		return true
	})
	sets := map[protoreflect.FullName]*FieldSet{}
	holders := map[protoreflect.FullName][]protoreflect.FullName{} // by what they hold
	var todo []protoreflect.FullName
	reach := func(name protoreflect.FullName) {
		if sets[name] == nil {
			sets[name] = new(FieldSet)
			todo = append(todo, name)
		}
	}
	for _, md := range messages {
		for _, fd := range fields.of(md) {
			if m := markOf(fd); m.Sensitive || m.Label != "" {
				reach(md.FullName())
			}
			if in := within(fd); in != nil {
				holders[in.FullName()] = append(holders[in.FullName()], md.FullName())
			}
		}
	}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, h := range holders[name] {
			reach(h)
		}
	}
	if len(sets) == 0 {
		return nil
	}
	for _, md := range messages {
		if set := sets[md.FullName()]; set != nil {
			for _, fd := range fields.of(md) {
				m := markOf(fd)
				if in := within(fd); in != nil {
					m.Within = sets[in.FullName()]
				}
				if m.Sensitive || m.Label != "" || m.Within != nil {
					set.marks = append(set.marks, m)
				}
			}
			slices.SortFunc(set.marks, func(a, b FieldMark) int { return cmp.Compare(a.Field.Number(), b.Field.Number()) })
		}
	}
	for _, set := range sets {
		set.summarise()
	}
	return sets
}

// summarise says what is in s and everything that it reaches.
func (s *FieldSet) summarise() {
	seen := map[*FieldSet]bool{s: true}
	for todo := []*FieldSet{s}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, m := range at.marks {
			s.sensitive, s.redacts = s.sensitive || m.Sensitive, s.redacts || m.Redact
			if m.Label != "" && !slices.Contains(s.labels, m.Label) {
				s.labels = append(s.labels, m.Label)
			}
			if m.Within != nil && !seen[m.Within] {
				seen[m.Within] = true
				todo = append(todo, m.Within)
			}
		}
	}
	slices.Sort(s.labels)
}

// with returns a copy of s, which may be nil, in which the field at the path below md has been changed. Nothing else sees the change, even
// where the same message is reached by another path. The path must be one that findField knows.
func (s *FieldSet) with(md protoreflect.MessageDescriptor, path string, change func(*FieldMark)) *FieldSet {
	name, rest, deeper := strings.Cut(path, ".")
	fd := md.Fields().ByName(protoreflect.Name(name))
	out := new(FieldSet)
	if s != nil {
		out.marks = slices.Clone(s.marks)
	}
	i := slices.IndexFunc(out.marks, func(m FieldMark) bool { return m.Field.Number() == fd.Number() })
	if i < 0 {
		i = len(out.marks)
		out.marks = append(out.marks, FieldMark{Field: fd})
	}
	if m := &out.marks[i]; deeper {
		m.Within = m.Within.with(within(fd), rest, change)
	} else {
		change(m)
	}
	out.marks = slices.DeleteFunc(out.marks, func(m FieldMark) bool { return !m.Sensitive && m.Label == "" && m.Within == nil })
	if len(out.marks) == 0 {
		return nil
	}
	slices.SortFunc(out.marks, func(a, b FieldMark) int { return cmp.Compare(a.Field.Number(), b.Field.Number()) })
	out.summarise()
	return out
}
