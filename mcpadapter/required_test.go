package mcpadapter_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/mcpadapter"
)

const requiredProto = `
edition = "2023";
package need.v1;
import "google/api/field_behavior.proto";
import "google/protobuf/struct.proto";
import "buf/validate/validate.proto";

// Needs things.
service Need {
  // Needs nothing.
  rpc None(In) returns (Out);
  // Needs things.
  rpc Do(Req) returns (Out);
  // Needs things in each message.
  rpc Put(stream Req) returns (Out);
}
message Out {}
message In { string name = 1; }
enum Color { COLOR_UNSPECIFIED = 0; COLOR_RED = 1; }
message Req {
  string first_name = 1 [(google.api.field_behavior) = REQUIRED, features.field_presence = IMPLICIT];
  int32 size = 2 [features.field_presence = LEGACY_REQUIRED];
  Color color = 3 [(buf.validate.field).required = true];
  repeated string tags = 4 [(google.api.field_behavior) = REQUIRED];
  google.protobuf.Value any = 5 [(google.api.field_behavior) = REQUIRED];
  In nested = 6;
  string made = 7 [(google.api.field_behavior) = REQUIRED, (google.api.field_behavior) = OUTPUT_ONLY];
  string note = 8;
}
`

// TestRequired pins that what the listed schema calls required has to be in the arguments, and that an error names all that is not.
func TestRequired(t *testing.T) {
	snapshot := snapshotOf(t, requiredProto)
	const (
		first = `firstName: missing required argument, want a string`
		size  = `size: missing required argument, want a number (int32)`
		color = `color: missing required argument, want one of COLOR_UNSPECIFIED, COLOR_RED`
		tags  = `tags: missing required argument, want an array of string`
		value = `any: missing required argument, want a Value`
		whole = `{"firstName":"","size":0,"color":0,"tags":[],"any":null}`
	)
	cases := []struct{ method, arguments, want string }{
		{"None", `{}`, ""},
		{"Do", whole, ""},
		{"Do", `{"first_name":"x","size":1,"color":"COLOR_RED","tags":["a"],"any":{}}`, ""},
		{"Do", `{"first\u004eame":"x","size":1,"color":"COLOR_RED","tags":["a"],"any":{}}`, ""},
		{"Do", ``, strings.Join([]string{first, size, color, tags, value}, "; ")},
		{"Do", `{"nested":{"name":"x"},"note":"first_name"}`, strings.Join([]string{first, size, color, tags, value}, "; ")},
		{"Do", `{"firstName":null,"size":0,"color":0,"tags":null,"any":1}`, first + "; " + tags},
		{"Do", `{"note":5,"size":1,"color":1,"tags":[]}`, `note: invalid value 5: want a string; ` + first + "; " + value},
		{"Put", `{"messages":[]}`, ""},
		{"Put", `{"messages":[` + whole + `]}`, ""},
		{"Put", `{"messages":[` + whole + `,{"firstName":"a","color":1,"tags":[],"any":1}]}`, "messages[1]." + size},
	}
	t.Run("Requests", func(t *testing.T) {
		for _, c := range cases {
			_, err := mcpadapter.Requests(snapshot.Method("/need.v1.Need/"+c.method), json.RawMessage(c.arguments))
			var e *transcode.Error
			switch {
			case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &e) || e.Error() != c.want || err.Error() != c.want):
				t.Errorf("Requests(%s, %s) = %v, want %q", c.method, c.arguments, err, c.want)
			}
		}
		// What is wrong comes before what is missing: it may be the same.
		if _, err := mcpadapter.Requests(snapshot.Method("/need.v1.Need/Do"), json.RawMessage(`{"firstNam":"x"}`)); err == nil || !strings.Contains(err.Error(), `did you mean "firstName"?`) {
			t.Errorf("a required argument under a wrong name: %v, want the right one", err)
		} else if strings.Contains(err.Error(), "firstName: missing") || !strings.Contains(err.Error(), size) {
			t.Errorf("a required argument under a wrong name: %v, want the others named as missing, and not the one", err)
		}
	})
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		cat := &mutableCatalog{}
		cat.current.Store(snapshot)
		reached := false
		conf := mcpadapter.Config{Catalog: cat, Handler: func(s grpc.ServerStream) error { reached = call.FromContext(s.Context()).Refusal() == nil; return nil }}
		path(&conf)
		a := mcpadapter.New(conf)
		for _, c := range cases {
			params := `"name":"need_` + strings.ToLower(c.method) + `"`
			if c.arguments != "" {
				params += `,"arguments":` + c.arguments
			}
			header := http.Header{"Content-Type": {"application/json"}}
			got := paths{}.overHTTP(t.Context(), a, header, message("1", "tools/call", params, "-", ""))
			if reached != (c.want == "") || c.want != "" && !strings.Contains(got, `"text":"INVALID_ARGUMENT: the arguments do not fit the tool: `+c.want+`\n`) {
				t.Errorf("%s\n= %s (reached the backend: %t), want %q", params, got, reached, c.want)
			}
			if c.want != "" && !strings.Contains(got, `"reason":"INVALID_ARGUMENTS"`) {
				t.Errorf("%s\n= %s, want the reason INVALID_ARGUMENTS", params, got)
			}
			if want := `"field":"` + strings.ReplaceAll(strings.SplitN(c.want, ":", 2)[0], `"`, `\"`) + `"`; c.want != "" && !strings.Contains(got, want) {
				t.Errorf("%s\n= %s, want %s", params, got, want)
			}
			reached = false
		}
	})
}

// BenchmarkRequests shows what required arguments cost, and that none cost nothing.
func BenchmarkRequests(b *testing.B) {
	snapshot, err := catalog.Static("need", compile(b, requiredProto))
	if err != nil {
		b.Fatal(err)
	}
	for method, arguments := range map[string]string{"None": `{"name":"x"}`, "Do": `{"firstName":"","size":0,"color":0,"tags":[],"any":null}`} {
		m := snapshot.Method("/need.v1.Need/" + method)
		b.Run(method, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mcpadapter.Requests(m, json.RawMessage(arguments)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
