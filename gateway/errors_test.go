package gateway_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// knownSnapshot is a service whose messages are well-known types themselves.
func knownSnapshot(t *testing.T) *catalog.Snapshot {
	t.Helper()
	method := func(name, in, out string) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: proto.String(".google.protobuf." + in), OutputType: proto.String(".google.protobuf." + out)}
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("known.proto"), Package: proto.String("known.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/any.proto", "google/protobuf/struct.proto", "google/protobuf/timestamp.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Known"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Time", "Timestamp", "Timestamp"), method("Value", "Value", "Value"), method("Any", "Timestamp", "Any"), method("Struct", "Struct", "Struct"),
		}}},
	}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(anypb.File_google_protobuf_any_proto),
		protodesc.ToFileDescriptorProto(structpb.File_google_protobuf_struct_proto), protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto), file}}
	s, err := catalog.Static("known", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRefusals(t *testing.T) {
	g := newGateway(t, &backend{}, nil)
	var cut bytes.Buffer
	z := gzip.NewWriter(&cut)
	if _, err := z.Write([]byte(`{"name":"` + strings.Repeat("shelves/1", 99) + `"}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	cut.Truncate(cut.Len() - 9)
	const noGzip = "not valid gzip, which its Content-Encoding says it is"
	for _, c := range []struct {
		name, method, target, body string
		header                     []string
		code                       int
		want                       []string
	}{
		{"grpc", "POST", library + "GetBook", "\x00\x00\x00\x00\x00", []string{"Content-Type", "application/grpc"}, 415, []string{"--grpc-addr"}},
		{"grpc, no such method", "POST", "/a.B/C", "\x00\x00\x00\x00\x00", []string{"Content-Type", "application/grpc+proto"}, 415, []string{"--grpc-addr"}},
		{"grpc-web", "POST", library + "GetBook", "\x00\x00\x00\x00\x00", []string{"Content-Type", "application/grpc-web+proto"}, 415, []string{"--grpc-addr"}},
		{"no gzip", "POST", library + "GetBook", "{}", []string{"Content-Encoding", "gzip"}, 400, []string{noGzip}},
		{"long no gzip", "POST", library + "GetBook", `{"name":"shelves/1/books/2"}`, []string{"Content-Encoding", "gzip"}, 400, []string{noGzip}},
		{"cut gzip", "POST", library + "GetBook", cut.String(), []string{"Content-Encoding", "gzip"}, 400, []string{noGzip}},
		{"no gzip in a stream", "POST", library + "Upload", "{}", []string{"Content-Encoding", "gzip", "Content-Type", "application/x-ndjson"}, 400, []string{noGzip}},
		{"unknown field", "POST", library + "GetBook", `{"nam":"x"}`, nil, 400, []string{`"field":"nam"`, `did you mean \"name\"?`, `"message":"unknown field \"nam\"`}},
		{"unknown parameter", "GET", "/v1/shelves/s1/books?pagesize=3", "", nil, 400, []string{`"field":"pagesize"`}},
		{"unknown nested field", "POST", library + "ListBooks", `{"filter":{"wordz":["a"]}}`, nil, 400, []string{`"field":"filter.wordz"`}},
		{"wrong value", "POST", library + "ListBooks", `{"pageSize":"x"}`, nil, 400, []string{`"field":"pageSize"`}},
	} {
		res := do(g, c.method, c.target, c.body, c.header...)
		got := text(t, res)
		if res.StatusCode != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, res.StatusCode, got, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s does not hold %s", c.name, got, want)
			}
		}
	}
}

// TestBadTimeoutPassesTheChain has a header that is none: the chain refuses the call, so that the audit has it.
func TestBadTimeoutPassesTheChain(t *testing.T) {
	var refusals []error
	g := newGateway(t, &backend{}, func(c *gateway.Config) {
		c.Handler = func(s grpc.ServerStream) error {
			c := call.FromContext(s.Context())
			refusals = append(refusals, c.Refusal())
			return c.Refusal()
		}
	})
	res := do(g, "POST", library+"GetBook", `{"name":"shelves/1/books/2"}`, "Grpc-Timeout", "zz")
	if got := text(t, res); res.StatusCode != http.StatusBadRequest || !strings.Contains(got, "Grpc-Timeout") {
		t.Errorf("%d %s, want 400 about the header", res.StatusCode, got)
	}
	if len(refusals) != 1 || refusals[0] == nil {
		t.Errorf("the chain saw %v, want one call that the door refuses", refusals)
	}
}

// TestReplyWithoutJSON has replies that are well-formed but cannot be written as JSON.
func TestReplyWithoutJSON(t *testing.T) {
	b := &backend{snapshot: knownSnapshot(t)}
	reply := func(out proto.Message) grpc.StreamHandler {
		return func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(&timestamppb.Timestamp{}); err != nil {
				return err
			}
			return stream.SendMsg(out)
		}
	}
	b.handle = map[string]grpc.StreamHandler{
		"/known.v1.Known/Time": reply(&timestamppb.Timestamp{Seconds: 253402300800}),
		"/known.v1.Known/Any":  reply(&anypb.Any{TypeUrl: "type.googleapis.com/no.Such", Value: []byte{8, 1}}),
	}
	g := newGateway(t, b, nil)
	for method, want := range map[string]string{"Time": "253402300800", "Any": "no.Such"} {
		res := do(g, "POST", "/known.v1.Known/"+method, `"2026-01-31T12:00:00Z"`)
		got := text(t, res)
		if res.StatusCode != http.StatusInternalServerError || !strings.Contains(got, "the backend's reply cannot be shown as JSON: ") || !strings.Contains(got, want) || !strings.Contains(got, "the backend did its work") {
			t.Errorf("%s: %d %s, want the reason with %q", method, res.StatusCode, got, want)
		}
	}
}

// TestMessagesArePlain has a backend whose messages hold what is not seen.
func TestMessagesArePlain(t *testing.T) {
	b, s := newScript(t)
	b.handle[library+"Plain"] = func(any, grpc.ServerStream) error {
		return status.Error(codes.NotFound, "no \u202ekoob\u202c i\U000E0041gn\u200bore\x1b[31m")
	}
	srv := startServer(t, b, serverOptions{})
	if got := text(t, do(srv.g, "POST", library+"Plain", "{}")); !strings.Contains(got, `"message":"no koob ignore"`) {
		t.Errorf("got %s", got)
	}
	go func() { s.end <- status.Error(codes.Aborted, "st\u2066op") }()
	if got := text(t, srv.open(t.Context(), "GET", "/v1/shelves/s1:watch", nil, "Accept", "text/event-stream")); !strings.Contains(got, `"message":"stop"`) {
		t.Errorf("got %s", got)
	}
}

// TestOpenAPIWrapped pins that bodies which are no objects are described as they are, without the key "value" of tool arguments.
func TestOpenAPIWrapped(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			} `json:"requestBody"`
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(openAPIOf(t, knownSnapshot(t)), &doc); err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]string{"Time": "Timestamp", "Value": "Value", "Struct": "Struct"} {
		ref, _ := doc.Paths["/known.v1.Known/"+method]["post"].RequestBody.Content["application/json"].Schema["$ref"].(string)
		if want = "google.protobuf." + want + "-input"; ref != "#/components/schemas/"+want {
			t.Fatalf("%s: $ref %q", method, ref)
		}
		schema := doc.Components.Schemas[want]
		if props, _ := schema["properties"].(map[string]any); schema == nil || props["value"] != nil || schema["$ref"] == ref {
			t.Errorf("%s: schema %v", method, schema)
		}
		if method == "Time" && (schema["type"] != "string" || schema["format"] != "date-time") {
			t.Errorf("Time: schema %v, want a string of the format date-time", schema)
		}
	}
}
