package catalog

import "sync/atomic"

// Catalog holds the current snapshot. It is safe for concurrent use.
type Catalog struct{ current atomic.Pointer[Snapshot] }

// Fixed returns a catalog that never changes.
func Fixed(s *Snapshot) *Catalog {
	c := &Catalog{}
	c.current.Store(s)
	return c
}

// Snapshot returns the current snapshot; it never blocks and is never nil.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }
