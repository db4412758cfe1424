package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/store"
)

// later completes what the store was away for: what became of a call that has ended, and the claim of a call that was refused since nobody knew
// whether it had been stored. It tries until the record's lease is over, when others take what became of the call for unknown anyway.
type later struct {
	finish func(ctx context.Context, id interceptors.Hash, r interceptors.KeyRecord) error
	logger *slog.Logger

	ending  chan struct{}
	working sync.WaitGroup

	mu     sync.Mutex
	items  []laterItem
	bytes  int // of the answers in items
	busy   bool
	closed bool
}

// laterItem is a record that is to be written.
type laterItem struct {
	id     interceptors.Hash
	record interceptors.KeyRecord
	bytes  int
	// claim says that the record may not be there at all. A write that was under way may come late: it is looked for twice.
	claim bool
	seen  int
	next  time.Time
}

// The bounds of what waits. What is beyond stays as it is in the store.
const (
	maxLater      = 10_000
	maxLaterBytes = 32 << 20
	// lateWrites is how long a write that was not acknowledged may be under way.
	lateWrites = 5 * time.Second
)

// add says whether the record will be tried.
func (l *later) add(i laterItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.items) >= maxLater {
		return false
	}
	for _, reply := range i.record.Replies {
		i.bytes += len(reply)
	}
	if l.bytes+i.bytes > maxLaterBytes {
		i.bytes = 0
		i.record.Replies, i.record.Header, i.record.Trailer, i.record.Cut = nil, nil, nil, true
	}
	l.bytes += i.bytes
	l.items = append(l.items, i)
	if !l.busy {
		l.busy = true
		l.working.Go(l.work)
	}
	return true
}

// work tries what waits until nothing does.
func (l *later) work() {
	for {
		select {
		case <-l.ending:
			return
		case <-time.After(retryEvery):
		}
		l.mu.Lock()
		items := l.items
		l.items = nil
		l.mu.Unlock()
		var rest []laterItem
		for n, i := range items {
			done, away := l.try(&i)
			if away { // the others would wait as long
				rest = append(rest, items[n:]...)
				break
			}
			if !done {
				rest = append(rest, i)
			}
		}
		if !l.keep(rest) {
			return
		}
	}
}

// keep puts back what is not done. It is false if nothing waits.
func (l *later) keep(rest []laterItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(rest, l.items...)
	l.bytes = 0
	for _, i := range l.items {
		l.bytes += i.bytes
	}
	l.busy = len(l.items) > 0
	return l.busy
}

// try writes the record. away says that the store is.
func (l *later) try(i *laterItem) (done, away bool) {
	switch now := time.Now(); {
	case now.After(i.record.Lease):
		l.logger.Warn("what became of a call with an idempotency key was not recorded in time: it counts as unknown", "call_id", i.record.Owner)
		return true, false
	case now.Before(i.next):
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lateWrites)
	defer cancel()
	err := l.finish(ctx, i.id, i.record)
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return false, true
	case errors.Is(err, interceptors.ErrKeyLost) && i.claim && i.seen == 0:
		i.seen, i.next = 1, time.Now().Add(lateWrites)
		return false, false
	case err != nil && !errors.Is(err, interceptors.ErrKeyLost):
		l.logger.Error("record what became of a call with an idempotency key, later", "call_id", i.record.Owner, "error", err)
	}
	return true, false
}

// close ends the trying.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.ending)
	l.working.Wait()
}
