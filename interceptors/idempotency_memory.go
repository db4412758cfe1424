package interceptors

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// recordBytes is what a record takes in memory without its answer.
const recordBytes = 512

// KeyMemory is a KeyStore in memory, for one instance: its records end with the process. It is bounded: when it is full it refuses new keys
// rather than forget old ones. It is safe for concurrent use.
type KeyMemory struct {
	maxBytes  int
	perCaller int

	mu       sync.Mutex
	records  map[Hash]*keyEntry
	expiring expiry
	bytes    int
	callers  map[Hash]int
	revision uint64
}

type keyEntry struct {
	id     Hash
	record KeyRecord
	bytes  int
	at     int // in expiring
}

var _ KeyStore = (*KeyMemory)(nil)

// DefaultKeyBytes is what a store of keys holds if nobody says how much.
const DefaultKeyBytes = 64 << 20

// NewKeyMemory returns an empty store that holds up to maxBytes, 0 meaning DefaultKeyBytes, and up to maxCallerBytes of one caller, 0 meaning a quarter of that.
func NewKeyMemory(maxBytes, maxCallerBytes int) *KeyMemory {
	if maxBytes <= 0 {
		maxBytes = DefaultKeyBytes
	}
	if maxCallerBytes <= 0 {
		maxCallerBytes = max(maxBytes/4, recordBytes)
	}
	return &KeyMemory{maxBytes: maxBytes, perCaller: maxCallerBytes, records: map[Hash]*keyEntry{}, callers: map[Hash]int{}}
}

// Begin is KeyStore's.
func (s *KeyMemory) Begin(_ context.Context, id Hash, r KeyRecord) (KeyRecord, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.forget(now)
	e := s.records[id]
	switch {
	case e != nil && e.record.Revision != r.Revision:
		return e.record, false, nil
	case e != nil:
		s.resize(e, -e.bytes)
	case s.callers[r.Caller]+recordBytes > s.perCaller:
		return KeyRecord{}, false, ErrKeyShareFull
	case s.bytes+recordBytes > s.maxBytes:
		return KeyRecord{}, false, ErrKeysFull
	default:
		e = &keyEntry{id: id}
		e.record.Caller = r.Caller
		s.records[id] = e
		heap.Push(&s.expiring, e)
	}
	s.put(e, r)
	return e.record, true, nil
}

// Finish is KeyStore's.
func (s *KeyMemory) Finish(_ context.Context, id Hash, r KeyRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.records[id]
	if e == nil || e.record.Owner != r.Owner {
		return ErrKeyLost
	}
	s.resize(e, -e.bytes)
	if r.State == 0 {
		heap.Remove(&s.expiring, e.at)
		delete(s.records, id)
		return nil
	}
	if n := recordBytes + r.size(); s.bytes+n > s.maxBytes || s.callers[e.record.Caller]+n > s.perCaller {
		r.cut()
	}
	s.put(e, r)
	return nil
}

// put stores r as e's record, under a new revision.
func (s *KeyMemory) put(e *keyEntry, r KeyRecord) {
	s.revision++
	r.Revision = s.revision
	r.Caller = e.record.Caller // the room was taken by whoever came first
	e.record = r
	s.resize(e, recordBytes+r.size())
	heap.Fix(&s.expiring, e.at)
}

func (s *KeyMemory) resize(e *keyEntry, by int) {
	e.bytes += by
	s.bytes += by
	caller := e.record.Caller
	if s.callers[caller] += by; s.callers[caller] == 0 {
		delete(s.callers, caller)
	}
}

// forget drops what has expired. A record that runs stays for as long as its lease.
func (s *KeyMemory) forget(now time.Time) {
	for len(s.expiring) > 0 {
		e := s.expiring[0]
		if now.Before(e.until()) {
			return
		}
		heap.Pop(&s.expiring)
		delete(s.records, e.id)
		s.resize(e, -e.bytes)
	}
}

// until is when the record may be forgotten.
func (e *keyEntry) until() time.Time {
	if r := &e.record; r.State == KeyRunning && r.Lease.After(r.Expires) {
		return r.Lease
	}
	return e.record.Expires
}

// expiry is a heap of entries, the first to expire first.
type expiry []*keyEntry

// Len is the number of entries.
func (x expiry) Len() int { return len(x) }

// Less says which of two expires first.
func (x expiry) Less(i, j int) bool { return x[i].until().Before(x[j].until()) }

// Swap exchanges two entries.
func (x expiry) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].at, x[j].at = i, j
}

// Push adds an entry.
func (x *expiry) Push(v any) {
	e := v.(*keyEntry)
	e.at = len(*x)
	*x = append(*x, e)
}

// Pop takes the last entry off.
func (x *expiry) Pop() any {
	last := len(*x) - 1
	e := (*x)[last]
	(*x)[last] = nil
	*x = (*x)[:last]
	return e
}
