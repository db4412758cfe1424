package logs

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
)

// maxRejections is how many reasons the summary of a stream holds.
const maxRejections = 100

// IngestLogs implements the contract.
func (s *Server) IngestLogs(stream grpc.ClientStreamingServer[logsv1.IngestLogsRequest, logsv1.IngestLogsResponse]) error {
	summary, err := s.ingest(stream.Context(), func() ([]*logsv1.LogEntry, error) {
		req, err := stream.Recv()
		return req.GetEntries(), err
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(summary)
}

// ingest stores the batches that recv returns until io.EOF.
func (s *Server) ingest(ctx context.Context, recv func() ([]*logsv1.LogEntry, error)) (*logsv1.IngestLogsResponse, error) {
	summary := &logsv1.IngestLogsResponse{}
	for {
		batch, err := recv()
		if errors.Is(err, io.EOF) {
			return summary, nil
		}
		if err != nil {
			return nil, err
		}
		accepted := make([]Entry, 0, len(batch))
		now := time.Now()
		for _, p := range batch {
			entry, err := parseEntry(p, now, s.engine.Retention())
			if err != nil {
				reject(summary, int64(len(accepted)), err)
				continue
			}
			accepted = append(accepted, entry)
		}
		if err := s.engine.Append(ctx, accepted); err != nil {
			return nil, statusOf(ctx, s.options.Logger, err)
		}
		summary.Accepted += int64(len(accepted))
	}
}

// reject counts an entry that is not stored; pending is how many of its batch are accepted but not yet counted.
func reject(summary *logsv1.IngestLogsResponse, pending int64, reason error) {
	if len(summary.Rejections) < maxRejections {
		var why *rejection
		code := logsv1.RejectionCode_REJECTION_CODE_UNSPECIFIED
		if errors.As(reason, &why) {
			code = why.code
		}
		summary.Rejections = append(summary.Rejections, &logsv1.Rejection{
			Index:  summary.Accepted + summary.Rejected + pending,
			Reason: reason.Error(),
			Code:   code,
		})
	}
	summary.Rejected++
}
