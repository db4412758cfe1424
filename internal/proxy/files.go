package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

// fileSet is what reflection says of one snapshot: the files of all backends under paths that are unique. Where two backends bring a path
// with different content, the later backend's file is served under another path, and its importers import that. It never changes.
type fileSet struct {
	snap     *catalog.Snapshot
	services []string
	byPath   map[string]*file
	backends []*backendFiles
	owners   map[string]*backendFiles // service → files of the backend that owns it
	hidden   hidden
}

// hidden holds what a caller may not know of: full names of methods, and of services with no other methods.
type hidden map[protoreflect.FullName]bool

// hiddenFrom returns what shown says no to; nil if that is nothing. key identifies it.
func hiddenFrom(snap *catalog.Snapshot, shown func(*catalog.Method) bool) (h hidden, key string) {
	var all strings.Builder
	for _, s := range snap.Services() {
		if !s.Exposed(catalog.DoorGRPC) {
			continue
		}
		none := true
		for _, m := range s.Methods {
			if shown(m) {
				none = false
				continue
			}
			if h == nil {
				h = hidden{}
			}
			h[m.Desc.FullName()] = true
			fmt.Fprintln(&all, m.FullMethod)
		}
		if none && len(s.Methods) > 0 {
			h[s.Desc.FullName()] = true
		}
	}
	return h, all.String()
}

// strip takes what is hidden out of a file.
func (h hidden) strip(p *descriptorpb.FileDescriptorProto) {
	if h == nil {
		return
	}
	name := func(parts ...string) protoreflect.FullName {
		return protoreflect.FullName(strings.TrimPrefix(strings.Join(parts, "."), "."))
	}
	p.Service = slices.DeleteFunc(p.Service, func(s *descriptorpb.ServiceDescriptorProto) bool {
		if h[name(p.GetPackage(), s.GetName())] {
			return true
		}
		s.Method = slices.DeleteFunc(s.Method, func(m *descriptorpb.MethodDescriptorProto) bool {
			return h[name(p.GetPackage(), s.GetName(), m.GetName())]
		})
		return false
	})
}

// file is one file as it is served.
type file struct {
	path    string
	wire    []byte
	imports []*file
}

// backendFiles are the files of one backend.
type backendFiles struct {
	registry   *protoregistry.Files
	byOriginal map[string]*file
	extensions map[protoreflect.FullName]map[int32]*file
}

// newFileSet reads the files of every backend that owns a service, without what is hidden.
func newFileSet(snap *catalog.Snapshot, h hidden) (*fileSet, error) {
	fs := &fileSet{snap: snap, hidden: h, byPath: map[string]*file{}, owners: map[string]*backendFiles{}}
	owning := map[*catalog.Backend][]string{}
	for _, s := range snap.Services() {
		if !s.Exposed(catalog.DoorGRPC) || h[s.Desc.FullName()] {
			continue
		}
		name := string(s.Desc.FullName())
		fs.services = append(fs.services, name)
		owning[s.Backend] = append(owning[s.Backend], name)
	}
	for _, b := range snap.Backends() {
		services := owning[b]
		if len(services) == 0 || b.Files == nil {
			continue
		}
		bf := &backendFiles{registry: b.Files, byOriginal: map[string]*file{}, extensions: map[protoreflect.FullName]map[int32]*file{}}
		var err error
		b.Files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
			_, err = fs.add(bf, b.Name, fd)
			return err == nil
		})
		if err != nil {
			return nil, fmt.Errorf("files of backend %q: %w", b.Name, err)
		}
		fs.backends = append(fs.backends, bf)
		for _, s := range services {
			fs.owners[s] = bf
		}
	}
	return fs, nil
}

// add serves fd after all that it imports.
func (fs *fileSet) add(bf *backendFiles, backend string, fd protoreflect.FileDescriptor) (*file, error) {
	if f := bf.byOriginal[fd.Path()]; f != nil {
		return f, nil
	}
	p := protodesc.ToFileDescriptorProto(fd)
	fs.hidden.strip(p)
	f := &file{path: fd.Path()}
	for i := range fd.Imports().Len() {
		imp := fd.Imports().Get(i)
		if imp.IsPlaceholder() {
			continue
		}
		dep, err := fs.add(bf, backend, imp.FileDescriptor)
		if err != nil {
			return nil, err
		}
		f.imports = append(f.imports, dep)
		if j := slices.Index(p.Dependency, imp.Path()); j >= 0 {
			p.Dependency[j] = dep.path
		}
	}
	if err := fs.place(f, p, backend); err != nil {
		return nil, err
	}
	bf.byOriginal[fd.Path()] = f
	bf.addExtensions(f, fd)
	return f, nil
}

// place gives f its content and a path under which no other content is served.
func (fs *fileSet) place(f *file, p *descriptorpb.FileDescriptorProto, backend string) error {
	original := f.path
	for n := 0; ; n++ {
		if n > 0 {
			f.path = renamed(original, backend, n)
		}
		p.Name = proto.String(f.path)
		wire, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(p)
		if err != nil {
			return fmt.Errorf("encode %q: %w", original, err)
		}
		there := fs.byPath[f.path]
		if there == nil {
			f.wire = wire
			fs.byPath[f.path] = f
			return nil
		}
		if bytes.Equal(there.wire, wire) {
			f.wire = there.wire
			return nil
		}
	}
}

// renamed returns the path of another backend's file of the same path: "acme/api.proto" of "orders" becomes "backend/orders/acme/api.proto".
func renamed(path, backend string, n int) string {
	prefix := "backend/" + strings.ReplaceAll(backend, "/", "_")
	if n > 1 {
		prefix = fmt.Sprintf("%s~%d", prefix, n)
	}
	return prefix + "/" + path
}

// extender is a file or message: what may declare extensions.
type extender interface {
	Extensions() protoreflect.ExtensionDescriptors
	Messages() protoreflect.MessageDescriptors
}

func (bf *backendFiles) addExtensions(f *file, in extender) {
	for i := range in.Extensions().Len() {
		x := in.Extensions().Get(i)
		name := x.ContainingMessage().FullName()
		if bf.extensions[name] == nil {
			bf.extensions[name] = map[int32]*file{}
		}
		bf.extensions[name][int32(x.Number())] = f
	}
	for i := range in.Messages().Len() {
		bf.addExtensions(f, in.Messages().Get(i))
	}
}

// bySymbol returns the file that defines a name. A service, and what lies in it, is its owner's; of other names that several backends
// define, the first backend's.
func (fs *fileSet) bySymbol(name string) *file {
	name = strings.TrimPrefix(name, ".")
	if fs.hidden[protoreflect.FullName(name)] {
		return nil
	}
	for s := name; s != ""; {
		if bf := fs.owners[s]; bf != nil {
			return bf.find(name)
		}
		i := strings.LastIndexByte(s, '.')
		if i < 0 {
			break
		}
		s = s[:i]
	}
	for _, bf := range fs.backends {
		d, err := bf.registry.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil || fs.withheld(d) {
			continue
		}
		return bf.byOriginal[d.ParentFile().Path()]
	}
	return nil
}

func (bf *backendFiles) find(name string) *file {
	d, err := bf.registry.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	return bf.byOriginal[d.ParentFile().Path()]
}

// withheld says whether d is, or lies in, a service that its backend does not own: reflection does not know it.
func (fs *fileSet) withheld(d protoreflect.Descriptor) bool {
	for ; d != nil; d = d.Parent() {
		if s, ok := d.(protoreflect.ServiceDescriptor); ok {
			return fs.owners[string(s.FullName())] == nil
		}
	}
	return false
}

func (fs *fileSet) byExtension(message string, number int32) *file {
	for _, bf := range fs.backends {
		if f := bf.extensions[protoreflect.FullName(strings.TrimPrefix(message, "."))][number]; f != nil {
			return f
		}
	}
	return nil
}

// extensionNumbers returns the numbers of all known extensions of a message, sorted, or false if no backend has the message.
func (fs *fileSet) extensionNumbers(message string) ([]int32, bool) {
	name := protoreflect.FullName(strings.TrimPrefix(message, "."))
	known := false
	var out []int32
	for _, bf := range fs.backends {
		if d, err := bf.registry.FindDescriptorByName(name); err == nil {
			_, ok := d.(protoreflect.MessageDescriptor)
			known = known || ok
		}
		for n := range bf.extensions[name] {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), known
}
