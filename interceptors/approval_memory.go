package interceptors

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// ApprovalMemory is an ApprovalStore in memory, for one instance: its approvals end with the process. It is safe for concurrent use.
type ApprovalMemory struct {
	max, perCaller int

	mu       sync.Mutex
	byID     map[string]*ApprovalRecord
	bound    map[Hash]string // the newest approval of each binding
	callers  map[Hash]int
	revision uint64
	swept    time.Time
	changed  chan struct{} // closed at the next change
}

var _ ApprovalStore = (*ApprovalMemory)(nil)

// keepDecided is how long an approval can be looked up after it is over, while there is room.
const keepDecided = time.Hour

// sweepEvery is how often old ones are dropped at most while there is room.
const sweepEvery = time.Minute

// NewApprovalMemory returns an empty store that holds up to limit approvals, 0 meaning 10,000. One caller gets a tenth of it at most.
func NewApprovalMemory(limit int) *ApprovalMemory {
	if limit <= 0 {
		limit = 10_000
	}
	return &ApprovalMemory{max: limit, perCaller: max(limit/10, 1), byID: map[string]*ApprovalRecord{}, bound: map[Hash]string{}, callers: map[Hash]int{}, changed: make(chan struct{})}
}

// Hold is ApprovalStore's.
func (s *ApprovalMemory) Hold(_ context.Context, a ApprovalRecord) (ApprovalRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if have := s.byID[s.bound[a.Binding]]; have != nil && have.live(now) {
		return *have, nil
	}
	caller := hashOf(a.Tenant, a.Principal)
	full := func() bool { return len(s.byID) >= s.max || s.callers[caller] >= s.perCaller }
	if now.Sub(s.swept) > sweepEvery || full() {
		s.forget(now, now.Add(-keepDecided))
	}
	if full() {
		s.forget(now, now.Add(keepDecided))
	}
	if full() {
		return ApprovalRecord{}, ErrApprovalsFull
	}
	s.callers[caller]++
	s.bound[a.Binding] = a.ID
	return s.put(a), nil
}

// Swap is ApprovalStore's.
func (s *ApprovalMemory) Swap(_ context.Context, a ApprovalRecord) (ApprovalRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.byID[a.ID]; have == nil || have.Revision != a.Revision {
		return ApprovalRecord{}, ErrApprovalChanged
	}
	return s.put(a), nil
}

// put stores a under a new revision and tells those who watch.
func (s *ApprovalMemory) put(a ApprovalRecord) ApprovalRecord {
	s.revision++
	a.Revision = s.revision
	s.byID[a.ID] = &a
	close(s.changed)
	s.changed = make(chan struct{})
	return a
}

// forget drops what is over, and expired before a time.
func (s *ApprovalMemory) forget(now, before time.Time) {
	s.swept = now
	for id, a := range s.byID {
		if a.live(now) || !a.Expires.Before(before) {
			continue
		}
		delete(s.byID, id)
		if s.bound[a.Binding] == id {
			delete(s.bound, a.Binding)
		}
		caller := hashOf(a.Tenant, a.Principal)
		if s.callers[caller]--; s.callers[caller] == 0 {
			delete(s.callers, caller)
		}
	}
}

// Get returns an approval; false means that there is none.
func (s *ApprovalMemory) Get(_ context.Context, id string) (ApprovalRecord, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byID[id]
	if a == nil {
		return ApprovalRecord{}, false, nil
	}
	return *a, true, nil
}

// List returns the approvals that changed after a revision, in the order of their changes, and a channel that is closed at the next change.
func (s *ApprovalMemory) List(_ context.Context, after uint64) ([]ApprovalRecord, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ApprovalRecord
	for _, a := range s.byID {
		if a.Revision > after {
			out = append(out, *a)
		}
	}
	slices.SortFunc(out, func(a, b ApprovalRecord) int { return cmp.Compare(a.Revision, b.Revision) })
	return out, s.changed, nil
}
