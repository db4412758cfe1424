package durable

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/store"
)

// shares knows how much of the table of keys each caller has, from when all of them together have half of what one may have: until then it costs nothing. It
// follows the table, without the answers in it, so it sees what other instances write a moment later: a caller may go beyond its share a little.
type shares struct {
	kv  *store.KV
	max int // of one caller
	log *slog.Logger

	ctx       context.Context
	stop      context.CancelFunc
	following sync.WaitGroup

	mu      sync.Mutex
	begun   bool
	seen    uint64 // the newest write that was followed
	records map[string]sharer
	callers map[string]int
	pruned  time.Time
}

// sharer is what a record has of its caller's share. Records of before there were shares have no caller.
type sharer struct {
	caller   string
	bytes    int
	revision uint64
	until    time.Time
}

func newShares(kv *store.KV, maxBytes int, logger *slog.Logger) *shares {
	s := &shares{kv: kv, max: maxBytes, log: logger, records: map[string]sharer{}, callers: map[string]int{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// follow follows the table until close.
func (s *shares) follow() {
	for s.ctx.Err() == nil {
		err := s.kv.FollowSizes(s.ctx, func(e store.Entry, live bool) error {
			if !live {
				e.Size = 0
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen = e.Revision
			s.put(e.Key, sharer{e.Owner, e.Size, e.Revision, e.Written.Add(e.TTL)})
			return nil
		})
		if s.ctx.Err() == nil {
			s.log.Warn("following idempotency keys has ended; it begins again", "error", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (s *shares) close() {
	s.mu.Lock() // nothing begins any more
	s.stop()
	s.mu.Unlock()
	s.following.Wait()
}

// wrote notes what this instance has written, which is followed a moment later.
func (s *shares) wrote(key string, now sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && now.revision > s.seen {
		s.put(key, now)
	}
}

// put notes what a record takes, unless something newer is known. One without bytes is gone.
func (s *shares) put(key string, now sharer) {
	before := s.records[key]
	if now.revision <= before.revision {
		return
	}
	s.remove(key, before)
	if now.bytes > 0 {
		s.records[key] = now
		s.callers[now.caller] += now.bytes
	}
}

func (s *shares) remove(key string, r sharer) {
	delete(s.records, key)
	if s.callers[r.caller] -= r.bytes; s.callers[r.caller] == 0 {
		delete(s.callers, r.caller)
	}
}

// pruneEvery is how often what has expired unheard is looked for, when somebody's share seems to be full.
const pruneEvery = time.Minute

// fits says whether a caller may have a record of so many bytes under a key, whatever it has there.
func (s *shares) fits(caller, key string, bytes int) bool {
	used := s.kv.Used()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && used > s.max/2 && s.ctx.Err() == nil {
		s.begun = true
		s.following.Go(s.follow)
	}
	fits := func() bool { return s.callers[caller]-s.records[key].bytes+bytes <= s.max }
	now := time.Now()
	if !fits() && now.Sub(s.pruned) > pruneEvery {
		s.pruned = now
		for k, r := range s.records {
			if now.Sub(r.until) > pruneEvery {
				s.remove(k, r)
			}
		}
	}
	return fits()
}

func callerOf(h interceptors.Hash) string { return hex.EncodeToString(h[:16]) }
