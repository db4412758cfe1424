package catalog

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// CompiledIn returns a source of the services in files that are linked into the binary, such as the mesh's own API, health and reflection.
// Only such a source may bring services of package toolway and gRPC's own. Services of imported files are not served.
func CompiledIn(files ...protoreflect.FileDescriptor) Source { return compiledSource(files) }

type compiledSource []protoreflect.FileDescriptor

func (s compiledSource) start() (report, error) {
	r := report{settled: true, trusted: true, rev: 1, only: []string{}}
	seen := map[string]bool{}
	var add func(fd protoreflect.FileDescriptor) error
	add = func(fd protoreflect.FileDescriptor) error {
		if seen[fd.Path()] {
			return nil
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			if err := add(fd.Imports().Get(i).FileDescriptor); err != nil {
				return err
			}
		}
		data, err := proto.Marshal(protodesc.ToFileDescriptorProto(fd))
		if err != nil {
			return fmt.Errorf("load compiled-in file %q: %w", fd.Path(), err)
		}
		r.files = append(r.files, rawFile{data: data, at: "compiled-in file " + fd.Path()})
		return nil
	}
	for _, fd := range s {
		if err := add(fd); err != nil {
			return report{}, err
		}
		for i := range fd.Services().Len() {
			r.only = append(r.only, string(fd.Services().Get(i).FullName()))
		}
	}
	return r, nil
}

func (s compiledSource) run(context.Context, func(report)) {}
