package durable

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/store"
)

// Approvals is an interceptors.ApprovalStore and what the approval service reads. Decisions of one instance count in all.
type Approvals struct {
	kv *store.KV

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	stop    context.CancelFunc
	done    chan struct{}
}

var _ interceptors.ApprovalStore = (*Approvals)(nil)

// keepDecided is how long an approval can be looked up after it is over.
const keepDecided = time.Hour

// OpenApprovals opens the approvals in s.
func OpenApprovals(ctx context.Context, s *store.Store) (*Approvals, error) {
	kv, err := s.KV(ctx, store.KVConfig{Name: "approvals", MaxBytes: 256 << 20})
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	a := &Approvals{kv: kv, changed: make(chan struct{}), stop: stop, done: make(chan struct{})}
	go a.watch(run)
	return a, nil
}

// Close ends the watching for changes.
func (a *Approvals) Close() {
	a.stop()
	<-a.done
}

// watch tells those who wait of changes, whichever instance has made them.
func (a *Approvals) watch(ctx context.Context) {
	defer close(a.done)
	for ctx.Err() == nil {
		_ = a.kv.Watch(ctx, records, func(store.Entry, bool) error {
			a.tell()
			return nil
		})
		select { // the store is away; what has changed meanwhile is told with the first list
		case <-ctx.Done():
		case <-time.After(time.Second):
			a.tell()
		}
	}
}

func (a *Approvals) tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

// The two kinds of keys: an approval by its id, and the id of the newest approval of a binding.
const (
	records  = "a"
	bindings = "b"
)

func recordKey(id string) string { return records + "." + store.Token(id) }

func bindingKey(b interceptors.Hash) string { return bindings + "." + hex.EncodeToString(b[:]) }

// approvalRecord is an approval as it is stored: hashes as text, which JSON would write as lists of numbers.
type approvalRecord struct {
	interceptors.ApprovalRecord
	Binding, Request string
}

func encodeApproval(r *interceptors.ApprovalRecord) ([]byte, error) {
	return json.Marshal(approvalRecord{*r, hex.EncodeToString(r.Binding[:]), hex.EncodeToString(r.Request[:])})
}

func decodeApproval(e store.Entry) (interceptors.ApprovalRecord, error) {
	var s approvalRecord
	if err := json.Unmarshal(e.Value, &s); err != nil {
		return interceptors.ApprovalRecord{}, err
	}
	r := s.ApprovalRecord
	for to, from := range map[*interceptors.Hash]string{&r.Binding: s.Binding, &r.Request: s.Request} {
		raw, err := hex.DecodeString(from)
		if err != nil {
			return interceptors.ApprovalRecord{}, err
		}
		copy(to[:], raw)
	}
	r.Revision = e.Revision
	return r, nil
}

// keeps is how long an approval is kept from now on.
func keeps(r *interceptors.ApprovalRecord) time.Duration {
	return max(time.Until(r.Expires), 0) + keepDecided
}

// Hold is ApprovalStore's. The approval is stored before its binding names it: an instance that dies in between leaves one that nobody finds.
func (a *Approvals) Hold(ctx context.Context, r interceptors.ApprovalRecord) (interceptors.ApprovalRecord, error) {
	stored := false
	for {
		pointer, have, err := a.bound(ctx, r.Binding)
		if err != nil {
			return interceptors.ApprovalRecord{}, err
		}
		if have != nil {
			if stored {
				_ = a.kv.Delete(ctx, recordKey(r.ID), r.Revision) // it would expire anyway
			}
			return *have, nil
		}
		if !stored {
			raw, err := encodeApproval(&r)
			if err != nil {
				return interceptors.ApprovalRecord{}, err
			}
			if r.Revision, err = a.kv.Create(ctx, recordKey(r.ID), raw, keeps(&r)); err != nil {
				return interceptors.ApprovalRecord{}, full(err)
			}
			stored = true
		}
		if pointer == 0 {
			_, err = a.kv.Create(ctx, bindingKey(r.Binding), []byte(r.ID), keeps(&r))
		} else {
			_, err = a.kv.Update(ctx, bindingKey(r.Binding), []byte(r.ID), pointer, keeps(&r))
		}
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return interceptors.ApprovalRecord{}, full(err)
		}
	}
}

// bound returns the live approval of a binding, if there is one, and the revision of what names it.
func (a *Approvals) bound(ctx context.Context, b interceptors.Hash) (pointer uint64, live *interceptors.ApprovalRecord, err error) {
	e, err := a.kv.Get(ctx, bindingKey(b))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	r, found, err := a.Get(ctx, string(e.Value))
	if err != nil {
		return 0, nil, err
	}
	if !found || r.State == interceptors.ApprovalUsed || !time.Now().Before(r.Expires) {
		return e.Revision, nil, nil
	}
	return e.Revision, &r, nil
}

func full(err error) error {
	if errors.Is(err, store.ErrFull) {
		return interceptors.ErrApprovalsFull
	}
	return err
}

// Swap is ApprovalStore's.
func (a *Approvals) Swap(ctx context.Context, r interceptors.ApprovalRecord) (interceptors.ApprovalRecord, error) {
	raw, err := encodeApproval(&r)
	if err != nil {
		return interceptors.ApprovalRecord{}, err
	}
	revision, err := a.kv.Update(ctx, recordKey(r.ID), raw, r.Revision, keeps(&r))
	if errors.Is(err, store.ErrConflict) {
		return interceptors.ApprovalRecord{}, interceptors.ErrApprovalChanged
	}
	r.Revision = revision
	return r, full(err)
}

// Get returns an approval; false means that there is none.
func (a *Approvals) Get(ctx context.Context, id string) (interceptors.ApprovalRecord, bool, error) {
	e, err := a.kv.Get(ctx, recordKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return interceptors.ApprovalRecord{}, false, nil
	}
	if err != nil {
		return interceptors.ApprovalRecord{}, false, err
	}
	r, err := decodeApproval(e)
	return r, err == nil, err
}

// List returns the approvals that changed after a revision, in the order of their changes, and a channel that is closed at the next change.
func (a *Approvals) List(ctx context.Context, after uint64) ([]interceptors.ApprovalRecord, <-chan struct{}, error) {
	a.mu.Lock()
	changed := a.changed // before the reading: a change meanwhile closes it
	a.mu.Unlock()
	newest := map[string]interceptors.ApprovalRecord{}
	err := a.kv.List(ctx, records, func(e store.Entry) error {
		r, err := decodeApproval(e)
		if err == nil && r.Revision > after {
			newest[r.ID] = r
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	out := make([]interceptors.ApprovalRecord, 0, len(newest))
	for _, r := range newest {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y interceptors.ApprovalRecord) int { return cmp.Compare(x.Revision, y.Revision) })
	return out, changed, nil
}
