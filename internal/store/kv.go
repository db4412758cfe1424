package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// KVConfig says what a table of keys holds.
type KVConfig struct {
	// Name is [a-zA-Z0-9_-]+, unique in the store.
	Name string
	// MaxBytes bounds the table. A new key beyond it, or a value above 16 KiB, is ErrFull: no key is forgotten to make room. Smaller changes of keys that
	// are there go on in a quarter more, at least 1 MiB. Default 1 GiB.
	MaxBytes int64
	// MaxValueBytes bounds one value. Default 1 MiB.
	MaxValueBytes int
}

// KV is a table of keys. Every write is a compare-and-set, and every read is answered by the leader. After ErrConflict a read finds what was in the way.
// It is safe for concurrent use.
//
// Keys are tokens of [a-zA-Z0-9_=-] with dots between; Token makes one of any text.
type KV struct {
	store  *Store
	stream jetstream.Stream
	opened time.Time
	prefix string
	max    int
	room   *room
	owner  string
}

// Entry is the value of a key.
type Entry struct {
	Key   string
	Value []byte
	// Owner is whose it is, as Of has it, Size what it takes of the table's bound, about, and TTL how long it lives from Written on, 0 for ever. Only
	// FollowSizes tells them.
	Owner string
	Size  int
	TTL   time.Duration
	// Revision is what Update and Delete compare with. It grows with every write to the table.
	Revision uint64
	// Written is when, by the engine's clock.
	Written time.Time
}

// markerTTL is how long the mark of a deleted or expired key stays, for watchers.
const markerTTL = time.Minute

// KV opens a table, and makes it if it is not there.
func (s *Store) KV(ctx context.Context, c KVConfig) (*KV, error) {
	if !legalName(c.Name) {
		return nil, fmt.Errorf("store: table %q: want letters, digits, _ and -", c.Name)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.MaxValueBytes == 0 {
		c.MaxValueBytes = 1 << 20
	}
	name := s.name("kv", c.Name)
	prefix := s.conf.Prefix + ".kv." + c.Name + "."
	st, err := s.stream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{prefix + ">"}, MaxMsgsPerSubject: 1, MaxBytes: c.MaxBytes + reserve(c.MaxBytes), MaxMsgSize: int32(c.MaxValueBytes + 4<<10),
		AllowRollup: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: markerTTL, Compression: jetstream.S2Compression,
		AllowDirect: false, // a replica that lags must not answer what is decided by
	})
	if err != nil {
		return nil, err
	}
	return &KV{store: s, stream: st, opened: time.Now(), prefix: prefix, max: c.MaxValueBytes, room: &room{max: uint64(c.MaxBytes)}}, nil //nolint:gosec // positive
}

// ownerHeader says whose a value is.
const ownerHeader = "Toolway-Owner"

// Of is the same table, of which each value that is written is marked as the owner's, a token.
func (k *KV) Of(owner string) *KV {
	of := *k
	of.owner = owner
	return &of
}

// Size is what a value takes of the table's bound, about.
func (k *KV) Size(key string, valueBytes int) int {
	return len(k.prefix) + len(key) + valueBytes + overhead
}

func legalKey(key string) bool {
	for t := range strings.SplitSeq(key, ".") {
		if !legalName(strings.ReplaceAll(t, "=", "-")) {
			return false
		}
	}
	return len(key) <= 1024
}

func illegalKey(key string) error {
	return fmt.Errorf("store: key %q: want tokens of letters, digits, _, = and -", key)
}

// Get returns the entry of a key, or ErrNotFound.
func (k *KV) Get(ctx context.Context, key string) (Entry, error) {
	e, _, err := k.last(ctx, key)
	return e, err
}

// last also returns the revision of the mark that a deleted key has left; 0 if it has none.
func (k *KV) last(ctx context.Context, key string) (Entry, uint64, error) {
	if !legalKey(key) {
		return Entry{}, 0, illegalKey(key)
	}
	ctx, cancel := context.WithTimeout(ctx, k.store.conf.Timeout)
	defer cancel()
	m, err := k.stream.GetLastMsgForSubject(ctx, k.prefix+key)
	if err != nil {
		return Entry{}, 0, classify(err)
	}
	if deleted(m.Header) {
		return Entry{}, m.Sequence, ErrNotFound
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence, Written: m.Time}, 0, nil
}

const operation = "KV-Operation"

// deleted says whether a message is the mark of a key that was deleted or has expired.
func deleted(h nats.Header) bool {
	return h.Get(operation) != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// Create stores a key that is not there, for ttl, or for ever if that is 0. It returns the revision, or ErrConflict if the key is there.
func (k *KV) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if !legalKey(key) {
		return 0, illegalKey(key)
	}
	if err := k.take(ctx, key, value); errors.Is(err, ErrFull) {
		return 0, k.vacant(ctx, key, err)
	} else if err != nil {
		return 0, err
	}
	rev, err := k.put(ctx, key, value, 0, ttl)
	if !errors.Is(err, ErrConflict) {
		return rev, err
	}
	_, mark, err := k.last(ctx, key)
	switch {
	case err == nil:
		return 0, ErrConflict
	case !errors.Is(err, ErrNotFound):
		return 0, err
	}
	return k.put(ctx, key, value, mark, ttl)
}

// Update replaces the value of a key whose entry still has the revision, else it returns ErrConflict. The key lives for ttl from now, or for
// ever if that is 0.
func (k *KV) Update(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("store: update of key %q at revision 0: a key that is not there is made by Create", key)
	}
	if len(value) > smallValue {
		if err := k.take(ctx, key, value); err != nil {
			return 0, err
		}
	}
	return k.put(ctx, key, value, revision, ttl)
}

// put writes if the last write to the key is that of the revision. A time to live is kept to whole seconds, rounded up, as the engine has it.
func (k *KV) put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if !legalKey(key) {
		return 0, illegalKey(key)
	}
	if len(value) > k.max {
		return 0, fmt.Errorf("store: value of %d bytes for key %q: %w: at most %d", len(value), key, ErrFull, k.max)
	}
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision)}
	if ttl > 0 {
		options = append(options, jetstream.WithMsgTTL(wholeSeconds(ttl)))
	}
	m := &nats.Msg{Subject: k.prefix + key, Data: value}
	if k.owner != "" {
		m.Header = nats.Header{ownerHeader: {k.owner}}
	}
	rev, err := k.publish(ctx, m, options...)
	return rev, k.store.conflict(ctx, k.stream, k.prefix+key, revision, err)
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func (k *KV) publish(ctx context.Context, m *nats.Msg, options ...jetstream.PublishOpt) (uint64, error) {
	if why := k.store.damaged.Load(); why != nil {
		return 0, fmt.Errorf("%w: %s", ErrUnavailable, *why)
	}
	return k.store.publish(ctx, k.opened, m, options...)
}

// Delete removes a key whose entry still has the revision, else it returns ErrConflict.
func (k *KV) Delete(ctx context.Context, key string, revision uint64) error {
	m := &nats.Msg{Subject: k.prefix + key, Header: nats.Header{operation: {"PURGE"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	_, err := k.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(markerTTL))
	return k.store.conflict(ctx, k.stream, m.Subject, revision, err)
}

// List gives each entry whose key begins with the tokens of under, or every entry if that is empty, to each, oldest write first, as they are
// at the start. A key that is written meanwhile may be missing or come twice, the newer one later. It ends early with each's error.
func (k *KV) List(ctx context.Context, under string, each func(Entry) error) error {
	filter, err := k.filter(under)
	if err != nil {
		return err
	}
	info, err := k.info(ctx)
	if err != nil {
		return err
	}
	return scan(ctx, k.store, k.stream, filter, info.State.FirstSeq, info.State.LastSeq, func(m *jetstream.RawStreamMsg) error {
		if deleted(m.Header) {
			return nil
		}
		return each(Entry{Key: strings.TrimPrefix(m.Subject, k.prefix), Value: m.Data, Revision: m.Sequence, Written: m.Time})
	})
}

func (k *KV) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, k.store.conf.Timeout)
	defer cancel()
	info, err := k.stream.Info(ctx)
	return info, classify(err)
}

func (k *KV) filter(under string) (string, error) {
	if under == "" {
		return k.prefix + ">", nil
	}
	if !legalKey(under) {
		return "", fmt.Errorf("store: key %q: want tokens of letters, digits, _, = and -", under)
	}
	return k.prefix + under + ".>", nil
}

// entry returns what a message holds; live is false for the mark of a key that is gone.
func (k *KV) entry(m jetstream.Msg) (e Entry, live bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return Entry{}, false, classify(err)
	}
	e = Entry{Key: strings.TrimPrefix(m.Subject(), k.prefix), Value: m.Data(), Revision: meta.Sequence.Stream, Written: meta.Timestamp}
	return e, !deleted(m.Headers()), nil
}

// Watch gives the writes under some tokens, from now on, to each, until ctx ends or each returns an error, which it returns. Of several quick
// writes to a key it may give the last one only. live is false when the key was deleted or has expired; the entry then has no value. What is written while the store is not available comes when it is back.
func (k *KV) Watch(ctx context.Context, under string, each func(e Entry, live bool) error) error {
	filter, err := k.filter(under)
	if err != nil {
		return err
	}
	info, err := k.info(ctx)
	if err != nil {
		return err
	}
	return k.follow(ctx, filter, info.State.LastSeq, each, false)
}

// Follow gives the entries under some tokens that are there, oldest write first, and then the writes as Watch does.
func (k *KV) Follow(ctx context.Context, under string, each func(e Entry, live bool) error) error {
	filter, err := k.filter(under)
	if err != nil {
		return err
	}
	return k.follow(ctx, filter, 0, each, false)
}

// FollowSizes is Follow for all keys, without their values: it tells whose they are, their sizes and how long they live. What has expired while the store was
// away for more than a minute is not told.
func (k *KV) FollowSizes(ctx context.Context, each func(e Entry, live bool) error) error {
	return k.follow(ctx, k.prefix+">", 0, each, true)
}

func (k *KV) follow(ctx context.Context, filter string, last uint64, each func(e Entry, live bool) error, sizes bool) error {
	for {
		err := consume(ctx, k.stream, filter, last, sizes, func(m jetstream.Msg) error {
			e, live, err := k.entry(m)
			if err != nil {
				return err
			}
			if sizes {
				h := m.Headers()
				n, err := strconv.Atoi(h.Get(nats.MsgSize))
				if err != nil {
					return fmt.Errorf("store: the size of key %q: %w", e.Key, err)
				}
				e.Owner, e.Size = h.Get(ownerHeader), k.Size(e.Key, n)
				e.TTL, _ = time.ParseDuration(h.Get(jetstream.MsgTTLHeader)) // we have written it
			}
			last = e.Revision
			return each(e, live)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		pause(ctx)
	}
}

// Last returns the revision of the newest write under some tokens, or ErrNotFound: who follows them and has that one has all before.
func (k *KV) Last(ctx context.Context, under string) (uint64, error) {
	filter, err := k.filter(under)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.store.conf.Timeout)
	defer cancel()
	m, err := k.stream.GetLastMsgForSubject(ctx, filter)
	if err != nil {
		return 0, classify(err)
	}
	return m.Sequence, nil
}

// pause is the time between two tries while the store is away.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(500 * time.Millisecond):
	}
}

// consume gives each message of a subject after a sequence to take, as they come, until ctx ends or take returns an error. A consumer that has
// lost its server ends with ErrUnavailable: the caller begins another where this one stopped.
func consume(ctx context.Context, st jetstream.Stream, subject string, after uint64, headersOnly bool, take func(jetstream.Msg) error) error {
	c, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, InactiveThreshold: time.Minute, HeadersOnly: headersOnly,
	})
	if err != nil {
		return classify(err)
	}
	it, err := c.Messages(jetstream.PullHeartbeat(2 * time.Second))
	if err != nil {
		return classify(err)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		m, err := it.Next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return classify(err)
		}
		if err := take(m); err != nil {
			return err
		}
	}
}
