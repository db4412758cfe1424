package logs_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// Any query and any page token is answered or refused, and never fails inside.
func FuzzSearchLogs(f *testing.F) {
	engine, err := logs.OpenEmbedded(f.TempDir(), logs.EmbeddedOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = engine.Close() })
	now := time.Now()
	entries := []logs.Entry{
		{Time: now, Message: "connection refused", Fields: map[string]string{"level": "ERROR", "status": "503", "ip": "10.0.0.1"}},
		{Time: now, Message: "done", Fields: map[string]string{"level": "INFO", "took": "1.5", "at": "2026-01-01T00:00:00Z"}},
	}
	if err := engine.Append(f.Context(), entries); err != nil {
		f.Fatal(err)
	}
	server := logs.New(engine, logs.Options{SearchTimeout: 10 * time.Second})
	for _, query := range []string{
		"", "*", "refused", `level:ERROR and "connection refused"`, "status:>=500", "status:range(1, 600]", `_msg:~"re.*d"`, "ip:ipv4_range(10.0.0.0/8)",
		"_time:5m or _time:2026-01-01", "level:in(ERROR, INFO)", "level:in(* | fields level)", "took:<2", "a or", "(", "x | stats count()", "!done", "level:*",
		"_stream:{service=~\"a\"}", "options(concurrency=2) x", "seq(a, b)", "i(Refused)", "=done", "level:=ERROR", "len_range(1, 5)", "x:eq_field(y)", "pattern_match(\"<N>\")",
	} {
		f.Add(query, "")
	}
	first, err := server.SearchLogs(f.Context(), &logsv1.SearchLogsRequest{PageSize: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("", first.NextPageToken)
	f.Fuzz(func(t *testing.T, query, token string) {
		_, err := server.SearchLogs(t.Context(), &logsv1.SearchLogsRequest{Query: query, PageToken: token})
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Errorf("SearchLogs(%q, %q) = %v", query, token, err)
		}
	})
}

// Any bytes can be fed: they are stored or left out, and do not stop the feeder.
func FuzzFeeder(f *testing.F) {
	engine, err := logs.OpenEmbedded(f.TempDir(), logs.EmbeddedOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = engine.Close() })
	for _, lines := range []string{
		"plain\n", `{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"x","a":{"b":[1]}}` + "\n", `{"msg":1e999}`, "{\"\":{\"\":\"\"}}\n", "\xff\n\n\r\n", `{"_time":"x","_msg":{}}`,
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		feeder := &logs.Feeder{Engine: engine, Fields: map[string]string{"service": "fuzz"}}
		if err := feeder.Read(t.Context(), bytes.NewReader(lines)); err != nil {
			t.Errorf("Read(%q) = %v", lines, err)
		}
	})
}
