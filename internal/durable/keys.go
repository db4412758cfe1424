// Package durable keeps the policies' state in the store: records of idempotency keys, approvals, audit and large results. What it keeps
// outlives the process, and is shared by all instances of a mesh that use one store.
package durable

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/store"
)

// Keys is an interceptors.KeyStore. Every change is a compare-and-set, so one call in all instances owns a key.
//
// What cannot be recorded since the store is away is tried again until the record's lease is over. In a store of this process alone the calls of
// an earlier process count as ended at once: nobody else can be making them.
type Keys struct {
	kv       *store.KV
	instance string // the store's, if it is this process's alone; else ""
	later    later
	shares   *shares
}

var _ interceptors.KeyStore = (*Keys)(nil)

// maxRecordBytes bounds one record; the answer of a larger one is not kept.
const maxRecordBytes = 4 << 20

// OpenKeys opens the records in s. maxBytes bounds all of them, and maxCallerBytes those of one caller, 0 meaning a quarter of maxBytes: when one is reached
// new keys are refused, none is forgotten. Close ends it.
func OpenKeys(ctx context.Context, s *store.Store, maxBytes, maxCallerBytes int, logger *slog.Logger) (*Keys, error) {
	if maxBytes <= 0 {
		maxBytes = interceptors.DefaultKeyBytes
	}
	if maxCallerBytes <= 0 {
		maxCallerBytes = maxBytes / 4
	}
	kv, err := s.KV(ctx, store.KVConfig{Name: "keys", MaxBytes: int64(maxBytes), MaxValueBytes: maxRecordBytes})
	if err != nil {
		return nil, err
	}
	k := &Keys{kv: kv, instance: s.Instance()}
	k.later.finish, k.later.logger, k.later.ending = k.record, logger, make(chan struct{})
	k.shares = newShares(kv, maxCallerBytes, logger)
	return k, nil
}

// Close ends the trying of what could not be recorded.
func (k *Keys) Close() {
	k.later.close()
	k.shares.close()
}

// write creates or updates a record as its caller's.
func (k *Keys) write(ctx context.Context, id interceptors.Hash, r *interceptors.KeyRecord, raw []byte, revision uint64) (uint64, error) {
	caller, key, ttl := callerOf(r.Caller), keyOf(id), lives(r)
	kv := k.kv.Of(caller)
	var now uint64
	var err error
	if revision == 0 {
		now, err = kv.Create(ctx, key, raw, ttl)
	} else {
		now, err = kv.Update(ctx, key, raw, revision, ttl)
	}
	if err == nil {
		k.shares.wrote(key, sharer{caller, kv.Size(key, len(raw)), now, time.Now().Add(ttl)})
	}
	return now, err
}

// keyRecord is a record as it is stored.
type keyRecord struct {
	Caller  []byte `json:"caller"`
	Request []byte `json:"request"`
	State   int    `json:"state"`
	Owner   string `json:"owner"`
	Task    bool   `json:"task,omitempty"`
	// Instance is the process that runs the call, in a store that one process has for itself.
	Instance string      `json:"instance,omitempty"`
	Lease    time.Time   `json:"lease"`
	Expires  time.Time   `json:"expires"`
	Status   []byte      `json:"status,omitempty"`
	Replies  [][]byte    `json:"replies,omitempty"`
	Header   metadata.MD `json:"header,omitempty"`
	Trailer  metadata.MD `json:"trailer,omitempty"`
	Cut      bool        `json:"cut,omitempty"`
}

func (k *Keys) encode(r *interceptors.KeyRecord) ([]byte, error) {
	return json.Marshal(keyRecord{
		Caller: r.Caller[:], Request: r.Request[:], State: int(r.State), Owner: r.Owner, Task: r.Task, Instance: k.instance, Lease: r.Lease, Expires: r.Expires,
		Status: r.Status, Replies: r.Replies, Header: binary(r.Header), Trailer: binary(r.Trailer), Cut: r.Cut,
	})
}

func (k *Keys) decode(e store.Entry) (interceptors.KeyRecord, error) {
	var s keyRecord
	if err := json.Unmarshal(e.Value, &s); err != nil {
		return interceptors.KeyRecord{}, err
	}
	r := interceptors.KeyRecord{
		Revision: e.Revision, State: interceptors.KeyState(s.State), Owner: s.Owner, Task: s.Task, Lease: s.Lease, Expires: s.Expires,
		Status: s.Status, Replies: s.Replies, Header: text(s.Header), Trailer: text(s.Trailer), Cut: s.Cut,
	}
	if r.State == interceptors.KeyRunning && s.Instance != k.instance {
		r.Lease = time.Time{} // the process is gone, and its call with it
	}
	copy(r.Caller[:], s.Caller)
	copy(r.Request[:], s.Request)
	return r, nil
}

// binary writes the values of "-bin" keys, which may be any bytes, as JSON can hold them.
func binary(md metadata.MD) metadata.MD {
	return mapped(md, func(v string) string { return hex.EncodeToString([]byte(v)) })
}

// text undoes binary.
func text(md metadata.MD) metadata.MD {
	return mapped(md, func(v string) string {
		raw, _ := hex.DecodeString(v) // binary has written it
		return string(raw)
	})
}

func mapped(md metadata.MD, f func(string) string) metadata.MD {
	if md == nil {
		return nil
	}
	out := make(metadata.MD, len(md))
	for k, vs := range md {
		for _, v := range vs {
			out[k] = append(out[k], f(v))
		}
	}
	return out
}

func keyOf(id interceptors.Hash) string { return hex.EncodeToString(id[:]) }

// lives is how long a record is kept from now on: one that runs for as long as its lease, whatever it says.
func lives(r *interceptors.KeyRecord) time.Duration {
	until := r.Expires
	if r.State == interceptors.KeyRunning && r.Lease.After(until) {
		until = r.Lease
	}
	return max(time.Until(until), time.Second)
}

// Begin is KeyStore's.
func (k *Keys) Begin(ctx context.Context, id interceptors.Hash, r interceptors.KeyRecord) (interceptors.KeyRecord, bool, error) {
	raw, err := k.encode(&r)
	if err != nil {
		return interceptors.KeyRecord{}, false, err
	}
	for range claimTries {
		var revision uint64
		full := r.Revision == 0 && !k.shares.fits(callerOf(r.Caller), keyOf(id), k.kv.Size(keyOf(id), len(raw)))
		if !full {
			revision, err = k.write(ctx, id, &r, raw, r.Revision)
		}
		switch {
		case full: // unless it is there
		case err == nil:
			r.Revision = revision
			return r, true, nil
		case errors.Is(err, store.ErrFull):
			return interceptors.KeyRecord{}, false, interceptors.ErrKeysFull
		case errors.Is(err, store.ErrUnavailable):
			k.abandon(id, r)
			return interceptors.KeyRecord{}, false, err
		case !errors.Is(err, store.ErrConflict):
			return interceptors.KeyRecord{}, false, err
		}
		e, err := k.kv.Get(ctx, keyOf(id))
		switch {
		case errors.Is(err, store.ErrNotFound) && full:
			return interceptors.KeyRecord{}, false, interceptors.ErrKeyShareFull
		case errors.Is(err, store.ErrNotFound): // it has gone between the two
			r.Revision = 0
			continue
		}
		if err != nil {
			return interceptors.KeyRecord{}, false, err
		}
		have, err := k.decode(e)
		return have, false, err
	}
	// It is there for those who write, and not for those who read.
	return interceptors.KeyRecord{}, false, fmt.Errorf("%w: the record of key %s cannot be read: it is damaged", store.ErrUnavailable, keyOf(id))
}

// claimTries is how often a claim that others are in the way of is tried.
const claimTries = 8

// abandon takes back a claim that may have been stored: its call is refused.
func (k *Keys) abandon(id interceptors.Hash, claim interceptors.KeyRecord) {
	if claim.State = 0; claim.Revision != 0 { // an earlier call with the key may have been executed
		claim.State = interceptors.KeyUnknown
	}
	k.later.add(laterItem{id: id, record: claim, claim: true})
}

// Finish is KeyStore's. A record that cannot be written now is tried again until its lease is over.
func (k *Keys) Finish(ctx context.Context, id interceptors.Hash, r interceptors.KeyRecord) error {
	err := k.record(ctx, id, r)
	if errors.Is(err, store.ErrUnavailable) && k.later.add(laterItem{id: id, record: r}) {
		return fmt.Errorf("%w; it is tried again", err)
	}
	return err
}

// record writes what became of a call.
func (k *Keys) record(ctx context.Context, id interceptors.Hash, r interceptors.KeyRecord) error {
	e, err := k.kv.Get(ctx, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return interceptors.ErrKeyLost
	}
	if err != nil {
		return err
	}
	have, err := k.decode(e)
	if err != nil {
		return err
	}
	if have.Owner != r.Owner {
		return interceptors.ErrKeyLost
	}
	if r.State == 0 {
		return lost(k.kv.Delete(ctx, keyOf(id), e.Revision))
	}
	r.Caller = have.Caller
	raw, err := k.encode(&r)
	if err != nil {
		return err
	}
	if k.shares.fits(callerOf(r.Caller), keyOf(id), k.kv.Size(keyOf(id), len(raw))) {
		if _, err = k.write(ctx, id, &r, raw, e.Revision); !errors.Is(err, store.ErrFull) {
			return lost(err)
		}
	}
	r.Replies, r.Header, r.Trailer, r.Cut = nil, nil, nil, true
	if raw, err = k.encode(&r); err != nil {
		return err
	}
	_, err = k.write(ctx, id, &r, raw, e.Revision)
	return lost(err)
}

func lost(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return interceptors.ErrKeyLost
	}
	return err
}
