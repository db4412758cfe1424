package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// In a cluster the leader answers every read, but it may be behind: a write is refused by what it has only begun to store, a replica hands out what
// the leader has not applied yet, and a leader that has just been chosen applies the last of what the one before had. What has been told once must
// not be taken for what never was, so that is waited for.

// lagTime is how long it is.
const lagTime = 2 * time.Second

// poll asks until f is done or fails, or lagTime is over: then it returns false. Where one node has everything there is nothing to wait for.
func (s *Store) poll(ctx context.Context, f func() (bool, error)) (bool, error) {
	end := time.Now().Add(lagTime)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if done, err := f(); done || err != nil {
			return done, err
		}
		if s.conf.Replicas <= 1 || time.Now().After(end) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// reached says whether the leader of a stream has a sequence, or a later one.
func (s *Store) reached(ctx context.Context, st jetstream.Stream, sequence uint64) (bool, error) {
	return s.poll(ctx, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
		defer cancel()
		info, err := st.Info(ctx)
		if err != nil {
			return false, classify(err)
		}
		return info.State.LastSeq >= sequence, nil
	})
}

// conflict returns the error of a write that others were in the way of, once what was can be read: another write than the last one that the writer knew.
func (s *Store) conflict(ctx context.Context, st jetstream.Stream, subject string, known uint64, err error) error {
	if !errors.Is(err, ErrConflict) || s.conf.Replicas <= 1 {
		return err
	}
	_, _ = s.poll(ctx, func() (bool, error) { // if it does not come, it was given up: the caller sees that there is nothing
		ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
		defer cancel()
		m, err := st.GetLastMsgForSubject(ctx, subject)
		if err = classify(err); errors.Is(err, ErrNotFound) {
			return known != 0, nil
		}
		return err == nil && m.Sequence != known, nil
	})
	return err
}

// caughtUp waits until the leader has all up to a sequence that was told. What was not found before is there then, or is not at all.
func (s *Store) caughtUp(ctx context.Context, st jetstream.Stream, to uint64) error {
	ok, err := s.reached(ctx, st, to)
	if err == nil && !ok {
		err = fmt.Errorf("%w: its leader has not caught up", ErrUnavailable)
	}
	return err
}
