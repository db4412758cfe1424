package identity

import (
	"sync"
	"time"
)

const (
	// maxCached bounds the tokens that are remembered, cacheFor the time: a key that an issuer takes back stops counting after it.
	maxCached = 10_000
	cacheFor  = 5 * time.Minute
)

// tokenCache remembers tokens that were found good, by their hash. It is safe for concurrent use.
type tokenCache struct {
	mu      sync.RWMutex
	entries map[[32]byte]cached
}

type cached struct {
	verified
	forget time.Time
}

func newTokenCache() *tokenCache { return &tokenCache{entries: map[[32]byte]cached{}} }

func (c *tokenCache) get(hash [32]byte, now time.Time) (verified, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[hash]
	return e.verified, ok && now.Before(e.forget)
}

func (c *tokenCache) put(hash [32]byte, v verified, now time.Time) {
	forget := now.Add(cacheFor)
	if v.until.Before(forget) {
		forget = v.until
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxCached {
		c.evict(now)
	}
	c.entries[hash] = cached{v, forget}
}

// evict drops what is over and, if that is not enough, some others: a map gives them in no order, so that nobody can choose which.
func (c *tokenCache) evict(now time.Time) {
	for hash, e := range c.entries {
		if !now.Before(e.forget) {
			delete(c.entries, hash)
		}
	}
	for hash := range c.entries {
		if len(c.entries) < maxCached*9/10 {
			return
		}
		delete(c.entries, hash)
	}
}
