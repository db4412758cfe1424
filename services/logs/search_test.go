package logs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

func TestSearchFinds(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	summary := ingest(t, client,
		entry(now.Add(-2*time.Hour), "too old for the default range", "level", "INFO"),
		entry(now.Add(-3*time.Minute), "connection refused by orders", "level", "ERROR", "service", "orders"),
		entry(now.Add(-2*time.Minute), "request done", "level", "INFO", "service", "orders", "http.status", "200"),
		entry(now.Add(-1*time.Minute), "request done", "level", "INFO", "service", "carts", "http.status", "503"),
	)
	if summary.Accepted != 4 || summary.Rejected != 0 {
		t.Fatalf("summary = %v, want 4 accepted", summary)
	}
	tests := []struct {
		name string
		req  *logsv1.SearchLogsRequest
		want []string
	}{
		{"everything in the last hour", &logsv1.SearchLogsRequest{}, []string{"request done", "request done", "connection refused by orders"}},
		{"words", &logsv1.SearchLogsRequest{Query: "refused"}, []string{"connection refused by orders"}},
		{"field", &logsv1.SearchLogsRequest{Query: "level:INFO and http.status:>=500"}, []string{"request done"}},
		{"or", &logsv1.SearchLogsRequest{Query: "service:carts or refused"}, []string{"request done", "connection refused by orders"}},
		{"relative time", &logsv1.SearchLogsRequest{Query: "_time:150s"}, []string{"request done", "request done"}},
		{"subquery", &logsv1.SearchLogsRequest{Query: "service:in(refused | fields service)"}, []string{"request done", "connection refused by orders"}},
		{"nothing", &logsv1.SearchLogsRequest{Query: "absent"}, []string{}},
		{"oldest first", &logsv1.SearchLogsRequest{Query: "service:orders", Order: logsv1.Order_ORDER_OLDEST_FIRST}, []string{"connection refused by orders", "request done"}},
		{"explicit range", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now.Add(-3 * time.Hour)), EndTime: timestamppb.New(now.Add(-time.Hour))}, []string{"too old for the default range"}},
		{"end alone", &logsv1.SearchLogsRequest{EndTime: timestamppb.New(now.Add(-90 * time.Minute))}, []string{"too old for the default range"}},
		{"start is inclusive, end exclusive", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now.Add(-3 * time.Minute)), EndTime: timestamppb.New(now.Add(-2 * time.Minute))}, []string{"connection refused by orders"}},
		{"empty range", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now), EndTime: timestamppb.New(now)}, []string{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp, err := client.SearchLogs(within(t), test.req)
			if err != nil {
				t.Fatal(err)
			}
			if got := messages(resp.Entries); !slices.Equal(got, test.want) {
				t.Errorf("SearchLogs(%v) = %q, want %q", test.req, got, test.want)
			}
		})
	}
	resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: "service:carts"})
	if err != nil {
		t.Fatal(err)
	}
	got := resp.Entries[0]
	if want := now.Add(-time.Minute); !got.Time.AsTime().Equal(want) {
		t.Errorf("time = %v, want %v to the nanosecond", got.Time.AsTime(), want)
	}
	if got.Fields["http.status"] != "503" || got.Fields["service"] != "carts" || len(got.Fields) != 3 {
		t.Errorf("fields = %v, want those that were ingested and no others", got.Fields)
	}
}

// Pages of any size hold every entry once, in order, where many entries share one time and others arrive between pages.
func TestSearchPages(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	base := time.Now().Add(-30 * time.Minute)
	const count = 60
	var entries []*logsv1.LogEntry
	for i := range count {
		// Runs of seven entries share one time.
		entries = append(entries, entry(base.Add(time.Duration(i/7)*time.Second), fmt.Sprintf("e%02d", i), "kind", "counted"))
	}
	ingest(t, client, entries...)
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("e%02d", i))
	}
	for _, order := range []logsv1.Order{logsv1.Order_ORDER_OLDEST_FIRST, logsv1.Order_ORDER_NEWEST_FIRST} {
		for _, size := range []int32{1, 3, 7, 10, 59, 60, 61, 1000} {
			t.Run(fmt.Sprintf("%v by %d", order, size), func(t *testing.T) {
				noise := 0
				pages := searchAll(t, client, &logsv1.SearchLogsRequest{Query: "kind:counted", Order: order, PageSize: size}, func() {
					noise++
					if noise%8 == 1 {
						ingest(t, client, entry(time.Now(), "arrives meanwhile", "kind", "counted"))
					}
				})
				var got []string
				for i, page := range pages {
					if len(page) > int(size) {
						t.Errorf("page %d has %d entries, want at most %d", i, len(page), size)
					}
					got = append(got, messages(page)...)
				}
				got = slices.DeleteFunc(got, func(m string) bool { return m == "arrives meanwhile" })
				if order == logsv1.Order_ORDER_NEWEST_FIRST {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("pages = %q, want %q", got, want)
				}
			})
		}
	}
}

func TestSearchPageEndsBySize(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	for i := range 12 {
		ingest(t, client, entry(now.Add(-time.Duration(i)*time.Second), strings.Repeat("x ", 100<<10), "n", fmt.Sprint(i)))
	}
	pages := searchAll(t, client, &logsv1.SearchLogsRequest{}, nil)
	total := 0
	for i, page := range pages {
		total += len(page)
		if len(page) > 6 {
			t.Errorf("page %d has %d entries of 200 KiB, want about 1 MiB", i, len(page))
		}
	}
	if total != 12 || len(pages) < 2 {
		t.Errorf("%d entries on %d pages, want 12 on several", total, len(pages))
	}
}

func TestSearchRefuses(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	ingest(t, client, entry(now, "one"), entry(now, "two"))
	first, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		req   *logsv1.SearchLogsRequest
		field string
		text  string
	}{
		{"query", &logsv1.SearchLogsRequest{Query: "level:ERROR and (refused"}, "query", "at byte 24"},
		{"regular expression", &logsv1.SearchLogsRequest{Query: `msg:~"["`}, "query", "missing closing ]"},
		{"long query", &logsv1.SearchLogsRequest{Query: strings.Repeat("a ", 2049)}, "query", "4098 bytes"},
		{"pipe", &logsv1.SearchLogsRequest{Query: "refused | stats count()"}, "query", "pipes are not served here, only filters; leave out what follows \"refused\" (at byte 8)"},
		{"pipe after a subquery", &logsv1.SearchLogsRequest{Query: `"a|b" took:range[1,5) level:in(* | fields level) | limit 1`}, "query", "(at byte 49)"},
		{"options of a subquery", &logsv1.SearchLogsRequest{Query: `"options(x)" level:in(options(ignore_global_time_filter=true) * | fields level)`}, "query", "could lift the time range; leave them out (at byte 22)"},
		{"page size above", &logsv1.SearchLogsRequest{PageSize: 1001}, "page_size", "0 to 1000"},
		{"page size below", &logsv1.SearchLogsRequest{PageSize: -1}, "page_size", "0 to 1000"},
		{"end before start", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now), EndTime: timestamppb.New(now.Add(-time.Second))}, "end_time", "swap"},
		{"start after now", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now.Add(time.Hour))}, "end_time", "before start_time"},
		{"range too long", &logsv1.SearchLogsRequest{StartTime: timestamppb.New(now.Add(-32 * 24 * time.Hour))}, "start_time", "search in parts"},
		{"broken timestamp", &logsv1.SearchLogsRequest{StartTime: &timestamppb.Timestamp{Nanos: -1}}, "start_time", "RFC 3339"},
		{"year 9999", &logsv1.SearchLogsRequest{EndTime: timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))}, "end_time", "not between"},
		{"order", &logsv1.SearchLogsRequest{Order: 9}, "order", "ORDER_NEWEST_FIRST"},
		{"page token of nobody", &logsv1.SearchLogsRequest{PageToken: "nonsense"}, "page_token", "next_page_token"},
		{"page token of another query", &logsv1.SearchLogsRequest{Query: "other", PageToken: first.NextPageToken}, "page_token", "another request"},
		{"page token of another order", &logsv1.SearchLogsRequest{Order: logsv1.Order_ORDER_OLDEST_FIRST, PageToken: first.NextPageToken}, "page_token", "another request"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := client.SearchLogs(within(t), test.req)
			wantCode(t, err, codes.InvalidArgument)
			bad, ok := detail[*errdetails.BadRequest](err)
			if !ok || len(bad.FieldViolations) != 1 {
				t.Fatalf("details of %v: want one BadRequest violation", err)
			}
			v := bad.FieldViolations[0]
			if v.Field != test.field || !strings.Contains(v.Description, test.text) {
				t.Errorf("violation = %q: %q, want %q with %q", v.Field, v.Description, test.field, test.text)
			}
		})
	}
}

// Whatever the engine: no range without bounds, no query without, and the place of a mistake. TestVictoriaLogs has the third.
func TestRestricted(t *testing.T) {
	_, url := startLoki(t)
	for name, engine := range map[string]logs.Engine{"embedded": openEmbedded(t), "loki": openLoki(t, url, logs.LokiOptions{})} {
		t.Run(name, func(t *testing.T) {
			client, _ := start(t, engine, logs.Options{})
			wantRestricted(t, client)
		})
	}
}

func wantRestricted(t *testing.T, client logsv1.LogServiceClient) {
	t.Helper()
	now := time.Now()
	for _, test := range []struct {
		req         *logsv1.SearchLogsRequest
		field, text string
	}{
		{&logsv1.SearchLogsRequest{Query: "level:ERROR and (refused"}, "query", "(at byte 24)"},
		{&logsv1.SearchLogsRequest{Query: "refused | delete level"}, "query", "pipes"},
		{&logsv1.SearchLogsRequest{Query: strings.Repeat("a ", 2049)}, "query", "4098 bytes"},
		{&logsv1.SearchLogsRequest{Query: "service:~\"[\""}, "query", "missing closing ]"},
		{&logsv1.SearchLogsRequest{Query: "level:in(options(ignore_global_time_filter=true) * | fields level)"}, "query", "(at byte "},
		{&logsv1.SearchLogsRequest{StartTime: timestamppb.New(now.Add(-32 * 24 * time.Hour))}, "start_time", "search in parts"},
		{&logsv1.SearchLogsRequest{StartTime: timestamppb.New(time.Unix(0, 0)), EndTime: timestamppb.New(now)}, "start_time", "search in parts"},
		{&logsv1.SearchLogsRequest{PageSize: 1001}, "page_size", "0 to 1000"},
	} {
		_, err := client.SearchLogs(within(t), test.req)
		wantCode(t, err, codes.InvalidArgument)
		bad, ok := detail[*errdetails.BadRequest](err)
		if !ok || len(bad.FieldViolations) != 1 || bad.FieldViolations[0].Field != test.field || !strings.Contains(bad.FieldViolations[0].Description, test.text) {
			t.Errorf("SearchLogs(%v): violations = %v, want %s with %q", test.req, bad, test.field, test.text)
		}
	}
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{StartTime: timestamppb.New(now.Add(-32 * 24 * time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ended(stream)
	wantCode(t, err, codes.InvalidArgument)
}

func TestSearchAfterClose(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	wantCode(t, err, codes.Unavailable)
	wantInfo(t, err, "STORE_UNAVAILABLE")
	if retry, ok := detail[*errdetails.RetryInfo](err); !ok || retry.RetryDelay.AsDuration() <= 0 {
		t.Errorf("RetryInfo = %v, want a delay", retry)
	}
}
