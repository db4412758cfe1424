package suggest_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/suggest"
)

const contract = `syntax = "proto3"; package a.v1;
import "google/api/annotations.proto"; import "google/longrunning/operations.proto"; import "google/protobuf/empty.proto"; import "google/protobuf/field_mask.proto";
import "toolway/v1/options.proto";
message M { string name = 1; string etag = 2; }
message ListReq { string page_token = 1; } message ListRes { string next_page_token = 1; }
message Create { M m = 1; string request_id = 2; } message Update { M m = 1; google.protobuf.FieldMask update_mask = 2; bool validate_only = 3; }
service S {
	rpc GetThing(M) returns (M) { option (google.api.http) = {get: "/v1/{name}"}; }
	rpc FindThing(M) returns (M);
	rpc Things(ListReq) returns (ListRes);
	rpc GetAndLock(M) returns (google.longrunning.Operation);
	rpc CheckOff(M) returns (google.protobuf.Empty);
	rpc DeleteByGet(M) returns (M) { option (google.api.http) = {get: "/v1/{name}:delete"}; }
	rpc CreateThing(Create) returns (M) { option (google.api.http) = {post: "/v1/x" body: "m"}; }
	rpc UpdateThing(Update) returns (M) { option (google.api.http) = {patch: "/v1/{m.name}" body: "m"}; }
	rpc Thing(M) returns (M) { option (google.api.http) = {put: "/v1/{name}" body: "*"}; }
	rpc BatchDeleteThings(M) returns (M);
	rpc ThingRemove(M) returns (M);
	rpc Frobnicate(M) returns (M);
	rpc Told(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }
	rpc Option(M) returns (M) { option (toolway.v1.method) = {destructive: false}; }
}`

func snapshot(t *testing.T, source string) *catalog.Snapshot {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"a.proto": source, "google/longrunning/operations.proto": `syntax = "proto3"; package google.longrunning; message Operation { string name = 1; }`})},
		protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
			fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
			return protocompile.SearchResult{Desc: fd}, err
		}),
	})}
	files, err := c.Compile(context.Background(), "a.proto")
	if err != nil {
		t.Fatal(err)
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
		set.File = append(set.File, protoutil.ProtoFromFileDescriptor(fd))
	}
	add(files[0])
	s, err := catalog.Static("a", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWrite(t *testing.T) {
	var b strings.Builder
	if err := suggest.Write(&b, snapshot(t, contract)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	// Under which heading a method stands, and with which reasons.
	where, headings := map[string]string{}, regexp.MustCompile(`^  # a\.v1\.S(?:: methods that (\w+)|, (not clear))`)
	lines, heading := regexp.MustCompile(`^  (?:    - |#   )a\.v1\.S/(\w+)(.*)$`), ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := headings.FindStringSubmatch(line); m != nil {
			heading = m[1] + m[2]
		} else if strings.HasPrefix(line, "  # Their") {
			heading = ""
		}
		if m := lines.FindStringSubmatch(line); m != nil && heading != "" {
			where[m[1]] = heading + m[2]
		}
	}
	for method, want := range map[string]string{
		"GetThing":          `read  # name "get", HTTP GET`,
		"FindThing":         `read  # name "find"`,
		"Things":            `read  # pages through results`,
		"GetAndLock":        `not clear  # name "get", starts a long-running operation, etag`,
		"CheckOff":          `not clear  # name "check", but returns nothing, etag`,
		"DeleteByGet":       `not clear  # name "delete", HTTP GET, which contradict each other, etag`,
		"CreateThing":       `add  # name "create", HTTP POST, request_id, etag`,
		"UpdateThing":       `set  # name "update", HTTP PATCH, etag, update_mask, validate_only tries it out`,
		"Thing":             `set  # HTTP PUT, etag`,
		"BatchDeleteThings": `delete  # name "delete", etag`,
		"ThingRemove":       `delete  # name "remove", etag`,
		"Frobnicate":        `not clear  # etag`,
		"Told":              "",
		"Option":            "",
	} {
		if got := where[method]; got != want {
			t.Errorf("%s stands under %q, want %q", method, got, want)
		}
	}
	for _, want := range []string{
		"# Of 14 methods: 3 read, 1 add, 2 set, 2 delete, 4 are not clear (they stay writes that may destroy), 2 say it themselves.\n",
		"      - a.v1.S/CreateThing\n    idempotency: {key_field: request_id}\n",
		"    read_only: false\n    destructive: true\n    # approval: confirm\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A contract that leaves nothing to guess gives a configuration that says nothing.
func TestNothingToSuggest(t *testing.T) {
	var b strings.Builder
	err := suggest.Write(&b, snapshot(t, `syntax = "proto3"; package a.v1; message M {} service S { rpc Told(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; } }`))
	if err != nil || !strings.HasSuffix(b.String(), "\npolicy: []\n") {
		t.Errorf("Write = %v:\n%s", err, b.String())
	}
}
