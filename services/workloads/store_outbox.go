package workloads

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// Types of events.
const (
	eventSnapshot  = "snapshot"
	eventChanged   = "workload_changed"
	eventGone      = "workload_gone"
	eventPending   = "action_pending"
	eventRunning   = "action_running"
	eventSucceeded = "action_succeeded"
	eventFailed    = "action_failed"
)

// event appends an event to the outbox; it is delivered after the commit, if there is one.
func (t *tx) event(ctx context.Context, r *row, a *workloadsv1.Action, kind string) error {
	var seq int64
	if err := t.QueryRowContext(ctx, `UPDATE head SET seq = seq + 1 WHERE id = 1 RETURNING seq`).Scan(&seq); err != nil {
		return err
	}
	payload, err := protojson.Marshal(&workloadsv1.WatchWorkloadResponse{
		Cursor: position{store: storeNumber(t.store.id), seq: seq}.String(), EventType: kind, OccurredAt: timestamppb.New(t.now), Workload: t.store.proto(r), Action: a,
	})
	if err != nil {
		return err
	}
	_, err = t.ExecContext(ctx, `INSERT INTO outbox (seq, workload, event_type, occurred, payload) VALUES ($1, $2, $3, $4, $5)`, seq, r.Name, kind, t.now.UnixMicro(), string(payload))
	return err
}

// Event is a line of the outbox.
type Event struct {
	// Sequence numbers the events of a store from 1, without gaps.
	Sequence int64
	// Message is what watchers get; its cursor is the event's id.
	Message *workloadsv1.WatchWorkloadResponse
}

// errPruned says that events after a position may be gone.
var errPruned = errors.New("events after it may be gone")

// events returns the events after a sequence in order, at most limit, those of one workload unless name is "".
func (s *Store) events(ctx context.Context, name string, after int64, limit int) (list []Event, err error) {
	query, args := `SELECT seq, payload FROM outbox WHERE seq > $1 ORDER BY seq LIMIT $2`, []any{after, limit}
	if name != "" {
		query, args = `SELECT seq, payload FROM outbox WHERE workload = $3 AND seq > $1 ORDER BY seq LIMIT $2`, append(args, name)
	}
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, reach(err)
	}
	defer func() { err = errors.Join(err, reach(rows.Close())) }()
	for rows.Next() {
		e := Event{Message: &workloadsv1.WatchWorkloadResponse{}}
		var payload string
		if err := rows.Scan(&e.Sequence, &payload); err != nil {
			return nil, reach(err)
		}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(payload), e.Message); err != nil {
			return nil, fmt.Errorf("event %d of the outbox: %w", e.Sequence, err)
		}
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		return nil, reach(err)
	}
	// Asked after the events were read: what is pruned from now on was read already.
	oldest, _, err := s.bounds(ctx)
	if err == nil && after < oldest {
		err = errPruned
	}
	return list, err
}

// bounds returns the sequence before the oldest event that is kept, and that of the youngest.
func (s *Store) bounds(ctx context.Context) (pruned, last int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT pruned, seq FROM head WHERE id = 1`).Scan(&pruned, &last)
	return pruned, last, reach(err)
}

// snapshot returns the workloads that are there, and the sequence up to which they hold every event.
func (s *Store) snapshot(ctx context.Context, name string) (seq int64, list []*row, err error) {
	// Rows may be younger than the sequence, never older: the events between then come again.
	if _, seq, err = s.bounds(ctx); err != nil {
		return 0, nil, err
	}
	if name != "" {
		r, err := workload(ctx, s.db, name)
		if err != nil || r == nil || r.Gone {
			return seq, nil, err
		}
		return seq, []*row{r}, nil
	}
	all, err := workloads(ctx, s.db, "", 0)
	for _, r := range all {
		if !r.Gone {
			list = append(list, r)
		}
	}
	return seq, list, err
}

// prune removes events that occurred before a time, delivered or not: a publisher that is not used any more would keep them for ever.
func (s *Store) prune(ctx context.Context, before time.Time) error {
	return s.write(ctx, func(t *tx) error {
		var seq sql.NullInt64
		if err := t.QueryRowContext(ctx, `SELECT max(seq) FROM outbox WHERE occurred < $1`, before.UnixMicro()).Scan(&seq); err != nil {
			return err
		}
		if !seq.Valid {
			return nil
		}
		if _, err := t.ExecContext(ctx, `DELETE FROM outbox WHERE seq <= $1`, seq.Int64); err != nil {
			return err
		}
		_, err := t.ExecContext(ctx, `UPDATE head SET pruned = $1 WHERE id = 1 AND pruned < $1`, seq.Int64)
		return err
	})
}

// delivered returns up to where a publisher has delivered, from the first event on if it is new.
func (s *Store) delivered(ctx context.Context, publisher string) (seq int64, err error) {
	if _, err := s.db.ExecContext(ctx, `INSERT INTO publications (publisher, seq) SELECT $1, pruned FROM head WHERE id = 1 ON CONFLICT (publisher) DO NOTHING`, publisher); err != nil {
		return 0, reach(err)
	}
	err = s.db.QueryRowContext(ctx, `SELECT seq FROM publications WHERE publisher = $1`, publisher).Scan(&seq)
	return seq, reach(err)
}

// deliver records that a publisher has delivered up to a sequence.
func (s *Store) deliver(ctx context.Context, publisher string, seq int64) error {
	_, err := s.db.ExecContext(ctx, `UPDATE publications SET seq = $1 WHERE publisher = $2 AND seq < $1`, seq, strings.TrimSpace(publisher))
	return reach(err)
}
