package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/catalog"
)

const library = `syntax = "proto3"; package library.v1;
	import "google/api/resource.proto"; import "google/api/field_behavior.proto"; import "google/api/httpbody.proto"; import "toolway/v1/options.proto";
	option (google.api.resource_definition) = {type: "library.example.com/Cover" pattern: "covers/{cover}"};
	// Keeps books.
	service LibraryService {
		rpc GetShelf(GetShelfRequest) returns (Shelf);
		rpc ListShelves(ListShelvesRequest) returns (ListShelvesResponse);
		rpc GetBook(GetBookRequest) returns (Book) { option (toolway.v1.method) = {resource: {title: "A book"}}; }
		rpc ListBooks(ListBooksRequest) returns (ListBooksResponse);
		rpc WatchBook(GetBookRequest) returns (stream Book);
		rpc WatchShelves(WatchShelvesRequest) returns (stream ShelfEvent);
		rpc GetCover(GetCoverRequest) returns (google.api.HttpBody);
		rpc GetSettings(GetSettingsRequest) returns (Settings);
		rpc GetSecret(GetShelfRequest) returns (Shelf) { option (toolway.v1.method) = {read_only: false}; }
		rpc GetFiltered(GetFilteredRequest) returns (Shelf);
		// Reads a page.
		rpc Page(PageRequest) returns (Book) { option (toolway.v1.method) = {resource: {uri_template: "pages://{book}/{at.number}" mime_type: "text/plain" watch_method: "WatchPage" name: "page"}}; }
		rpc WatchPage(PageRequest) returns (stream Book);
	}
	// A shelf.
	message Shelf { option (google.api.resource) = {type: "library.example.com/Shelf" pattern: "shelves/{shelf}"}; string name = 1; }
	message Book {
		option (google.api.resource) = {type: "library.example.com/Book" pattern: "shelves/{shelf}/books/{volume}~{part}" pattern: "lost/{book}" pattern: "*"};
		string name = 1; string etag = 2;
	}
	message Settings { option (google.api.resource) = {type: "library.example.com/Settings" pattern: "settings"}; string name = 1; }
	message GetShelfRequest { string name = 1 [(google.api.field_behavior) = REQUIRED, (google.api.resource_reference).type = "library.example.com/Shelf"]; }
	message GetFilteredRequest { string name = 1; string filter = 2 [(google.api.field_behavior) = REQUIRED]; }
	message ListShelvesRequest { int32 page_size = 1; string page_token = 2; }
	message ListShelvesResponse { repeated Shelf shelves = 1; string next_page_token = 2; }
	message WatchShelvesRequest { string parent = 1; }
	message ShelfEvent { string kind = 1; Shelf shelf = 2; }
	message GetBookRequest { string name = 1; }
	message ListBooksRequest { string parent = 1 [(google.api.resource_reference).child_type = "library.example.com/Book"]; int32 page_size = 2; string page_token = 3; }
	message ListBooksResponse { repeated Book books = 1; string next_page_token = 2; }
	message GetCoverRequest { string name = 1 [(google.api.resource_reference).type = "library.example.com/Cover"]; }
	message GetSettingsRequest { string name = 1; }
	message PageRequest { string book = 1; message At { int32 number = 1; } At at = 2; }
	`

// fileOf is a source of a contract in a file.
func fileOf(t *testing.T, source string) catalog.Source {
	t.Helper()
	return catalog.File(writeSet(t, "set.binpb", compileOne(t, source)))
}

func resourceOf(t *testing.T, s *catalog.Snapshot, uri string) *catalog.Resource {
	t.Helper()
	for _, r := range s.Resources() {
		if r.URI == uri {
			return r
		}
	}
	t.Fatalf("no resource %q", uri)
	return nil
}

func TestResources(t *testing.T) {
	s := static(t, compileOne(t, library))
	var got []string
	for _, r := range s.Resources() {
		line := fmt.Sprintf("%s %s %q %s", r.URI, r.Name, r.Title, r.MIMEType)
		if r.List != nil {
			line += " list=" + string(r.List.Method.Desc.Name()) + "(" + r.List.Parent + ")"
		}
		if r.Watch != nil {
			line += fmt.Sprintf(" watch=%s(%s%s)", r.Watch.Method.Desc.Name(), r.Watch.Name, r.Watch.Parent)
		}
		if r.Parent != nil {
			line += " in " + r.Parent.Name
		}
		got = append(got, line)
	}
	want := []string{
		`grpc://library.example.com/covers/{cover} library_cover "Cover" `,
		`grpc://library.example.com/lost/{book} library_book_2 "A book" application/json list=ListBooks(parent) watch=WatchBook(name)`,
		`grpc://library.example.com/settings library_settings "Settings" application/json`,
		`grpc://library.example.com/shelves/{shelf} library_shelf "Shelf" application/json list=ListShelves() watch=WatchShelves(parent)`,
		`grpc://library.example.com/shelves/{shelf}/books/{volume}~{part} library_book "A book" application/json list=ListBooks(parent) watch=WatchBook(name) in library_shelf`,
		`pages://{book}/{at.number} page "Page" text/plain watch=WatchPage()`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("resources:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f := s.Findings(); len(f) > 0 {
		t.Errorf("findings = %v, want none", f)
	}
	if d := resourceOf(t, s, "grpc://library.example.com/shelves/{shelf}").Description; d != "A shelf.\n\nRead with library.v1.LibraryService.GetShelf." {
		t.Errorf("description = %q", d)
	}
}

func TestResourceURIs(t *testing.T) {
	s := static(t, compileOne(t, library))
	for _, c := range []struct{ uri, resource, values, request string }{
		{"grpc://library.example.com/settings", "library_settings", "", "settings"},
		{"grpc://library.example.com/shelves/a%20b", "library_shelf", "a b", "shelves/a b"},
		{"grpc://library.example.com/shelves/1/books/a~b~c", "library_book", "1,a,b~c", "shelves/1/books/a~b~c"},
		{"grpc://library.example.com/shelves/", "", "", ""},
		{"grpc://library.example.com/shelves/a%2Fbooks", "", "", ""},
		{"grpc://library.example.com/shelves/%zz", "", "", ""},
		{"grpc://library.example.com/shelves/1/books/2", "", "", ""},
		{"grpc://library.example.com/shelves/1/", "", "", ""},
		{"grpc://other.example.com/shelves/1", "", "", ""},
		{"grpc://library.example.com/shelves/{shelf}", "library_shelf", "{shelf}", "shelves/{shelf}"},
		{"grpc://library.example.com/shelves/" + strings.Repeat("x", 5000), "", "", ""},
	} {
		r, values := s.Resource(c.uri)
		if r == nil {
			if c.resource != "" {
				t.Errorf("Resource(%q) = nil, want %s", c.uri, c.resource)
			}
			continue
		}
		if got := strings.Join(values, ","); r.Name != c.resource || got != c.values {
			t.Errorf("Resource(%q) = %s %q, want %s %q", c.uri, r.Name, got, c.resource, c.values)
		}
		wire, err := r.Request(values)
		if want := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), c.request); err != nil || string(wire) != string(want) {
			t.Errorf("Request(%q) = %q, %v, want %q", c.values, wire, err, want)
		}
		again, back := s.Resource(r.Expand(values))
		if again != r || !slices.Equal(back, values) {
			t.Errorf("Resource(Expand(%q)) = %v %q", values, again, back)
		}
	}
	page, values := s.Resource("pages://moby/7")
	if wire, err := page.Request(values); err != nil || string(wire) != "\x0a\x04moby\x12\x02\x08\x07" {
		t.Errorf("Request(%q) = %q, %v", values, wire, err)
	}
	if _, err := page.Request([]string{"moby", "seven"}); err == nil {
		t.Error("Request with a word for a number has no error")
	}
	if wire, err := page.WatchRequest(values); err != nil || string(wire) != "\x0a\x04moby\x12\x02\x08\x07" {
		t.Errorf("WatchRequest(%q) = %q, %v", values, wire, err)
	}
	book, values := s.ResourceNamed(page.Backend, "shelves/1/books/2~3")
	if book == nil || book.ParentName(values) != "shelves/1" || len(s.ResourcesOf(page.Backend, book.Type)) != 2 {
		t.Errorf("ResourceNamed gives %v %q", book, values)
	}
}

func TestResourceFindings(t *testing.T) {
	for _, c := range []struct{ method, want string }{
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x/{id}"}};}`, "does not begin with a scheme"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "grpc://x/{id}"}};}`, "the mesh's own"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}{id}"}};}`, "side by side"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}/{id}"}};}`, "twice"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{nope}"}};}`, `no field "nope"`},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{sub}"}};}`, "cannot stand in a URI"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{tags}"}};}`, "cannot stand in a URI"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id"}};}`, "not closed"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{+id}"}};}`, "is not a name"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:ä"}};}`, "may not stand in it"},
		{`rpc Do(In) returns (stream Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}"}};}`, "only a unary method"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}" watch_method: "Do"}};}`, "no server-streaming method"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}" name: "é"}};}`, "resource name"},
		{`rpc Do(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}"}};} rpc Re(In) returns (Out) {option (toolway.v1.method) = {resource: {uri_template: "x:{id}"}};}`, "comes first"},
	} {
		s := static(t, compileOne(t, header+"service S {"+c.method+"}"))
		f := s.Findings()
		if len(f) != 1 || !strings.Contains(f[0].Message, c.want) {
			t.Errorf("findings of %s = %v, want one with %q", c.method, f, c.want)
		}
	}
}

// TestResourceOwners pins that a backend takes no URI of one before it.
func TestResourceOwners(t *testing.T) {
	other := strings.NewReplacer("library.v1", "other.v1", "{shelf}", "{place}").Replace(library)
	s := open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "a", Sources: []catalog.Source{fileOf(t, library)}}, {Name: "b", Sources: []catalog.Source{fileOf(t, other)}, ToolPrefix: "b_"},
	}}).Snapshot()
	clashes := 0
	for _, f := range s.Findings() {
		if f.Code == "resource-clash" && f.Backend == "b" {
			clashes++
		}
	}
	if r, _ := s.Resource("grpc://library.example.com/shelves/1"); clashes != 6 || r == nil || r.Backend.Name != "a" || len(s.Resources()) != 6 {
		t.Errorf("%d clashes, owner %v, %d resources; want 6, backend a and 6", clashes, r, len(s.Resources()))
	}
}

func TestPrompts(t *testing.T) {
	const contract = `syntax = "proto3"; package p.v1; import "toolway/v1/options.proto";
	enum Tone { CALM = 0; LOUD = 1; } message M {}
	service S { rpc Do(M) returns (M);
		option (toolway.v1.service) = {prompts: [%s]}; }`
	s := static(t, compileOne(t, fmt.Sprintf(contract, `{name: "greet_all" description: "Greets\u202e." arguments: [{name: "who" required: true resource_type: "x/Y"}, {name: "tone" enum_type: "p.v1.Tone"}]
		messages: [{text: "Hi {who}, {{tone}} is {tone}."}, {role: ROLE_ASSISTANT resource: "x:{who}"}]}`)))
	p := s.Prompt("greet_all")
	if p == nil || len(s.Prompts()) != 1 || p.Title != "Greet all" || p.Description != "Greets." || len(p.Arguments) != 2 || p.Arguments[1].Enum == nil || p.Arguments[0].Title != "Who" || !p.Arguments[0].Required {
		t.Fatalf("prompt = %+v; findings %v", p, s.Findings())
	}
	values := map[string]string{"who": "{tone}", "tone": "loud"}
	if got := p.Messages[0].Text.With(values); got != "Hi {tone}, {tone} is loud." || p.Messages[0].Role != "user" {
		t.Errorf("text = %q by %s", got, p.Messages[0].Role)
	}
	if got := p.Messages[1].Resource.With(values); got != "x:{tone}" || p.Messages[1].Role != "assistant" {
		t.Errorf("resource = %q by %s", got, p.Messages[1].Role)
	}
	for _, c := range []struct{ prompt, want string }{
		{`{name: "a b" messages: {text: "x"}}`, "a name is"},
		{`{name: "a"}`, "0 messages"},
		{`{name: "a" messages: {}}`, "either a text or a resource"},
		{`{name: "a" messages: {text: "x" resource: "y"}}`, "either a text or a resource"},
		{`{name: "a" messages: {text: "{x}"}}`, "{x} is no argument"},
		{`{name: "a" messages: {text: "{"}}`, "is no argument"},
		{`{name: "a" messages: {text: "}"}}`, "opens nothing"},
		{`{name: "a" messages: {text: "x"} arguments: [{name: "b"}, {name: "b"}]}`, "twice"},
		{`{name: "a" messages: {text: "x"} arguments: {name: "b c"}}`, "argument"},
		{`{name: "a" messages: {text: "x"} arguments: {name: "b" enum_type: "p.v1.M"}}`, "no enum"},
		{`{name: "a" messages: {text: "x"}}, {name: "a" messages: {text: "y"}}`, "two of this name"},
	} {
		f := static(t, compileOne(t, fmt.Sprintf(contract, c.prompt))).Findings()
		if len(f) != 1 || !strings.Contains(f[0].Message, c.want) {
			t.Errorf("findings of %s = %v, want one with %q", c.prompt, f, c.want)
		}
	}
	two := fmt.Sprintf(contract, `{name: "a" messages: {text: "x"}}`)
	s = open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "one", Sources: []catalog.Source{fileOf(t, two)}}, {Name: "two", Sources: []catalog.Source{fileOf(t, strings.ReplaceAll(two, "p.v1", "q.v1"))}},
		{Name: "three", ToolPrefix: "c_", Sources: []catalog.Source{fileOf(t, strings.ReplaceAll(two, "p.v1", "r.v1"))}},
	}}).Snapshot()
	var names []string
	for _, p := range s.Prompts() {
		names = append(names, p.Name)
	}
	if len(names) != 3 || names[0] != "a" || !strings.HasPrefix(names[1], "a_") || names[2] != "c_a" {
		t.Errorf("names = %q, want a, a_HASH and c_a", names)
	}
}
