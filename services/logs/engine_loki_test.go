package logs_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

func openLoki(t *testing.T, url string, options logs.LokiOptions) *logs.Loki {
	t.Helper()
	options.Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if options.Settle == 0 {
		options.Settle, options.Poll = 50*time.Millisecond, 10*time.Millisecond
	}
	engine, err := logs.NewLoki(url, options)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// What the driver asks Loki finds what the same query finds in the embedded engine, whose language it is.
func TestLokiQueriesMeanTheSame(t *testing.T) {
	_, url := startLoki(t)
	loki, _ := start(t, openLoki(t, url, logs.LokiOptions{}), logs.Options{})
	embedded, _ := start(t, openEmbedded(t), logs.Options{})
	at := time.Now().Add(-time.Minute)
	lines := []*logsv1.LogEntry{
		entry(at, "connection refused by orders", "service", "orders", "level", "ERROR"),
		entry(at.Add(1), "request done", "service", "orders", "level", "INFO", "status", "200"),
		entry(at.Add(2), "request done late", "service", "carts", "level", "WARN", "status", "503", "path", "/v1/carts/7"),
		entry(at.Add(3), "Refused; nothing_done (x.y) 100% \"quoted\"", "service", "carts-eu", "level", "ERROR", "path", "/v1"),
		entry(at.Add(4), "größer als\nzwei Zeilen done", "service", "übersicht"),
		entry(at.Add(5), "done", "level", "info ERROR"),
	}
	for _, client := range []logsv1.LogServiceClient{loki, embedded} {
		if got := ingest(t, client, lines...); got.Accepted != int64(len(lines)) {
			t.Fatalf("summary = %v", got)
		}
	}
	for _, query := range []string{
		"", "*", "done", "refused", "Refused", "done late", "done and late", "request done", `"request done"`, `"done request"`, "reques*", "request*", "nothing", "nothing_done", "x.y", `"100%"`,
		"größer", "zwei", "level:ERROR", "level:info", "level:=ERROR", "level:E*", `level:="info ERROR"`, "service:carts", "service:=carts", "service:carts*", "-service:carts", "service:*", `service:""`, "status:*",
		"!status:*", "not done", "-done", "not (done or refused)", "done or refused", "level:ERROR or level:WARN", "level:ERROR or status:503", "done (level:WARN or level:INFO)", "done not level:WARN",
		"not (level:ERROR or status:503)", "(level:ERROR service:orders) or status:503", "not (level:ERROR and service:orders)", `~"ref[a-z]+d"`, `"refused" or "late"`, `level:~"^IN"`, `path:"/v1/carts"`, `path:~"carts/\\d"`,
		`_msg:done`, `_msg:"request done"`, `"\"quoted\""`, "`request done`", `'request done'`, "NOT done", "done AND request", "done AND NOT late", "order", "-service:orders -level:ERROR", `"done"*`,
	} {
		req := &logsv1.SearchLogsRequest{Query: query, StartTime: timestamppb.New(at.Add(-time.Second)), EndTime: timestamppb.New(at.Add(time.Second)), Order: logsv1.Order_ORDER_OLDEST_FIRST}
		want, err := embedded.SearchLogs(within(t), req)
		if err != nil {
			t.Fatalf("embedded: %q: %v", query, err)
		}
		got, err := loki.SearchLogs(within(t), req)
		if err != nil {
			t.Errorf("Loki: %q: %v", query, err)
			continue
		}
		if g, w := messages(got.Entries), messages(want.Entries); !slices.Equal(g, w) {
			t.Errorf("Loki: %q = %q, embedded %q", query, g, w)
		}
	}
}

func TestLokiQueriesRefused(t *testing.T) {
	_, url := startLoki(t)
	client, _ := start(t, openLoki(t, url, logs.LokiOptions{}), logs.Options{})
	for query, want := range map[string]string{
		"level:ERROR or refused":          "in two searches (at byte 0)",
		"a (refused or level:ERROR)":      "in two searches (at byte 3)",
		"a or (b c)":                      "in two searches (at byte 0)",
		"refused | stats count()":         "pipes are not served here, only filters (at byte 8)",
		"status:>=500":                    `'>' is not served on Loki here`,
		"level:in(ERROR, WARN)":           `in(…) is not served on Loki; words, phrases, prefixes`,
		"_time:5m":                        "use start_time and end_time (at byte 0)",
		"_stream:{a=\"b\"}":               "cannot be asked of Loki",
		"level:(":                         "'(' is not served on Loki here",
		"(a":                              "missing ) (at byte 2)",
		"a)":                              "')' is not expected here (at byte 1)",
		"a and":                           "ends where a condition is expected (at byte 5)",
		"level:":                          "ends where a value is expected (at byte 6)",
		`level:~"["`:                      "missing closing ]: `[` (at byte 7)",
		`"open`:                           "the quotation has no end (at byte 0)",
		`"bad \z"`:                        "an escape that is not known (at byte 0)",
		`"byte \x86"`:                     "the quotation is not UTF-8, as all that Loki keeps is (at byte 0)",
		`level:~"\\Q("`:                   "end each \\Q with \\E, and do not nest so deep (at byte 7)",
		"not *":                           "leave it out (at byte 4)",
		`a ""`:                            "fits nothing; leave it out (at byte 2)",
		"=done":                           "not served on Loki here",
		strings.Repeat("(", 40) + "a":     "over 32 deep",
		strings.Repeat("a ", 2049):        "4098 bytes",
		"level:ERROR and {app=\"other\"}": "not served on Loki here",
	} {
		_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: query})
		if codeOf(err) != codes.InvalidArgument {
			t.Errorf("%q: %v, want INVALID_ARGUMENT", query, err)
			continue
		}
		bad, _ := detail[*errdetails.BadRequest](err)
		if len(bad.GetFieldViolations()) != 1 || bad.FieldViolations[0].Field != "query" || !strings.Contains(bad.FieldViolations[0].Description, want) {
			t.Errorf("%q: violations = %v, want query with %q", query, bad, want)
		}
		stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{Query: query})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ended(stream)
		wantCode(t, err, codes.InvalidArgument)
	}
}

// No query reaches out of the streams that are served, whatever is in its texts.
func FuzzLokiCompile(f *testing.F) {
	for _, seed := range []string{"a", `"} or {x=\"y\"}"`, "a:b or c:=d", "not (a:~\"x\")", "`|`", "'\\''", "a:\"\\u0000\"", "-!not a", "a:*", "(((", "\xff", "ß:ß*", "`\x86`", `a:"\x86"`, "a:~`\\Q(`", "~`\\Qb` or ~`c`", "a:~`\\Q(\\E`"} {
		f.Add(seed)
	}
	engine, err := logs.NewLoki("http://loki", logs.LokiOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		text, err := engine.Compile(query)
		if err != nil {
			return
		}
		if _, err := parseFakeLogQL(text); err != nil || !strings.HasPrefix(text, `{service_name=~".+"`) {
			t.Errorf("Compile(%q) = %s, which is not what the driver writes: %v", query, text, err)
		}
	})
}

func TestLokiPagesAndTails(t *testing.T) {
	fake, url := startLoki(t)
	client, _ := start(t, openLoki(t, url, logs.LokiOptions{Tenant: "shop", Retention: logs.DefaultRetention}), logs.Options{})
	fake.mu.Lock()
	fake.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Scope-OrgID") != "shop" {
			t.Errorf("X-Scope-OrgID = %q, want shop", r.Header.Get("X-Scope-OrgID"))
		}
		return false
	}
	base := time.Now().Add(-20 * time.Minute)
	// Another producer's entries, some of one time.
	for i := range 9 {
		fake.add(fakeEntry{base.UnixNano(), fmt.Sprintf("f%02d", i), map[string]string{"service_name": "foreign", "kind": "foreign", "detected_level": "info"}})
	}
	fake.mu.Unlock()
	const count = 40
	var entries []*logsv1.LogEntry
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("e%02d", i))
		entries = append(entries, entry(base.Add(time.Duration(i/7)*time.Second), want[i], "kind", "counted", "service", "orders", "http.status", "200", "http_status", "201"))
	}
	if summary := ingest(t, client, entries...); summary.Accepted != count {
		t.Fatalf("summary = %v", summary)
	}
	for _, order := range []logsv1.Order{logsv1.Order_ORDER_OLDEST_FIRST, logsv1.Order_ORDER_NEWEST_FIRST} {
		for _, size := range []int32{3, 39, 40} {
			got := messages(slices.Concat(searchAll(t, client, &logsv1.SearchLogsRequest{Query: "kind:counted", Order: order, PageSize: size}, nil)...))
			if order == logsv1.Order_ORDER_NEWEST_FIRST {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v by %d = %q, want %q", order, size, got, want)
			}
		}
	}
	got := messages(slices.Concat(searchAll(t, client, &logsv1.SearchLogsRequest{Query: "kind:foreign", PageSize: 4}, nil)...))
	if slices.Sort(got); len(got) != 9 || len(slices.Compact(slices.Clone(got))) != 9 {
		t.Errorf("foreign entries = %q, want 9 different ones", got)
	}
	resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: "f00 or e39", Order: logsv1.Order_ORDER_OLDEST_FIRST})
	if err != nil || len(resp.Entries) != 2 {
		t.Fatalf("entries = %v, %v", resp, err)
	}
	if f := resp.Entries[0].Fields; f["service"] != "foreign" || len(f) != 2 {
		t.Errorf("fields of a foreign entry = %v, want its service, and nothing of Loki's own", f)
	}
	if f := resp.Entries[1].Fields; f["service"] != "orders" || f["http_status"] != "200" || f["http_status_"] != "201" || len(f) != 4 {
		t.Errorf("fields = %v, want those that were sent, by Loki's names", f)
	}

	req := &logsv1.TailLogsRequest{Query: "kind:counted", StartTime: timestamppb.New(base)}
	got = nil
	for len(got) < count {
		for _, msg := range tail(t, client, req, min(11, count-len(got))) {
			got = append(got, msg.Entry.Message)
			req = &logsv1.TailLogsRequest{Query: "kind:counted", Cursor: msg.Cursor}
		}
	}
	ingest(t, client, entry(time.Now(), "live", "kind", "counted"))
	got = append(got, tail(t, client, req, 1)[0].Entry.Message)
	if !slices.Equal(got, append(slices.Clone(want), "live")) {
		t.Errorf("tail = %q", got)
	}
}

// The texts are those of Loki's documents and of its code's limits.
func TestLokiErrors(t *testing.T) {
	fake, url := startLoki(t)
	client, _ := start(t, openLoki(t, url, logs.LokiOptions{}), logs.Options{})
	search := func() error {
		_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
		return err
	}
	answer := func(code int, text string) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		fake.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			_, _ = fmt.Fprintln(w, text)
			return true
		}
	}
	answer(http.StatusBadRequest, "the query time range exceeds the limit (query length: 744h0m0s, limit: 721h)")
	err := search()
	wantCode(t, err, codes.InvalidArgument)
	if !strings.Contains(err.Error(), "limit: 721h") {
		t.Errorf("error = %v, want Loki's limit", err)
	}
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable} {
		answer(code, "too many outstanding requests")
		err := search()
		wantCode(t, err, codes.Unavailable)
		if _, ok := detail[*errdetails.RetryInfo](err); !ok {
			t.Errorf("no RetryInfo in %v", err)
		}
	}
	answer(http.StatusUnauthorized, "no org id")
	err = search()
	wantCode(t, err, codes.Internal)
	if strings.Contains(err.Error(), "org id") {
		t.Errorf("error = %v tells what is the operator's", err)
	}
	for _, text := range []string{"", "{", "[]", `{"status":"success","data":{"resultType":"matrix","result":[]}}`, `{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[["x","y"]]}]}}`, `{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[["1"]]}]}}`} {
		answer(http.StatusOK, text)
		if code := codeOf(search()); code != codes.Internal && code != codes.Unavailable {
			t.Errorf("answer %q = %v, want an error", text, code)
		}
	}
	answer(http.StatusBadRequest, "entry for stream '{service=\"a\"}' has timestamp too old: 2026-01-01T00:00:00Z, oldest acceptable timestamp is: 2026-01-08T00:00:00Z")
	stream, err := client.IngestLogs(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&logsv1.IngestLogsRequest{Entries: []*logsv1.LogEntry{entry(time.Now(), "m")}})
	_, err = stream.CloseAndRecv()
	wantCode(t, err, codes.FailedPrecondition)
	wantInfo(t, err, "ENTRIES_REFUSED")
}

// A server whose own limit of entries is reached by entries of one time cannot be paged through, and says so instead of losing some.
func TestLokiTies(t *testing.T) {
	fake, url := startLoki(t)
	client, _ := start(t, openLoki(t, url, logs.LokiOptions{}), logs.Options{})
	at := time.Now().Add(-time.Minute)
	fake.mu.Lock()
	for i := range 5001 {
		fake.entries = append(fake.entries, fakeEntry{at.UnixNano(), "e" + strconv.Itoa(i), map[string]string{"service_name": "s"}})
	}
	fake.mu.Unlock()
	_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	wantCode(t, err, codes.InvalidArgument)
	if !strings.Contains(err.Error(), "narrow the query") {
		t.Errorf("error = %v, want the mend", err)
	}
}

func TestLokiUnreachable(t *testing.T) {
	client, _ := start(t, openLoki(t, "http://127.0.0.1:1", logs.LokiOptions{}), logs.Options{})
	_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	wantCode(t, err, codes.Unavailable)
	wantInfo(t, err, "STORE_UNAVAILABLE")
}

// A caller who leaves ends the request at Loki.
func TestLokiCancelled(t *testing.T) {
	fake, url := startLoki(t)
	client, _ := start(t, openLoki(t, url, logs.LokiOptions{}), logs.Options{SearchTimeout: 50 * time.Millisecond})
	left := make(chan struct{})
	fake.mu.Lock()
	fake.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		close(left)
		return true
	}
	fake.mu.Unlock()
	_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	wantCode(t, err, codes.DeadlineExceeded)
	select {
	case <-left:
	case <-within(t).Done():
		t.Error("the request goes on at Loki")
	}
}

func TestLokiURL(t *testing.T) {
	for _, bad := range []string{"", "loki:3100", "ftp://loki", "http://", ":"} {
		if _, err := logs.NewLoki(bad, logs.LokiOptions{}); err == nil {
			t.Errorf("NewLoki(%q) = nil error, want one", bad)
		}
	}
}
