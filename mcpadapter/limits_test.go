package mcpadapter_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/mcpadapter"

	_ "github.com/toolway/toolway/gen/toolway/v1"
)

const listProto = `syntax = "proto3"; package lists.v1; import "toolway/v1/options.proto"; import "toolway/v1/content.proto"; import "google/api/httpbody.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
	message Ask { int32 page_size = 1; string page_token = 2; string after = 3; }
	message Item { string name = 1; repeated string tags = 2; Item sub = 3; map<string, string> labels = 4; }
	message Page { repeated Item items = 1; string next_page_token = 2; int32 total = 3; }
	message Event { string id = 1; Item item = 2; }
	service Lists {
		rpc List(Ask) returns (Page);
		rpc Few(Ask) returns (Page) { option (toolway.v1.method).result_limits = {max_items: 2, max_depth: 3}; }
		rpc Small(Ask) returns (Page) { option (toolway.v1.method).result_limits = {max_bytes: 200}; }
		rpc Text(Ask) returns (google.protobuf.StringValue);
		rpc Picture(Ask) returns (google.api.HttpBody);
		rpc Show(Ask) returns (toolway.v1.ToolResult);
		rpc Follow(Ask) returns (stream Event) { option (toolway.v1.method) = {result_limits: {max_items: 2, max_depth: 3}, stream: {cursor_field: "after", event_id_field: "id"}}; }
		rpc Cached(Ask) returns (Page) { option (toolway.v1.method) = {read_only: true, cache_ttl: {seconds: 9}}; }
	}`

// lists is a door whose backend answers with what a test gives it, in JSON.
type lists struct {
	t       *testing.T
	s       *catalog.Snapshot
	adapter *mcpadapter.Adapter
	store   *object.Memory
	reply   []string
	wire    []byte // a further reply, in the wire format
	err     error
	age     call.Freshness
}

func newLists(t *testing.T, change func(*mcpadapter.Config)) *lists {
	s, err := catalog.Static("lists", compile(t, listProto))
	if err != nil {
		t.Fatal(err)
	}
	l := &lists{t: t, s: s, store: object.NewMemory(object.Limits{})}
	cat := &mutableCatalog{}
	cat.current.Store(s)
	conf := mcpadapter.Config{Catalog: cat, Objects: l.store, Handler: func(stream grpc.ServerStream) error {
		c := call.FromContext(stream.Context())
		c.Principal, c.Freshness = &identity.Principal{ID: "ann", Tenant: "acme"}, l.age
		for _, reply := range l.reply {
			wire, err := c.Method.Response().AppendWire(nil, []byte(reply), transcode.ReadOptions{})
			if err != nil {
				t.Errorf("%s: %v", reply, err)
			}
			if err := stream.SendMsg(call.NewFrame(nil, wire)); err != nil {
				return err
			}
		}
		if l.wire != nil {
			if err := stream.SendMsg(call.NewFrame(nil, l.wire)); err != nil {
				return err
			}
		}
		return l.err
	}}
	if change != nil {
		change(&conf)
	}
	l.adapter = mcpadapter.New(conf)
	return l
}

// shownResult is a result as a client gets it.
type shownResult struct {
	Content []struct {
		Type, Text, URI, MimeType string
		Size                      int
		Meta                      map[string]string `json:"_meta"`
	}
	StructuredContent json.RawMessage
	IsError           bool
	Meta              map[string]json.RawMessage `json:"_meta"`
}

func (l *lists) call(tool string, replies ...string) shownResult {
	l.t.Helper()
	l.reply = replies
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	l.adapter.HTTPHandler().ServeHTTP(w, r)
	var out struct{ Result shownResult }
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Result.Content == nil {
		l.t.Fatalf("%s: %d %s", tool, w.Code, w.Body)
	}
	if m := l.s.Tool(tool); !out.Result.IsError && m.Desc.Output().FullName() != "toolway.v1.ToolResult" {
		checkOutput(l.t, m, out.Result.StructuredContent)
	}
	return out.Result
}

// checkOutput checks a structured result against the listed output schema.
func checkOutput(t *testing.T, m *catalog.Method, structured json.RawMessage) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(structured))
	if err != nil {
		t.Fatalf("structured content %s: %v", structured, err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.OutputSchema(toolschema.Portable)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("out.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("out.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("structured content %s does not fit its schema: %v", structured, err)
	}
}

func TestResultIsCutAndLinked(t *testing.T) {
	l := newLists(t, nil)
	reply := `{"items":[{"name":"a","tags":["1","2","3"]},{"name":"b","sub":{"sub":{"name":"deep"}}},{"name":"c"},{"name":"d"}],"nextPageToken":"p2","total":9}`
	r := l.call("lists_few", reply)
	if got, want := string(r.StructuredContent), `{"items":[{"name":"a","tags":[]},{"name":"b","sub":{}}],"nextPageToken":"p2","total":9}`; got != want || r.IsError {
		t.Errorf("structured = %s, want %s", got, want)
	}
	if r.Content[0].Text != string(r.StructuredContent) {
		t.Errorf("first text = %s, want the structured content", r.Content[0].Text)
	}
	for _, want := range []string{"items: 2 more left out (limit on items)", "items[1].sub: 1 more left out (limit on depth)", `call again with pageToken "p2"`, "toolway://objects/"} {
		if !strings.Contains(r.Content[1].Text, want) {
			t.Errorf("note has no %q:\n%s", want, r.Content[1].Text)
		}
	}
	link := r.Content[2]
	info, whole, err := l.store.Get(t.Context(), object.Owner{Tenant: "acme", Principal: "ann"}, strings.TrimPrefix(link.URI, mcpadapter.ObjectURI))
	if err != nil || string(whole) != reply {
		t.Fatalf("object = %s, %v, want the whole reply", whole, err)
	}
	sum := sha256.Sum256(whole)
	if link.Type != "resource_link" || link.Size != len(reply) || link.MimeType != "application/json" || link.Meta["io.toolway/sha256"] != hex.EncodeToString(sum[:]) ||
		link.Meta["io.toolway/expires"] != info.Expires.UTC().Format(time.RFC3339) {
		t.Errorf("link = %+v", link)
	}
	var cut struct {
		Places []struct {
			Path, Limit string
			Left        int
		}
		Cursor struct{ Argument, Value string }
		Object struct{ URI string }
	}
	if err := json.Unmarshal(r.Meta["io.toolway/truncated"], &cut); err != nil || len(cut.Places) != 3 || cut.Cursor.Value != "p2" || cut.Object.URI != link.URI {
		t.Errorf("_meta = %s, %v", r.Meta["io.toolway/truncated"], err)
	}
}

func TestResultBytes(t *testing.T) {
	l := newLists(t, func(c *mcpadapter.Config) { c.MaxResultBytes = 300 })
	many := `{"items":[` + strings.Repeat(`{"name":"0123456789"},`, 30) + `{"name":"last"}],"nextPageToken":"p2"}`
	for tool, limit := range map[string]int{"lists_list": 300, "lists_small": 200} {
		r := l.call(tool, many)
		if n := len(r.StructuredContent); r.IsError || n > limit || n < limit/2 || !strings.Contains(string(r.StructuredContent), `"nextPageToken":"p2"`) || len(r.Content) != 3 {
			t.Errorf("%s: %d bytes %s, %d blocks, want at most %d with the page token, and a link", tool, n, r.StructuredContent, len(r.Content), limit)
		}
	}
	if r := l.call("lists_list", `{"total":1}`); len(r.Content) != 1 || r.Meta != nil {
		t.Errorf("a small result = %+v, want nothing about limits", r)
	}
	r := l.call("lists_text", `"`+strings.Repeat("x", 400)+`"`)
	if last := r.Content[len(r.Content)-1]; !r.IsError || last.Type != "resource_link" || last.Size != 402 {
		t.Errorf("what cannot be cut = %+v, want an error with a link", r)
	}
	data := strings.Repeat("A", 400)
	r = l.call("lists_picture", `{"contentType":"image/png","data":"`+data+`"}`)
	if last := r.Content[len(r.Content)-1]; r.IsError || last.MimeType != "image/png" || last.Size != 300 || string(r.StructuredContent) != `{"contentType":"image/png"}` {
		t.Errorf("a large picture = %+v, want a link to it", r)
	}
	l = newLists(t, func(c *mcpadapter.Config) { c.MaxResultBytes, c.Objects = 300, nil })
	if r := l.call("lists_list", many); r.IsError || len(r.Content) != 2 || strings.Contains(r.Content[1].Text, "toolway://") {
		t.Errorf("without a store = %+v, want a cut result without a link", r)
	}
	if r := l.call("lists_picture", `{"contentType":"image/png","data":"`+data+`"}`); !r.IsError || !strings.HasPrefix(r.Content[0].Text, "RESOURCE_EXHAUSTED") {
		t.Errorf("a large picture without a store = %+v, want RESOURCE_EXHAUSTED", r)
	}
}

// TestLostReplyIsLinked pins that a reply which cannot be shown is not lost: it leads to the whole.
func TestLostReplyIsLinked(t *testing.T) {
	l := newLists(t, func(c *mcpadapter.Config) { c.MaxResultBytes = 300 })
	r := l.call("lists_show", `{"content":[{"text":"short"},{"text":"`+strings.Repeat("x", 400)+`"}]}`)
	last := r.Content[len(r.Content)-1]
	if !r.IsError || last.Type != "resource_link" || last.MimeType != "application/json" || last.Size < 400 {
		t.Errorf("large content = %+v, want an error with a link", r)
	}
	if r := l.call("lists_show", `{"structured":{"a":"`+strings.Repeat("x", 400)+`"}}`); r.Content[len(r.Content)-1].Type != "resource_link" {
		t.Errorf("large structured content = %+v, want a link", r)
	}
	l = newLists(t, func(c *mcpadapter.Config) { c.MaxResultItems = 1 })
	r = l.call("lists_show", `{"content":[{"text":"one"},{"text":"two"}]}`)
	if n := len(r.Content); r.IsError || n != 3 || r.Content[n-1].Type != "resource_link" || !strings.HasPrefix(r.Content[1].Text, "The reply was cut after the 1 items above") {
		t.Errorf("two blocks of which one is allowed = %+v, want the first, a note and a link", r)
	}

	l = newLists(t, nil)
	for range 600 { // items of items
		l.wire = protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), l.wire)
	}
	l.wire = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), l.wire)
	r = l.call("lists_list")
	last = r.Content[len(r.Content)-1]
	if !r.IsError || last.Type != "resource_link" || last.MimeType != "application/x-protobuf" || last.Size != len(l.wire) {
		t.Errorf("a deep reply = %+v, want an error with a link to its bytes", r)
	}
	if text := r.Content[0].Text; !strings.Contains(text, "reason: REPLY_NOT_SHOWN (toolway)") {
		t.Errorf("text = %q, want the reason as over HTTP", text)
	}
	if text := r.Content[0].Text; len(text) > 800 || !strings.Contains(text, "nested deeper than") || !strings.Contains(text, "…") {
		t.Errorf("text of %d bytes %q, want a short one", len(text), text)
	}
}

// TestCutFieldSaysHowLong pins that a text which is left out is told with its length.
func TestCutFieldSaysHowLong(t *testing.T) {
	l := newLists(t, func(c *mcpadapter.Config) { c.MaxResultBytes = 300 })
	r := l.call("lists_list", `{"total":1,"nextPageToken":"`+strings.Repeat("x", 400)+`"}`)
	if want := "nextPageToken: left out, 418 bytes of JSON (limit on bytes)"; !strings.Contains(r.Content[1].Text, want) {
		t.Errorf("note = %q, want %q", r.Content[1].Text, want)
	}
	if got := string(r.Meta["io.toolway/truncated"]); !strings.Contains(got, `"bytes":418`) {
		t.Errorf("_meta = %s", got)
	}
}

func TestStreamCursor(t *testing.T) {
	l := newLists(t, nil)
	r := l.call("lists_follow", `{"id":"e1","item":{"sub":{"sub":{"name":"deep"}}}}`, `{"id":"e2"}`, `{"id":"e3"}`)
	if got, want := string(r.StructuredContent), `{"items":[{"id":"e1","item":{"sub":{"sub":{}}}},{"id":"e2"}]}`; got != want {
		t.Errorf("structured = %s, want %s", got, want)
	}
	if !strings.Contains(r.Content[1].Text, `call again with after "e2"`) || !strings.Contains(r.Content[2].Text, "In 1 of the items") {
		t.Errorf("notes = %+v", r.Content)
	}
	if got := string(r.Meta["io.toolway/truncated"]); got != `{"cursor":{"argument":"after","value":"e2"},"cutItems":1,"items":2,"limit":"2 items"}` {
		t.Errorf("_meta = %s", got)
	}
}

func TestInvisibleCharactersAreTakenOut(t *testing.T) {
	l := newLists(t, nil)
	const hidden = "\U000e0069\U000e0067\u202e\u200b\ufeff"
	in := `{"items":[{"name":"pay` + hidden + ` bill","labels":{"k` + "\u200b" + `":"v","k":"w"}},{"name":"می` + "\u200c" + `خواهم 👩` + "\u200d" + `💻 ❤` + "\ufe0f" + `"}]}`
	r := l.call("lists_list", in)
	want := `{"items":[{"name":"pay bill","labels":{"k":"w","k<U+200B>":"v"}},{"name":"می` + "\u200c" + `خواهم 👩` + "\u200d" + `💻 ❤` + "\ufe0f" + `"}]}`
	if got := string(r.StructuredContent); got != want {
		t.Errorf("structured = %q, want %q", got, want)
	}
	if r.Content[0].Text != want || string(r.Meta["io.toolway/invisible"]) != `{"removed":12}` {
		t.Errorf("text %q, _meta %s, want the same and 12 taken out", r.Content[0].Text, r.Meta["io.toolway/invisible"])
	}
	l = newLists(t, func(c *mcpadapter.Config) { c.KeepInvisible = true })
	if r := l.call("lists_list", in); !strings.Contains(string(r.StructuredContent), hidden) || r.Meta != nil {
		t.Errorf("kept = %q %v, want it as it is", r.StructuredContent, r.Meta)
	}
}

// FuzzInvisible pins that JSON stays JSON, and that nothing is left to take out.
func FuzzInvisible(f *testing.F) {
	f.Add("{\"a\u200b\":\"b\U000e0041\\\"\u202e\", \"c\" : [\"\u2764\ufe0f\ufe0f\", 1]}")
	f.Add("\"\u0645\u200c\u062e \U0001f469\u200d\U0001f4bb\"")
	f.Add("\"a\ufe0f\u200d\u00e9 \u00e9\u200d\ufe0f\u00e9 \u2764\ufe0f\u200d\U0001f525\"")
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) || !utf8.ValidString(in) {
			return
		}
		out, _ := mcpadapter.StripInvisible([]byte(in))
		if !json.Valid(out) {
			t.Errorf("%q became %q, which is no JSON", in, out)
		}
		if again, n := mcpadapter.StripInvisible(out); n > 0 {
			t.Errorf("%q became %q, and then %q", in, out, again)
		}
	})
}

// TestManyInvisibleCharacters has a string of nothing else: the time is that of its length.
func TestManyInvisibleCharacters(t *testing.T) {
	in := `{"` + strings.Repeat("\u200b", 300_000) + `":"` + strings.Repeat("\U000e0041", 300_000) + `"}`
	if out, n := mcpadapter.StripInvisible([]byte(in)); n != 600_000 || string(out) != `{"`+strings.Repeat("<U+200B>", 300_000)+`":""}` {
		t.Errorf("%d taken out, %d bytes left", n, len(out))
	}
}

func TestResultSaysHowOldItIs(t *testing.T) {
	l := newLists(t, nil)
	l.age = call.Freshness{Cached: true, Stale: true, Age: 90 * time.Second}
	if r := l.call("lists_cached", `{"total":1}`); string(r.Meta["io.toolway/age"]) != "90" || string(r.Meta["io.toolway/stale"]) != "true" {
		t.Errorf("_meta = %v, want the age and that it is stale", r.Meta)
	}
}

// TestWithdrawnToolAnswersFromTheCache has a backend that is down.
func TestWithdrawnToolAnswersFromTheCache(t *testing.T) {
	l := newLists(t, func(c *mcpadapter.Config) { c.ServeStale = true })
	l.s.Tool("lists_cached").Backend.State = catalog.Down
	if r := l.call("lists_cached", `{"total":1}`); r.IsError || string(r.StructuredContent) != `{"total":1}` {
		t.Errorf("cached = %+v, want the chain's answer", r)
	}
	l.err = call.Error(codes.Unavailable, "BACKEND_UNAVAILABLE", "gone")
	if r := l.call("lists_cached"); !r.IsError || !strings.Contains(r.Content[0].Text, "TOOL_UNAVAILABLE") {
		t.Errorf("not cached = %+v, want TOOL_UNAVAILABLE", r)
	}
	l.err = nil
	if r := l.call("lists_list", `{"total":1}`); !r.IsError || !strings.Contains(r.Content[0].Text, "TOOL_UNAVAILABLE") {
		t.Errorf("a tool that is not cacheable = %+v, want TOOL_UNAVAILABLE at once", r)
	}
}

func BenchmarkInvisible(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"ascii", strings.Repeat(`{"name":"0123456789 some text"},`, 1000)},
		{"chinese", strings.Repeat(`{"name":"日志服务在这里运行"},`, 1000)},
		{"hidden", strings.Repeat(`{"name":"0123456789 some text"},`, 999) + "\"\u200b\""},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				mcpadapter.StripInvisible([]byte(c.text))
			}
		})
	}
}

// A stream that breaks leaves its items, and says where to go on.
func TestBrokenStreamSaysWhereToGoOn(t *testing.T) {
	l := newLists(t, func(c *mcpadapter.Config) {
		c.Handler = interceptors.Chain(streamHandler(c.Handler), interceptors.Resume(interceptors.Options{}))
	})
	l.err = status.Error(codes.Unavailable, "gone")
	r := l.call("lists_follow", `{"id":"e1"}`, `{"id":"e2"}`)
	if !r.IsError || len(r.Content) == 0 {
		t.Fatalf("%+v, want an error", r)
	}
	for _, want := range []string{`cursor "e2" may be kept`, `call again with after "e2"`} {
		if !strings.Contains(r.Content[0].Text, want) {
			t.Errorf("text %q has no %q", r.Content[0].Text, want)
		}
	}
	if !strings.Contains(string(r.StructuredContent), `"cursor":"e2"`) || !strings.Contains(string(r.StructuredContent), `"items":[{"id":"e1"},{"id":"e2"}]`) {
		t.Errorf("structured content %s, want the cursor and the items", r.StructuredContent)
	}
}

func streamHandler(h call.Handler) grpc.StreamHandler {
	return func(_ any, s grpc.ServerStream) error { return h(s) }
}
