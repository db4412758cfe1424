package toolschema_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	second "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "google.golang.org/protobuf/types/known/wrapperspb" // for withBuiltins

	"github.com/toolway/toolway/internal/toolschema"
)

// corpusDir is the shared descriptor corpus beside the checkout.
func corpusDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "descriptors")
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("descriptor corpus: %v; it belongs beside the checkout as ../shared/descriptors", err)
	}
	return dir
}

// corpus returns the paths of all shared descriptor sets, variants too.
func corpus(t testing.TB) []string {
	t.Helper()
	var paths []string
	for _, glob := range []string{"*.binpb", "variants/*"} {
		found, err := filepath.Glob(filepath.Join(corpusDir(t), glob))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) < 30 {
		t.Fatalf("descriptor corpus holds %d sets, want at least 30", len(paths))
	}
	sort.Strings(paths)
	return paths
}

// loaded holds what load has read: several tests go over the same sets.
var loaded struct {
	sync.Mutex
	sets map[string]*loadedSet
}

type loadedSet struct {
	once    sync.Once
	files   *protoregistry.Files
	refused int
}

// load reads a descriptor set tolerantly: what it cannot build, it leaves out file by file, and says how many.
func load(t testing.TB, path string) (files *protoregistry.Files, refused int) {
	t.Helper()
	loaded.Lock()
	s := loaded.sets[path]
	if s == nil {
		if loaded.sets == nil {
			loaded.sets = map[string]*loadedSet{}
		}
		s = &loadedSet{}
		loaded.sets[path] = s
	}
	loaded.Unlock()
	s.once.Do(func() { s.files, s.refused = read(t, path) })
	if s.files == nil {
		t.Fatalf("%s could not be read", path)
	}
	return s.files, s.refused
}

func read(t testing.TB, path string) (files *protoregistry.Files, refused int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		path = strings.TrimSuffix(path, ".gz")
	}
	set := &descriptorpb.FileDescriptorSet{}
	switch filepath.Ext(path) {
	case ".json":
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, set)
	case ".txtpb":
		err = prototext.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, set)
	default:
		err = proto.Unmarshal(b, set)
	}
	if err != nil {
		// Truncated sets: the files before the break are still good.
		set = completeFiles(b)
	}
	files = &protoregistry.Files{}
	pending, o := withBuiltins(set.GetFile()), protodesc.FileOptions{AllowUnresolvable: true}
	for again := true; again; {
		again = false
		var later []*descriptorpb.FileDescriptorProto
		for _, f := range pending {
			if !importsLoaded(f, files, pending) {
				later = append(later, f)
				continue
			}
			fd, err := o.New(f, files)
			if err != nil || files.RegisterFile(fd) != nil {
				refused++
				continue
			}
			again = true
		}
		pending = later
	}
	return files, refused + len(pending)
}

// withBuiltins adds the well-known types that a set imports and does not hold, as the catalog does.
func withBuiltins(files []*descriptorpb.FileDescriptorProto) []*descriptorpb.FileDescriptorProto {
	have := map[string]bool{}
	for _, f := range files {
		have[f.GetName()] = true
	}
	for _, f := range files {
		for _, dep := range f.GetDependency() {
			if have[dep] || !strings.HasPrefix(dep, "google/protobuf/") {
				continue
			}
			if fd, err := protoregistry.GlobalFiles.FindFileByPath(dep); err == nil {
				have[dep] = true
				files = append(files, protodesc.ToFileDescriptorProto(fd))
			}
		}
	}
	return files
}

func importsLoaded(f *descriptorpb.FileDescriptorProto, files *protoregistry.Files, pending []*descriptorpb.FileDescriptorProto) bool {
	for _, dep := range f.GetDependency() {
		if _, err := files.FindFileByPath(dep); err == nil {
			continue
		}
		for _, p := range pending {
			if p.GetName() == dep && p != f {
				return false
			}
		}
	}
	return true
}

// completeFiles returns the files of a set whose bytes break off.
func completeFiles(b []byte) *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	for len(b) > 1 && b[0] == 0x0a {
		size, n := uint64(0), 0
		for shift := uint(0); n+1 < len(b) && shift < 35; shift += 7 {
			c := b[1+n]
			n++
			size |= uint64(c&0x7f) << shift
			if c < 0x80 {
				break
			}
		}
		b = b[1+n:]
		if size > uint64(len(b)) {
			break
		}
		f := &descriptorpb.FileDescriptorProto{}
		if proto.Unmarshal(b[:size], f) == nil {
			set.File = append(set.File, f)
		}
		b = b[size:]
	}
	return set
}

// shape is a message in the direction in which it is used.
type shape struct {
	md  protoreflect.MessageDescriptor
	dir toolschema.Direction
}

// shapes returns the requests and responses of every method; every top-level message too where there are few methods.
func shapes(files *protoregistry.Files) []shape {
	seen := map[shape]bool{}
	var all []shape
	add := func(s shape) {
		if !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	methods := 0
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		for i := range fd.Services().Len() {
			ms := fd.Services().Get(i).Methods()
			methods += ms.Len()
			for j := range ms.Len() {
				add(shape{ms.Get(j).Input(), toolschema.Input})
				add(shape{ms.Get(j).Output(), toolschema.Output})
			}
		}
		return true
	})
	if methods < 10 {
		files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
			for i := range fd.Messages().Len() {
				add(shape{fd.Messages().Get(i), toolschema.Input})
				add(shape{fd.Messages().Get(i), toolschema.Output})
			}
			return true
		})
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].md.FullName() != all[j].md.FullName() {
			return all[i].md.FullName() < all[j].md.FullName()
		}
		return all[i].dir < all[j].dir
	})
	return all
}

func compile(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("mem:///schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("mem:///schema.json")
}

// compileAgain is compile with another validator, since what one reads another may not.
func compileAgain(schema []byte) error {
	s := &second.Schema{}
	if err := json.Unmarshal(schema, s); err != nil {
		return err
	}
	_, err := s.Resolve(nil)
	return err
}

// TestCorpus derives the schemas of a sample of every shared set (-long: of all) in every profile: each compiles, keeps the rules of its
// profile and the budget, and is the same when derived again.
func TestCorpus(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	t.Run("sets", func(t *testing.T) {
		for _, path := range corpus(t) {
			name, _ := filepath.Rel(corpusDir(t), path)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				files, refused := load(t, path)
				line := fmt.Sprintf("%-36s refused files %d", name, refused)
				for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
					line += checkSet(t, shapes(files), p)
				}
				mu.Lock()
				lines = append(lines, line)
				mu.Unlock()
			})
		}
	})
	sort.Strings(lines)
	t.Log("bytes and time of all schemas by set and profile\n" + strings.Join(lines, "\n"))
}

func checkSet(t *testing.T, all []shape, p toolschema.Profile) string {
	t.Helper()
	total, largest, cut := 0, 0, 0
	var spent, slowest time.Duration
	var slow protoreflect.FullName
	stride := every(t, 4)
	for i, s := range all {
		if i%stride != 0 {
			continue
		}
		o := toolschema.Options{Direction: s.dir, Profile: p}
		start := time.Now()
		schema := toolschema.For(s.md, o)
		took := time.Since(start)
		spent += took
		if took > slowest {
			slowest, slow = took, s.md.FullName()
		}
		total += len(schema)
		largest = max(largest, len(schema))
		if bytes.Contains(schema, []byte("left out here for size")) {
			cut++
		}
		if len(schema) > toolschema.DefaultMaxBytes {
			t.Errorf("For(%s, %v) is %d bytes, want at most %d", s.md.FullName(), o, len(schema), toolschema.DefaultMaxBytes)
		}
		if _, err := compile(schema); err != nil {
			t.Errorf("For(%s, %v) does not compile: %v\n%s", s.md.FullName(), o, err, schema)
		}
		if i%(3*stride) == 0 {
			if err := compileAgain(schema); err != nil {
				t.Errorf("For(%s, %v) does not compile in the second validator: %v\n%s", s.md.FullName(), o, err, schema)
			}
		}
		if problems := toolschema.Problems(schema, p, s.dir); len(problems) > 0 {
			t.Errorf("For(%s, %v) breaks the rules of its profile: %s", s.md.FullName(), o, strings.Join(problems[:min(3, len(problems))], "; "))
		}
		if again := toolschema.For(s.md, o); !bytes.Equal(schema, again) {
			t.Errorf("For(%s, %v) gives other bytes the second time", s.md.FullName(), o)
		}
	}
	count := (len(all) + stride - 1) / stride
	if count == 0 {
		return ""
	}
	return fmt.Sprintf(" | %s: %d schemas, %d KB, mean %d, largest %d, cut %d, mean %v, slowest %v %s",
		p, count, total>>10, total/count, largest, cut, (spent / time.Duration(count)).Round(time.Microsecond), slowest.Round(10*time.Microsecond), slow)
}
