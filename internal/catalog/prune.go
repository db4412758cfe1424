package catalog

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// prune takes out of a file what needs types that are not there: fields, extensions, and the methods whose messages lost something.
// It says whether anything was taken out.
func (l *loader) prune(f *file) (changed bool) {
	eachMessage(f.fdp, func(name string, m *messageProto) {
		if l.pruneMessage(f, name, m) {
			changed = true
		}
	})
	l.spreadTaint(f)
	if l.pruneExtensions(f) {
		changed = true
	}
	for _, s := range f.fdp.GetService() {
		full := join(f.scope, s.GetName())
		n := len(s.Method)
		s.Method = slices.DeleteFunc(s.Method, func(m *descriptorpb.MethodDescriptorProto) bool {
			for _, ref := range []string{m.GetInputType(), m.GetOutputType()} {
				why, bad := l.lacks(f, full, ref)
				if bad {
					l.find("method-dropped", SeverityError, join(full, m.GetName()), "method %s is not served: it needs type %s, which could not be loaded; add or mend the file that defines it", join(full, m.GetName()), why)
					return true
				}
			}
			return false
		})
		changed = changed || len(s.Method) != n
	}
	return changed
}

// lacks says whether a reference leads to a type that is not there or not whole, and which one.
func (l *loader) lacks(f *file, scope, ref string) (missing string, bad bool) {
	if !l.present(f, scope, ref) {
		return strings.TrimPrefix(ref, "."), true
	}
	name, _ := l.resolve(scope, ref)
	missing, bad = l.tainted[name]
	return missing, bad
}

// present says whether the type that ref means is loaded, or stands in f itself.
func (l *loader) present(f *file, scope, ref string) bool {
	name, ok := l.resolve(scope, ref)
	if !ok || l.gone[name] {
		return false
	}
	d := l.types[name]
	return d == f || d.built != nil
}

// pruneMessage takes out fields whose type is missing. A map entry that loses its value goes as a whole.
func (l *loader) pruneMessage(f *file, name string, m *messageProto) bool {
	n := len(m.Field)
	m.Field = slices.DeleteFunc(m.Field, func(fd *fieldProto) bool {
		if fd.GetTypeName() == "" || l.present(f, name, fd.GetTypeName()) {
			return false
		}
		missing := strings.TrimPrefix(fd.GetTypeName(), ".")
		if of, ok := l.tainted[missing]; ok {
			missing = of
		}
		l.tainted[name] = missing
		return true
	})
	if len(m.Field) == n {
		return false
	}
	if m.GetOptions().GetMapEntry() {
		l.gone[name] = true
	}
	m.NestedType = slices.DeleteFunc(m.NestedType, func(n *messageProto) bool { return l.gone[join(name, n.GetName())] })
	compactOneofs(m)
	return true
}

// compactOneofs takes out oneofs without fields and renumbers the rest.
func compactOneofs(m *messageProto) {
	used := map[int32]bool{}
	for _, fd := range m.Field {
		if fd.OneofIndex != nil {
			used[fd.GetOneofIndex()] = true
		}
	}
	index := map[int32]int32{}
	var kept []*descriptorpb.OneofDescriptorProto
	for i, o := range m.OneofDecl {
		if used[int32(i)] {
			index[int32(i)] = int32(len(kept))
			kept = append(kept, o)
		}
	}
	m.OneofDecl = kept
	for _, fd := range m.Field {
		if fd.OneofIndex == nil {
			continue
		}
		if i, ok := index[fd.GetOneofIndex()]; ok {
			fd.OneofIndex = proto.Int32(i)
		}
	}
}

// spreadTaint marks the messages of f that reach one that lost a field.
func (l *loader) spreadTaint(f *file) {
	if len(l.tainted) == 0 {
		return
	}
	users := map[string][]string{}
	var todo []string
	eachMessage(f.fdp, func(name string, m *messageProto) {
		for _, fd := range m.Field {
			if fd.GetTypeName() == "" {
				continue
			}
			if to, ok := l.resolve(name, fd.GetTypeName()); ok {
				users[to] = append(users[to], name)
				if _, bad := l.tainted[to]; bad {
					todo = append(todo, to)
				}
			}
		}
	})
	for len(todo) > 0 {
		bad := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range users[bad] {
			if _, known := l.tainted[u]; !known {
				l.tainted[u] = l.tainted[bad]
				todo = append(todo, u)
			}
		}
	}
}

func (l *loader) pruneExtensions(f *file) (changed bool) {
	drop := func(scope string, xs []*extensionProto) []*extensionProto {
		return slices.DeleteFunc(xs, func(x *extensionProto) bool {
			for _, ref := range []string{x.GetExtendee(), x.GetTypeName()} {
				if ref != "" && !l.present(f, scope, ref) {
					l.find("extension-dropped", SeverityWarning, join(scope, x.GetName()), "extension %s is left out: it needs type %s, which could not be loaded; add or mend the file that defines it", join(scope, x.GetName()), strings.TrimPrefix(ref, "."))
					changed = true
					return true
				}
			}
			return false
		})
	}
	f.fdp.Extension = drop(f.scope, f.fdp.Extension)
	eachMessage(f.fdp, func(name string, m *messageProto) { m.Extension = drop(name, m.Extension) })
	return changed
}

// dropDuplicates takes out of a file what an earlier file defines, and enters the names of the rest.
func (l *loader) dropDuplicates(f *file) {
	comments := ownComments(f.fdp)
	dropped := 0
	taken := func(each func(yield func(string))) bool {
		var owner *file
		var first string
		each(func(name string) {
			if o := l.names[name]; o != nil && owner == nil {
				owner, first = o, name
			}
		})
		if owner == nil {
			each(func(name string) { l.names[name] = f })
			return false
		}
		if owner == f {
			return false
		}
		dropped++
		l.find("symbol-duplicate", SeverityWarning, first, "%s is defined in %q and again in %q; the first is taken; take one of the two files out of the source", first, owner.path, f.path)
		return true
	}
	one := func(name string) func(func(string)) {
		return func(yield func(string)) { yield(join(f.scope, name)) }
	}
	f.fdp.MessageType = slices.DeleteFunc(f.fdp.MessageType, func(m *messageProto) bool { return taken(one(m.GetName())) })
	f.fdp.EnumType = slices.DeleteFunc(f.fdp.EnumType, func(e *enumProto) bool {
		return taken(func(yield func(string)) { eachEnumName(f.scope, e, yield) })
	})
	f.fdp.Service = slices.DeleteFunc(f.fdp.Service, func(s *descriptorpb.ServiceDescriptorProto) bool { return taken(one(s.GetName())) })
	f.fdp.Extension = slices.DeleteFunc(f.fdp.Extension, func(x *extensionProto) bool { return taken(one(x.GetName())) })
	if dropped > 0 {
		setComments(f.fdp, comments)
	}
}

// repairMaps renames map entries that a library named wrongly: protobuf fixes the name, and Go refuses the file otherwise.
func (l *loader) repairMaps(f *file) {
	eachMessage(f.fdp, func(name string, m *messageProto) {
		nested := map[string]bool{}
		maps := false
		for _, n := range m.GetNestedType() {
			nested[n.GetName()] = true
			maps = maps || n.GetOptions().GetMapEntry()
		}
		if !maps {
			return
		}
		users := map[string][]*fieldProto{}
		for _, fd := range m.GetField() {
			typ := strings.TrimPrefix(strings.TrimPrefix(fd.GetTypeName(), "."), name+".")
			users[typ] = append(users[typ], fd)
		}
		for _, entry := range m.GetNestedType() {
			old := entry.GetName()
			if !entry.GetOptions().GetMapEntry() || len(users[old]) != 1 {
				continue
			}
			fd := users[old][0]
			want := mapEntryName(fd.GetName())
			if nested[want] {
				continue
			}
			l.find("map-entry-renamed", SeverityWarning, join(name, old), "map entry %s of file %q is named wrongly by the server's protobuf library and was renamed to %s; update that library", join(name, old), f.path, want)
			nested[want] = true
			entry.Name = proto.String(want)
			fd.TypeName = proto.String("." + join(name, want))
		}
	})
}

// mapEntryName is the name that protobuf prescribes for the entry of a map field.
func mapEntryName(field string) string {
	var b strings.Builder
	up := true
	for i := range len(field) {
		c := field[i]
		switch {
		case c == '_':
			up = true
			continue
		case up && isLower(c):
			c -= 'a' - 'A'
		}
		up = false
		b.WriteByte(c)
	}
	return b.String() + "Entry"
}
