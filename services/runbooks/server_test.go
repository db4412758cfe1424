package runbooks_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/runbooks"
)

func TestGetRefuses(t *testing.T) {
	client, _ := start(t, folder(t, "a.md", "a"), runbooks.Options{})
	for _, bad := range []string{"", "a", "runbooks/", "runbooks/-", "runbooks/a/b", "runbooks/../a", "runbooks/" + strings.Repeat("a", 201), "Runbooks/a"} {
		_, err := client.GetRunbook(within(t), &runbooksv1.GetRunbookRequest{Name: bad})
		wantField(t, err, "name", "is no runbook's name")
	}
	_, err := client.GetRunbook(within(t), &runbooksv1.GetRunbookRequest{Name: "runbooks/b"})
	wantCode(t, err, codes.NotFound)
	resource, _ := detail[*errdetails.ResourceInfo](err)
	info, _ := detail[*errdetails.ErrorInfo](err)
	if resource.GetResourceName() != "runbooks/b" || info.GetReason() != "RUNBOOK_NOT_FOUND" {
		t.Errorf("details = %v, %v, want the name and a reason", resource, info)
	}
}

func TestListPages(t *testing.T) {
	var files, want []string
	for i := range 25 {
		name := fmt.Sprintf("r%02d", i)
		files, want = append(files, name+".md", "content"), append(want, name)
	}
	dir := folder(t, files...)
	client, _ := start(t, dir, runbooks.Options{})
	for _, size := range []int32{1, 7, 24, 25, 26, 0} {
		var got []string
		req := &runbooksv1.ListRunbooksRequest{PageSize: size}
		for {
			resp, err := client.ListRunbooks(within(t), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range resp.Runbooks {
				if r.Content != "" || r.Etag == "" || r.Title == "" {
					t.Fatalf("listed %v, want no content", r)
				}
				got = append(got, strings.TrimPrefix(r.Name, "runbooks/"))
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d = %q, want %q", size, got, want)
		}
	}
	// A page goes on at its place after the runbook that it ended with has gone.
	first, err := client.ListRunbooks(within(t), &runbooksv1.ListRunbooksRequest{PageSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "r02.md")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return len(names(t, client)) == 24 })
	second, err := client.ListRunbooks(within(t), &runbooksv1.ListRunbooksRequest{PageSize: 1, PageToken: first.NextPageToken})
	if err != nil || second.Runbooks[0].Name != "runbooks/r03" {
		t.Errorf("second page = %v, %v, want r03", second, err)
	}
	for _, size := range []int32{-1, 1001} {
		_, err = client.ListRunbooks(within(t), &runbooksv1.ListRunbooksRequest{PageSize: size})
		wantField(t, err, "page_size", "0 to 1000")
	}
	for _, token := range []string{"x", "bg", "cHh4", "////"} {
		_, err = client.ListRunbooks(within(t), &runbooksv1.ListRunbooksRequest{PageToken: token})
		wantField(t, err, "page_token", "next_page_token")
	}
}

func TestSearch(t *testing.T) {
	client, _ := start(t, folder(t,
		"checkout-latency.md", "---\ntitle: Checkout is slow\nservices: [checkout]\nalerts: [CheckoutLatencyHigh]\n---\n# Checkout is slow\n\n- Look at the **p99** of `payment` too.\n- Restarting helps once.\n",
		"payment-refused.md", "---\ntitle: Payments are refused\nservices: [payment]\ntags: [cards]\n---\nThe card processor may be down.\n\nCheckout shows an error then.\n",
		"disk-full.md", "---\ntitle: Disk full\n---\n"+strings.Repeat("Filler words stand here. ", 40)+"Delete the old exports of inventory first. "+strings.Repeat("More filler words. ", 40)+"\n",
	), runbooks.Options{})
	tests := []struct {
		name     string
		req      *runbooksv1.SearchRunbooksRequest
		want     []string
		passages []string // of the first; nil says nothing
	}{
		{"title first", &runbooksv1.SearchRunbooksRequest{Query: "slow checkout"}, []string{"checkout-latency", "payment-refused"}, []string{"Checkout is slow"}},
		{"stems", &runbooksv1.SearchRunbooksRequest{Query: "restarted"}, []string{"checkout-latency"}, []string{"Restarting helps once."}},
		{"alert", &runbooksv1.SearchRunbooksRequest{Query: "CheckoutLatencyHigh"}, []string{"checkout-latency", "payment-refused"}, nil},
		{"word of an alert", &runbooksv1.SearchRunbooksRequest{Query: "latency"}, []string{"checkout-latency"}, []string{}},
		{"tag", &runbooksv1.SearchRunbooksRequest{Query: "cards"}, []string{"payment-refused"}, nil},
		{"plain text", &runbooksv1.SearchRunbooksRequest{Query: "p99"}, []string{"checkout-latency"}, []string{"Look at the p99 of payment too."}},
		{"of a service, and those of none", &runbooksv1.SearchRunbooksRequest{Query: "checkout inventory", Service: "payment"}, []string{"payment-refused", "disk-full"}, nil},
		{"of an unknown service", &runbooksv1.SearchRunbooksRequest{Query: "checkout disk", Service: "unknown"}, []string{"disk-full"}, nil},
		{"misspelt", &runbooksv1.SearchRunbooksRequest{Query: "chekout"}, []string{"checkout-latency", "payment-refused"}, nil},
		{"limit", &runbooksv1.SearchRunbooksRequest{Query: "checkout", Limit: 1}, []string{"checkout-latency"}, nil},
		{"nothing", &runbooksv1.SearchRunbooksRequest{Query: "zebra"}, nil, nil},
		{"signs", &runbooksv1.SearchRunbooksRequest{Query: `"(*:~ --`}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp, err := client.SearchRunbooks(within(t), test.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, m := range resp.Matches {
				got = append(got, strings.TrimPrefix(m.Runbook.Name, "runbooks/"))
				if m.Runbook.Content != "" || m.Runbook.Etag == "" {
					t.Errorf("match %v, want no content", m.Runbook)
				}
				if i == 0 && m.Score != 1 || m.Score <= 0 || m.Score > 1 {
					t.Errorf("score %d = %v, want 1 for the best and less for the others", i, m.Score)
				}
			}
			if slices.Sort(got[min(1, len(got)):]); !slices.Equal(got, test.want) {
				t.Fatalf("SearchRunbooks(%v) = %q, want %q", test.req, got, test.want)
			}
			if test.passages != nil && !slices.Equal(resp.Matches[0].Passages, test.passages) {
				t.Errorf("passages = %q, want %q", resp.Matches[0].Passages, test.passages)
			}
		})
	}
	resp, err := client.SearchRunbooks(within(t), &runbooksv1.SearchRunbooksRequest{Query: "exports"})
	if err != nil || len(resp.Matches) != 1 || len(resp.Matches[0].Passages) != 1 {
		t.Fatalf("a word in a long line: %v, %v", resp, err)
	}
	if p := resp.Matches[0].Passages[0]; len(p) > 300 || !strings.Contains(p, "Delete the old exports of inventory first.") || !strings.HasPrefix(p, "…") || !strings.HasSuffix(p, "…") {
		t.Errorf("passage = %q, want the place in the line", p)
	}
}

func TestSearchFollowsChanges(t *testing.T) {
	dir := folder(t, "a.md", "about zebras\n")
	client, _ := start(t, dir, runbooks.Options{})
	found := func(word string) []string {
		resp, err := client.SearchRunbooks(within(t), &runbooksv1.SearchRunbooksRequest{Query: word})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range resp.Matches {
			out = append(out, m.Runbook.Name+": "+strings.Join(m.Passages, "|"))
		}
		return out
	}
	if got := found("zebra"); !slices.Equal(got, []string{"runbooks/a: about zebras"}) {
		t.Fatalf("found %q", got)
	}
	write(t, dir, "a.md", "short\nand an elephant at the end\n")
	eventually(t, "the new text is found", func() bool {
		return slices.Equal(found("elephant"), []string{"runbooks/a: and an elephant at the end"})
	})
	if got := found("zebra"); len(got) != 0 {
		t.Errorf("the old text is found still: %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "a.md")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is found", func() bool { return len(found("elephant")) == 0 })
}

func TestSearchRefuses(t *testing.T) {
	client, _ := start(t, folder(t, "a.md", "a"), runbooks.Options{})
	for _, test := range []struct {
		req         *runbooksv1.SearchRunbooksRequest
		field, text string
	}{
		{&runbooksv1.SearchRunbooksRequest{}, "query", "is empty"},
		{&runbooksv1.SearchRunbooksRequest{Query: " \n"}, "query", "is empty"},
		{&runbooksv1.SearchRunbooksRequest{Query: strings.Repeat("a ", 257)}, "query", "514 bytes"},
		{&runbooksv1.SearchRunbooksRequest{Query: "a", Limit: 51}, "limit", "0 to 50"},
		{&runbooksv1.SearchRunbooksRequest{Query: "a", Limit: -1}, "limit", "0 to 50"},
		{&runbooksv1.SearchRunbooksRequest{Query: "a", Service: strings.Repeat("s", 201)}, "service", "201 bytes"},
	} {
		_, err := client.SearchRunbooks(within(t), test.req)
		wantField(t, err, test.field, test.text)
	}
}

// watch begins to watch, and returns when nothing is missed any more.
func watch(t *testing.T, client runbooksv1.RunbookServiceClient, req *runbooksv1.WatchRunbooksRequest) grpc.ServerStreamingClient[runbooksv1.WatchRunbooksResponse] {
	t.Helper()
	stream, err := client.WatchRunbooks(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	return stream
}

func wantChange(t *testing.T, stream grpc.ServerStreamingClient[runbooksv1.WatchRunbooksResponse], name string, change runbooksv1.WatchRunbooksResponse_Change) string {
	t.Helper()
	msg, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if msg.Name != "runbooks/"+name || msg.Change != change || (msg.Etag == "") != (change == runbooksv1.WatchRunbooksResponse_CHANGE_REMOVED) {
		t.Fatalf("change = %v, want %v of %q", msg, change, name)
	}
	return msg.Etag
}

const (
	written = runbooksv1.WatchRunbooksResponse_CHANGE_WRITTEN
	removed = runbooksv1.WatchRunbooksResponse_CHANGE_REMOVED
)

func TestWatch(t *testing.T) {
	dir := folder(t, "a.md", "one", "b.md", "b")
	client, service := start(t, dir, runbooks.Options{})
	all := watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/-"})
	one := watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/a"})
	later := watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/c"})

	write(t, dir, "a.md", "two, which is longer")
	etag := wantChange(t, all, "a", written)
	if got := wantChange(t, one, "a", written); got != etag || get(t, client, "a").Etag != etag {
		t.Errorf("etags = %q, %q, %q; want what is read after the message", got, etag, get(t, client, "a").Etag)
	}
	write(t, dir, "c.md", "c")
	wantChange(t, all, "c", written)
	wantChange(t, later, "c", written)
	if err := os.Remove(filepath.Join(dir, "a.md")); err != nil {
		t.Fatal(err)
	}
	wantChange(t, all, "a", removed)
	wantChange(t, one, "a", removed)

	service.Drain()
	for _, stream := range []grpc.ServerStreamingClient[runbooksv1.WatchRunbooksResponse]{all, one, later} {
		_, err := stream.Recv()
		wantCode(t, err, codes.Unavailable)
		if retry, ok := detail[*errdetails.RetryInfo](err); !ok || retry.RetryDelay.AsDuration() <= 0 {
			t.Errorf("RetryInfo = %v, want a delay", retry)
		}
	}
}

// Whoever gives the etag it has learns at once of what it missed, and of nothing that it has.
func TestWatchGoesOn(t *testing.T) {
	dir := folder(t, "a.md", "one")
	client, _ := start(t, dir, runbooks.Options{})
	old := get(t, client, "a").Etag
	write(t, dir, "a.md", "two, which is longer")
	eventually(t, "the change is served", func() bool { return get(t, client, "a").Etag != old })
	now := wantChange(t, watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/a", Etag: old}), "a", written)

	same := watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/a", Etag: now})
	if err := os.Remove(filepath.Join(dir, "a.md")); err != nil {
		t.Fatal(err)
	}
	wantChange(t, same, "a", removed)
	wantChange(t, watch(t, client, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/a", Etag: now}), "a", removed)
}

func TestWatchRefuses(t *testing.T) {
	client, _ := start(t, folder(t, "a.md", "a"), runbooks.Options{})
	for _, test := range []struct {
		req         *runbooksv1.WatchRunbooksRequest
		field, text string
	}{
		{&runbooksv1.WatchRunbooksRequest{}, "name", "is no runbook's name"},
		{&runbooksv1.WatchRunbooksRequest{Name: "runbooks/a/b"}, "name", "is no runbook's name"},
		{&runbooksv1.WatchRunbooksRequest{Name: "runbooks/-", Etag: "x"}, "etag", "list once the stream stands"},
	} {
		stream, err := client.WatchRunbooks(within(t), test.req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); errors.Is(err, io.EOF) {
			t.Fatal("stream ended well")
		}
		wantField(t, err, test.field, test.text)
	}
}

// The sample runbooks are read without a warning, refer to files that exist, and answer what people would ask.
func TestSamples(t *testing.T) {
	if warnings := open(t, "samples", runbooks.Options{}).Warnings(); len(warnings) > 0 {
		t.Errorf("warnings = %v", warnings)
	}
	client, _ := start(t, "samples", runbooks.Options{})
	for query, want := range map[string]string{
		"CheckoutLatencyHigh":                "checkout-latency",
		"checkout is slow since the deploy":  "checkout-latency",
		"5xx errors began after a rollout":   "error-rate-after-deploy",
		"payment pool exhausted leak memory": "pool-exhausted",
		"memory leak in checkout":            "memory-growth",
		"no space left on device":            "disk-full",
		"payment: connection refused":        "dependency-down",
		"resident memory grows, OOM killed":  "memory-growth",
		"circuit open, dependency times out": "dependency-down",
	} {
		resp, err := client.SearchRunbooks(within(t), &runbooksv1.SearchRunbooksRequest{Query: query, Limit: 2})
		if err != nil || len(resp.Matches) == 0 || resp.Matches[0].Runbook.Name != "runbooks/"+want {
			t.Errorf("SearchRunbooks(%q) = %v, %v; want %s first", query, resp, err, want)
		}
	}
	for _, name := range names(t, client) {
		content := get(t, client, name).Content
		for _, part := range strings.Split(content, "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			if _, err := os.Stat(filepath.Join("samples", target)); err != nil {
				t.Errorf("%s refers to %q: %v", name, target, err)
			}
		}
	}
}
