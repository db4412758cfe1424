package mcpadapter

import (
	"sync"
	"sync/atomic"
)

// maxRecent is how many strings a recent remembers.
const maxRecent = 1024

// recent is a set of the last strings that were added to it.
type recent struct {
	any atomic.Bool // spares the lock until there is one

	mu    sync.RWMutex
	known map[string]bool
	order [maxRecent]string // a ring
	next  int
}

func (r *recent) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[s] {
		return
	}
	if r.known == nil {
		r.known = map[string]bool{}
	}
	delete(r.known, r.order[r.next])
	r.known[s], r.order[r.next] = true, s
	r.next = (r.next + 1) % maxRecent
	r.any.Store(true)
}

func (r *recent) has(s string) bool {
	if !r.any.Load() {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known[s]
}
