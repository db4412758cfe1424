package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LogConfig says what a log of events holds.
type LogConfig struct {
	// Name is [a-zA-Z0-9_-]+, unique in the store.
	Name string
	// MaxAge and MaxBytes are the retention: what is older or beyond is forgotten, oldest first. Default 7 days and 1 GiB.
	MaxAge   time.Duration
	MaxBytes int64
	// MaxEventBytes bounds one event. Default 1 MiB.
	MaxEventBytes int
}

// Log is a log of events. Each has a subject, such as a task's id, and a sequence, which grows with every event of the log. It is safe for
// concurrent use.
type Log struct {
	store  *Store
	stream jetstream.Stream
	opened time.Time
	prefix string
	max    int
	hub    hub
}

// Event is one event of a log.
type Event struct {
	Sequence uint64
	Subject  string
	Data     []byte
	// Time is when it was appended, by the engine's clock.
	Time time.Time
}

// Log opens a log, and makes it if it is not there.
func (s *Store) Log(ctx context.Context, c LogConfig) (*Log, error) {
	if !legalName(c.Name) {
		return nil, fmt.Errorf("store: log %q: want letters, digits, _ and -", c.Name)
	}
	if c.MaxAge == 0 {
		c.MaxAge = 7 * 24 * time.Hour
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.MaxEventBytes == 0 {
		c.MaxEventBytes = 1 << 20
	}
	prefix := s.conf.Prefix + ".log." + c.Name + "."
	st, err := s.stream(ctx, jetstream.StreamConfig{
		Name: s.name("log", c.Name), Subjects: []string{prefix + ">"}, MaxAge: c.MaxAge, MaxBytes: c.MaxBytes, MaxMsgSize: int32(c.MaxEventBytes + 4<<10),
		Compression: jetstream.S2Compression, Duplicates: min(c.MaxAge, 2*time.Minute),
	})
	if err != nil {
		return nil, err
	}
	l := &Log{store: s, stream: st, opened: time.Now(), prefix: prefix, max: c.MaxEventBytes}
	l.hub.log = l
	return l, nil
}

// Append appends an event and returns its sequence. The subject is made of tokens, as a key is. A second event with the same id within two minutes
// is not appended again, and gets the sequence of the first; an empty id is none.
func (l *Log) Append(ctx context.Context, subject string, data []byte, id string) (uint64, error) {
	var options []jetstream.PublishOpt
	if id != "" {
		options = append(options, jetstream.WithMsgID(id))
	}
	return l.append(ctx, subject, data, options...)
}

// AppendAfter appends an event if the last one of its subject has the sequence, 0 if there is none, else it returns ErrConflict: whoever reads then finds
// the other.
func (l *Log) AppendAfter(ctx context.Context, subject string, data []byte, last uint64) (uint64, error) {
	sequence, err := l.append(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(last))
	return sequence, l.store.conflict(ctx, l.stream, l.prefix+subject, last, err)
}

func (l *Log) append(ctx context.Context, subject string, data []byte, options ...jetstream.PublishOpt) (uint64, error) {
	if !legalKey(subject) {
		return 0, fmt.Errorf("store: subject %q: want tokens of letters, digits, _, = and -", subject)
	}
	if len(data) > l.max {
		return 0, fmt.Errorf("store: event of %d bytes: %w: at most %d", len(data), ErrFull, l.max)
	}
	return l.store.publish(ctx, l.opened, &nats.Msg{Subject: l.prefix + subject, Data: data}, options...)
}

// Bounds returns the sequences of the oldest event that is kept and of the newest. Without events first is last+1.
func (l *Log) Bounds(ctx context.Context) (first, last uint64, err error) {
	first, last, _, err = l.bounds(ctx)
	return first, last, err
}

// bounds also says whether the log is about to forget, or does.
func (l *Log) bounds(ctx context.Context) (first, last uint64, forgets bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.store.conf.Timeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, 0, false, classify(err)
	}
	have, c := &info.State, &info.Config
	if have.Msgs == 0 {
		return have.LastSeq + 1, have.LastSeq, false, nil
	}
	forgets = have.Bytes/3 > uint64(c.MaxBytes)/4 || time.Since(have.FirstTime)/3 > c.MaxAge/4 //nolint:gosec // bounded
	return have.FirstSeq, have.LastSeq, forgets, nil
}

// edge is where a log that is being read forgets.
type edge struct {
	log     *Log
	forgets bool
	looked  time.Time
}

// edgeEvery is how often a reader looks whether a log forgets that has room yet.
const edgeEvery = time.Second

// passed returns ErrExpired if the log may have forgotten events from a sequence on before they were asked for. It costs nothing as long as the log has room.
func (e *edge) passed(ctx context.Context, from uint64) error {
	if !e.forgets && time.Since(e.looked) < edgeEvery {
		return nil
	}
	first, _, forgets, err := e.log.bounds(ctx)
	if err != nil {
		return err
	}
	e.forgets, e.looked = forgets, time.Now()
	if first > from {
		return ErrExpired
	}
	return nil
}

// Reached says whether an event with the sequence, or a later one, has been appended. A leader that lags is given some time.
func (l *Log) Reached(ctx context.Context, sequence uint64) (bool, error) {
	return l.store.reached(ctx, l.stream, sequence)
}

// Read gives the events of a filter after a sequence, in order, up to the newest at the start, to each. A filter is a subject, or tokens with
// ".>" after them for all subjects that begin with them, or ">" for all. It returns the sequence up to which it has read, or each's error.
// ErrExpired means that events after the sequence, or after the last one that was given, have been forgotten; after 0 it begins with the oldest one.
func (l *Log) Read(ctx context.Context, filter string, after uint64, each func(Event) error) (upTo uint64, err error) {
	if err := legalFilter(filter); err != nil {
		return after, err
	}
	first, last, forgets, err := l.bounds(ctx)
	if err != nil {
		return after, err
	}
	if after > 0 && after+1 < first {
		return after, ErrExpired
	}
	if after >= last {
		return after, nil
	}
	edge := &edge{log: l, forgets: forgets, looked: time.Now()}
	err = scan(ctx, l.store, l.stream, l.prefix+filter, after+1, last, func(m *jetstream.RawStreamMsg) error {
		if after > 0 && m.Sequence > after+1 {
			if err := edge.passed(ctx, after+1); err != nil {
				return err
			}
		}
		err := each(Event{Sequence: m.Sequence, Subject: strings.TrimPrefix(m.Subject, l.prefix), Data: m.Data, Time: m.Time})
		if err == nil {
			after = m.Sequence
		}
		return err
	})
	if err == nil && after > 0 && after < last {
		err = edge.passed(ctx, after+1)
	}
	if err != nil {
		return after, err
	}
	return max(after, last), nil
}

// Back gives events of all subjects before a sequence, newest first, to each: at most budget of them. 0 means from the newest on. It returns
// the sequence to go on before, 0 if there are no older ones, or each's error.
func (l *Log) Back(ctx context.Context, before uint64, budget int, each func(Event) error) (next uint64, err error) {
	first, last, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	at := last
	if before > 0 {
		at = min(last, before-1)
	}
	for ; at >= first && at > 0; at-- {
		if budget == 0 {
			return at + 1, nil
		}
		budget--
		m, err := l.get(ctx, at)
		if errors.Is(err, ErrNotFound) && l.store.conf.Replicas > 1 { // or it was asked of a leader that lags
			if err := l.store.caughtUp(ctx, l.stream, last); err != nil {
				return 0, err
			}
			m, err = l.get(ctx, at)
		}
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err := each(Event{Sequence: m.Sequence, Subject: strings.TrimPrefix(m.Subject, l.prefix), Data: m.Data, Time: m.Time}); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (l *Log) get(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, l.store.conf.Timeout)
	defer cancel()
	m, err := l.stream.GetMsg(ctx, sequence)
	return m, classify(err)
}

// scan gives the messages of a subject between two sequences to each, in order. It asks the leader for one after the other: a consumer may be
// placed on a replica that lags, and does not tell. One request takes some 50 µs embedded, and a network round trip in a cluster.
func scan(ctx context.Context, s *Store, st jetstream.Stream, subject string, from, to uint64, each func(*jetstream.RawStreamMsg) error) error {
	sure := s.conf.Replicas <= 1
	for from <= to {
		m, err := next(ctx, s, st, subject, from)
		switch {
		case errors.Is(err, ErrNotFound) && sure:
			return nil
		case errors.Is(err, ErrNotFound): // or it was asked of a leader that has less than the one that said how far to read
			if err := s.caughtUp(ctx, st, to); err != nil {
				return err
			}
			sure = true
			continue
		case err != nil:
			return err
		case m.Sequence > to:
			return nil
		}
		if err := each(m); err != nil {
			return err
		}
		from, sure = m.Sequence+1, s.conf.Replicas <= 1
	}
	return nil
}

func next(ctx context.Context, s *Store, st jetstream.Stream, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	m, err := st.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	return m, classify(err)
}

func legalFilter(filter string) error {
	subject := strings.TrimSuffix(strings.TrimSuffix(filter, ">"), ".")
	if filter == ">" || subject != "" && legalKey(subject) && (subject == filter || subject+".>" == filter) {
		return nil
	}
	return fmt.Errorf("store: filter %q: want a subject, tokens with .> after them, or >", filter)
}

func (l *Log) event(m jetstream.Msg) (Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Event{}, classify(err)
	}
	return Event{Sequence: meta.Sequence.Stream, Subject: strings.TrimPrefix(m.Subject(), l.prefix), Data: m.Data(), Time: meta.Timestamp}, nil
}

// Last returns the newest event of a subject, or ErrNotFound.
func (l *Log) Last(ctx context.Context, subject string) (Event, error) {
	ctx, cancel := context.WithTimeout(ctx, l.store.conf.Timeout)
	defer cancel()
	m, err := l.stream.GetLastMsgForSubject(ctx, l.prefix+subject)
	if err != nil {
		return Event{}, classify(err)
	}
	return Event{Sequence: m.Sequence, Subject: subject, Data: m.Data, Time: m.Time}, nil
}

// Forget removes all events of a subject.
func (l *Log) Forget(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.conf.Timeout)
	defer cancel()
	return classify(l.stream.Purge(ctx, jetstream.WithPurgeSubject(l.prefix+subject)))
}
