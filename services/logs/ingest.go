package logs

import (
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
	ctx := stream.Context()
	summary := &logsv1.IngestLogsResponse{}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(summary)
		}
		if err != nil {
			return err
		}
		accepted := make([]Entry, 0, len(req.GetEntries()))
		now := time.Now()
		for _, p := range req.GetEntries() {
			entry, err := parseEntry(p, now, s.engine.Retention())
			if err != nil {
				reject(summary, int64(len(accepted)), err)
				continue
			}
			accepted = append(accepted, entry)
		}
		if err := s.engine.Append(ctx, accepted); err != nil {
			return statusOf(ctx, s.options.Logger, err)
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
