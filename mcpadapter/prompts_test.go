package mcpadapter_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

func TestPrompts(t *testing.T) {
	forLibraries(t, nil, func(t *testing.T, l *library, c *mcp.ClientSession, d door) {
		listed, err := c.ListPrompts(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(listed.Prompts) != 2 || listed.Prompts[0].Name != "hello" || listed.Prompts[1].Description != "Asks for a review." ||
			len(listed.Prompts[1].Arguments) != 2 || !listed.Prompts[1].Arguments[0].Required || listed.Prompts[1].Arguments[1].Required {
			t.Errorf("prompts = %+v", listed.Prompts)
		}
		get := func(name string, arguments map[string]string) (*mcp.GetPromptResult, error) {
			return c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: arguments})
		}
		res, err := get("review", map[string]string{"book": "shelves/a/books/one", "tone": `{book}"`})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Messages) != 3 || res.Description != "Asks for a review." {
			t.Fatalf("review = %+v", res)
		}
		if text, ok := res.Messages[0].Content.(*mcp.TextContent); !ok || text.Text != `Review shelves/a/books/one {in a tone} that is "{book}"".` || res.Messages[0].Role != "user" {
			t.Errorf("first message = %+v", res.Messages[0])
		}
		if r, ok := res.Messages[1].Content.(*mcp.EmbeddedResource); !ok || r.Resource.URI != "grpc://library.example.com/shelves/a/books/one" || !strings.Contains(r.Resource.Text, `"etag":"v1"`) || res.Messages[1].Role != "assistant" {
			t.Errorf("second message = %+v", res.Messages[1])
		}
		if i, ok := res.Messages[2].Content.(*mcp.ImageContent); !ok || i.MIMEType != "image/png" || string(i.Data) != "\x89PNG" {
			t.Errorf("third message = %+v", res.Messages[2])
		}
		if res, err := get("review", map[string]string{"book": "grpc://library.example.com/shelves/b/books/three"}); err != nil || len(res.Messages) != 3 {
			t.Errorf("review by URI = %+v, %v", res, err)
		}
		for _, bad := range []struct {
			name      string
			arguments map[string]string
			want      string
		}{
			{"reveiw", nil, `unknown prompt "reveiw"; did you mean "review"?`},
			{"nothing_like_it", nil, "list the prompts again"},
			{"review", nil, `prompt "review" needs the argument "book"`},
			{"review", map[string]string{"book": ""}, `needs the argument "book"`},
			{"review", map[string]string{"book": "x", "ton": "y"}, `unknown argument "ton"; did you mean "tone"?`},
			{"hello", map[string]string{"x": "y"}, `prompt "hello" has no arguments`},
			{"review", map[string]string{"book": "shelves/a/books/none"}, `resource "grpc://library.example.com/shelves/a/books/none" does not exist`},
			{"review", map[string]string{"book": "nonsense"}, `resource "nonsense" does not exist: give its URI, or its whole name`},
		} {
			if _, err := get(bad.name, bad.arguments); codeOf(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("get(%q, %v) = %v, want -32602 with %q", bad.name, bad.arguments, err, bad.want)
			}
		}
		l.lock(func() { l.getFails = status.Error(codes.Unavailable, "away") })
		if _, err := get("review", map[string]string{"book": "shelves/a/books/one"}); codeOf(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "UNAVAILABLE: away") {
			t.Errorf("prompt with a resource that cannot be read: %v", err)
		}
	})
}

func TestCompletion(t *testing.T) {
	forLibraries(t, nil, func(t *testing.T, l *library, c *mcp.ClientSession, _ door) {
		const shelf, book = "grpc://library.example.com/shelves/{shelf}", "grpc://library.example.com/shelves/{shelf}/books/{book}"
		prompt := func(name string) *mcp.CompleteReference {
			return &mcp.CompleteReference{Type: "ref/prompt", Name: name}
		}
		template := func(uri string) *mcp.CompleteReference { return &mcp.CompleteReference{Type: "ref/resource", URI: uri} }
		complete := func(ref *mcp.CompleteReference, name, value string, known map[string]string) (*mcp.CompleteResult, error) {
			p := &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: name, Value: value}}
			if known != nil {
				p.Context = &mcp.CompleteContext{Arguments: known}
			}
			return c.Complete(t.Context(), p)
		}
		for _, k := range []struct {
			ref         *mcp.CompleteReference
			name, value string
			known       map[string]string
			want        string
		}{
			{prompt("review"), "tone", "", nil, "CALM CRITICAL LOUD"},
			{prompt("review"), "tone", "c", nil, "CALM CRITICAL"},
			{prompt("review"), "book", "", nil, "shelves/b/books/three shelves/a/books/one shelves/a/books/two"},
			{prompt("review"), "book", "shelves/a/books/t", nil, "shelves/a/books/two"},
			{prompt("review"), "book", "T", nil, "shelves/b/books/three shelves/a/books/two"},
			{template(shelf), "shelf", "", nil, "b a"},
			{template(shelf), "shelf", "x", nil, ""},
			{template(book), "shelf", "a", nil, "a"},
			{template(book), "book", "", map[string]string{"shelf": "a"}, "one two"},
			{template(book), "book", "", map[string]string{"shelf": "nowhere"}, ""},
			{template(book), "book", "t", nil, "three two"},
			{template("pages://{number}/{tone}"), "tone", "L", nil, "LOUD"},
			{template("pages://{number}/{tone}"), "number", "1", nil, ""},
		} {
			res, err := complete(k.ref, k.name, k.value, k.known)
			if err != nil {
				t.Errorf("complete(%+v, %s, %q) = %v", k.ref, k.name, k.value, err)
				continue
			}
			if got := strings.Join(res.Completion.Values, " "); got != k.want || res.Completion.HasMore || res.Completion.Total != len(res.Completion.Values) {
				t.Errorf("complete(%+v, %s, %q) = %+v, want %q", k.ref, k.name, k.value, res.Completion, k.want)
			}
		}
		for _, bad := range []struct {
			ref  *mcp.CompleteReference
			name string
			want string
		}{
			{prompt("reviw"), "tone", `did you mean "review"?`}, {prompt("review"), "ton", `did you mean "tone"?`},
			{template(shelf + "x"), "shelf", "did you mean"}, {template(book), "boook", `did you mean "book"?`}, {template(book), "", "params.argument.name is missing"},
		} {
			if _, err := complete(bad.ref, bad.name, "", nil); codeOf(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("complete(%+v, %q) = %v, want -32602 with %q", bad.ref, bad.name, err, bad.want)
			}
		}
		l.lock(func() {
			for i := range 300 {
				l.books["b"] = append(l.books["b"], fmt.Sprintf("n%03d", i))
			}
		})
		if res, err := complete(template(book), "book", "n", map[string]string{"shelf": "b"}); err != nil || len(res.Completion.Values) != 100 || !res.Completion.HasMore {
			t.Errorf("300 values: %+v, %v", res, err)
		}
		l.lock(func() { l.listFails = status.Error(codes.PermissionDenied, "no") })
		if res, err := complete(template(book), "book", "", map[string]string{"shelf": "a"}); err != nil || len(res.Completion.Values) != 0 || !res.Completion.HasMore {
			t.Errorf("refused list: %+v, %v", res, err)
		}
	})
}

// TestPromptAsks pins that a client that offers to ask the person is made to ask for what is missing.
func TestPromptAsks(t *testing.T) {
	action := "accept"
	options := func() *mcp.ClientOptions {
		return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			schema := fmt.Sprint(r.Params.RequestedSchema)
			if !strings.Contains(r.Params.Message, "Review") || !strings.Contains(schema, "Which book.") || strings.Contains(schema, "tone") {
				t.Errorf("question = %q %s", r.Params.Message, schema)
			}
			return &mcp.ElicitResult{Action: action, Content: map[string]any{"book": "shelves/b/books/three", "tone": "LOUD"}}, nil
		}}
	}
	forLibraries(t, options, func(t *testing.T, _ *library, c *mcp.ClientSession, d door) {
		get := func() (*mcp.GetPromptResult, error) {
			return c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "review", Arguments: map[string]string{"tone": "CALM"}})
		}
		action = "accept"
		res, err := get()
		if d.version != "2026-07-28" && !d.stdio && !d.session {
			if codeOf(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("without a way to ask: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := res.Messages[0].Content.(*mcp.TextContent); !ok || !strings.Contains(text.Text, `Review shelves/b/books/three`) || !strings.Contains(text.Text, `"CALM"`) {
			t.Errorf("first message = %+v", res.Messages[0].Content)
		}
		action = "decline"
		if _, err := get(); codeOf(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), `needs the argument "book"`) {
			t.Errorf("declined: %v", err)
		}
	})
}

// TestPromptArgumentsAreCheckedFirst pins that nobody is asked for a prompt whose arguments are wrong anyway, and that the error names the one.
func TestPromptArgumentsAreCheckedFirst(t *testing.T) {
	options := func() *mcp.ClientOptions {
		return &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			t.Error("the person was asked")
			return &mcp.ElicitResult{Action: "decline"}, nil
		}}
	}
	forLibraries(t, options, func(t *testing.T, _ *library, c *mcp.ClientSession, _ door) {
		_, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "review", Arguments: map[string]string{"ton": "CALM"}})
		if codeOf(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), `unknown argument "ton"; did you mean "tone"?`) {
			t.Errorf("an unknown argument: %v", err)
		}
	})
	l := newLibrary(t, nil)
	got := closed(t, post(t.Context(), t, l.serve(), `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"review","arguments":{"book":5}}}`, nil))
	if want := `params.arguments.book is a number: want a string`; !strings.Contains(got, want) {
		t.Errorf("an argument that is a number: %s, want %q", got, want)
	}
}

// TestOfferChanges pins that clients hear of changes of prompts and resources, each of its own kind.
func TestOfferChanges(t *testing.T) {
	for _, d := range doors {
		if d.version == "2026-07-28" || !d.stdio && !d.session || d.sdkOnly {
			continue // TestListen, and nothing
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel() // the catalog looks at files once a second
			heard := make(chan string, 100)
			cat, write := fileCatalog(t, libraryProto)
			l := newLibrary(t, func(c *mcpadapter.Config) { c.Catalog, c.Sessions = cat, d.session })
			c := l.connect(d, &mcp.ClientOptions{
				ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { heard <- "tools" },
				PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { heard <- "prompts" },
				ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { heard <- "resources" },
			})
			if i := c.InitializeResult().Capabilities; !i.Prompts.ListChanged || !i.Resources.ListChanged || !i.Resources.Subscribe || i.Completions == nil {
				t.Errorf("capabilities = %+v", i)
			}
			other := strings.Replace(libraryProto, "Asks for a review", "Wants a review", 1)
			write(other)
			if got := await(t, "a change", heard); got != "prompts" {
				t.Errorf("heard of %s", got)
			}
			write(strings.Replace(other, `pattern: "motto"`, `pattern: "mottos"`, 1))
			if got := await(t, "a change", heard); got != "resources" {
				t.Errorf("heard of %s", got)
			}
		})
	}
}

// fileCatalog opens a catalog of a contract in a file, and returns what rewrites that.
func fileCatalog(t *testing.T, source string) (*catalog.Catalog, func(source string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "library.binpb")
	write := func(source string) {
		t.Helper()
		raw, err := proto.Marshal(compile(t, source))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(source)
	cat, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{{Name: "library", Sources: []catalog.Source{catalog.File(path)}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cat.Close(); err != nil {
			t.Error(err)
		}
	})
	return cat, write
}

// TestListen pins what subscriptions/listen acknowledges and tells, over both transports.
func TestListen(t *testing.T) {
	const filter = `{"jsonrpc":"2.0","id":9007199254740993,"method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,"resourceSubscriptions":["pictures://cover","grpc://library.example.com/motto",` +
		`"grpc://library.example.com/shelves/a/books/secret","x:y","pictures://cover"]},` + modernMeta + `}}`
	const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993}`
	play := func(t *testing.T, l *library, write func(string), next func() string) {
		if got, want := next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+meta+`,"notifications":{"promptsListChanged":true,"resourceSubscriptions":["pictures://cover"]}}}`; got != want {
			t.Errorf("acknowledgement = %s, want %s", got, want)
		}
		await(t, "the stream at the backend", l.watching)
		for range 2 {
			l.change("")
			if got, want := next(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{`+meta+`,"uri":"pictures://cover"}}`; got != want {
				t.Errorf("update = %s, want %s", got, want)
			}
		}
		write(strings.Replace(libraryProto, `{name: "hello" messages: {text: "Hello."}}`, `{name: "hi" messages: {text: "Hi."}}`, 1))
		if got, want := next(), `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{`+meta+`}}`; got != want {
			t.Errorf("change = %s, want %s", got, want)
		}
	}
	t.Run("http", func(t *testing.T) {
		cat, write := fileCatalog(t, libraryProto)
		l := newLibrary(t, func(c *mcpadapter.Config) { c.Catalog = cat })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res := post(ctx, t, l.serve(), filter, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		play(t, l, write, func() string {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					return data
				}
			}
			t.Fatal("the stream ended")
			return ""
		})
		cancel()
		await(t, "the end of the stream", l.released)
	})
	t.Run("stdio", func(t *testing.T) {
		cat, write := fileCatalog(t, libraryProto)
		l := newLibrary(t, func(c *mcpadapter.Config) { c.Catalog = cat })
		in, out, wait := l.pipe(t.Context())
		lines := bufio.NewScanner(out)
		if _, err := io.WriteString(in, filter+"\n"); err != nil {
			t.Fatal(err)
		}
		play(t, l, write, func() string {
			if !lines.Scan() {
				t.Fatal("the output ended")
			}
			return lines.Text()
		})
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			continue
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
		await(t, "the end of the stream", l.released)
	})
}

// TestOfferPages pins that lists of templates and prompts come in pages.
func TestOfferPages(t *testing.T) {
	l := newLibrary(t, func(c *mcpadapter.Config) { c.PageTools = 1 })
	c := l.connect(doors[1], nil)
	var got []string
	for cursor := ""; ; {
		res, err := c.ListPrompts(t.Context(), &mcp.ListPromptsParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, res.Prompts[0].Name)
		if cursor = res.NextCursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"hello", "review"}) {
		t.Errorf("prompts = %q", got)
	}
	if _, err := c.ListPrompts(t.Context(), &mcp.ListPromptsParams{Cursor: "x"}); codeOf(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("made-up cursor: %v", err)
	}
}
