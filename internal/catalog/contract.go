package catalog

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

type serviceDescriptor = protoreflect.ServiceDescriptor

// contract is what one source brought, loaded. It never changes.
type contract struct {
	files    *Files
	codecs   *transcode.Set
	services []serviceDescriptor // sorted by full name
	findings []Finding           // of the loader, without Backend
	hash     string
	memo     sync.Map
}

// Memo returns what derive returned when it was first asked for by this key: what a layer above makes of a backend's contract once, as long
// as the contract stays the same. It is as Method.Memo is.
func (b *Backend) Memo(key any, derive func() any) any {
	if b.contract == nil {
		return derive()
	}
	if v, ok := b.contract.memo.Load(key); ok {
		return v
	}
	v, _ := b.contract.memo.LoadOrStore(key, derive())
	return v
}

// noCodecs are those of a backend whose contract is not known yet.
var noCodecs = transcode.NewSet(dynamicpb.NewTypes(new(Files)))

// Descriptors returns the backend's contract as a descriptor set, comments and built-in imports included, without services that the backend
// does not serve. It is the same for the same contract. It is nil while no contract is known.
func (b *Backend) Descriptors() *descriptorpb.FileDescriptorSet {
	if b.contract == nil {
		return nil
	}
	set := new(descriptorpb.FileDescriptorSet)
	b.contract.files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		fdp := protodesc.ToFileDescriptorProto(fd)
		fdp.Service = slices.DeleteFunc(fdp.Service, func(s *descriptorpb.ServiceDescriptorProto) bool {
			return !slices.ContainsFunc(b.contract.services, func(sd serviceDescriptor) bool { return string(sd.FullName()) == join(fdp.GetPackage(), s.GetName()) })
		})
		setComments(fdp, commentsIn(b.contract.files))
		set.File = append(set.File, fdp)
		return true
	})
	slices.SortFunc(set.File, func(a, b *descriptorpb.FileDescriptorProto) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return set
}

// Static returns a snapshot of one backend whose contract is set. It loads as a source does: what is bad in the set is left out and
// reported in the findings; it is an error only when nothing of the set can be used. Reserved services are allowed, as in a compiled-in source.
func Static(backend string, set *descriptorpb.FileDescriptorSet) (*Snapshot, error) {
	c, err := loadSet(set)
	if err != nil {
		return nil, err
	}
	return build(nil, []input{{name: backend, analysis: analyse(c, ""), trusted: true, findings: c.findings}}), nil
}

// ReadFile returns a snapshot of the one backend whose contract is the descriptor set or buf image at path (see File for the forms). It is an
// error only when nothing of the file can be used; all else is in the findings.
func ReadFile(backend, path string) (*Snapshot, error) {
	c, err := Open(context.Background(), Config{Backends: []BackendConfig{{Name: backend, Sources: []Source{File(path)}}}})
	if err != nil {
		return nil, err
	}
	return c.Snapshot(), c.Close()
}
