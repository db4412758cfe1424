// Package protoset writes descriptor sets for the tests.
package protoset

import (
	"os"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Of returns a set with the files and all that they import, each after what it imports. Files that were compiled keep their comments.
func Of(files ...protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		if r, ok := f.(linker.Result); ok {
			set.File = append(set.File, r.FileDescriptorProto())
			return
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	return set
}

// Write writes the set of the files to path.
func Write(path string, files ...protoreflect.FileDescriptor) error {
	b, err := proto.Marshal(Of(files...))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
