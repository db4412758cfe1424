package meshapi_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/meshapi"
)

// TestContractIsTheCode holds the embedded contract, which has comments, against the generated code, which has not.
func TestContractIsTheCode(t *testing.T) {
	files, err := meshapi.Contract()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("the contract has no services")
	}
	for _, fd := range files {
		linked, err := protoregistry.GlobalFiles.FindFileByPath(fd.Path())
		if err != nil {
			t.Errorf("%s is not linked in: %v", fd.Path(), err)
			continue
		}
		got, want := plain(protodesc.ToFileDescriptorProto(fd)), plain(protodesc.ToFileDescriptorProto(linked))
		if !proto.Equal(got, want) {
			t.Errorf("%s differs from the generated code: run make generate", fd.Path())
		}
		if fd.SourceLocations().ByDescriptor(fd.Services().Get(0)).LeadingComments == "" {
			t.Errorf("%s has no comments", fd.Path())
		}
	}
}

// plain leaves out what does not come from the source: comments, and what the generator manages.
func plain(fd *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	fd.SourceCodeInfo = nil
	fd.Options = nil
	return fd
}
