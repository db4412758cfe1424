package task

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
)

// reservation is which task an idempotency key belongs to, as it is kept under the key "k.OWNER.TOKEN".
type reservation struct {
	ID      string
	Request string
}

// Submit keeps the call c and its request as a task of its principal and returns the task's id. Once it has returned, nothing loses the task but
// its expiry. The same call again with its key, while the task is kept, gets the same id; another request with the key is
// INVALID_ARGUMENT, reason IDEMPOTENCY_KEY_REUSED. It keeps no credentials: the run has the principal's rights at submission.
func (t *Tasks) Submit(ctx context.Context, c *call.Call, request []byte) (string, error) {
	if len(request) > t.conf.MaxRequestBytes {
		return "", call.Error(codes.ResourceExhausted, "TASK_REQUEST_TOO_LARGE", fmt.Sprintf("the request has %d bytes, and a task keeps at most %d", len(request), t.conf.MaxRequestBytes),
			"hint", "make the call without a task; nothing was done")
	}
	key := c.Key
	if key == "" { // read-only methods keep no keys, but the caller may have sent one
		key = strings.Join(c.Forward[call.KeyHeader], ",")
	}
	now, owner := time.Now(), ownerOf(c.Principal)
	r := &record{
		ID: newID(), Method: c.Method.FullMethod, Tool: c.Method.Tool.Name, Output: string(c.Method.Desc.Output().FullName()), State: Working, Created: now, Updated: now, Keyed: key != "" && c.Method.DeclaresKey(), owner: owner,
	}
	t.bound(r, c, now)
	if key != "" {
		id, found, err := t.reserve(ctx, r, c, key, request)
		switch {
		case err != nil, found != nil && (found.State != Working || found.Dispatched):
			return id, err
		case found != nil: // it waits, unless whoever made it stopped before it was queued
			return id, t.enqueue(ctx, found, c.Principal, found.ID)
		}
		r.ID = id
	}
	return r.ID, t.create(ctx, r, c, key, request)
}

// bound settles deadline and expiry.
func (t *Tasks) bound(r *record, c *call.Call, now time.Time) {
	timeout, ttl := t.conf.Timeout, t.conf.TTL
	if a := c.Async; a != nil {
		if a.Timeout > 0 {
			timeout = min(a.Timeout, t.conf.MaxTimeout)
		}
		if a.TTL > 0 {
			ttl = min(a.TTL, t.conf.MaxTTL)
		}
	}
	r.TTL, r.Deadline = ttl, now.Add(timeout)
	r.Expires = r.Deadline.Add(ttl)
}

// newID returns 32 random hex digits that cannot be guessed. They are a valid id of a call too: that of the task's runs.
func newID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// reserve gives the task's id to a key, or returns the id that the key has already, and that task, if it is there.
func (t *Tasks) reserve(ctx context.Context, r *record, c *call.Call, idempotencyKey string, request []byte) (id string, found *record, err error) {
	canonical, err := c.Method.Request().AppendCanonical(nil, request)
	if err != nil {
		return "", nil, call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	sum := sha256.Sum256(canonical)
	want := reservation{ID: r.ID, Request: hex.EncodeToString(sum[:])}
	k := key("k", r.owner, store.Token(c.Method.FullMethod+" "+idempotencyKey))
	_, err = t.kv.Create(ctx, k, encode(want), r.keep(r.Created))
	if err == nil {
		return r.ID, nil, nil
	}
	if !errors.Is(err, store.ErrConflict) {
		return "", nil, t.unkept("reserve a key for a task", err)
	}
	e, err := t.kv.Get(ctx, k)
	if err != nil {
		return "", nil, t.unkept("read the reservation of a key", err)
	}
	var have reservation
	if err := json.Unmarshal(e.Value, &have); err != nil {
		return "", nil, t.unkept("read the reservation of a key", err)
	}
	if have.Request != want.Request {
		return "", nil, call.Error(codes.InvalidArgument, "IDEMPOTENCY_KEY_REUSED", "this idempotency key was used with another request", "task_id", have.ID,
			"hint", "a key stands for one request: send the same request again, or a new key; nothing was done")
	}
	found, err = t.load(ctx, r.owner, have.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", nil, t.unkept("read a task", err)
	}
	return have.ID, found, nil // not found: whoever was before us has stopped half-way
}

// create keeps what the task is to do, its record, its first event, and its job, in this order: a job whose task is not there does not exist.
func (t *Tasks) create(ctx context.Context, r *record, c *call.Call, idempotencyKey string, request []byte) error {
	ttl := r.keep(r.Created)
	s := &spec{
		Request: request, Forward: forwardOf(c.Forward), Door: c.Door, Protocol: c.Protocol, Key: idempotencyKey, Approval: c.Approval, TraceID: c.TraceID, Principal: c.Principal,
	}
	if c.Async != nil {
		s.Unaskable = c.Async.Unaskable
	}
	if err := t.put(ctx, key("i", r.owner, r.ID), encode(s), ttl); err != nil {
		return t.unkept("keep the request of a task", err)
	}
	var err error
	if r.First, err = t.append(ctx, r.ID, created, createdPayload{Method: r.Method[1:], Tool: r.Tool}, r.ID+".created"); err != nil {
		return t.unkept("append an event", err)
	}
	if _, err := t.kv.Create(ctx, key("t", r.owner, r.ID), encode(r), ttl); err != nil && !errors.Is(err, store.ErrConflict) {
		return t.unkept("keep a task", err)
	}
	return t.enqueue(ctx, r, c.Principal, r.ID)
}

// enqueue adds a job. A second one with the same id within two minutes is none.
func (t *Tasks) enqueue(ctx context.Context, r *record, p *identity.Principal, id string) error {
	tenant, _ := who(p)
	j := job{Owner: r.owner, ID: r.ID, Nonce: newID(), Round: r.Round, Method: r.Method, Tenant: tenant}
	if err := t.queue.Put(ctx, id, encode(j)); err != nil {
		return t.unkept("queue a task", err)
	}
	return nil
}
