package interceptors

import (
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestRedact pins that no secret reaches the log with the line that makes a call again, wherever it stands in the request.
func TestRedact(t *testing.T) {
	const source = `syntax = "proto3"; package acme; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
		message Login {
			string user = 1; string password = 2; bytes api_key = 3; repeated string session_tokens = 4; string pin = 5 [debug_redact = true];
			map<string, string> headers = 6; map<string, Login> others = 7; repeated Login more = 8; Login nested = 9;
			google.protobuf.Struct free = 10; google.protobuf.Any packed = 11;
		}`
	files, err := (&protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"login.proto": source}),
	})}).Compile(t.Context(), "login.proto")
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(files[0].Messages().ByName("Login"))
	const request = `{"user":"ann","password":"S3CRET","apiKey":"UzNDUkVU","sessionTokens":["S3CRET"],"pin":"S3CRET",
		"headers":{"Authorization":"S3CRET","X-Api-Key":"S3CRET","accept":"kept"},
		"others":{"a":{"user":"bob","password":"S3CRET"},"my-token":{"user":"S3CRET"}},
		"more":[{"user":"cid","pin":"S3CRET"}],"nested":{"user":"dee","headers":{"cookie":"S3CRET"}},
		"free":{"password":"S3CRET","deep":{"client_secret":"S3CRET","list":[{"token":"S3CRET","shown":"kept"}]}},
		"packed":{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"S3CRET"}}`
	if err := protojson.Unmarshal([]byte(request), m); err != nil {
		t.Fatal(err)
	}
	redact(m, nil)
	got, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(got); strings.Contains(s, "S3CRET") || strings.Contains(s, "UzNDUkVU") {
		t.Errorf("redacted request = %s, want no secret in it", s)
	}
	for _, kept := range []string{"ann", "bob", "cid", "dee", "accept", "shown"} {
		if !strings.Contains(string(got), kept) {
			t.Errorf("redacted request = %s, want %q kept", got, kept)
		}
	}
}
