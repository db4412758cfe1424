package incidents

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
)

// Types of events.
const (
	eventTaskCreated    = "task_created"
	eventAgentStarted   = "agent_started"
	eventToolStarted    = "tool_started"
	eventToolProgress   = "tool_progress"
	eventToolCompleted  = "tool_completed"
	eventAgentCompleted = "agent_completed"
	eventTaskCompleted  = "task_completed"
	eventTaskFailed     = "task_failed"
)

// watchBatch is how many events are read at once for one reader.
const watchBatch = 100

// WatchDiagnosis implements the contract. It asks for word of the next change before it reads, reads up to the last event that is kept then, and waits: so
// nothing falls between what is replayed and what is live. Nothing is held for a slow reader but one batch.
func (s *Server) WatchDiagnosis(req *incidentsv1.WatchDiagnosisRequest, stream grpc.ServerStreamingServer[incidentsv1.DiagnosisEvent]) error {
	ctx := stream.Context()
	r, err := s.find(ctx, req.GetName())
	if err != nil {
		return err
	}
	at, err := parseCursor(req.GetCursor(), r.id, r.last)
	if err != nil {
		return err
	}
	// What can be refused is; from here on the caller knows that the stream stands, though nothing may happen for long.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		more, err := s.replay(ctx, r.id, &at, stream)
		if err != nil || !more {
			return err
		}
	}
}

// replay sends the events after *at, moves it on, and waits for more; it says whether there will be any.
func (s *Server) replay(ctx context.Context, id string, at *int64, stream grpc.ServerStreamingServer[incidentsv1.DiagnosisEvent]) (more bool, err error) {
	changed, release := s.store.changed(id)
	defer release()
	// The end is read before the events are: if it has ended by now, all of them are there.
	r, err := s.store.find(ctx, id)
	if err != nil {
		return false, s.interrupted(ctx, err, id, *at)
	}
	for *at < r.last {
		events, err := s.store.events(ctx, id, *at, watchBatch)
		if err != nil {
			return false, s.interrupted(ctx, err, id, *at)
		}
		if len(events) == 0 {
			return false, s.interrupted(ctx, errUnknown, id, *at)
		}
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return false, err
			}
			*at++
			if s.draining.Err() != nil {
				return false, s.interrupted(ctx, errStopping, id, *at)
			}
		}
	}
	if r.ended() {
		return false, nil
	}
	select {
	case <-changed:
		return true, nil
	case <-ctx.Done():
		return false, s.interrupted(ctx, ctx.Err(), id, *at)
	case <-s.draining.Done():
		return false, s.interrupted(ctx, errStopping, id, *at)
	}
}

// interrupted is the status of a watch that ends before the diagnosis: it says where to go on.
func (s *Server) interrupted(ctx context.Context, err error, id string, at int64) error {
	failed := status.Convert(statusOf(ctx, s.options.Logger, err))
	if failed.Code() == codes.NotFound {
		return failed.Err()
	}
	reason, retry := info(reasonInterrupted), (*errdetails.RetryInfo)(nil)
	for _, d := range failed.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	if reason.Metadata == nil {
		reason.Metadata = map[string]string{}
	}
	reason.Metadata["cursor"] = eventID(id, at)
	if retry == nil {
		retry = &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}
	}
	return newStatus(failed.Code(), failed.Message(), reason, retry)
}
