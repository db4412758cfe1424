package logs

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	logsv2 "github.com/toolway/toolway/gen/agentops/logs/v2"
)

// serverV2 implements agentops.logs.v2.LogService on the same entries: requests become those of v1, and entries are told in its words.
type serverV2 struct {
	logsv2.UnimplementedLogServiceServer

	server *Server
}

// The fields of v1 that stand on their own in v2, or are what something there comes from.
const (
	fieldService = "service"
	fieldLevel   = "level"
)

// SearchLogs implements the contract.
func (v *serverV2) SearchLogs(ctx context.Context, req *logsv2.SearchLogsRequest) (*logsv2.SearchLogsResponse, error) {
	if req.GetStartTime() == nil {
		return nil, invalid("start_time", "is missing; say since when to search")
	}
	and, err := atLeast(req.GetMinSeverity())
	if err != nil {
		return nil, err
	}
	order := logsv1.Order_ORDER_NEWEST_FIRST
	if req.GetOldestFirst() {
		order = logsv1.Order_ORDER_OLDEST_FIRST
	}
	entries, next, err := v.server.search(ctx, &logsv1.SearchLogsRequest{
		Query: req.GetQuery(), StartTime: req.GetStartTime(), EndTime: req.GetEndTime(), PageSize: req.GetPageSize(), PageToken: req.GetPageToken(), Order: order,
	}, and)
	if err != nil {
		return nil, err
	}
	resp := &logsv2.SearchLogsResponse{Entries: make([]*logsv2.LogEntry, len(entries)), NextPageToken: next}
	for i, entry := range entries {
		resp.Entries[i] = v.entry(entry)
	}
	return resp, nil
}

// TailLogs implements the contract.
func (v *serverV2) TailLogs(req *logsv2.TailLogsRequest, stream grpc.ServerStreamingServer[logsv2.TailLogsResponse]) error {
	and, err := atLeast(req.GetMinSeverity())
	if err != nil {
		return err
	}
	return v.server.tail(&logsv1.TailLogsRequest{
		Query: req.GetQuery(), Cursor: req.GetCursor(), StartTime: req.GetStartTime(), MaxEntries: req.GetMaxEntries(),
	}, and, stream, func(f Followed) error {
		return stream.Send(&logsv2.TailLogsResponse{Entry: v.entry(f.Entry), Cursor: f.Position.String()})
	})
}

// IngestLogs implements the contract.
func (v *serverV2) IngestLogs(stream grpc.ClientStreamingServer[logsv2.IngestLogsRequest, logsv2.IngestLogsResponse]) error {
	summary, err := v.server.ingest(stream.Context(), func() ([]*logsv1.LogEntry, error) {
		req, err := stream.Recv()
		batch := make([]*logsv1.LogEntry, len(req.GetEntries()))
		for i, entry := range req.GetEntries() {
			batch[i] = entryV1(entry)
		}
		return batch, err
	})
	if err != nil {
		return err
	}
	resp := &logsv2.IngestLogsResponse{Accepted: count(summary.Accepted), Rejected: count(summary.Rejected)}
	for _, r := range summary.Rejections {
		resp.Rejections = append(resp.Rejections, &logsv2.Rejection{Index: count(r.Index), Reason: r.Reason, Code: logsv2.RejectionCode(r.Code)})
	}
	return stream.SendAndClose(resp)
}

// count is a number of entries in 32 bits; a stream with more of them counts no further.
func count(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// entry is an entry as callers get it.
func (v *serverV2) entry(e Entry) *logsv2.LogEntry {
	e, redactions := v.server.options.Redact.entry(e)
	p := &logsv2.LogEntry{
		Time: timestamppb.New(e.Time), Body: e.Message, Service: e.Fields[fieldService], Severity: severityOf(e.Fields[fieldLevel]),
		Attributes: maps.Clone(e.Fields), Redactions: int32(redactions),
	}
	delete(p.Attributes, fieldService)
	return p
}

// entryV1 is what a caller sent in the words of v1.
func entryV1(p *logsv2.LogEntry) *logsv1.LogEntry {
	e := &logsv1.LogEntry{Time: p.GetTime(), Message: p.GetBody(), Fields: p.GetAttributes()}
	if e.Fields == nil {
		e.Fields = make(map[string]string, 2)
	}
	if p.GetService() != "" {
		e.Fields[fieldService] = p.GetService()
	}
	if words := levels[p.GetSeverity()]; len(words) > 0 && e.Fields[fieldLevel] == "" {
		e.Fields[fieldLevel] = words[0]
	}
	return e
}

// levels are the words for each severity; the first is how it is stored.
var levels = map[logsv2.Severity][]string{
	logsv2.Severity_SEVERITY_TRACE: {"TRACE", "FINEST"},
	logsv2.Severity_SEVERITY_DEBUG: {"DEBUG", "DBG", "FINE"},
	logsv2.Severity_SEVERITY_INFO:  {"INFO", "INFORMATION", "INFORMATIONAL", "NOTICE"},
	logsv2.Severity_SEVERITY_WARN:  {"WARN", "WARNING"},
	logsv2.Severity_SEVERITY_ERROR: {"ERROR", "ERR", "SEVERE"},
	logsv2.Severity_SEVERITY_FATAL: {"FATAL", "CRITICAL", "CRIT", "ALERT", "EMERG", "EMERGENCY", "PANIC", "DPANIC"},
}

// severityOf is what a producer's word means.
func severityOf(word string) logsv2.Severity {
	word = strings.ToUpper(word)
	for severity, words := range levels {
		if slices.Contains(words, word) {
			return severity
		}
	}
	return logsv2.Severity_SEVERITY_UNSPECIFIED
}

// atLeast is the filter for entries that are at least so bad; empty for all.
func atLeast(least logsv2.Severity) (filter string, err error) {
	if _, known := logsv2.Severity_name[int32(least)]; !known {
		return "", invalid("min_severity", fmt.Sprintf("%d is not a known severity; use SEVERITY_WARN, for example", least))
	}
	if least == logsv2.Severity_SEVERITY_UNSPECIFIED {
		return "", nil
	}
	var words []string
	for severity := least; severity <= logsv2.Severity_SEVERITY_FATAL; severity++ {
		words = append(words, levels[severity]...)
	}
	return fieldLevel + `:~"(?i)^(` + strings.Join(words, "|") + `)$"`, nil
}
