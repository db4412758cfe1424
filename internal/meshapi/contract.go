package meshapi

import (
	_ "embed" // contract.binpb
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// contract is the mesh's own API as buf builds it, with comments: generated Go code has none, and agents would read method names only.
//
//go:embed contract.binpb
var contract []byte

// Contract returns the files of the mesh's own services, comments included.
func Contract() ([]protoreflect.FileDescriptor, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(contract, set); err != nil {
		return nil, fmt.Errorf("the mesh's own contract: %w", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("the mesh's own contract: %w", err)
	}
	var out []protoreflect.FileDescriptor
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(fd.Path(), "toolway/") && fd.Services().Len() > 0 {
			out = append(out, fd)
		}
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	return out, nil
}
