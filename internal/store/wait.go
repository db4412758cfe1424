package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tellAfter is when the log says what is waited for.
const tellAfter = 3 * time.Second

// errNoJetStream ends the waiting: it does not come by itself.
var errNoJetStream = errors.New("it is a NATS server without JetStream: start it with -js, or enable it for the account")

// insist repeats what may be repeated until the store answers, Config.Wait is over, or ctx ends: a cluster that has just begun, or has just lost a server,
// may not answer one request, and yet the next. Each has its own timeout, since a request that comes while there is no leader is never answered.
func (s *Store) insist(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Wait)
	defer cancel()
	began, told := time.Now(), false
	for {
		try, cancel := context.WithTimeout(ctx, s.conf.Timeout)
		err := do(try)
		cancel()
		var api *jetstream.APIError
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return errNoJetStream
		case s.engine != nil && errors.As(err, &api) && (api.ErrorCode == codeInsufficient || api.ErrorCode == codeStorage):
			return fmt.Errorf("%w: %d bytes are too few for what is to be kept: raise store.max_bytes, or lower the bounds of what is kept", ErrFull, s.conf.MaxBytes)
		case !errors.Is(err, ErrUnavailable):
			err = classify(err)
		}
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		if !told && time.Since(began) >= tellAfter {
			told = true
			s.log.Warn("still waiting for the store", "store", s.place(), "for", what, "at_most", s.conf.Wait, "why", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, after %v", err, time.Since(began).Round(time.Second))
		case <-s.closed:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A cluster that has just begun, or just made a stream, may have nobody for a moment who takes writes for it, though a leader has answered before: servers
// join their routes, and leaders change once more. Such a write has reached no one, so it can be sent again. Later that means that the leader is gone, or that
// this is the smaller part of a cluster that was cut in two: then callers are told soon.
const (
	// settling is how long after its opening a stream is given time.
	settling = 10 * time.Second
	// sendAgain is how often a write is sent again meanwhile, a quarter of a second each.
	sendAgain = 12
)

// publish writes to a stream that was opened at some time, and returns the sequence.
func (s *Store) publish(ctx context.Context, opened time.Time, m *nats.Msg, options ...jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	if s.engine == nil && time.Since(opened) < settling {
		options = append(options, jetstream.WithRetryAttempts(sendAgain))
	}
	ack, err := s.js.PublishMsg(ctx, m, options...)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		return 0, fmt.Errorf("%w: nobody takes writes for %q: it has no leader, or none that can be reached", ErrUnavailable, m.Subject)
	}
	if err != nil {
		return 0, classify(err)
	}
	return ack.Sequence, nil
}

// led says whether a stream of a cluster, which may just have been made, has a leader that answers.
func (s *Store) led(ctx context.Context, st jetstream.Stream) error {
	if s.engine != nil {
		return nil
	}
	info, err := st.Info(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return fmt.Errorf("%w: it has no leader that answers: %w", ErrUnavailable, err)
	case info.Cluster != nil && info.Cluster.Leader == "":
		return fmt.Errorf("%w: it has no leader", ErrUnavailable)
	}
	return nil
}
