package transcode_test

import (
	"context"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// compileProto compiles one .proto text; the well-known types are at hand.
func compileProto(t testing.TB, text string) *descriptorSet {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"test.proto": text}),
	})}
	compiled, err := c.Compile(context.Background(), "test.proto")
	if err != nil {
		t.Fatal(err)
	}
	files := new(protoregistry.Files)
	var register func(fd protoreflect.FileDescriptor)
	register = func(fd protoreflect.FileDescriptor) {
		if _, err := files.FindFileByPath(fd.Path()); err == nil {
			return
		}
		for i := range fd.Imports().Len() {
			register(fd.Imports().Get(i).FileDescriptor)
		}
		if err := files.RegisterFile(fd); err != nil {
			t.Fatal(err)
		}
	}
	register(compiled[0])
	types := dynamicpb.NewTypes(files)
	return &descriptorSet{name: "test.proto", files: files, types: types, codec: transcode.NewSet(types)}
}

const logProto = `
edition = "2023";
package bench;
import "google/protobuf/timestamp.proto";
option features.field_presence = IMPLICIT;

message Small {
  string order_id = 1;
  int32 quantity = 2;
  double price = 3;
  bool express = 4;
  string customer_note = 5;
}
enum Severity { SEVERITY_UNSPECIFIED = 0; DEBUG = 1; INFO = 2; WARNING = 3; ERROR = 4; }
message Entry {
  google.protobuf.Timestamp time = 1;
  Severity severity = 2;
  string service = 3;
  string message = 4;
  string trace_id = 5;
  int64 duration_us = 6;
  map<string, string> labels = 7;
  repeated int32 shards = 8;
}
message SearchReply {
  repeated Entry entries = 1;
  string next_page_token = 2;
  int32 total = 3;
}
`
