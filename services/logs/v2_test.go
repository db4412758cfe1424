package logs_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	logsv2 "github.com/toolway/toolway/gen/agentops/logs/v2"
	"github.com/toolway/toolway/services/logs"
)

// Both versions of the contract tell of the same entries, on every engine that can be run here.
func TestV2(t *testing.T) {
	_, url := startLoki(t)
	for name, engine := range map[string]logs.Engine{"embedded": openEmbedded(t), "loki": openLoki(t, url, logs.LokiOptions{})} {
		t.Run(name, func(t *testing.T) { testV2(t, engine) })
	}
}

func testV2(t *testing.T, engine logs.Engine) {
	old, conn := startBoth(t, engine)
	client := logsv2.NewLogServiceClient(conn)
	at := time.Now().Add(-time.Minute).Round(0)
	stream, err := client.IngestLogs(within(t))
	if err != nil {
		t.Fatal(err)
	}
	sent := []*logsv2.LogEntry{
		{Time: timestamppb.New(at), Body: "one", Service: "checkout", Severity: logsv2.Severity_SEVERITY_ERROR, Attributes: map[string]string{"k": "v"}},
		{Time: timestamppb.New(at.Add(1)), Body: "two", Attributes: map[string]string{"service": "payment", "level": "warning"}},
		{Time: timestamppb.New(at.Add(2)), Body: "three to a@example.com", Attributes: map[string]string{"level": "odd"}},
		{Time: timestamppb.New(at.Add(3)), Body: "four", Severity: logsv2.Severity_SEVERITY_DEBUG},
		{Body: ""},
		{Time: timestamppb.New(at.Add(-40 * 24 * time.Hour)), Body: "five"},
	}
	if err := stream.Send(&logsv2.IngestLogsRequest{Entries: sent}); err != nil {
		t.Fatal(err)
	}
	summary, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	rejections := map[int32]logsv2.RejectionCode{}
	for _, r := range summary.Rejections {
		rejections[r.Index] = r.Code
	}
	if engine.Retention() > 0 && (summary.Accepted != 4 || rejections[4] != logsv2.RejectionCode_REJECTION_CODE_MALFORMED || rejections[5] != logsv2.RejectionCode_REJECTION_CODE_TOO_OLD) {
		t.Errorf("summary = %v, want four accepted, one malformed, one too old", summary)
	}

	since := timestamppb.New(at.Add(-time.Second))
	resp, err := client.SearchLogs(within(t), &logsv2.SearchLogsRequest{StartTime: since, OldestFirst: true})
	if err != nil || len(resp.Entries) != 4 {
		t.Fatalf("SearchLogs = %v, %v, want four", resp, err)
	}
	one, two, three, four := resp.Entries[0], resp.Entries[1], resp.Entries[2], resp.Entries[3]
	if one.Body != "one" || one.Service != "checkout" || one.Severity != logsv2.Severity_SEVERITY_ERROR || one.Attributes["k"] != "v" || one.Attributes["level"] != "ERROR" || len(one.Attributes) != 2 || !one.Time.AsTime().Equal(at) {
		t.Errorf("one = %v", one)
	}
	if two.Service != "payment" || two.Severity != logsv2.Severity_SEVERITY_WARN || len(two.Attributes) != 1 {
		t.Errorf("two = %v", two)
	}
	if three.Body != "three to [REDACTED:email]" || three.Redactions != 1 || three.Severity != logsv2.Severity_SEVERITY_UNSPECIFIED {
		t.Errorf("three = %v", three)
	}
	if four.Severity != logsv2.Severity_SEVERITY_DEBUG || four.Service != "" {
		t.Errorf("four = %v", four)
	}
	v1, err := old.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: "one"})
	if err != nil || len(v1.Entries) != 1 || v1.Entries[0].Fields["service"] != "checkout" || v1.Entries[0].Fields["level"] != "ERROR" {
		t.Errorf("v1 = %v, %v, want the same entry in its words", v1, err)
	}

	for _, test := range []struct {
		query string
		least logsv2.Severity
		want  []string
	}{
		{"", logsv2.Severity_SEVERITY_WARN, []string{"one", "two"}},
		{"two", logsv2.Severity_SEVERITY_WARN, []string{"two"}},
		{"one or four", logsv2.Severity_SEVERITY_ERROR, []string{"one"}},
		{"", logsv2.Severity_SEVERITY_TRACE, []string{"one", "two", "four"}},
		{"", logsv2.Severity_SEVERITY_FATAL, nil},
	} {
		req := &logsv2.SearchLogsRequest{StartTime: since, OldestFirst: true, Query: test.query, MinSeverity: test.least, PageSize: 1}
		var got []string
		for {
			resp, err := client.SearchLogs(within(t), req)
			if err != nil {
				t.Fatalf("%q from %v: %v", test.query, test.least, err)
			}
			for _, e := range resp.Entries {
				got = append(got, e.Body)
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q from %v = %q, want %q", test.query, test.least, got, test.want)
		}
	}

	tail, err := client.TailLogs(within(t), &logsv2.TailLogsRequest{StartTime: since, MinSeverity: logsv2.Severity_SEVERITY_WARN, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := tail.Recv()
	if err != nil || msg.Entry.Body != "one" {
		t.Fatalf("tail = %v, %v, want one", msg, err)
	}
	// A cursor of the one version is good for the other.
	if next := tailV1(t, old, &logsv1.TailLogsRequest{Cursor: msg.Cursor}); next.Entry.Message != "two" {
		t.Errorf("v1 after the cursor = %v, want two", next)
	}

	for field, req := range map[string]*logsv2.SearchLogsRequest{
		"start_time":   {},
		"min_severity": {StartTime: since, MinSeverity: 99},
		"query":        {StartTime: since, Query: "a or", MinSeverity: logsv2.Severity_SEVERITY_WARN},
		"page_size":    {StartTime: since, PageSize: -1},
	} {
		_, err := client.SearchLogs(within(t), req)
		wantCode(t, err, codes.InvalidArgument)
		if bad, ok := detail[*errdetails.BadRequest](err); !ok || bad.FieldViolations[0].Field != field {
			t.Errorf("%v = %v, want a violation of %s", req, err, field)
		}
	}
}

func tailV1(t *testing.T, client logsv1.LogServiceClient, req *logsv1.TailLogsRequest) *logsv1.TailLogsResponse {
	t.Helper()
	return tail(t, client, req, 1)[0]
}
