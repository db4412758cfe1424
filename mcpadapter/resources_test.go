package mcpadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/mcpadapter"
)

// forLibraries runs f with a client on a library of its own, once per transport and version.
func forLibraries(t *testing.T, options func() *mcp.ClientOptions, f func(t *testing.T, l *library, c *mcp.ClientSession, d door)) {
	for _, d := range doors {
		if d.sdkOnly {
			continue
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			l := newLibrary(t, func(c *mcpadapter.Config) { c.Sessions = d.session })
			var o *mcp.ClientOptions
			if options != nil {
				o = options()
			}
			f(t, l, l.connect(d, o), d)
		})
	}
}

func urisOf(resources []*mcp.Resource) (out []string) {
	for _, r := range resources {
		out = append(out, r.URI)
	}
	return out
}

func TestResourceLists(t *testing.T) {
	forLibraries(t, nil, func(t *testing.T, l *library, c *mcp.ClientSession, _ door) {
		listed, err := c.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"grpc://library.example.com/motto", "grpc://library.example.com/shelves/b", "grpc://library.example.com/shelves/a",
			"grpc://library.example.com/shelves/a/books/one", "grpc://library.example.com/shelves/a/books/two",
			"grpc://library.example.com/shelves/b/books/three", "pictures://cover",
		}
		if got := urisOf(listed.Resources); !slices.Equal(got, want) || listed.NextCursor != "" {
			t.Errorf("resources = %q, cursor %q, want %q", got, listed.NextCursor, want)
		}
		if r := listed.Resources[2]; r.Name != "shelves/a" || r.Title != "First" || r.MIMEType != "application/json" {
			t.Errorf("shelf = %+v", r)
		}
		if r := listed.Resources[3]; r.Annotations == nil || r.Annotations.LastModified != "2026-01-02T03:04:05Z" || r.Meta["io.toolway/etag"] != "v1" {
			t.Errorf("book = %+v", r)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range templates.ResourceTemplates {
			got = append(got, r.URITemplate+" "+r.Name)
		}
		if want := []string{"grpc://library.example.com/shelves/{shelf} library_shelf", "grpc://library.example.com/shelves/{shelf}/books/{book} library_book", "pages://{number}/{tone} library_page"}; !slices.Equal(got, want) {
			t.Errorf("templates = %q, want %q", got, want)
		}
		if d := templates.ResourceTemplates[0].Description; !strings.HasPrefix(d, "A shelf with books.") {
			t.Errorf("description = %q", d)
		}
	})
}

// TestResourcePages pins that a page costs a bounded number of calls, and that all pages together give each resource once.
func TestResourcePages(t *testing.T) {
	l := newLibrary(t, nil)
	for i := range 250 {
		l.books["a"] = append(l.books["a"], fmt.Sprintf("x%d", i))
	}
	c := l.connect(doors[1], nil) // newer clients keep lists
	seen, pages, cursor := map[string]int{}, 0, ""
	for {
		res, err := c.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Resources) > 100 {
			t.Errorf("a page has %d resources", len(res.Resources))
		}
		for _, r := range res.Resources {
			seen[r.URI]++
		}
		pages++
		if cursor = res.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 257 || pages != 3 {
		t.Errorf("%d resources on %d pages, want 257 on 3", len(seen), pages)
	}
	for uri, n := range seen {
		if n != 1 {
			t.Errorf("%s was listed %d times", uri, n)
		}
	}
	if _, err := c.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: "made-up"}); codeOf(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("made-up cursor: %v", err)
	}
	for i := range 2000 {
		l.books["a"] = append(l.books["a"], fmt.Sprintf("y%d", i))
	}
	var unlisted string
	for n := 0; ; n++ {
		res, err := c.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: cursor})
		if err != nil || n > 30 {
			t.Fatal(n, err)
		}
		if m, ok := res.Meta["io.toolway/unlisted"]; ok {
			unlisted += fmt.Sprint(m)
		}
		if cursor = res.NextCursor; cursor == "" {
			break
		}
	}
	if !strings.Contains(unlisted, "more than the first 1000") {
		t.Errorf("unlisted = %q", unlisted)
	}
}

// TestCursorsAreOfOneList pins that a cursor of one list is none of another: it would begin at the wrong place, or end the list.
func TestCursorsAreOfOneList(t *testing.T) {
	l := newLibrary(t, func(c *mcpadapter.Config) { c.PageTools = 1 })
	for i := range 250 {
		l.books["a"] = append(l.books["a"], fmt.Sprintf("x%d", i))
	}
	c := l.connect(doors[1], nil)
	lists := map[string]func(cursor string) (string, error){
		"tools": func(cursor string) (string, error) {
			r, err := c.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: cursor})
			if err != nil {
				return "", err
			}
			return r.NextCursor, nil
		},
		"templates": func(cursor string) (string, error) {
			r, err := c.ListResourceTemplates(t.Context(), &mcp.ListResourceTemplatesParams{Cursor: cursor})
			if err != nil {
				return "", err
			}
			return r.NextCursor, nil
		},
		"resources": func(cursor string) (string, error) {
			r, err := c.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: cursor})
			if err != nil {
				return "", err
			}
			return r.NextCursor, nil
		},
		"prompts": func(cursor string) (string, error) {
			_, err := c.ListPrompts(t.Context(), &mcp.ListPromptsParams{Cursor: cursor})
			return "", err
		},
	}
	for _, of := range []string{"tools", "templates", "resources"} {
		cursor, err := lists[of]("")
		if err != nil || cursor == "" {
			t.Fatalf("%s: cursor %q, %v", of, cursor, err)
		}
		for name, list := range lists {
			if _, err := list(cursor); name == of && err != nil || name != of && codeOf(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("%s with a cursor of %s: %v", name, of, err)
			}
		}
	}
}

// TestEachCollectionHasItsShare pins that a large collection does not hide those after it: the bound is for each.
func TestEachCollectionHasItsShare(t *testing.T) {
	l := newLibrary(t, nil)
	for i := range 1200 {
		l.books["a"] = append(l.books["a"], fmt.Sprintf("x%d", i))
		l.books["b"] = append(l.books["b"], fmt.Sprintf("y%d", i))
	}
	c := l.connect(doors[1], nil) // newer clients keep lists
	listed, cursor := map[string]int{}, ""
	for range 40 {
		res, err := c.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, uri := range urisOf(res.Resources) {
			listed[uri[:strings.LastIndexByte(uri, '/')]]++
		}
		if cursor = res.NextCursor; cursor == "" {
			break
		}
	}
	for _, shelf := range []string{"a", "b"} {
		if n := listed["grpc://library.example.com/shelves/"+shelf+"/books"]; n != 1000 {
			t.Errorf("%d books of shelf %s are listed, want 1000", n, shelf)
		}
	}
	if listed["pictures:/"] != 1 || cursor != "" {
		t.Errorf("listed = %v, cursor = %q, want the picture behind the books, and an end", listed, cursor)
	}
}

func codeOf(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// TestResourcesLeftOut pins that a collection that cannot be listed costs only itself.
func TestResourcesLeftOut(t *testing.T) {
	l := newLibrary(t, nil)
	l.listFails = status.Error(codes.PermissionDenied, "books are secret")
	c := l.connect(doors[3], nil)
	res, err := c.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := json.Marshal(res.Meta["io.toolway/unlisted"])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"code":"PERMISSION_DENIED","message":"books are secret","parent":"shelves/a","uri":"grpc://library.example.com/shelves/{shelf}/books/{book}"},` +
		`{"code":"PERMISSION_DENIED","message":"books are secret","parent":"shelves/b","uri":"grpc://library.example.com/shelves/{shelf}/books/{book}"}]`
	if len(res.Resources) != 4 || string(meta) != want {
		t.Errorf("%d resources, unlisted %s, want 4 and %s", len(res.Resources), meta, want)
	}
}

func TestReadResource(t *testing.T) {
	forLibraries(t, nil, func(t *testing.T, l *library, c *mcp.ClientSession, d door) {
		read := func(uri string, meta mcp.Meta) (*mcp.ReadResourceResult, error) {
			return c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri, Meta: meta})
		}
		const book = "grpc://library.example.com/shelves/a/books/one"
		res, err := read(book, mcp.Meta{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "idempotency-key": "k"})
		if err != nil {
			t.Fatal(err)
		}
		got := res.Contents[0]
		if len(res.Contents) != 1 || got.URI != book || got.MIMEType != "application/json" || got.Text != `{"name":"shelves/a/books/one","etag":"v1"}` || res.Meta["io.toolway/etag"] != "v1" {
			t.Errorf("book = %+v, _meta %v", got, res.Meta)
		}
		if modern := d.version == "2026-07-28"; modern && (res.TTLMs != 7000 || res.CacheScope != "private") {
			t.Errorf("ttlMs %d, cacheScope %q, want 7000 and private", res.TTLMs, res.CacheScope)
		}
		if md := *l.seen.Load(); len(md.Get("traceparent")) != 1 || len(md.Get("idempotency-key")) != 0 {
			t.Errorf("metadata at the backend = %v", md)
		}
		// Clients of 2026-07-28 keep what they have read.
		if res, err = read("grpc://library.example.com/shelves/a/books/two", mcp.Meta{"io.toolway/if-none-match": "v1"}); err != nil || len(res.Contents) != 0 || res.Meta["io.toolway/not-modified"] != true {
			t.Errorf("read with the etag = %+v, %v", res, err)
		}
		if res, err = read("pictures://cover", nil); err != nil || string(res.Contents[0].Blob) != "\x89PNG" || res.Contents[0].MIMEType != "image/png" || res.Meta["io.toolway/etag"] == "" {
			t.Errorf("cover = %+v, %v", res, err)
		}
		if res, err = read("pages://7/CALM", nil); err != nil || res.Contents[0].Text != "hi" || res.Contents[0].MIMEType != "text/plain" {
			t.Errorf("page = %+v, %v", res, err)
		}
		missing := int64(-32002)
		if d.version == "2026-07-28" {
			missing = jsonrpc.CodeInvalidParams
		}
		for uri, want := range map[string]int64{
			"grpc://library.example.com/shelves/a/books/none": missing, "grpc://library.example.com/nothing": missing, "pages://x/CALM": missing, "toolway://objects/x": missing,
		} {
			if _, err := read(uri, nil); codeOf(err) != want || !strings.Contains(err.Error(), "does not exist") {
				t.Errorf("read(%q) = %v, want code %d", uri, err, want)
			}
		}
		l.lock(func() { l.getFails = status.Error(codes.PermissionDenied, "not\u202e yours") })
		_, err = read("grpc://library.example.com/shelves/b/books/three", nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != jsonrpc.CodeInternalError || !strings.Contains(e.Message, "PERMISSION_DENIED: not yours") || !strings.Contains(string(e.Data), `"code":"PERMISSION_DENIED"`) {
			t.Errorf("refused read = %v", err)
		}
	})
}

// TestReadObject pins that what was too large for an answer is read by its link, and only by its owner.
func TestReadObject(t *testing.T) {
	store := object.NewMemory(object.Limits{})
	info, err := store.Put(t.Context(), object.Owner{}, "application/json", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := store.Put(t.Context(), object.Owner{Principal: "x"}, "image/png", []byte("p"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLibrary(t, func(c *mcpadapter.Config) { c.Objects = store })
	c := l.connect(doors[3], nil)
	res, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mcpadapter.ObjectURI + info.ID})
	if err != nil || res.Contents[0].Text != `{"a":1}` || res.Contents[0].MIMEType != "application/json" {
		t.Errorf("object = %+v, %v", res, err)
	}
	if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mcpadapter.ObjectURI + foreign.ID}); codeOf(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("foreign object: %v", err)
	}
}

// onlyReads hides all methods but those that read and list shelves.
type onlyReads struct{}

func (onlyReads) Visible(_ *identity.Principal, _ call.Door, m *catalog.Method) bool {
	return m.Desc.Name() == "GetShelf" || m.Desc.Name() == "ListShelves"
}

// TestHiddenResources pins that what is hidden is neither listed nor read, nor told apart from what does not exist.
func TestHiddenResources(t *testing.T) {
	l := newLibrary(t, func(c *mcpadapter.Config) { c.Visibility = onlyReads{} })
	c := l.connect(doors[3], nil)
	res, err := c.ListResources(t.Context(), nil)
	if err != nil || len(res.Resources) != 2 || len(l.lists) > 0 {
		t.Errorf("resources = %v, %v; lists of books %q", urisOf(res.Resources), err, l.lists)
	}
	templates, err := c.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("templates = %v, %v", templates, err)
	}
	_, hidden := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "grpc://library.example.com/shelves/a/books/one"})
	_, missing := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "grpc://library.example.com/shelves/a/bocks/one"})
	if hidden == nil || missing == nil || strings.ReplaceAll(hidden.Error(), "books", "bocks") != missing.Error() {
		t.Errorf("hidden %v, missing %v", hidden, missing)
	}
	if _, err := c.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "grpc://library.example.com/shelves/{shelf}/books/{book}"}, Argument: mcp.CompleteParamsArgument{Name: "book"}}); codeOf(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("completion of a hidden template: %v", err)
	}
}

// TestBrokenWatch pins that a stream that breaks is begun again, and that the client is told then: something may have changed in between.
func TestBrokenWatch(t *testing.T) {
	updated := make(chan string, 100)
	l := newLibrary(t, nil)
	c := l.connect(doors[5], &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
	for _, book := range []string{"frail", "ending"} { // one with an error, the other without
		uri := "grpc://library.example.com/shelves/a/books/" + book
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		await(t, "the first stream", l.watching)
		await(t, "the second stream", l.watching)
		if got := await(t, "the update", updated); got != uri {
			t.Errorf("updated %q, want %q", got, uri)
		}
	}
}

// TestStaleResource pins that a read says how old it is where it comes from the cache.
func TestStaleResource(t *testing.T) {
	l := newLibrary(t, func(c *mcpadapter.Config) {
		handler := c.Handler
		c.Handler = func(s grpc.ServerStream) error {
			call.FromContext(s.Context()).Freshness = call.Freshness{Cached: true, Stale: true, Age: 90 * time.Second}
			return handler(s)
		}
	})
	res, err := l.connect(doors[3], nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "grpc://library.example.com/motto"})
	if err != nil || res.Meta["io.toolway/stale"] != true || res.Meta["io.toolway/age"] != float64(90) {
		t.Errorf("read %+v, %v; want it marked stale", res, err)
	}
}

// TestPanicEndsTheRequest pins that a panic on a goroutine of this door's or the SDK's ends a request or a subscription, not the process.
func TestPanicEndsTheRequest(t *testing.T) {
	l := newLibrary(t, func(c *mcpadapter.Config) {
		c.Handler = func(grpc.ServerStream) error { panic("a fault in the chain") }
		c.Logger = slog.New(slog.DiscardHandler)
	})
	const uri = "grpc://library.example.com/shelves/a/books/one"
	c := l.connect(doors[5], nil)
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); codeOf(err) != jsonrpc.CodeInternalError {
		t.Errorf("Subscribe = %v, want an internal error", err)
	}
	for _, d := range []door{doors[0], doors[3], doors[5], doors[9]} {
		c := l.connect(d, nil)
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); codeOf(err) != jsonrpc.CodeInternalError {
			t.Errorf("%v: ReadResource = %v, want an internal error", d, err)
		}
		if !d.stdio {
			continue // net/http sees to the fast path
		}
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "library_get_motto"}); codeOf(err) != jsonrpc.CodeInternalError {
			t.Errorf("%v: CallTool = %v, want an internal error", d, err)
		}
	}
}

// TestSubscribe pins that a change reaches the client that subscribed, once, and that the stream at the backend ends with the subscription.
func TestSubscribe(t *testing.T) {
	updated := make(chan string, 100)
	options := func() *mcp.ClientOptions {
		return &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }}
	}
	const uri, name = "grpc://library.example.com/shelves/a/books/one", "shelves/a/books/one"
	forLibraries(t, options, func(t *testing.T, l *library, c *mcp.ClientSession, d door) {
		if d.version == "2026-07-28" {
			return // TestListenToResources
		}
		err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri})
		if !d.stdio && !d.session {
			if codeOf(err) != jsonrpc.CodeMethodNotFound {
				t.Errorf("Subscribe without sessions = %v, want -32601", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := await(t, "the stream at the backend", l.watching); got != name {
			t.Errorf("watched %q", got)
		}
		l.change(name)
		if got := await(t, "the update", updated); got != uri {
			t.Errorf("updated %q, want %q", got, uri)
		}
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil || len(l.watching) > 0 {
			t.Errorf("second Subscribe = %v, %d streams more", err, len(l.watching))
		}
		if err := c.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		await(t, "the end of the stream", l.released)
		for bad, want := range map[string]string{
			"grpc://library.example.com/shelves/a/books/secret": "PERMISSION_DENIED", "grpc://library.example.com/motto": "cannot be subscribed to", "x:y": "does not exist",
		} {
			if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: bad}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Subscribe(%q) = %v, want %q", bad, err, want)
			}
		}
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "pictures://cover"}); err != nil {
			t.Fatal(err)
		}
		await(t, "the stream at the backend", l.watching)
		l.change("")
		if got := await(t, "the update", updated); got != "pictures://cover" {
			t.Errorf("updated %q", got)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, "the end of the stream", l.released)
	})
}
