package logs_test

import (
	"context"
	"fmt"
	"net/http"
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

// TestVictoriaLogs runs the service on a real VictoriaLogs server.
func TestVictoriaLogs(t *testing.T) {
	t.Parallel()
	url := startVictoriaLogs(t)
	engine, err := logs.NewVictoriaLogs(url, logs.VictoriaLogsOptions{
		Retention: logs.DefaultRetention, Settle: 3 * time.Second, Poll: 100 * time.Millisecond,
		Client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
	})
	if err != nil {
		t.Fatal(err)
	}
	client, _ := start(t, engine, logs.Options{})
	base := time.Now().Add(-20 * time.Minute)
	const count = 40
	var entries []*logsv1.LogEntry
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("e%02d", i))
		entries = append(entries, entry(base.Add(time.Duration(i/7)*time.Second), want[i], "kind", "counted", "http.status", "200"))
	}
	if summary := ingest(t, client, entries...); summary.Accepted != count {
		t.Fatalf("summary = %v, want %d accepted", summary, count)
	}
	// Another producer, which knows nothing of this service, writes entries of one time.
	insertForeign(t, url, base)
	eventually(t, "entries can be read", func() bool {
		resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{PageSize: 1000})
		return err == nil && len(resp.Entries) == count+foreign
	})

	t.Run("entry", func(t *testing.T) {
		resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: "e39"})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Entries) != 1 || !resp.Entries[0].Time.AsTime().Equal(base.Add(5*time.Second)) || resp.Entries[0].Fields["http.status"] != "200" || len(resp.Entries[0].Fields) != 2 {
			t.Errorf("entries = %v", resp.Entries)
		}
	})
	t.Run("pages", func(t *testing.T) {
		for _, order := range []logsv1.Order{logsv1.Order_ORDER_OLDEST_FIRST, logsv1.Order_ORDER_NEWEST_FIRST} {
			for _, size := range []int32{3, 39, 40} {
				pages := searchAll(t, client, &logsv1.SearchLogsRequest{Query: "kind:counted", Order: order, PageSize: size}, nil)
				got := messages(slices.Concat(pages...))
				if order == logsv1.Order_ORDER_NEWEST_FIRST {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v by %d = %q, want %q", order, size, got, want)
				}
			}
		}
	})
	t.Run("pages of foreign entries", func(t *testing.T) {
		got := messages(slices.Concat(searchAll(t, client, &logsv1.SearchLogsRequest{Query: "kind:foreign", PageSize: 4}, nil)...))
		slices.Sort(got)
		if unique := slices.Compact(slices.Clone(got)); len(got) != foreign || len(unique) != foreign {
			t.Errorf("pages = %q, want %d different entries", got, foreign)
		}
	})
	t.Run("tail resumes", func(t *testing.T) {
		req := &logsv1.TailLogsRequest{Query: "kind:counted", StartTime: timestamppb.New(base)}
		var got []string
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
	})
	t.Run("cursor past retention", func(t *testing.T) {
		old := logs.Position{Time: time.Now().Add(-40 * 24 * time.Hour).UnixNano()}
		stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{Cursor: old.String()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ended(stream)
		wantCode(t, err, codes.OutOfRange)
		oldest := wantInfo(t, err, "CURSOR_OUT_OF_RANGE")["oldest_cursor"]
		tail(t, client, &logsv1.TailLogsRequest{Cursor: oldest}, 1)
	})
	t.Run("restricted", func(t *testing.T) { wantRestricted(t, client) })
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		now := time.Now()
		_, _, err := engine.Select(ctx, logs.Selection{Filter: "*", Start: now.Add(-time.Hour), End: now, At: now, Limit: 1, MaxBytes: 1})
		if err == nil || ctx.Err() == nil {
			t.Errorf("Select = %v, want the context's error", err)
		}
	})
}

// foreign is how many entries insertForeign writes.
const foreign = 15

func insertForeign(t *testing.T, url string, at time.Time) {
	t.Helper()
	var lines strings.Builder
	for i := range foreign {
		_, _ = fmt.Fprintf(&lines, `{"_time":%q,"_msg":"f%02d","kind":"foreign"}`+"\n", at.UTC().Format(time.RFC3339Nano), i)
	}
	resp, err := http.Post(url+"/insert/jsonline", "application/stream+json", strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("insert = %s", resp.Status)
	}
}

func TestVictoriaLogsUnreachable(t *testing.T) {
	engine, err := logs.NewVictoriaLogs("http://127.0.0.1:1", logs.VictoriaLogsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, _ := start(t, engine, logs.Options{})
	_, err = client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	wantCode(t, err, codes.Unavailable)
	if _, ok := detail[*errdetails.RetryInfo](err); !ok {
		t.Errorf("no RetryInfo in %v", err)
	}
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{StartTime: timestamppb.New(time.Now().Add(-time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ended(stream)
	wantCode(t, err, codes.Unavailable)
	if wantInfo(t, err, "STORE_UNAVAILABLE")["cursor"] == "" {
		t.Errorf("no cursor in %v", err)
	}
}

func TestVictoriaLogsURL(t *testing.T) {
	for _, bad := range []string{"", "victorialogs:9428", "ftp://victorialogs", "http://", ":"} {
		if _, err := logs.NewVictoriaLogs(bad, logs.VictoriaLogsOptions{}); err == nil {
			t.Errorf("NewVictoriaLogs(%q) = nil error, want one", bad)
		}
	}
}
