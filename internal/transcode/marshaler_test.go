package transcode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/toolway/toolway/internal/transcode"
)

func option(t testing.TB) *typepb.Option {
	t.Helper()
	value, err := anypb.New(durationpb.New(1500e6))
	if err != nil {
		t.Fatal(err)
	}
	return &typepb.Option{Name: `a "b" <c>`, Value: value}
}

func newMarshaler() *transcode.Marshaler {
	return transcode.NewMarshaler(transcode.NewSet(protoregistry.GlobalTypes), transcode.WriteOptions{}, transcode.ReadOptions{})
}

// TestMarshalerWrites compares with runtime.JSONPb what handlers of grpc-gateway pass: messages, fields of them, chunks of streams.
func TestMarshalerWrites(t *testing.T) {
	m, oracle := newMarshaler(), &runtime.JSONPb{}
	field := &typepb.Field{Name: "n", Kind: typepb.Field_TYPE_INT64, Options: []*typepb.Option{option(t)}}
	number, word, syntax := int64(7), "w", typepb.Syntax_SYNTAX_PROTO3
	var none *typepb.Field
	for _, v := range []any{
		field, &typepb.Field{}, none, structpb.NewNumberValue(1.5), wrapperspb.UInt64(1 << 60),
		map[string]any{"result": field}, map[string]proto.Message{"error": status.New(codes.NotFound, "gone").Proto()}, map[string]any{"result": "x<y"},
		[]*typepb.Field{field, {}}, []*typepb.Field{}, []*typepb.Field(nil), map[string]*typepb.Field{"b": field, "a": {}}, map[int32]*typepb.Field{2: field}, map[bool]string{true: "t"},
		map[string]string(nil), nil, "text", true, 3, int64(1) << 60, uint32(7), 1.5, []byte("bytes"), []byte(nil), []string{"a", "b"}, []int64{1}, &number, &word, &syntax, (*string)(nil),
		typepb.Syntax_SYNTAX_PROTO3, []typepb.Field_Kind{typepb.Field_TYPE_BOOL, typepb.Field_TYPE_BYTES}, map[string]typepb.Syntax{"s": typepb.Syntax_SYNTAX_EDITIONS},
	} {
		want, wantErr := oracle.Marshal(v)
		got, err := m.Marshal(v)
		if err != nil || wantErr != nil {
			t.Errorf("Marshal(%T %v) = %v, JSONPb %v", v, v, err, wantErr)
			continue
		}
		if same, err := sameJSON(got, want); err != nil || !same {
			t.Errorf("Marshal(%T %v) = %s, JSONPb %s, %v", v, v, got, want, err)
		}
		var out bytes.Buffer
		if err := m.NewEncoder(&out).Encode(v); err != nil || out.String() != string(got)+"\n" {
			t.Errorf("Encode(%T) = %q, %v, want %q and a line feed", v, out.String(), err, got)
		}
	}
}

// TestMarshalerReads compares with runtime.JSONPb what it reads into.
func TestMarshalerReads(t *testing.T) {
	m, oracle := newMarshaler(), &runtime.JSONPb{}
	const field = `{"name":"n","kind":"TYPE_INT64","options":[{"name":"o","value":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.5s"}}]}`
	for _, c := range []struct {
		to   func() any
		text string
	}{
		{func() any { return new(typepb.Field) }, field},
		{func() any { return &typepb.Field{Name: "old", Number: 7} }, `{}`},
		{func() any { return new(*typepb.Field) }, field},
		{func() any { return new([]*typepb.Field) }, `[` + field + `,{}]`},
		{func() any { return &[]*typepb.Field{{Name: "old"}} }, `[]`},
		{func() any { return &[]*typepb.Field{{Name: "old"}} }, `null`},
		{func() any { return new([]*typepb.Field) }, `[null]`},
		{func() any { return new([]*typepb.Field) }, `{}`},
		{func() any { return new(map[string]*typepb.Field) }, `{"a":` + field + `}`},
		{func() any { return new(map[string]string) }, `{"a":"b"}`},
		{func() any { return new([]string) }, `["a"]`},
		{func() any { return new([]byte) }, `"YWI="`},
		{func() any { return new(string) }, `"a"`},
		{func() any { return new(*string) }, `"a"`},
		{func() any { return new(int64) }, `12`},
		{func() any { return new(bool) }, `"no"`},
		{func() any { return new(typepb.Syntax) }, `1`},
		{func() any { return new(typepb.Field) }, `{"nme":"n"}`},
		{func() any { return new(typepb.Field) }, `{"name":}`},
		{func() any { return new(typepb.Field) }, ``},
		{func() any { return "no pointer" }, `"x"`},
	} {
		want, got, decoded := c.to(), c.to(), c.to()
		wantErr := oracle.Unmarshal([]byte(c.text), want)
		if err := m.Unmarshal([]byte(c.text), got); (err == nil) != (wantErr == nil) || err == nil && !cmp.Equal(got, want, protocmp.Transform()) {
			t.Errorf("Unmarshal(%s, %T) = %v, %v, JSONPb %v, %v", c.text, got, got, err, want, wantErr)
		}
		if err := m.NewDecoder(strings.NewReader(c.text)).Decode(decoded); (err == nil) != (wantErr == nil) || err == nil && !cmp.Equal(decoded, want, protocmp.Transform()) || c.text == "" && err != io.EOF { //nolint:errorlint // as grpc-gateway asks
			t.Errorf("Decode(%s, %T) = %v, %v, JSONPb %v, %v", c.text, decoded, decoded, err, want, wantErr)
		}
	}
	for _, v := range []any{nil, (*string)(nil), "x"} {
		if err := m.Unmarshal([]byte(`"x"`), v); err == nil {
			t.Errorf("Unmarshal into %#v = nil, want an error", v)
		}
	}
	if err, want := m.Unmarshal([]byte(`[{},{"nme":1}]`), new([]*typepb.Field)), `[1]: unknown field "nme"; did you mean "name"?`; err == nil || err.Error() != want {
		t.Errorf("Unmarshal = %v, want %s", err, want)
	}
	d := m.NewDecoder(strings.NewReader(`{"name":"a"} {"name":"b"}` + "\n"))
	var names []string
	for {
		var f typepb.Field
		if err := d.Decode(&f); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		names = append(names, f.GetName())
	}
	if !reflect.DeepEqual(names, []string{"a", "b"}) {
		t.Errorf("Decode of two messages = %q", names)
	}
}

// TestMarshalerDynamic passes messages without generated code.
func TestMarshalerDynamic(t *testing.T) {
	set, orders := orders(t)
	m := transcode.NewMarshaler(set.codec, transcode.WriteOptions{ProtoNames: true, MaxItems: 2}, transcode.ReadOptions{DiscardUnknown: true})
	msg := dynamicpb.NewMessage(orders.Descriptor())
	if err := m.Unmarshal([]byte(`{"orderId":"a","totalCents":"7","tags":["x","y","z"],"nope":1}`), msg); err != nil {
		t.Fatal(err)
	}
	got, err := m.Marshal(msg)
	if want := `{"order_id":"a","total_cents":"7","tags":["x","y"]}`; err != nil || string(got) != want {
		t.Errorf("Marshal = %s, %v, want %s", got, err, want)
	}
}

// titled has a response_body, as generated replies do.
type titled struct{ *typepb.Type }

// XXX_ResponseBody is what generated code calls it.
func (t titled) XXX_ResponseBody() any { return t.GetFields() }

// TestMarshalerInMux serves handlers of the shape that protoc-gen-grpc-gateway generates.
func TestMarshalerInMux(t *testing.T) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: newMarshaler()}))
	handle := func(path string, serve func(ctx context.Context, in, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error) {
		if err := mux.HandlePath("POST", path, func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			in, out := runtime.MarshalerForRequest(mux, r)
			ctx := runtime.NewServerMetadataContext(r.Context(), runtime.ServerMetadata{})
			if err := serve(ctx, in, out, w, r); err != nil {
				runtime.HTTPError(ctx, mux, out, w, r, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	decode := func(in runtime.Marshaler, r *http.Request, v any) error {
		if err := in.NewDecoder(r.Body).Decode(v); err != nil && !errors.Is(err, io.EOF) {
			return status.Errorf(codes.InvalidArgument, "%v", err)
		}
		return nil
	}
	handle("/echo", func(ctx context.Context, in, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error {
		var msg typepb.Type
		if err := decode(in, r, &msg); err != nil {
			return err
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, &msg)
		return nil
	})
	handle("/fields", func(ctx context.Context, in, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error {
		var msg typepb.Type
		if err := decode(in, r, &msg.Fields); err != nil {
			return err
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, titled{&msg})
		return nil
	})
	handle("/context", func(ctx context.Context, in, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error {
		var msg typepb.Type
		if err := decode(in, r, &msg.SourceContext); err != nil {
			return err
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, &msg)
		return nil
	})
	handle("/raw", func(ctx context.Context, _, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error {
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, &httpbody.HttpBody{ContentType: "text/plain", Data: []byte("raw")})
		return nil
	})
	handle("/stream", func(ctx context.Context, in, out runtime.Marshaler, w http.ResponseWriter, r *http.Request) error {
		d := in.NewDecoder(r.Body)
		runtime.ForwardResponseStream(ctx, mux, out, w, r, func() (proto.Message, error) {
			var msg typepb.Type
			if err := d.Decode(&msg); err != nil {
				return nil, err
			}
			if msg.GetName() == "bad" {
				return nil, status.Error(codes.DataLoss, "bad <name>")
			}
			return &msg, nil
		})
		return nil
	})
	for _, c := range []struct {
		path, body  string
		code        int
		contentType string
		want        string
	}{
		{"/echo", `{"name":"n","fields":[{"kind":"TYPE_BOOL","number":3}],"syntax":1}`, 200, "application/json", `{"name":"n","fields":[{"kind":"TYPE_BOOL","number":3}],"syntax":"SYNTAX_PROTO3"}`},
		{"/echo", ``, 200, "application/json", `{}`},
		{"/echo", `{"nme":"n"}`, 400, "application/json", `{"code":3,"message":"unknown field \"nme\"; did you mean \"name\"?"}`},
		{"/echo", `{"fields":[{"kind":"BOOL"}]}`, 400, "application/json", ``},
		{"/fields", `[{"number":3},{}]`, 200, "application/json", `[{"number":3},{}]`},
		{"/fields", ``, 200, "application/json", `null`},
		{"/context", `{"fileName":"f"}`, 200, "application/json", `{"sourceContext":{"fileName":"f"}}`},
		{"/raw", ``, 200, "text/plain", `raw`},
		{"/stream", `{"name":"a"}{"name":"b"}`, 200, "application/json", `{"result":{"name":"a"}}` + "\n" + `{"result":{"name":"b"}}` + "\n"},
		{"/stream", `{"name":"a"}{"name":"bad"}`, 200, "application/json", `{"result":{"name":"a"}}` + "\n" + `{"error":{"code":15,"message":"bad <name>"}}` + "\n"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body)))
		if got := w.Body.String(); w.Code != c.code || w.Header().Get("Content-Type") != c.contentType || got != c.want && c.want != "" {
			t.Errorf("POST %s %s = %d %s %q, want %d %s %q", c.path, c.body, w.Code, w.Header().Get("Content-Type"), got, c.code, c.contentType, c.want)
		}
	}
}

func ExampleNewMarshaler() {
	m := transcode.NewMarshaler(transcode.NewSet(protoregistry.GlobalTypes), transcode.WriteOptions{}, transcode.ReadOptions{})
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: m}))
	_ = mux // logspb.RegisterLogsHandler(ctx, mux, conn) of generated code comes next
	text, err := m.Marshal(map[string]any{"result": durationpb.New(1500e6)})
	fmt.Println(string(text), err)
	// Output: {"result":"1.500s"} <nil>
}
