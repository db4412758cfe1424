package interceptors

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

type replyKey [32]byte

// replies are kept replies, and the calls under way that others wait for.
type replies struct {
	maxBytes, maxReply int

	mu      sync.Mutex
	kept    *simplelru.LRU[replyKey, *kept]
	bytes   int
	flights map[replyKey]*flight
}

// kept is one reply. It never changes.
type kept struct {
	reply []byte
	at    time.Time // when the backend gave it
	fresh time.Time // until when it answers calls
	until time.Time // until when it is kept for the case that the backend is down
}

// cost is what a reply takes, roughly.
func (k *kept) cost() int {
	const description = 256
	return len(k.reply) + description
}

// flight is a call under way.
type flight struct {
	// abandoned ends when nobody waits any more.
	abandoned context.Context
	abandon   context.CancelFunc
	waiting   int // guarded by replies.mu
	// done is closed when what is below stands.
	done  chan struct{}
	kept  *kept
	stale bool
	err   error
	// again says that the outcome was only that of the caller who made it: others try themselves.
	again bool
}

func newReplies(o CacheOptions) *replies {
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.MaxReplyBytes == 0 {
		o.MaxReplyBytes = o.MaxBytes / 16
	}
	r := &replies{maxBytes: o.MaxBytes, maxReply: o.MaxReplyBytes, flights: map[replyKey]*flight{}}
	r.kept, _ = simplelru.NewLRU(max(1, o.MaxBytes), func(_ replyKey, k *kept) { r.bytes -= k.cost() }) // only a size below 1 is an error
	return r
}

// begin returns a fresh reply, or a flight, which the caller leads if it is new.
func (r *replies) begin(key replyKey) (_ *kept, _ *flight, leads bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.kept.Get(key); ok {
		if now.Before(k.fresh) {
			return k, nil, false
		}
		if !now.Before(k.until) {
			r.kept.Remove(key)
		}
	}
	if f := r.flights[key]; f != nil && f.abandoned.Err() == nil {
		f.waiting++
		return nil, f, false
	}
	f := &flight{waiting: 1, done: make(chan struct{})}
	f.abandoned, f.abandon = context.WithCancel(context.Background())
	r.flights[key] = f
	return nil, f, true
}

// leave says that one caller waits no more.
func (r *replies) leave(f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.abandon()
	}
}

// end tells those who wait for a flight.
func (r *replies) end(key replyKey, f *flight) {
	r.mu.Lock()
	if r.flights[key] == f {
		delete(r.flights, key)
	}
	r.mu.Unlock()
	close(f.done)
	f.abandon()
}

// keep keeps a reply that the backend has just given.
func (r *replies) keep(key replyKey, reply []byte, ttl, stale time.Duration) *kept {
	now := time.Now()
	k := &kept{reply: reply, at: now, fresh: now.Add(ttl), until: now.Add(ttl + stale)}
	if len(reply) > r.maxReply {
		return k
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Remove(key)
	r.kept.Add(key, k)
	r.bytes += k.cost()
	for r.bytes > r.maxBytes && r.kept.Len() > 0 {
		r.kept.RemoveOldest()
	}
	return k
}

// old returns a reply whose time is over but that is kept for the case that the backend is down, or nil.
func (r *replies) old(key replyKey) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.kept.Get(key)
	if !ok || !time.Now().Before(k.until) {
		return nil
	}
	return k
}
