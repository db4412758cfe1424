package verify_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "google.golang.org/genproto/googleapis/api/annotations" // so that sources may import it

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// snapshot compiles one source and returns the snapshot that serves it.
func snapshot(t *testing.T, source string) *catalog.Snapshot {
	t.Helper()
	c := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"t.proto": source})},
			protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
				fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
				return protocompile.SearchResult{Desc: fd}, err
			}),
		}),
	}
	files, err := c.Compile(context.Background(), "t.proto")
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	set := new(descriptorpb.FileDescriptorSet)
	seen := map[string]bool{}
	var add func(fd protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	add(files[0])
	s, err := catalog.Static("test", set)
	if err != nil {
		t.Fatalf("catalog.Static: %v", err)
	}
	return s
}

// corpus returns the snapshot of a shared descriptor set.
func corpus(t testing.TB, name string) *catalog.Snapshot {
	t.Helper()
	s, err := catalog.ReadFile("corpus", filepath.Join("..", "..", "..", "shared", "descriptors", name))
	if err != nil {
		t.Fatalf("%v; put a copy of shared/ beside the checkout", err)
	}
	return s
}

func run(t testing.TB, s *catalog.Snapshot, o verify.Options) *verify.Report {
	t.Helper()
	r, err := verify.Run(context.Background(), s, o)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return r
}

// find returns the finding of a code, or nil.
func find(r *verify.Report, code string) *verify.Finding {
	for _, tool := range r.Tools {
		for i := range tool.Findings {
			if tool.Findings[i].Code == code {
				return &tool.Findings[i]
			}
		}
	}
	return nil
}
