package workloads

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// change is a change that is asked for.
type change struct {
	kind       workloadsv1.Action_Kind
	workload   string
	incident   string
	generation int64
	etag       string // "" is not compared
	replicas   int32  // of a scaling
	reason     string
	principal  string
}

// id is the same for the same incident, kind, workload and generation. None of its parts has a colon.
func (c *change) id() string {
	return fmt.Sprintf("%s:%s:%s:%d", c.incident, strings.ToLower(strings.TrimPrefix(c.kind.String(), "KIND_")), c.workload, c.generation)
}

// hash tells the parameters apart. What only describes or guards the change is not in it, so that a repetition in other words is one.
func (c *change) hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", c.kind, c.replicas))
	return hex.EncodeToString(sum[:12])
}

// begin records a change: the action, what is wanted of the workload, and the event, in one transaction. A change that was recorded before is returned as it is by now.
func (s *Store) begin(ctx context.Context, c *change) (a *workloadsv1.Action, err error) {
	id := c.id()
	err = s.write(ctx, func(t *tx) error {
		var hash string
		a, hash, err = action(ctx, t, id)
		switch {
		case err != nil:
			return err
		case a != nil && hash != c.hash():
			return conflict(a)
		case a != nil:
			a.Replayed = true
			return nil
		}
		r, err := workload(ctx, t, c.workload)
		if err != nil {
			return err
		}
		if r == nil || r.Gone {
			return notFound(prefix + c.workload)
		}
		if c.etag != "" && c.etag != s.etag(r) {
			return etagMismatch(s.proto(r))
		}
		if c.generation != r.Generation {
			return generationMismatch(s.proto(r), c.generation)
		}
		r.Generation++
		if c.kind == workloadsv1.Action_KIND_RESTART {
			r.Restart = r.Generation
		} else {
			r.Replicas = c.replicas
		}
		r.Status.State = workloadsv1.Workload_STATE_PROGRESSING
		a = &workloadsv1.Action{
			Id: id, Incident: c.incident, Kind: c.kind, Workload: prefix + c.workload, Generation: c.generation, Replicas: c.replicas,
			State: workloadsv1.Action_STATE_PENDING, CreateTime: timestamppb.New(t.now), Principal: c.principal,
		}
		if _, err := t.ExecContext(ctx, `INSERT INTO actions (id, incident, kind, workload, generation, target, request_hash, replicas, reason, principal, state, error, create_time, end_time)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '', $12, 0)`,
			id, c.incident, int32(c.kind), c.workload, c.generation, r.Generation, c.hash(), c.replicas, c.reason, c.principal, int32(a.GetState()), t.now.UnixMicro()); err != nil {
			return err
		}
		return t.save(ctx, r, a, eventPending)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

const actionColumns = `id, incident, kind, workload, generation, replicas, principal, state, error, create_time, end_time, request_hash`

func scanAction(scan func(...any) error) (a *workloadsv1.Action, hash string, err error) {
	a = &workloadsv1.Action{}
	var kind, state int32
	var created, ended int64
	if err := scan(&a.Id, &a.Incident, &kind, &a.Workload, &a.Generation, &a.Replicas, &a.Principal, &state, &a.Failure, &created, &ended, &hash); err != nil {
		return nil, "", err
	}
	a.Kind, a.State, a.Workload = workloadsv1.Action_Kind(kind), workloadsv1.Action_State(state), prefix+a.Workload
	a.CreateTime = timestamppb.New(time.UnixMicro(created))
	if ended != 0 {
		a.EndTime = timestamppb.New(time.UnixMicro(ended))
	}
	return a, hash, nil
}

// action returns a recorded action and the hash of its parameters; nil if there is none.
func action(ctx context.Context, q querier, id string) (*workloadsv1.Action, string, error) {
	a, hash, err := scanAction(q.QueryRowContext(ctx, `SELECT `+actionColumns+` FROM actions WHERE id = $1`, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, "", nil
	}
	return a, hash, reach(err)
}

// advance moves the actions of a workload, up to the generation that the driver has taken, from one state to another, each with its event.
func (t *tx) advance(ctx context.Context, r *row, from, to workloadsv1.Action_State, why string) error {
	upTo := r.Applied
	if to == workloadsv1.Action_STATE_FAILED {
		upTo = r.Generation
	}
	list, err := openActions(ctx, t, r.Name, from, upTo)
	if err != nil {
		return err
	}
	for _, a := range list {
		if err := t.finish(ctx, r, a, to, why); err != nil {
			return err
		}
	}
	return nil
}

func openActions(ctx context.Context, q querier, name string, state workloadsv1.Action_State, upTo int64) (list []*workloadsv1.Action, err error) {
	rows, err := q.QueryContext(ctx, `SELECT `+actionColumns+` FROM actions WHERE state = $1 AND workload = $2 AND target <= $3 ORDER BY target`, int32(state), name, upTo)
	if err != nil {
		return nil, reach(err)
	}
	defer func() { err = errors.Join(err, reach(rows.Close())) }()
	for rows.Next() {
		a, _, err := scanAction(rows.Scan)
		if err != nil {
			return nil, reach(err)
		}
		list = append(list, a)
	}
	return list, reach(rows.Err())
}

func (t *tx) finish(ctx context.Context, r *row, a *workloadsv1.Action, to workloadsv1.Action_State, why string) error {
	a.State, a.Failure = to, why
	var ended int64
	event := eventRunning
	switch to {
	case workloadsv1.Action_STATE_SUCCEEDED:
		event, ended, a.EndTime = eventSucceeded, t.now.UnixMicro(), timestamppb.New(t.now)
	case workloadsv1.Action_STATE_FAILED:
		event, ended, a.EndTime = eventFailed, t.now.UnixMicro(), timestamppb.New(t.now)
	}
	if _, err := t.ExecContext(ctx, `UPDATE actions SET state = $1, error = $2, end_time = $3 WHERE id = $4`, int32(to), why, ended, a.GetId()); err != nil {
		return err
	}
	return t.event(ctx, r, a, event)
}

// succeeded ends the actions that are RUNNING, as what they asked for was seen to be so.
func (s *Store) succeeded(ctx context.Context, read *row) (*row, error) {
	return s.settle(ctx, read, workloadsv1.Action_STATE_SUCCEEDED, "", time.Time{})
}

// failed ends the actions that were recorded before a time, or all if that is zero.
func (s *Store) failed(ctx context.Context, read *row, why string, before time.Time) (*row, error) {
	return s.settle(ctx, read, workloadsv1.Action_STATE_FAILED, why, before)
}

func (s *Store) settle(ctx context.Context, read *row, to workloadsv1.Action_State, why string, before time.Time) (*row, error) {
	open, err := s.open(ctx, read)
	if err != nil || len(open) == 0 {
		return read, err
	}
	if !before.IsZero() && !open[0].GetCreateTime().AsTime().Before(before) {
		return read, nil
	}
	return s.amend(ctx, read, func(t *tx, r *row) error {
		for _, from := range []workloadsv1.Action_State{workloadsv1.Action_STATE_PENDING, workloadsv1.Action_STATE_RUNNING} {
			if from == workloadsv1.Action_STATE_PENDING && to == workloadsv1.Action_STATE_SUCCEEDED {
				continue
			}
			list, err := openActions(ctx, t, r.Name, from, r.Generation)
			if err != nil {
				return err
			}
			for _, a := range list {
				if !before.IsZero() && !a.GetCreateTime().AsTime().Before(before) {
					continue
				}
				if err := t.finish(ctx, r, a, to, why); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// open returns the actions of a workload that have not ended, the oldest first.
func (s *Store) open(ctx context.Context, r *row) ([]*workloadsv1.Action, error) {
	running, err := openActions(ctx, s.db, r.Name, workloadsv1.Action_STATE_RUNNING, r.Generation)
	if err != nil {
		return nil, err
	}
	pending, err := openActions(ctx, s.db, r.Name, workloadsv1.Action_STATE_PENDING, r.Generation)
	return append(running, pending...), err
}
