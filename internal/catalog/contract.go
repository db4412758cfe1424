package catalog

import (
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
	findings []Finding           // without Backend
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
	return build([]input{{name: backend, analysis: analyse(c, ""), trusted: true}}), nil
}
