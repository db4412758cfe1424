package workloads

import (
	"context"
	"errors"
	"time"
)

const (
	// resync is how often what is wanted and what there is are compared though nothing told of a change: other instances may have recorded one.
	resync = time.Second
	// pause is the least between two comparisons, so that a place that changes all the time is not asked all the time.
	pause = 50 * time.Millisecond
	// pruneEvery is how often old events are removed.
	pruneEvery = time.Minute
)

// Run carries out what was recorded and records what happens, until ctx ends. It begins with what an earlier process left undone. While the database or the driver is out of reach it tries again.
// One Run at a time for a server.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	var pruned time.Time
	for {
		changed := s.store.Changed()
		if err := s.Sync(ctx); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "workloads cannot be compared with what is wanted; trying again", "error", err, "retry_in", resync)
			changed = nil
		}
		if time.Since(pruned) >= pruneEvery {
			if err := s.store.prune(ctx, time.Now().Add(-s.options.Retention)); err == nil {
				pruned = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-s.driver.Changed():
		case <-ticker.C:
		}
	}
}

// Sync compares what is wanted with what there is, once, and does what follows: has the driver apply changes, takes over what others changed, and records how workloads fare and
// which actions are done. It returns the errors of all workloads that it could not deal with.
func (s *Server) Sync(ctx context.Context) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	// First the rows, then the place: so the place is never older than a row says.
	rows, err := workloads(ctx, s.store.db, "", 0)
	if err != nil {
		return err
	}
	known := make(map[string]*row, len(rows))
	for _, r := range rows {
		known[r.Name] = r
	}
	there, err := s.driver.Observe(ctx, "")
	if err != nil {
		return err
	}
	var failed []error
	for i := range there {
		o := &there[i]
		if checkName(o.Name) != nil {
			continue // has no resource name
		}
		if err := s.sync(ctx, known[o.Name], o); err != nil {
			failed = append(failed, err)
		}
		delete(known, o.Name)
	}
	for _, r := range known {
		delete(s.taken, r.Name)
		if !r.Gone {
			failed = append(failed, s.store.lost(ctx, r))
		}
	}
	return errors.Join(failed...)
}

func (s *Server) sync(ctx context.Context, r *row, o *Observed) (err error) {
	if r == nil || r.Gone {
		if r, err = s.store.discover(ctx, o); err != nil {
			return err
		}
	}
	if r.Applied == r.Generation && r.Revision != o.Revision {
		if r, err = s.store.adopt(ctx, r, o); err != nil {
			return err
		}
	}
	// Also at the first time in this process: a driver may forget.
	if r.Applied < r.Generation || s.taken[r.Name] < r.Generation {
		return s.apply(ctx, r)
	}
	// Actions first: whoever is told that the workload runs finds that they have ended.
	status := statusOfObserved(r, o)
	if o.Settled && o.Revision == r.Revision {
		if r, err = s.store.succeeded(ctx, r); err != nil {
			return err
		}
	} else if r, err = s.store.failed(ctx, r, s.late(o), time.Now().Add(-s.options.ActionTimeout)); err != nil {
		return err
	}
	_, err = s.store.observed(ctx, r, status)
	return err
}

func (s *Server) late(o *Observed) string {
	text := "the workload was not seen as wanted within " + s.options.ActionTimeout.String() + "; what is wanted stays"
	if o.LastExit != "" {
		text += "; the last end of a replica: " + o.LastExit
	}
	return text
}

// apply has the driver take what is wanted of a workload.
func (s *Server) apply(ctx context.Context, r *row) error {
	revision, err := s.driver.Apply(ctx, Wanted{Name: r.Name, Replicas: r.Replicas, Restart: r.Restart, Revision: r.Revision})
	switch {
	case errors.Is(err, ErrChanged):
		return s.overtaken(ctx, r)
	case errors.Is(err, ErrGone):
		return nil // the next comparison records it
	case err != nil:
		_, late := s.store.failed(ctx, r, "the driver cannot be reached, or refuses: "+err.Error(), time.Now().Add(-s.options.ActionTimeout))
		return errors.Join(err, late)
	}
	generation := r.Generation
	if r.Applied < r.Generation || r.Revision != revision {
		if r, err = s.store.applied(ctx, r, revision); err != nil {
			return err
		}
	}
	if r.Generation == generation {
		s.taken[r.Name] = generation
	}
	return nil
}

// overtaken gives up what was wanted in favour of what somebody else has told the place to want meanwhile.
func (s *Server) overtaken(ctx context.Context, r *row) error {
	r, err := s.store.failed(ctx, r, ErrChanged.Error()+"; read it again and decide anew", time.Time{})
	if err != nil {
		return err
	}
	there, err := s.driver.Observe(ctx, r.Name)
	if err != nil || len(there) == 0 {
		return err
	}
	_, err = s.store.adopt(ctx, r, &there[0])
	return err
}
