package workloads

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// prefix is the collection in resource names.
const prefix = "workloads/"

// row is a workload in the database.
type row struct {
	Name       string
	Generation int64
	Replicas   int32
	Restart    int64
	// Applied is the generation that the driver has taken; Revision is the place's then.
	Applied  int64
	Revision string
	Gone     bool
	Status   rowStatus
	Updated  time.Time
}

// rowStatus is how a workload was last seen to fare.
type rowStatus struct {
	State    workloadsv1.Workload_State `json:"state"`
	Ready    int32                      `json:"ready"`
	Crashes  int64                      `json:"crashes,omitempty"`
	LastExit string                     `json:"last_exit,omitempty"`
	Started  int64                      `json:"started,omitempty"` // microseconds since 1970
	Labels   map[string]string          `json:"labels,omitempty"`
}

func (s rowStatus) equal(o rowStatus) bool {
	return s.State == o.State && s.Ready == o.Ready && s.Crashes == o.Crashes && s.LastExit == o.LastExit && s.Started == o.Started && maps.Equal(s.Labels, o.Labels)
}

// statusOfObserved is how o fares, given what is wanted.
func statusOfObserved(r *row, o *Observed) rowStatus {
	s := rowStatus{State: workloadsv1.Workload_STATE_PROGRESSING, Ready: o.Ready, Crashes: o.Crashes, LastExit: o.LastExit, Labels: o.Labels}
	if !o.Started.IsZero() {
		s.Started = o.Started.UnixMicro()
	}
	switch inForce := r.Applied == r.Generation && o.Revision == r.Revision; {
	case inForce && o.Settled && r.Replicas == 0:
		s.State = workloadsv1.Workload_STATE_STOPPED
	case inForce && o.Settled:
		s.State = workloadsv1.Workload_STATE_RUNNING
	case o.Failing:
		s.State = workloadsv1.Workload_STATE_DEGRADED
	}
	return s
}

// etag changes with what is wanted, and is never that of another database.
func (s *Store) etag(r *row) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", s.id, r.Name, r.Generation))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// proto is the workload as callers see it.
func (s *Store) proto(r *row) *workloadsv1.Workload {
	w := &workloadsv1.Workload{
		Name: prefix + r.Name, Replicas: r.Replicas, ReadyReplicas: r.Status.Ready, State: r.Status.State, Generation: r.Generation, Etag: s.etag(r),
		Crashes: r.Status.Crashes, LastExit: r.Status.LastExit, UpdateTime: timestamppb.New(r.Updated), Labels: r.Status.Labels,
	}
	if r.Status.Started != 0 {
		w.StartTime = timestamppb.New(time.UnixMicro(r.Status.Started))
	}
	return w
}

const rowColumns = `name, generation, replicas, restart, applied, revision, gone, status, update_time`

// querier is a transaction, or the database.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func scanRow(scan func(...any) error) (*row, error) {
	var r row
	var gone, updated int64
	var status string
	if err := scan(&r.Name, &r.Generation, &r.Replicas, &r.Restart, &r.Applied, &r.Revision, &gone, &status, &updated); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(status), &r.Status); err != nil {
		return nil, fmt.Errorf("status of workload %q in the database: %w", r.Name, err)
	}
	r.Gone, r.Updated = gone != 0, time.UnixMicro(updated)
	return &r, nil
}

// workload returns one row; nil if there is none.
func workload(ctx context.Context, q querier, name string) (*row, error) {
	r, err := scanRow(q.QueryRowContext(ctx, `SELECT `+rowColumns+` FROM workloads WHERE name = $1`, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, reach(err)
}

// workloads returns the rows after a name in the order of names, gone ones too; at most limit if that is positive.
func workloads(ctx context.Context, q querier, after string, limit int) (list []*row, err error) {
	query, args := `SELECT `+rowColumns+` FROM workloads WHERE name > $1 ORDER BY name`, []any{after}
	if limit > 0 {
		query, args = query+` LIMIT $2`, append(args, limit)
	}
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, reach(err)
	}
	defer func() { err = errors.Join(err, reach(rows.Close())) }()
	for rows.Next() {
		r, err := scanRow(rows.Scan)
		if err != nil {
			return nil, reach(err)
		}
		list = append(list, r)
	}
	return list, reach(rows.Err())
}

// discover records a workload that was not known, or is back.
func (s *Store) discover(ctx context.Context, o *Observed) (r *row, err error) {
	err = s.write(ctx, func(t *tx) error {
		if r, err = workload(ctx, t, o.Name); err != nil {
			return err
		}
		if r != nil && !r.Gone {
			return nil
		}
		if r == nil {
			r = &row{Name: o.Name, Generation: 1, Replicas: o.Replicas, Applied: 1, Revision: o.Revision}
		} else if r.Gone = false; r.Revision != o.Revision {
			// What came back is something new.
			r.Generation, r.Replicas, r.Revision = r.Generation+1, o.Replicas, o.Revision
			r.Applied = r.Generation
		}
		r.Status = statusOfObserved(r, o)
		return t.save(ctx, r, nil, eventChanged)
	})
	return r, err
}

// adopt takes over what somebody else has told the place to want, unless the row has changed since it was read.
func (s *Store) adopt(ctx context.Context, read *row, o *Observed) (*row, error) {
	return s.amend(ctx, read, func(t *tx, r *row) error {
		r.Generation, r.Replicas, r.Revision = r.Generation+1, o.Replicas, o.Revision
		r.Applied, r.Status = r.Generation, statusOfObserved(r, o)
		return t.save(ctx, r, nil, eventChanged)
	})
}

// applied records that the driver has taken what is wanted; the actions that led to it are RUNNING from now on.
func (s *Store) applied(ctx context.Context, read *row, revision string) (*row, error) {
	return s.amend(ctx, read, func(t *tx, r *row) error {
		r.Applied, r.Revision = r.Generation, revision
		r.Status.State = workloadsv1.Workload_STATE_PROGRESSING
		if err := t.put(ctx, r); err != nil {
			return err
		}
		return t.advance(ctx, r, workloadsv1.Action_STATE_PENDING, workloadsv1.Action_STATE_RUNNING, "")
	})
}

// observed records how a workload fares, if that is new.
func (s *Store) observed(ctx context.Context, read *row, status rowStatus) (*row, error) {
	if read.Status.equal(status) {
		return read, nil
	}
	return s.amend(ctx, read, func(t *tx, r *row) error {
		r.Status = status
		return t.save(ctx, r, nil, eventChanged)
	})
}

// lost records that a workload is not there any more, and fails its actions.
func (s *Store) lost(ctx context.Context, read *row) error {
	_, err := s.amend(ctx, read, func(t *tx, r *row) error {
		r.Gone, r.Status = true, rowStatus{}
		if err := t.put(ctx, r); err != nil {
			return err
		}
		for _, from := range []workloadsv1.Action_State{workloadsv1.Action_STATE_PENDING, workloadsv1.Action_STATE_RUNNING} {
			if err := t.advance(ctx, r, from, workloadsv1.Action_STATE_FAILED, ErrGone.Error()); err != nil {
				return err
			}
		}
		return t.event(ctx, r, nil, eventGone)
	})
	return err
}

// amend changes a row in a transaction, unless what is wanted of it has changed since it was read; it returns the row as it is then.
func (s *Store) amend(ctx context.Context, read *row, f func(*tx, *row) error) (r *row, err error) {
	err = s.write(ctx, func(t *tx) error {
		if r, err = workload(ctx, t, read.Name); err != nil {
			return err
		}
		if r == nil {
			return fmt.Errorf("workload %q is not in the database any more", read.Name)
		}
		if r.Generation != read.Generation || r.Applied != read.Applied || r.Revision != read.Revision || r.Gone != read.Gone {
			return nil
		}
		return f(t, r)
	})
	return r, err
}

// save writes a row, and the event of it.
func (t *tx) save(ctx context.Context, r *row, a *workloadsv1.Action, event string) error {
	if err := t.put(ctx, r); err != nil {
		return err
	}
	return t.event(ctx, r, a, event)
}

func (t *tx) put(ctx context.Context, r *row) error {
	r.Updated = t.now
	status, err := json.Marshal(r.Status)
	if err != nil {
		return err
	}
	gone := 0
	if r.Gone {
		gone = 1
	}
	_, err = t.ExecContext(ctx, `INSERT INTO workloads (`+rowColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, replicas = excluded.replicas, restart = excluded.restart, applied = excluded.applied,
			revision = excluded.revision, gone = excluded.gone, status = excluded.status, update_time = excluded.update_time`,
		r.Name, r.Generation, r.Replicas, r.Restart, r.Applied, r.Revision, gone, string(status), r.Updated.UnixMicro())
	return err
}
