package catalog

import (
	"context"

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
}

var emptyContract = &contract{files: new(Files), codecs: transcode.NewSet(dynamicpb.NewTypes(new(Files)))}

// Static returns a snapshot of one backend whose contract is set. It loads as a source does: what is bad in the set is left out and
// reported in the findings; it is an error only when nothing of the set can be used. Reserved services are allowed, as in a compiled-in source.
func Static(backend string, set *descriptorpb.FileDescriptorSet) (*Snapshot, error) {
	c, err := loadSet(set)
	if err != nil {
		return nil, err
	}
	return build([]input{{name: backend, analysis: analyse(c, ""), trusted: true, findings: c.findings}}), nil
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
