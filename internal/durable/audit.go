package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/store"
)

// Audit is an audit.Sink and what the audit service reads: the records of all instances, in one log.
type Audit struct {
	log    *store.Log
	logger *slog.Logger
	// waits says that Record returns when the record is on disk.
	waits bool
	// recent are this instance's last records, which are found without the log.
	recent *audit.Ring

	queue   chan *toolwayv1.AuditRecord
	writing sync.WaitGroup
	stop    context.CancelFunc
}

var _ audit.Sink = (*Audit)(nil)

// AuditOptions say how records are kept.
type AuditOptions struct {
	// Required makes Record wait until the record is on disk, and fail if it cannot be written. Without it records are written behind the call:
	// those of the last moments before a crash may be lost.
	Required bool
	// Recent is how many records are found without the log. Default 1,000.
	Recent int
	// Retention bounds the log.
	Retention store.LogConfig
	// Logger is told of records that could not be written.
	Logger *slog.Logger
}

// maxQueued is how many records wait to be written; a call waits for room.
const maxQueued = 4096

// subject is that of all records: one for each call would cost the engine memory for as long as they are kept.
const subject = "call"

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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	run, stop := context.WithCancel(context.Background())
	a := &Audit{log: log, logger: o.Logger, waits: o.Required, recent: audit.NewRing(o.Recent), queue: make(chan *toolwayv1.AuditRecord, maxQueued), stop: stop}
	// Several writers, so that one write's wait for the disk is not the rate of all.
	for range 8 {
		a.writing.Go(func() { a.write(run) })
	}
	return a, nil
}

// Close writes what waits, and ends.
func (a *Audit) Close() error {
	close(a.queue)
	a.writing.Wait()
	a.stop()
	return nil
}

func (a *Audit) write(ctx context.Context) {
	for r := range a.queue {
		if err := a.append(ctx, r); err != nil {
			a.logger.Error("an audit record was not written", "call_id", r.GetCallId(), "error", err)
		}
	}
}

func (a *Audit) append(ctx context.Context, r *toolwayv1.AuditRecord) error {
	raw, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	_, err = a.log.Append(ctx, subject, raw, r.GetCallId())
	return err
}

// Record is Sink's.
func (a *Audit) Record(ctx context.Context, r *toolwayv1.AuditRecord) error {
	_ = a.recent.Record(ctx, r) // a ring takes everything
	if a.waits {
		return a.append(context.WithoutCancel(ctx), r)
	}
	a.queue <- r
	return nil
}

// maxSearched is how many records are looked through, newest first, for one that was not among the recent ones of this instance.
const maxSearched = 20_000

// Get returns the record of a call, or nil if there is none, or it is older than the records that are looked through.
func (a *Audit) Get(callID string) *toolwayv1.AuditRecord {
	if r := a.recent.Get(callID); r != nil {
		return r
	}
	found, _ := a.back(0, 1, maxSearched, func(r *toolwayv1.AuditRecord) bool { return r.GetCallId() == callID })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// List returns up to limit records for which keep says yes, the newest first, of those before the number given; 0 means all. more is the
// number to go on with, 0 if there is no more. One call looks through a bounded number of records, so a page may be short.
func (a *Audit) List(before uint64, limit int, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64) {
	return a.back(before, limit, maxSearched, keep)
}

func (a *Audit) back(before uint64, limit, budget int, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64) {
	next, err := a.log.Back(context.Background(), before, budget, func(e store.Event) error {
		r := &toolwayv1.AuditRecord{}
		if err := proto.Unmarshal(e.Data, r); err != nil {
			a.logger.Error("an audit record cannot be read", "sequence", e.Sequence, "error", err)
			return nil
		}
		if keep(r) {
			if len(records) == limit {
				more = e.Sequence + 1
				return errEnough
			}
			records = append(records, r)
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return records, more
	case err != nil:
		a.logger.Error("audit records cannot be read", "error", err)
		return records, 0
	}
	return records, next
}

var errEnough = errors.New("enough")
