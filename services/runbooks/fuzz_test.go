package runbooks_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/runbooks"
)

// Any file makes a runbook with a title that can be sent, and any words can be searched for in it.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		"# a\n", "---\ntitle: a\nservices: [b]\n---\nc", "---\n", "---\n---\n", "---\na: &a [*a]\n---\n", "---\n? !!binary x\n: y\n---\n", "\xff\xfe", "```\n# x", "- **[a](b)** `c`\n",
		"---\na: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nservices: [*c,*c]\n---\n", "---\ntitle: !!float x\n---\n", "---\n<<: {title: a}\n---\n",
	} {
		f.Add([]byte(seed), "a b")
	}
	f.Fuzz(func(t *testing.T, file []byte, words string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.md"), file, 0o644); err != nil {
			t.Fatal(err)
		}
		library, err := runbooks.Open(dir, runbooks.Options{Poll: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = library.Close() }()
		server := runbooks.NewServer(library, nil)
		got, err := server.GetRunbook(t.Context(), &runbooksv1.GetRunbookRequest{Name: "runbooks/x"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proto.Marshal(got); err != nil || got.Title == "" {
			t.Errorf("runbook of %q = %v, %v", file, got, err)
		}
		resp, err := server.SearchRunbooks(t.Context(), &runbooksv1.SearchRunbooksRequest{Query: words})
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Errorf("SearchRunbooks(%q) in %q = %v", words, file, err)
		}
		for _, m := range resp.GetMatches() {
			for _, p := range m.Passages {
				if len(p) > 300 || !utf8.ValidString(p) || p == "" {
					t.Errorf("passage of %q = %q", file, p)
				}
			}
		}
	})
}
