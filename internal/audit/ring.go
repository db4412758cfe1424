package audit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Ring is a sink that keeps the last records in memory.
type Ring struct {
	mu      sync.RWMutex
	records []*toolwayv1.AuditRecord // the record of number n at n % len
	byID    map[string]uint64
	next    uint64 // the number of the next record
}

// NewRing returns a ring of size records, at least one.
func NewRing(size int) *Ring {
	return &Ring{records: make([]*toolwayv1.AuditRecord, max(1, size)), byID: map[string]uint64{}}
}

// Record keeps r, and forgets the oldest record if the ring is full.
func (r *Ring) Record(_ context.Context, rec *toolwayv1.AuditRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.records[r.next%uint64(len(r.records))]
	if old := *slot; old != nil {
		if id := old.GetCallId(); r.byID[id] == r.next-uint64(len(r.records)) {
			delete(r.byID, id)
		}
	}
	*slot = rec
	r.byID[rec.GetCallId()] = r.next
	r.next++
	return nil
}

// Get returns the record of a call, or nil. It must not be changed. The error is always nil.
func (r *Ring) Get(_ context.Context, callID string) (*toolwayv1.AuditRecord, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n, ok := r.byID[callID]
	if !ok {
		return nil, nil
	}
	return r.records[n%uint64(len(r.records))], nil
}

// Page says which part of the records a List returns.
type Page struct {
	// Before is the number that an earlier List gave to go on with; 0 begins with the newest record.
	Before uint64
	// Limit is how many records at most.
	Limit int
	// Since lets a List end where all older records are of calls that ended before; zero: none. It does not keep from them: keep does.
	Since time.Time
}

// List returns the records of a page for which keep says yes, the newest first. more is the number to go on with, 0 if there is no more. The
// records must not be changed. The error is always nil.
func (r *Ring) List(_ context.Context, p Page, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64, err error) {
	r.mu.RLock()
	end := r.next
	if p.Before > 0 && p.Before < end {
		end = p.Before
	}
	begin := r.next - min(r.next, uint64(len(r.records)))
	var all []*toolwayv1.AuditRecord // a copy, so that calls do not wait for readers
	for n := end; n > begin; n-- {
		all = append(all, r.records[(n-1)%uint64(len(r.records))])
	}
	r.mu.RUnlock()
	for i, rec := range all {
		if !keep(rec) {
			continue
		}
		if len(records) == p.Limit {
			return records, end - uint64(i), nil
		}
		records = append(records, rec)
	}
	return records, 0, nil
}

// Query says which records are wanted. Zero fields hold for every record.
type Query struct {
	// Since and Until bound when a call ended: at Since or later, before Until.
	Since, Until time.Time
	// Principal, Tenant and TraceID are compared whole.
	Principal, Tenant, TraceID string
	// Tool is the name of a tool, or a method as package.Service/Method, with or without a slash before it.
	Tool string
	// Outcome is how the call ended.
	Outcome toolwayv1.AuditRecord_Outcome
}

// Match says whether r is wanted.
func (q *Query) Match(r *toolwayv1.AuditRecord) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	if !is(q.Principal, r.GetPrincipal()) || !is(q.Tenant, r.GetTenant()) || !is(q.TraceID, r.GetTraceId()) {
		return false
	}
	if q.Tool != "" && !slices.Contains([]string{r.GetTool(), r.GetMethod()}, strings.TrimPrefix(q.Tool, "/")) {
		return false
	}
	if q.Outcome != toolwayv1.AuditRecord_OUTCOME_UNSPECIFIED && q.Outcome != r.GetOutcome() {
		return false
	}
	end := Ended(r)
	return (q.Since.IsZero() || !end.Before(q.Since)) && (q.Until.IsZero() || end.Before(q.Until))
}

// Ended is when a call was over.
func Ended(r *toolwayv1.AuditRecord) time.Time {
	return r.GetStartedAt().AsTime().Add(time.Duration(r.GetLatencyMs() * float64(time.Millisecond)))
}
