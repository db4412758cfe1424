package logs_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

func TestIngestRejectsAlone(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	many := entry(now, "many fields")
	for i := range 257 {
		many.Fields[fmt.Sprint("f", i)] = "x"
	}
	bad := []struct {
		entry  *logsv1.LogEntry
		reason string
	}{
		{entry(now, ""), "message is empty"},
		{entry(now.Add(-40*24*time.Hour), "x"), "older than the retention"},
		{entry(now.Add(25*time.Hour), "x"), "ahead"},
		{&logsv1.LogEntry{Message: "x", Time: &timestamppb.Timestamp{Nanos: -1}}, "not a valid timestamp"},
		{entry(now, "x", "_time", "1"), "belongs to the store"},
		{entry(now, "x", "ingest_seq", "1"), "belongs to the store"},
		{entry(now, "x", "", "1"), "belongs to the store"},
		{entry(now, "x", strings.Repeat("n", 129), "1"), "129 bytes"},
		{entry(now, strings.Repeat("x", 257<<10)), "at most 262144"},
		{many, "257 fields"},
		{nil, "message is empty"},
	}
	var entries []*logsv1.LogEntry
	for i, b := range bad {
		e := b.entry
		if e == nil {
			e = &logsv1.LogEntry{}
		}
		entries = append(entries, entry(now, fmt.Sprint("good ", i)), e)
	}
	summary := ingest(t, client, entries...)
	if int(summary.Accepted) != len(bad) || int(summary.Rejected) != len(bad) || len(summary.Rejections) != len(bad) {
		t.Fatalf("summary = %v, want %d of each", summary, len(bad))
	}
	for i, r := range summary.Rejections {
		if int(r.Index) != 2*i+1 || !strings.Contains(r.Reason, bad[i].reason) {
			t.Errorf("rejection %d = %d %q, want %d with %q", i, r.Index, r.Reason, 2*i+1, bad[i].reason)
		}
	}
	resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Entries) != len(bad) {
		t.Errorf("stored = %q, want the good ones", messages(resp.Entries))
	}
}

func TestIngestNamesFirstHundred(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	summary := ingest(t, client, make([]*logsv1.LogEntry, 250)...)
	if summary.Rejected != 250 || len(summary.Rejections) != 100 {
		t.Errorf("rejected %d with %d reasons, want 250 with 100", summary.Rejected, len(summary.Rejections))
	}
}

func TestIngestKeepsWhatItWasGiven(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	tests := map[string]map[string]string{
		"plain":                    {"a": "1", "b": "two"},
		"quotes \" and \\ and |":   {"a b": "x|y", "käse": "日本"},
		"new\nline and \t control": {"dots.in.name": "\x01"},
		"a value that is *":        {"query-like": `_time:5m or "x"`},
		"empty values are none":    {},
		"numbers":                  {"int": "18446744073709551615", "float": "1e400", "ip": "10.0.0.1", "time": "2026-01-01T00:00:00Z"},
	}
	var entries []*logsv1.LogEntry
	for message, fields := range tests {
		e := &logsv1.LogEntry{Message: message, Fields: maps.Clone(fields)}
		if message == "empty values are none" {
			e.Fields["gone"] = ""
		}
		entries = append(entries, e)
	}
	if summary := ingest(t, client, entries...); summary.Rejected != 0 {
		t.Fatalf("summary = %v", summary)
	}
	resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Entries) != len(tests) {
		t.Fatalf("found %d entries, want %d", len(resp.Entries), len(tests))
	}
	for _, e := range resp.Entries {
		if want, ok := tests[e.Message]; !ok || !maps.Equal(e.Fields, want) {
			t.Errorf("entry %q = %q, want %q", e.Message, e.Fields, want)
		}
	}
}

func TestIngestAfterClose(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	stream, err := client.IngestLogs(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&logsv1.IngestLogsRequest{Entries: []*logsv1.LogEntry{entry(time.Now(), "x")}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.CloseAndRecv()
	wantCode(t, err, codes.Unavailable)
	wantInfo(t, err, "STORE_UNAVAILABLE")
}
