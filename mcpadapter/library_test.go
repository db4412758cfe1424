package mcpadapter_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

const libraryProto = `
syntax = "proto3";
package library.v1;
import "google/api/httpbody.proto";
import "google/api/resource.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/timestamp.proto";
import "toolway/v1/options.proto";

service Library {
  option (toolway.v1.service) = {prompts: [
    {name: "review" description: "Asks for a review." arguments: [
      {name: "book" description: "Which book." required: true resource_type: "library.example.com/Book"},
      {name: "tone" enum_type: "library.v1.Tone"}
    ] messages: [
      {text: "Review {book} {{in a tone}} that is \"{tone}\"."},
      {role: ROLE_ASSISTANT resource: "{book}"},
      {resource: "pictures://cover"}
    ]},
    {name: "hello" messages: {text: "Hello."}}
  ]};
  rpc GetShelf(NameRequest) returns (Shelf);
  rpc ListShelves(ListShelvesRequest) returns (ListShelvesResponse);
  rpc GetBook(NameRequest) returns (Book) { option idempotency_level = NO_SIDE_EFFECTS; option (toolway.v1.method) = {cache_ttl: {seconds: 7}}; }
  rpc ListBooks(ListBooksRequest) returns (ListBooksResponse);
  rpc WatchBook(NameRequest) returns (stream Book);
  rpc GetMotto(NameRequest) returns (Motto);
  // The picture on the cover.
  rpc Cover(google.protobuf.Empty) returns (google.api.HttpBody) { option (toolway.v1.method) = {resource: {uri_template: "pictures://cover" name: "cover" watch_method: "WatchCover"}}; }
  rpc WatchCover(google.protobuf.Empty) returns (stream Book);
  rpc Page(PageRequest) returns (google.api.HttpBody) { option (toolway.v1.method) = {resource: {uri_template: "pages://{number}/{tone}" mime_type: "text/plain"}}; }
}

enum Tone { TONE_UNSPECIFIED = 0; CALM = 1; CRITICAL = 2; LOUD = 3; }
message NameRequest { string name = 1; }
// A shelf with books.
message Shelf { option (google.api.resource) = {type: "library.example.com/Shelf" pattern: "shelves/{shelf}"}; string name = 1; string display_name = 2; }
message Book {
  option (google.api.resource) = {type: "library.example.com/Book" pattern: "shelves/{shelf}/books/{book}"};
  string name = 1; string etag = 2; google.protobuf.Timestamp update_time = 3;
}
message Motto { option (google.api.resource) = {type: "library.example.com/Motto" pattern: "motto"}; string name = 1; }
message ListShelvesRequest { int32 page_size = 1; string page_token = 2; }
message ListShelvesResponse { repeated Shelf shelves = 1; string next_page_token = 2; }
message ListBooksRequest { string parent = 1; int32 page_size = 2; string page_token = 3; }
message ListBooksResponse { repeated Book books = 1; string next_page_token = 2; }
message PageRequest { int32 number = 1; Tone tone = 2; }
`

// library is a world of resources and prompts. What it holds can be changed by the test.
type library struct {
	*world
	snapshot *catalog.Snapshot

	mu sync.Mutex
	// books are the ids in each shelf; listFails is what lists of books end with, getFails what reads of books do.
	books              map[string][]string
	listFails          error
	getFails           error
	lists              []string
	changes            map[string][]chan struct{} // of the streams that watch, by name
	watching, released chan string
}

func newLibrary(t *testing.T, change func(*mcpadapter.Config)) *library {
	t.Helper()
	l := &library{
		world: &world{t: t, catalog: &mutableCatalog{}}, books: map[string][]string{"a": {"one", "two"}, "b": {"three"}},
		changes: map[string][]chan struct{}{}, watching: make(chan string, 100), released: make(chan string, 100),
	}
	l.snapshot = snapshotOf(t, libraryProto)
	if f := l.snapshot.Findings(); len(f) > 0 {
		t.Fatal(f)
	}
	l.catalog.current.Store(l.snapshot)
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(call.Codec{}), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(ss)
		md, _ := metadata.FromIncomingContext(ss.Context())
		l.seen.Store(&md)
		return l.answer(l.snapshot.Method(full), ss)
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:library", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	conf := mcpadapter.Config{
		Catalog: l.catalog, Handler: interceptors.Chain(forwardTo(conn)), Version: "v0.0.0-test",
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	mcpadapter.PatientWatch(&conf)
	if change != nil {
		change(&conf)
	}
	l.adapter = mcpadapter.New(conf)
	t.Cleanup(func() {
		if err := l.adapter.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return l
}

// change tells the streams that watch something.
func (l *library) change(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.changes[name] {
		c <- struct{}{}
	}
}

// lock runs f while nothing is answered.
func (l *library) lock(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// answer is what the server does.
func (l *library) answer(m *catalog.Method, ss grpc.ServerStream) error {
	f := &call.Frame{}
	if err := ss.RecvMsg(f); err != nil {
		return err
	}
	req := dynamicpb.NewMessage(m.Desc.Input())
	if err := proto.Unmarshal(f.Bytes(), req); err != nil {
		return err
	}
	get := func(name protoreflect.Name) string {
		fd := req.Descriptor().Fields().ByName(name)
		if fd == nil {
			return ""
		}
		return req.Get(fd).String()
	}
	out := func(format string, values ...any) error {
		msg := dynamicpb.NewMessage(m.Desc.Output())
		if err := protojson.Unmarshal(fmt.Appendf(nil, format, values...), msg); err != nil {
			return err
		}
		return ss.SendMsg(msg)
	}
	name := get("name")
	if m.Kind().Server {
		return l.watch(name, ss, out)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.Desc.Name() {
	case "GetShelf":
		return out(`{"name":%q,"displayName":"Shelf"}`, name)
	case "GetMotto":
		return out(`{"name":"motto"}`)
	case "Cover":
		return out(`{"contentType":"image/png","data":"iVBORw=="}`)
	case "Page":
		return out(`{"contentType":"text/plain","data":"aGk="}`)
	case "GetBook":
		parts := strings.Split(name, "/")
		switch {
		case l.getFails != nil:
			return l.getFails
		case len(parts) != 4 || !slices.Contains(l.books[parts[1]], parts[3]):
			return status.Error(codes.NotFound, "no such book")
		}
		return out(`{"name":%q,"etag":"v1"}`, name)
	case "ListShelves":
		return out(`{"shelves":[{"name":"shelves/b"},{"name":"shelves/a","displayName":"First"}]}`)
	case "ListBooks":
		l.lists = append(l.lists, get("parent")+" "+get("page_size")+" "+get("page_token"))
		if l.listFails != nil {
			return l.listFails
		}
		return out(`%s`, l.page(strings.TrimPrefix(get("parent"), "shelves/"), get("page_token"), int(req.Get(req.Descriptor().Fields().ByName("page_size")).Int())))
	}
	return status.Error(codes.Unimplemented, "no such method")
}

// page is one page of books; the token is the id of its first.
func (l *library) page(shelf, token string, size int) string {
	ids := l.books[shelf]
	from := max(0, slices.Index(ids, token))
	to := min(len(ids), from+size)
	var items []string
	for _, id := range ids[from:to] {
		items = append(items, fmt.Sprintf(`{"name":"shelves/%s/books/%s","etag":"v1","updateTime":"2026-01-02T03:04:05Z"}`, shelf, id))
	}
	next := ""
	if to < len(ids) {
		next = ids[to]
	}
	return fmt.Sprintf(`{"books":[%s],"nextPageToken":%q}`, strings.Join(items, ","), next)
}

// watch sends a book for each change until the call ends.
func (l *library) watch(name string, ss grpc.ServerStream, out func(string, ...any) error) error {
	if strings.HasSuffix(name, "/secret") {
		return status.Error(codes.PermissionDenied, "not for you")
	}
	c, first := make(chan struct{}, 100), false
	l.lock(func() {
		first = len(l.changes[name]) == 0
		l.changes[name] = append(l.changes[name], c)
	})
	if err := ss.SendHeader(nil); err != nil {
		return err
	}
	l.watching <- name
	if first && strings.HasSuffix(name, "/ending") {
		return nil
	}
	if first && strings.HasSuffix(name, "/frail") {
		return status.Error(codes.Unavailable, "the stream broke")
	}
	for {
		select {
		case <-ss.Context().Done():
			l.released <- name
			return nil
		case <-c:
			if err := out(`{"name":%q}`, name); err != nil {
				return err
			}
		}
	}
}
