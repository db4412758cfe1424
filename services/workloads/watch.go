package workloads

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

const (
	// watchBatch is how many events are read at once. Nothing more is held for a slow caller: Send waits.
	watchBatch = 256
	// watchPoll is how often the outbox is read though nothing was committed by this process.
	watchPoll = time.Second
)

// WatchWorkload implements the contract.
func (s *Server) WatchWorkload(req *workloadsv1.WatchWorkloadRequest, stream grpc.ServerStreamingServer[workloadsv1.WatchWorkloadResponse]) error {
	name, err := parseName(req.GetName(), true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errDraining) })()
	w := &watch{server: s, name: name, send: stream.Send}
	if w.at, err = s.origin(ctx, name, req.GetCursor()); err != nil {
		return s.broken(ctx, stream.Context(), err, w.at)
	}
	// What can be refused is; from here on the caller knows that the stream stands, though nothing may happen for long.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	if req.GetCursor() == "" || w.at.after != "" {
		if err := w.snapshot(ctx); err != nil {
			return s.broken(ctx, stream.Context(), err, w.at)
		}
	}
	return s.broken(ctx, stream.Context(), w.follow(ctx), w.at)
}

// origin says where a stream begins.
func (s *Server) origin(ctx context.Context, name, cursor string) (position, error) {
	pruned, last, err := s.store.bounds(ctx)
	if err != nil {
		return position{}, err
	}
	here := storeNumber(s.store.id)
	if cursor == "" {
		if name != "" {
			if r, err := workload(ctx, s.store.db, name); err != nil {
				return position{}, err
			} else if r == nil || r.Gone {
				return position{}, notFound(prefix + name)
			}
		}
		return position{store: here, seq: last}, nil
	}
	at, err := parseCursor(cursor)
	switch {
	case err != nil:
		return position{}, invalid("cursor", err.Error())
	case at.store != here || at.seq < pruned || at.seq > last:
		return position{}, outOfRange()
	}
	return at, nil
}

// broken is the status of a stream that ends before the caller wanted it to.
func (s *Server) broken(ctx, caller context.Context, err error, at position) error {
	if cause := context.Cause(ctx); errors.Is(cause, errDraining) {
		err = cause
	}
	if errors.Is(err, errPruned) {
		return outOfRange()
	}
	if err = statusOf(caller, s.options.Logger, err); at == (position{}) {
		return err
	}
	return withCursor(err, at)
}

// watch is one stream.
type watch struct {
	server *Server
	name   string // "" for all
	at     position
	send   func(*workloadsv1.WatchWorkloadResponse) error
}

// snapshot sends what is now, one message a workload. A stream that breaks meanwhile goes on with the next workload, and then with the events since the first was sent.
func (w *watch) snapshot(ctx context.Context) error {
	seq, rows, err := w.server.store.snapshot(ctx, w.name)
	if err != nil {
		return err
	}
	if w.at.after == "" {
		w.at.seq = seq
	}
	for i, r := range rows {
		if r.Name <= w.at.after {
			continue
		}
		next := w.at
		if next.after = r.Name; i == len(rows)-1 {
			next.after = ""
		}
		if err := w.send(&workloadsv1.WatchWorkloadResponse{Cursor: next.String(), EventType: eventSnapshot, OccurredAt: timestamppb.Now(), Workload: w.server.store.proto(r)}); err != nil {
			return err
		}
		w.at = next
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	w.at.after = ""
	return nil
}

// follow sends the events after w.at until ctx ends, and returns why it ended.
func (w *watch) follow(ctx context.Context) error {
	poll := time.NewTicker(watchPoll)
	defer poll.Stop()
	for {
		changed := w.server.store.Changed()
		events, err := w.server.store.events(ctx, w.name, w.at.seq, watchBatch)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := w.send(e.Message); err != nil {
				return err
			}
			w.at.seq = e.Sequence
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if len(events) == watchBatch {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-poll.C:
		}
	}
}
