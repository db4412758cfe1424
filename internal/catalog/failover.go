package catalog

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// failovers are, by backend, the backends that take over from it, and what they bring.
type failovers struct {
	second map[string]input                  // by the name of the first
	types  map[[2]protoreflect.FullName]bool // messages compared already
}

func newFailovers(inputs []input) *failovers {
	f := &failovers{second: map[string]input{}, types: map[[2]protoreflect.FullName]bool{}}
	for _, in := range inputs {
		for _, second := range inputs {
			if in.failover != "" && second.name == in.failover {
				f.second[in.name] = second
			}
		}
	}
	return f
}

// of returns the backend that brings the same method as the first one, as the wire has it, or "". known is false while the second's contract is not.
func (f *failovers) of(first string, md protoreflect.MethodDescriptor) (second string, known bool) {
	in, ok := f.second[first]
	if !ok || in.analysis == nil {
		return "", false
	}
	for _, si := range in.analysis.services {
		service := si.desc.FullName()
		if service != md.Parent().FullName() || len(in.services) > 0 && !Listed(in.services, string(service)) {
			continue
		}
		other := si.desc.Methods().ByName(md.Name())
		if other != nil && other.IsStreamingClient() == md.IsStreamingClient() && other.IsStreamingServer() == md.IsStreamingServer() &&
			f.sameMessage(md.Input(), other.Input()) && f.sameMessage(md.Output(), other.Output()) {
			return in.name, true
		}
	}
	return "", true
}

// sameMessage says whether the bytes of a mean the same as b: the fields have the same numbers, names and types, all the way down. Comments and options
// may differ, as between two releases of a server.
func (f *failovers) sameMessage(a, b protoreflect.MessageDescriptor) bool {
	key := [2]protoreflect.FullName{a.FullName(), b.FullName()}
	if same, ok := f.types[key]; ok {
		return same
	}
	f.types[key] = true // while it is being compared, for messages that hold themselves
	same := a.FullName() == b.FullName() && a.Fields().Len() == b.Fields().Len()
	for i := 0; same && i < a.Fields().Len(); i++ {
		x := a.Fields().Get(i)
		y := b.Fields().ByNumber(x.Number())
		same = y != nil && f.sameField(x, y)
	}
	f.types[key] = same
	return same
}

func (f *failovers) sameField(x, y protoreflect.FieldDescriptor) bool {
	if x.Name() != y.Name() || x.Kind() != y.Kind() || x.Cardinality() != y.Cardinality() {
		return false
	}
	if x.Enum() != nil {
		return x.Enum().FullName() == y.Enum().FullName()
	}
	return x.Message() == nil || f.sameMessage(x.Message(), y.Message())
}

// cover gives the backend's methods their second backend. If all have one and it is up, the backend's being down is of no matter: it counts as up.
func (b *builder) cover(be *Backend, methods []*Method, fs *failovers) {
	second, ok := fs.second[be.Name]
	if !ok {
		return
	}
	be.Failover = second.name
	all := len(methods) > 0
	for _, m := range methods {
		if m.Service.Infrastructure {
			continue
		}
		name, known := fs.of(be.Name, m.Desc)
		m.Failover = name
		all = all && name != ""
		if known && name == "" {
			b.find(be, "failover-differs", SeverityError, string(m.Desc.FullName()), "backend %q does not fail over to %q for method %q, which is missing there or has other messages; bring both to the same contract",
				be.Name, second.name, m.Desc.FullName())
		}
	}
	if be.State != Up && all && second.state == Up {
		be.State, be.Covered = Up, true
	}
}
