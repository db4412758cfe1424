package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A table keeps room for the changes of what it has: new keys and large values are refused at its bound, and small changes go on in a reserve beyond it.
// Else nothing could be ended, used up or deleted once it is full, for the engine refuses every write to a full stream that makes it larger, and in a
// cluster every write at all.

const (
	// smallValue is the largest value that a change may have in a full table.
	smallValue = 16 << 10
	// lookEvery is how often the engine is asked how much a table has.
	lookEvery = 250 * time.Millisecond
	// overhead is what a record takes besides its key and value, roughly.
	overhead = 256
)

// reserve is the room that a table has for changes beyond its bound.
func reserve(maxBytes int64) int64 { return max(maxBytes/4, 1<<20) }

// room is how much of a table's bound is taken.
type room struct {
	max uint64

	mu    sync.Mutex
	seen  time.Time // when the engine was asked
	had   uint64    // what it had then
	since uint64    // what this process has written since; others, and what has made room, are seen with the next look
}

// ask says whether n bytes fit, as far as that is known. look says that the engine has to be asked first.
func (r *room) ask(n uint64) (fits, look bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := time.Now(); {
	case now.Sub(r.seen) >= lookEvery:
		r.seen = now // others need not look meanwhile
		return false, true
	case r.had+n > r.max:
		return false, false
	case r.had+r.since+n > r.max:
		return false, true
	}
	r.since += n
	return true, false
}

// saw notes what the engine has, and says whether n bytes more fit.
func (r *room) saw(have, n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.had, r.since = time.Now(), have, 0
	if have+n > r.max {
		return false
	}
	r.since = n
	return true
}

// Used is how much of the table's bound is taken, as this process has seen it when it last made a key; 0 before.
func (k *KV) Used() int {
	k.room.mu.Lock()
	defer k.room.mu.Unlock()
	return int(k.room.had + k.room.since) //nolint:gosec // a size
}

// take returns ErrFull if a new key or a large value does not fit. Several instances that write at one time may go beyond the bound a little.
func (k *KV) take(ctx context.Context, key string, value []byte) error {
	n := uint64(k.Size(key, len(value))) //nolint:gosec // a length
	fits, look := k.room.ask(n)
	if look {
		info, err := k.info(ctx)
		if err != nil {
			return err
		}
		fits = k.room.saw(info.State.Bytes, n)
	}
	if fits {
		return nil
	}
	return fmt.Errorf("%w: the table has no room for another key or a large value", ErrFull)
}

// vacant returns ErrConflict if the key is there, else err.
func (k *KV) vacant(ctx context.Context, key string, err error) error {
	switch _, _, found := k.last(ctx, key); {
	case found == nil:
		return ErrConflict
	case errors.Is(found, ErrNotFound):
		return err
	default:
		return found
	}
}
