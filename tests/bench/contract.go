package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/toolway/toolway/tests/internal/protoset"
)

// methodsOfService of a made contract.
const methodsOfService = 20

// made is a contract of so many services with 20 methods each, in the words of no particular trade: every method has messages of its own, with
// nested, repeated, map and enum fields, comments and a google.api.http rule.
func made(ctx context.Context, services int) ([]byte, error) {
	files := map[string]string{}
	var names []string
	for i := range services {
		name := fmt.Sprintf("made/v%d/s%d.proto", i%7+1, i)
		files[name] = madeFile(i)
		names = append(names, name)
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}, protocompile.ResolverFunc(linked),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	out, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("compile the made contract: %w", err)
	}
	roots := make([]protoreflect.FileDescriptor, len(out))
	for i, f := range out {
		roots[i] = f
	}
	return proto.Marshal(protoset.Of(roots...))
}

// linked finds what this program has in it: google/api/annotations.proto and what that imports.
func linked(path string) (protocompile.SearchResult, error) {
	fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: fd}, err
}

var (
	verbs = []string{"Get", "List", "Create", "Update", "Delete", "Cancel", "Approve", "Archive", "Search", "Move", "Copy", "Lock", "Merge", "Split", "Rename", "Export", "Import", "Check", "Assign", "Close"}
	nouns = []string{"Order", "Ticket", "Invoice", "Parcel", "Sensor", "Lesson", "Tenant", "Ledger", "Backup", "Device", "Policy", "Report", "Vessel", "Harvest", "Recipe", "Contract"}
)

func madeFile(i int) string {
	noun := nouns[i%len(nouns)]
	var b strings.Builder
	fmt.Fprintf(&b, "syntax = \"proto3\";\npackage made.s%d.v1;\nimport \"google/api/annotations.proto\";\nimport \"google/protobuf/timestamp.proto\";\n", i)
	fmt.Fprintf(&b, "// %ss of department %d.\nservice %sService {\n", noun, i, noun)
	for m := range methodsOfService {
		fmt.Fprintf(&b, "  // %s a %s of department %d; step %d of the usual way.\n  rpc %s%s(%s%sRequest) returns (%s%sResponse) { option (google.api.http) = {post: \"/v1/departments/%d/{name=things/*}:%s\" body: \"*\"}; }\n",
			verbs[m], strings.ToLower(noun), i, m, verbs[m], noun, verbs[m], noun, verbs[m], noun, i, strings.ToLower(verbs[m]))
	}
	b.WriteString("}\n")
	fmt.Fprintf(&b, "// State of a %[1]s.\nenum State {\n  // Not known.\n  STATE_UNSPECIFIED = 0;\n  // Open.\n  STATE_OPEN = 1;\n  // Done.\n  STATE_DONE = 2;\n}\n// %[1]s is one.\nmessage %[1]s {\n  // Name of it.\n  string name = 1;\n  // State of it.\n  State state = 2;\n  // Time of its last change.\n  google.protobuf.Timestamp changed = 3;\n  // Labels for people.\n  map<string, string> labels = 4;\n}\n", noun)
	for m := range methodsOfService {
		fmt.Fprintf(&b, "// Request of %[1]s.\nmessage %[1]s%[2]sRequest {\n  // Name of the thing.\n  string name = 1;\n  // Reason for it, shown to people.\n  string reason = 2;\n  // How many at most.\n  int32 limit = 3;\n", verbs[m], noun)
		for f := range i*methodsOfService%5 + m%4 {
			fmt.Fprintf(&b, "  // Detail %[1]d of the request.\n  repeated int64 detail_%[1]d = %[2]d;\n", f, 10+f)
		}
		fmt.Fprintf(&b, "  // The thing itself.\n  %[2]s thing = 4;\n}\n// Answer to %[1]s.\nmessage %[1]s%[2]sResponse {\n  // What came of it.\n  repeated %[2]s things = 1;\n  // Whether there is more.\n  bool more = 2;\n}\n", verbs[m], noun)
	}
	return b.String()
}
