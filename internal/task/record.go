package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// record is the state of a task, as it is kept under the key "t.OWNER.ID". Whoever changes it compares and sets.
type record struct {
	ID       string
	Method   string
	Tool     string `json:",omitempty"`
	Output   string
	State    State
	Created  time.Time
	Updated  time.Time
	Started  time.Time
	Ended    time.Time
	Deadline time.Time
	Expires  time.Time
	TTL      time.Duration
	Attempts int `json:",omitempty"`
	// Job is the one whose worker has dispatched the call, Worker that worker's name for its run. Another job of the task is a repetition.
	Job, Worker string `json:",omitempty"`
	// Dispatched says that the call may have reached its backend.
	Dispatched bool `json:",omitempty"`
	// Keyed says that the backend can tell a repetition by the call's key.
	Keyed    bool  `json:",omitempty"`
	Cancel   bool  `json:",omitempty"`
	Messages int64 `json:",omitempty"`
	Bytes    int64 `json:",omitempty"`
	// Operation is the name of the google.longrunning.Operation that the backend has answered with, while it is under way.
	Operation string `json:",omitempty"`
	Status    []byte `json:",omitempty"`
	// Inputs is what the caller has provided after the backend has asked for it: a toolway.v1.InputResponses.
	Inputs []byte `json:",omitempty"`
	// Round counts how often the backend has asked. Given is what the caller has answered so far of the round that waits: a
	// toolway.v1.InputResponses.
	Round int    `json:",omitempty"`
	Given []byte `json:",omitempty"`
	Size  int64  `json:",omitempty"`
	Cut   bool   `json:",omitempty"`
	URI   string `json:",omitempty"`
	// First is the sequence of the task's first event.
	First uint64

	owner    string
	revision uint64
}

// spec is what a task is to do, as it is kept under the key "i.OWNER.ID".
type spec struct {
	Request   []byte
	Forward   map[string][][]byte `json:",omitempty"` // values may be binary
	Door      call.Door
	Protocol  string         `json:",omitempty"`
	Key       string         `json:",omitempty"`
	Approval  string         `json:",omitempty"`
	TraceID   string         `json:",omitempty"`
	Unaskable call.Questions `json:",omitempty"`
	Principal *identity.Principal
}

// job is what the queue holds.
type job struct {
	Owner, ID string
	// Nonce tells two jobs of one task apart.
	Nonce string
	// Round is the record's when the job was queued: a job with a later one than a run goes on where that has asked for input.
	Round          int `json:",omitempty"`
	Method, Tenant string
}

// ownerOf stands for a tenant and principal in keys.
func ownerOf(p *identity.Principal) string {
	tenant, id := who(p)
	return store.Token(strconv.Quote(tenant) + strconv.Quote(id))
}

// validID says whether an id can be one of ours: 32 hex digits. Others are not asked for.
func validID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func key(kind, owner, id string) string { return kind + "." + owner + "." + id }

func decodeRecord(e store.Entry, owner string) (*record, error) {
	r := &record{owner: owner, revision: e.Revision}
	if err := json.Unmarshal(e.Value, r); err != nil {
		return nil, fmt.Errorf("task record %q: %w", e.Key, err)
	}
	return r, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return b
}

// keep is how long a record is kept from now on: beyond its expiry a little, so that whoever is asked at the last moment finds it.
func (r *record) keep(now time.Time) time.Duration {
	return max(r.Expires.Sub(now), time.Second) + time.Minute
}

func (t *Tasks) load(ctx context.Context, owner, id string) (*record, error) {
	e, err := t.kv.Get(ctx, key("t", owner, id))
	if err != nil {
		return nil, err
	}
	return decodeRecord(e, owner)
}

// errUnchanged ends a change without a write.
var errUnchanged = errors.New("unchanged")

// change loads a record, has f change it, and writes it, until nobody else has written meanwhile. It returns the record as it is then, and f's
// error, if that is not errUnchanged.
func (t *Tasks) change(ctx context.Context, owner, id string, f func(*record) error) (*record, error) {
	for {
		r, err := t.load(ctx, owner, id)
		if err != nil {
			return nil, err
		}
		if err := f(r); errors.Is(err, errUnchanged) {
			return r, nil
		} else if err != nil {
			return r, err
		}
		now := time.Now()
		r.Updated = now
		rev, err := t.kv.Update(ctx, key("t", owner, id), encode(r), r.revision, r.keep(now))
		if err == nil {
			r.revision = rev
			return r, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// view is the record as its owner sees it.
func (r *record) view() *Task {
	out := &Task{
		ID: r.ID, Method: r.Method, Tool: r.Tool, Output: r.Output, State: r.State, Created: r.Created, Updated: r.Updated, Started: r.Started, Ended: r.Ended,
		Deadline: r.Deadline, Expires: r.Expires, TTL: r.TTL, Attempts: r.Attempts, CancelRequested: r.Cancel, Messages: r.Messages, Bytes: r.Bytes,
		Size: r.Size, Cut: r.Cut, URI: r.URI, Round: r.Round,
	}
	if r.Status != nil {
		st := new(spb.Status)
		if proto.Unmarshal(r.Status, st) == nil {
			out.Err = r.unanswered(status.FromProto(st))
		}
	}
	return out
}

// put keeps a blob of a task: small ones in the table, others as objects, whose name is the key.
func (t *Tasks) put(ctx context.Context, k string, data []byte, ttl time.Duration) error {
	if len(data) > maxValue {
		_, err := t.large.Put(ctx, k, nil, bytes.NewReader(data))
		return err
	}
	_, err := t.kv.Create(ctx, k, data, ttl)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	e, err := t.kv.Get(ctx, k) // of a worker before
	if err != nil {
		return err
	}
	_, err = t.kv.Update(ctx, k, data, e.Revision, ttl)
	return err
}

func (t *Tasks) get(ctx context.Context, k string) ([]byte, error) {
	e, err := t.kv.Get(ctx, k)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return e.Value, err
	}
	_, content, err := t.large.Get(ctx, k)
	return content, err
}

// drop forgets a blob. It is only tidying: what is left expires.
func (t *Tasks) drop(ctx context.Context, k string) {
	if e, err := t.kv.Get(ctx, k); err == nil {
		_ = t.kv.Delete(ctx, k, e.Revision)
		return
	}
	_ = t.large.Delete(ctx, k)
}

func forwardOf(md metadata.MD) map[string][][]byte {
	if len(md) == 0 {
		return nil
	}
	out := make(map[string][][]byte, len(md))
	for k, vs := range md {
		for _, v := range vs {
			out[k] = append(out[k], []byte(v))
		}
	}
	return out
}

func (s *spec) forward() metadata.MD {
	md := make(metadata.MD, len(s.Forward)+1)
	for k, vs := range s.Forward {
		for _, v := range vs {
			md[k] = append(md[k], string(v))
		}
	}
	return md
}
