package interceptors

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/metadata"
)

// KeyState is how far the call with an idempotency key has come.
type KeyState int

// The states. A record that does not exist, or was released, has none.
const (
	// KeyRunning means that a call is under way. Past its lease its owner is gone, and it counts as KeyUnknown.
	KeyRunning KeyState = iota + 1
	// KeyDone means that the backend has answered, and the record holds the answer.
	KeyDone
	// KeyUnknown means that the call was handed to a backend, and nobody knows what became of it.
	KeyUnknown
)

// KeyRecord is what is kept of the call with one idempotency key. An empty reply is zero bytes, so the state is explicit.
type KeyRecord struct {
	// Revision is the store's: it changes with every change of the record. 0 in a record that is not stored yet.
	Revision uint64
	// Caller is the hash of tenant and principal, by which a store shares its room fairly.
	Caller Hash
	// Request is the hash of the request's canonical form.
	Request Hash
	State   KeyState
	// Owner is the id of the call that runs, or ran. Task says that it is that of the task whose run it is.
	Owner string
	Task  bool
	// Lease is until when the owner of a running record can be alive.
	Lease time.Time
	// Expires is when the record may be forgotten. A store never forgets one that runs.
	Expires time.Time

	// Status is the google.rpc.Status with which the call ended, as wire bytes; nil means OK. Replies are the messages, as wire bytes.
	Status  []byte
	Replies [][]byte
	Header  metadata.MD
	Trailer metadata.MD
	// Cut is true if the answer was too large to be kept: Replies, Header and Trailer are empty then.
	Cut bool
}

// size is what the answer takes.
func (r *KeyRecord) size() int {
	n := len(r.Status)
	for _, b := range r.Replies {
		n += len(b) + 24
	}
	for _, md := range []metadata.MD{r.Header, r.Trailer} {
		for k, vs := range md {
			n += len(k) + 48
			for _, v := range vs {
				n += len(v) + 16
			}
		}
	}
	return n
}

// cut takes the answer out of the record, but not how the call ended.
func (r *KeyRecord) cut() {
	r.Replies, r.Header, r.Trailer, r.Cut = nil, nil, nil, true
}

// KeyStore keeps records of calls with idempotency keys: atomically, for all instances of a mesh that share it. It is safe for concurrent
// use. A key-value bucket with create, compare-and-set and expiry is enough.
type KeyStore interface {
	// Begin stores r under id if there is no record, or if the one there has r.Revision, which is not 0 then. It returns what is
	// there afterwards, and whether that is r. What it returns is not to be changed. ErrKeysFull means that there is no room, ErrKeyShareFull that
	// the caller has all that one caller may have: a store does not forget a record before it expires to make some.
	Begin(ctx context.Context, id Hash, r KeyRecord) (KeyRecord, bool, error)
	// Finish replaces the record under id by r, if it still is that of r.Owner, else returns ErrKeyLost. State 0 removes it. A store that
	// has no room for the answer keeps the record without it, as Cut.
	Finish(ctx context.Context, id Hash, r KeyRecord) error
}

var (
	// ErrKeysFull says that a store has no room for another record.
	ErrKeysFull = errors.New("no room for another idempotency record")
	// ErrKeyShareFull says that a store has no room for another record of the same caller.
	ErrKeyShareFull = errors.New("no room for another idempotency record of this caller")
	// ErrKeyLost says that a record belongs to another call by now, or is gone.
	ErrKeyLost = errors.New("the idempotency record belongs to another call")
)
