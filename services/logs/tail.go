package logs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
)

// tailBatch is how many entries a tail asks of the engine at once, within [maxFollowBytes]. Nothing more is held for a slow
// caller: Send waits.
const tailBatch = 4096

// errDraining ends tails when the server is about to stop.
var errDraining = fmt.Errorf("server is stopping: %w", ErrClosed)

// TailLogs implements the contract.
func (s *Server) TailLogs(req *logsv1.TailLogsRequest, stream grpc.ServerStreamingServer[logsv1.TailLogsResponse]) error {
	return s.tail(req, "", stream, func(f Followed) error {
		return stream.Send(&logsv1.TailLogsResponse{Entry: s.entry(f.Entry), Cursor: f.Position.String()})
	})
}

// tail sends the entries that are asked for and hold another filter too, unless that is empty.
func (s *Server) tail(req *logsv1.TailLogsRequest, and string, stream grpc.ServerStream, send func(Followed) error) error {
	filter, at, err := s.origin(req, and, time.Now())
	if err != nil {
		return err
	}
	if err := s.engine.Check(at); err != nil {
		return statusOf(stream.Context(), s.options.Logger, err)
	}
	// What can be refused is; from here on the caller knows that the stream stands, though nothing may happen for long.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errDraining) })()

	left := int(req.GetMaxEntries())
	for {
		limit := tailBatch
		if left > 0 {
			limit = min(limit, left)
		}
		found, next, err := s.engine.Follow(ctx, filter, at, limit)
		if err != nil {
			return s.broken(ctx, stream.Context(), err, next)
		}
		for _, f := range found {
			if err := send(f); err != nil {
				return err
			}
			at = f.Position
			if left > 0 {
				if left--; left == 0 {
					return nil
				}
			}
			if ctx.Err() != nil {
				return s.broken(ctx, stream.Context(), context.Cause(ctx), at)
			}
		}
		at = next
	}
}

// broken is the status of a stream that ends before the caller wanted it to.
func (s *Server) broken(ctx, caller context.Context, err error, at Position) error {
	if cause := context.Cause(ctx); errors.Is(cause, errDraining) {
		err = cause
	}
	return withCursor(statusOf(caller, s.options.Logger, err), at)
}

// origin checks a request and says which entries to follow from where.
func (s *Server) origin(req *logsv1.TailLogsRequest, and string, now time.Time) (filter string, at Position, err error) {
	if req.GetMaxEntries() < 0 {
		return "", at, invalid("max_entries", fmt.Sprintf("%d is negative; use 0 for no end", req.GetMaxEntries()))
	}
	filter, err = s.filter(req.GetQuery(), and, now)
	if err != nil {
		return "", at, invalid("query", err.Error())
	}
	if req.GetCursor() != "" {
		if at, err = parseCursor(req.GetCursor()); err != nil {
			return "", at, invalid("cursor", err.Error())
		}
		return filter, at, nil
	}
	since, err := s.since(req.GetStartTime(), now)
	if err != nil {
		return "", at, err
	}
	return filter, s.engine.Origin(since), nil
}

func (s *Server) since(start *timestamppb.Timestamp, now time.Time) (time.Time, error) {
	if start == nil {
		return time.Time{}, nil
	}
	since, err := moment("start_time", start)
	if err != nil {
		return time.Time{}, err
	}
	if oldest := now.Add(-s.options.MaxRange); since.Before(oldest) {
		return time.Time{}, invalid("start_time", fmt.Sprintf("%s is more than %s ago; the oldest that works is %s", stamp(since), s.options.MaxRange, stamp(oldest)))
	}
	return since, nil
}
