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
	records []Record // the record of number n at n % len; its room is used again
	next    uint64   // the number of the next record
}

// NewRing returns a ring of size records, at least one.
func NewRing(size int) *Ring { return &Ring{records: make([]Record, max(1, size))} }

// maxRoom is the most room that a record leaves to the one that takes its place.
const maxRoom = 4 << 10

// Record keeps a copy of rec, in the room of the oldest record if the ring is full.
func (r *Ring) Record(_ context.Context, rec Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.records[r.next%uint64(len(r.records))]
	if cap(*slot) > maxRoom {
		*slot = nil
	}
	*slot = append((*slot)[:0], rec...)
	r.next++
	return nil
}

// Get returns the newest record of a call, or nil. It looks at them all: there is no index, since hardly any record is ever asked for.
func (r *Ring) Get(_ context.Context, callID string) (*toolwayv1.AuditRecord, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for n := r.next; n > r.oldest(); n-- {
		if rec := r.at(n - 1); string(rec.callID()) == callID {
			return rec.Decode()
		}
	}
	return nil, nil
}

// oldest is the number of the oldest record that is still there.
func (r *Ring) oldest() uint64 { return r.next - min(r.next, uint64(len(r.records))) }

func (r *Ring) at(n uint64) Record { return r.records[n%uint64(len(r.records))] }

// decode returns the record of number n, or nil if it is not there any more. It locks for that record alone, so that calls do not wait for readers.
func (r *Ring) decode(n uint64) (*toolwayv1.AuditRecord, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n < r.oldest() {
		return nil, nil
	}
	return r.at(n).Decode()
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

// searched is how many records one List looks through.
const searched = 20_000

// List returns the records of a page for which keep says yes, the newest first. more is the number to go on with, 0 if there is no more: where many records
// are kept a page may be short and yet have a next one.
func (r *Ring) List(_ context.Context, p Page, keep func(*toolwayv1.AuditRecord) bool) (records []*toolwayv1.AuditRecord, more uint64, err error) {
	r.mu.RLock()
	end := r.next
	r.mu.RUnlock()
	if p.Before > 0 && p.Before < end {
		end = p.Before
	}
	for n := end; n > 0; n-- {
		rec, err := r.decode(n - 1)
		switch {
		case err != nil:
			return nil, 0, err
		case rec == nil:
			return records, 0, nil
		case end-n == searched:
			return records, n, nil
		case !keep(rec):
		case len(records) == p.Limit:
			return records, n, nil
		default:
			records = append(records, rec)
		}
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
