package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/store"
)

// Audit is an audit.Sink and what the audit service reads: the records of all instances, in one log.
type Audit struct {
	store  *store.Store
	log    *store.Log
	logger *slog.Logger
	// waits says that Record returns when the record is on disk.
	waits bool
	// searched is how many records are looked through at a time.
	searched int
	// recent are this instance's last records, which are found without the log.
	recent *audit.Ring

	writing sync.WaitGroup // the writers
	stop    context.CancelFunc
	ending  chan struct{} // closed by Close

	mu     sync.RWMutex // held while a record is queued
	queue  chan audit.Record
	closed bool
}

var _ audit.Sink = (*Audit)(nil)

// AuditOptions say how records are kept.
type AuditOptions struct {
	// Required makes Record wait until the record is on disk, and fail if it cannot be written. Without it records are written behind the call:
	// those of the last moments before a crash may be lost. While the store is away some thousands wait for it; Record fails beyond them.
	Required bool
	// Recent is how many records are found without the log. Default 1,000.
	Recent int
	// Searched is how many records one List, or one Get, looks through. Default 20,000.
	Searched int
	// Retention bounds the log.
	Retention store.LogConfig
	// Logger is told of records that could not be written.
	Logger *slog.Logger
}

const (
	// maxQueued is how many records wait to be written.
	maxQueued = 4096
	// roomTimeout is how long a call waits for room among them.
	roomTimeout = 250 * time.Millisecond
	// closeTimeout is how long Close goes on to write what waits.
	closeTimeout = 5 * time.Second
	// writers is how many records are written at a time, so that one write's wait for the disk is not the rate of all.
	writers = 8
)

// errAuditClosed is what a call gets that ends after the mesh has.
var errAuditClosed = errors.New("the audit is closed")

// OpenAudit opens the records in s.
func OpenAudit(ctx context.Context, s *store.Store, o AuditOptions) (*Audit, error) {
	o.Retention.Name = "audit"
	log, err := s.Log(ctx, o.Retention)
	if err != nil {
		return nil, err
	}
	if o.Recent == 0 {
		o.Recent = 1000
	}
	if o.Searched == 0 {
		o.Searched = 20_000
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	run, stop := context.WithCancel(context.Background())
	a := &Audit{
		store: s, log: log, logger: o.Logger, waits: o.Required, searched: o.Searched, recent: audit.NewRing(o.Recent),
		queue: make(chan audit.Record, maxQueued), stop: stop, ending: make(chan struct{}),
	}
	for range writers {
		a.writing.Go(func() { a.write(run) })
	}
	return a, nil
}

// Close writes what waits, for some seconds at most, and ends.
func (a *Audit) Close() error {
	a.mu.Lock()
	a.closed = true
	close(a.queue)
	a.mu.Unlock()
	close(a.ending)
	cut := time.AfterFunc(closeTimeout, a.stop)
	a.writing.Wait()
	cut.Stop()
	a.stop()
	return nil
}

// write writes what is queued.
func (a *Audit) write(ctx context.Context) {
	for r := range a.queue {
		if err := a.persist(ctx, r); err != nil {
			a.logger.Error("an audit record was not written", "call_id", r.CallID(), "error", err)
		}
	}
}

// persist writes a record, and waits for a store that is away until the audit ends. The store knows a record that it has taken without an answer.
func (a *Audit) persist(ctx context.Context, r audit.Record) error {
	for {
		err := a.append(ctx, r)
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		select {
		case <-a.ending:
			return err
		case <-time.After(retryEvery):
		}
	}
}

// retryEvery is the time between two tries while the store is away.
const retryEvery = 500 * time.Millisecond

func (a *Audit) append(ctx context.Context, r audit.Record) error {
	m, err := r.Decode()
	if err != nil {
		return err
	}
	_, err = a.log.Append(ctx, shard(m.GetCallId()), r, recordID(m))
	return err
}

// recordID tells a record that is written again from another one: the runs of a task are calls with one id, and each has its record.
func recordID(r *toolwayv1.AuditRecord) string {
	return r.GetCallId() + "." + strconv.FormatInt(r.GetStartedAt().AsTime().UnixNano(), 36)
}

// shard is the subject of a call's record: so many that one call is found without reading them all, and so few that the engine keeps no subject
// for each call in memory.
func shard(callID string) string { return "call." + store.Token(callID)[:2] }

// Record is Sink's.
func (a *Audit) Record(ctx context.Context, r audit.Record) error {
	_ = a.recent.Record(ctx, r) // a ring takes everything
	r = bytes.Clone(r)
	if a.waits {
		return a.append(context.WithoutCancel(ctx), r)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return errAuditClosed
	}
	select {
	case a.queue <- r:
		return nil
	default:
	}
	if why := a.store.Down(); why != "" {
		return fmt.Errorf("%w: %s", store.ErrUnavailable, why)
	}
	select {
	case a.queue <- r:
		return nil
	case <-time.After(roomTimeout):
		return fmt.Errorf("%w: %d records wait to be written", store.ErrUnavailable, maxQueued)
	}
}

const (
	// maxSearch is how long one List looks for records.
	maxSearch = 2 * time.Second
	// skew is how much the clocks of instances and store may differ.
	skew = time.Minute
)

// Get returns the record of a call, or nil if there is none; of the runs of a task, which have one id, that of the one that began last, on whatever
// instance. Of records that are not among the recent ones of this instance it looks through a 256th, AuditOptions.Searched at most: beyond some five
// million records it may not find the newest.
func (a *Audit) Get(ctx context.Context, callID string) (*toolwayv1.AuditRecord, error) {
	found, err := a.recent.Get(ctx, callID)
	if err != nil {
		return nil, err
	}
	recent, left := found, a.searched
	_, err = a.log.Read(ctx, shard(callID), 0, func(e store.Event) error {
		if r := a.decode(e); r.GetCallId() == callID && (found == nil || r.GetStartedAt().AsTime().After(found.GetStartedAt().AsTime())) {
			found = r
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	switch {
	case err == nil, errors.Is(err, errEnough):
		return found, nil
	case recent != nil && errors.Is(err, store.ErrUnavailable):
		return recent, nil
	}
	return nil, err
}

// List returns the records of a page. One call looks through a bounded number of records, so a page may be short and yet have a next one.
func (a *Audit) List(ctx context.Context, p audit.Page, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64, err error) {
	begun := time.Now()
	next, err := a.log.Back(ctx, p.Before, a.searched, func(e store.Event) error {
		if !p.Since.IsZero() && e.Time.Before(p.Since.Add(-skew)) {
			return errEnough // records are appended after their calls have ended
		}
		if r := a.decode(e); r != nil && keep(r) {
			if len(records) == p.Limit {
				more = e.Sequence + 1
				return errEnough
			}
			records = append(records, r)
		}
		if time.Since(begun) > maxSearch {
			more = e.Sequence
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return records, more, nil
	case err != nil:
		return nil, 0, err
	}
	return records, next, nil
}

// decode returns the record of an event, or nil if it is none.
func (a *Audit) decode(e store.Event) *toolwayv1.AuditRecord {
	r := &toolwayv1.AuditRecord{}
	if err := proto.Unmarshal(e.Data, r); err != nil {
		a.logger.Error("an audit record cannot be read", "sequence", e.Sequence, "error", err)
		return nil
	}
	return r
}

var errEnough = errors.New("enough")
