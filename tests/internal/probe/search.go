package probe

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// maxEntries of one answer to Search.
const maxEntries = 10_000

// Search answers with entries that are made once for each count: a benchmark measures who passes them on, not who makes them.
func (s *Server) Search(ctx context.Context, req *probev1.SearchRequest) (*probev1.SearchResponse, error) {
	_, done := s.begin(ctx, probev1.Probe_Search_FullMethodName, req)
	defer done()
	n := int(req.GetCount())
	if n < 0 || n > maxEntries {
		return nil, status.Errorf(codes.InvalidArgument, "count %d: want 0 to %d", n, maxEntries)
	}
	if made, ok := s.found.Load(n); ok {
		return made.(*probev1.SearchResponse), nil
	}
	made, _ := s.found.LoadOrStore(n, found(n))
	return made.(*probev1.SearchResponse), nil
}

func found(n int) *probev1.SearchResponse {
	out := &probev1.SearchResponse{NextPageToken: "cGFnZS0y", Total: int32(n)}
	begin := time.Date(2026, 11, 1, 12, 0, 7, 0, time.UTC)
	for i := range n {
		out.Entries = append(out.Entries, &probev1.Entry{
			Time:       timestamppb.New(begin.Add(time.Duration(i) * 1001 * time.Millisecond)),
			Severity:   probev1.Severity(1 + i%4),
			Service:    fmt.Sprintf("checkout-%d", i%7),
			Message:    fmt.Sprintf(`payment %d accepted after retry; upstream said "ok" in time, no further action is needed by anyone on call this week or in the next one`, i),
			TraceId:    fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04x", i),
			DurationUs: int64(1000 + i*37),
			Labels:     map[string]string{"env": "production", "region": "eu-central-1", "zone": "b", "pod": fmt.Sprintf("checkout-7d9f-%d", i)},
			Shards:     []int32{1, 22, int32(i + 300)},
		})
	}
	return out
}
