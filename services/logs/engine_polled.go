package logs

import (
	"cmp"
	"context"
	"math"
	"time"
)

// polled is what engines share that are a server elsewhere: followers ask again and again, in the order of time, since entries need not have come
// through this service.
type polled struct {
	retention time.Duration // 0: not known
	settle    time.Duration
	poll      time.Duration
}

// before is the position before every entry of time t.
func before(t time.Time) Position {
	return Position{Time: t.UnixNano() - 1, Sequence: math.MaxUint64, Hash: math.MaxUint64}
}

// origin is [Engine]'s Origin.
func (p polled) origin(since time.Time) Position {
	if since.IsZero() {
		since = time.Now()
	}
	return before(since)
}

// check is [Engine]'s Check. Where the retention is not known, no position is too old.
func (p polled) check(after Position) error {
	at := time.Unix(0, after.Time)
	old := at.Before(earliest) || p.retention > 0 && time.Since(at) > p.retention
	if after.Store == 0 && !old && time.Until(at) <= maxAhead {
		return nil
	}
	return &OutOfRangeError{Oldest: before(time.Now().Add(time.Minute - cmp.Or(p.retention, DefaultRetention)))}
}

// follow is [Engine]'s Follow, on an engine's Select.
func (p polled) follow(ctx context.Context, engine selector, filter string, after Position, limit int) ([]Followed, Position, error) {
	for {
		settled := time.Now().Add(-p.settle)
		if time.Unix(0, after.Time).Before(settled) {
			found, next, err := between(ctx, engine, filter, after, settled, limit)
			if err != nil || len(found) > 0 {
				return found, next, err
			}
			after = next
		}
		select {
		case <-time.After(p.poll):
		case <-ctx.Done():
			return nil, after, context.Cause(ctx)
		}
	}
}

// between returns the first entries after a position whose time is before end.
func between(ctx context.Context, engine selector, filter string, after Position, end time.Time, limit int) ([]Followed, Position, error) {
	s := Selection{Filter: filter, Start: time.Unix(0, after.Time), End: end, At: time.Now(), Limit: limit, MaxBytes: maxFollowBytes}
	entries, more, err := page(ctx, engine, s, &key{after.Time, after.Sequence, after.Hash})
	if err != nil {
		return nil, after, err
	}
	next := before(end)
	found := make([]Followed, len(entries))
	for i, entry := range entries {
		k := entry.key()
		found[i] = Followed{entry, Position{Time: k.time, Sequence: k.seq, Hash: k.hash}}
		if more {
			next = found[i].Position
		}
	}
	return found, next, nil
}
