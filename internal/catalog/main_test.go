package catalog_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const corpus = "../../../shared/descriptors"

// corpusFiles returns the paths of all shared sets and their variants.
func corpusFiles(tb testing.TB) []string {
	tb.Helper()
	var out []string
	for _, pattern := range []string{"*.binpb", "variants/*"} {
		paths, err := filepath.Glob(filepath.Join(corpus, pattern))
		if err != nil || len(paths) == 0 {
			tb.Fatalf("no shared descriptors at %s/%s (%v); put a copy of shared/ beside the checkout", corpus, pattern, err)
		}
		out = append(out, paths...)
	}
	return out
}

// compile compiles sources by path into a set with all imports. Options of google.api and toolway.v1 can be imported.
func compile(tb testing.TB, sources map[string]string) *descriptorpb.FileDescriptorSet {
	tb.Helper()
	return compileFiles(tb, sources, true)
}

func compileFiles(tb testing.TB, sources map[string]string, withImports bool) *descriptorpb.FileDescriptorSet {
	tb.Helper()
	c := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)},
			protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
				fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
				return protocompile.SearchResult{Desc: fd}, err
			}),
		}),
	}
	paths := make([]string, 0, len(sources))
	for p := range sources {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	files, err := c.Compile(context.Background(), paths...)
	if err != nil {
		tb.Fatalf("compile test sources: %v", err)
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
		if _, own := sources[fd.Path()]; own || withImports {
			set.File = append(set.File, protoutil.ProtoFromFileDescriptor(fd))
		}
	}
	for _, f := range files {
		add(f)
	}
	return set
}

// compileOne compiles one file and leaves its imports to the built-ins.
func compileOne(tb testing.TB, source string) *descriptorpb.FileDescriptorSet {
	tb.Helper()
	return compileFiles(tb, map[string]string{"test.proto": source}, false)
}

func static(tb testing.TB, set *descriptorpb.FileDescriptorSet) *catalog.Snapshot {
	tb.Helper()
	s, err := catalog.Static("test", set)
	if err != nil {
		tb.Fatalf("Static: %v", err)
	}
	return s
}

// codesOf returns the codes of all findings, sorted, each once.
func codesOf(s *catalog.Snapshot) string {
	var out []string
	for _, f := range s.Findings() {
		out = append(out, f.Code)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// finding returns the first finding of a code.
func finding(tb testing.TB, s *catalog.Snapshot, code string) catalog.Finding {
	tb.Helper()
	for _, f := range s.Findings() {
		if f.Code == code {
			return f
		}
	}
	tb.Fatalf("no finding %q among %v", code, s.Findings())
	return catalog.Finding{}
}

func toolNames(s *catalog.Snapshot) []string {
	out := []string{}
	for _, m := range s.Tools() {
		out = append(out, m.Tool.Name)
	}
	return out
}

// writeSet writes a set into a directory of the test and returns its path.
func writeSet(tb testing.TB, name string, set *descriptorpb.FileDescriptorSet) string {
	tb.Helper()
	b, err := proto.Marshal(set)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// open opens a catalog that the test closes, and waits until it is ready.
func open(tb testing.TB, cfg catalog.Config) *catalog.Catalog {
	tb.Helper()
	cfg.Debounce = cmp.Or(cfg.Debounce, time.Millisecond)
	c, err := catalog.Open(context.Background(), cfg)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		tb.Fatalf("Ready: %v", err)
	}
	return c
}

// await waits for a snapshot that fits.
func await(tb testing.TB, c *catalog.Catalog, what string, fits func(*catalog.Snapshot) bool) *catalog.Snapshot {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for s := range c.Watch(ctx) {
		if fits(s) {
			return s
		}
	}
	tb.Fatalf("the catalog never showed: %s; tools %v, findings %v", what, toolNames(c.Snapshot()), c.Snapshot().Findings())
	return nil
}
