package interceptors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// IdempotencyOptions are what Idempotency needs. The zero value works.
type IdempotencyOptions struct {
	// Store keeps the records. Default: NewKeyMemory(0, 0).
	Store KeyStore
	// TTL is how long a key is remembered, from the first call with it. It must be longer than anybody retries. Default 24 hours.
	TTL time.Duration
	// MaxAnswerBytes bounds the answer that is kept with a key. A larger one reaches its caller, but cannot be replayed. Default 1 MiB.
	MaxAnswerBytes int
	// Lease is how long the owner of a call without a deadline counts as alive, and how long beyond the deadline of another. Default 1 minute
	// beyond a deadline, 1 hour without one.
	Lease, OpenLease time.Duration
	// Applies says whether keys of a method's calls are kept; they reach the backend anyway. Default: all methods that are not read-only.
	Applies func(m *catalog.Method) bool
}

func (o IdempotencyOptions) withDefaults() IdempotencyOptions {
	if o.Store == nil {
		o.Store = NewKeyMemory(0, 0)
	}
	if o.TTL <= 0 {
		o.TTL = 24 * time.Hour
	}
	if o.MaxAnswerBytes <= 0 {
		o.MaxAnswerBytes = 1 << 20
	}
	if o.Lease <= 0 {
		o.Lease = time.Minute
	}
	if o.OpenLease <= 0 {
		o.OpenLease = time.Hour
	}
	return o
}

// Idempotency executes calls with the same idempotency key once. The key comes from the contract's field or template, else from the caller; it
// is scoped by tenant, principal and method, set as Call.Key, and always forwarded to the backend.
//
// A second call with the key gets the first one's answer, marked by Call.Replayed and the header toolway-replayed. While the first one
// runs it is ABORTED, reason IDEMPOTENCY_IN_PROGRESS. With another request it is INVALID_ARGUMENT, reason IDEMPOTENCY_KEY_REUSED. If it is
// not known what became of the first one, it is reason OUTCOME_UNKNOWN, unless the method may be repeated or the contract itself declares
// the key: then the call goes to the backend once more, which knows the key. A call that was never dispatched, or that the backend
// turned away, leaves the key free.
//
// A call that becomes a task is recorded when it runs: with the same key again it is the same task (see Submitter).
//
// Calls that stream requests are not recorded, since they have no one request; read-only ones are not, since there is nothing to protect.
func Idempotency(o Options) Policy {
	o = o.withDefaults()
	p := &idempotency{IdempotencyOptions: o.Idempotency.withDefaults(), log: o.Logger, tasks: o.Task.Submitter != nil}
	return inHalves(idempotencyName, p.forMethod)
}

const idempotencyName = "idempotency"

type idempotency struct {
	IdempotencyOptions
	log   *slog.Logger
	tasks bool
}

func (p *idempotency) forMethod(m *catalog.Method) *halves {
	// A GET rule alone does not prove that a method changes nothing: its calls are recorded if they bring a key.
	declared := m.Tool.Hints.ReadOnly && m.Policy.Retry
	if m.Service.Infrastructure || declared && !m.Policy.KeyRequired {
		return nil
	}
	template := m.KeyTemplate()
	records := !m.Kind().Client && !declared && (p.Applies == nil || p.Applies(m))
	dedupes := m.Policy.Retry || m.DeclaresKey()
	becomesTask := p.tasks && m.Taskable()
	return &halves{
		enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
			key, err := keyOf(c, stream, template)
			switch {
			case err != nil:
				c.Decide(idempotencyName, "refused", "the key is not valid")
				return nil, err
			case key == "" && m.Policy.KeyRequired:
				c.Decide(idempotencyName, "refused", "the call has no key")
				return nil, keyMissing(m, template)
			case key == "", key == c.Task: // the key of a task whose call has none: the task's own record sees to it
				return stream, nil
			}
			carry(c, key)
			if c.Async != nil && becomesTask {
				c.Decide(idempotencyName, "forwarded", "the key is the task's, and of its run")
				return stream, nil
			}
			if !records {
				c.Decide(idempotencyName, "forwarded", "calls of this method are not recorded")
				return stream, nil
			}
			return nil, errAround
		},
		around: func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			c := call.FromContext(stream.Context())
			key, err := keyOf(c, stream, template)
			if err != nil {
				return err
			}
			return p.once(c, srv, stream, handler, key, dedupes)
		},
	}
}

// once runs the call if it is the first with its key, else answers in its place.
func (p *idempotency) once(c *call.Call, srv any, stream grpc.ServerStream, handler grpc.StreamHandler, key string, dedupes bool) error {
	request, err := requestHash(c, stream)
	if err != nil {
		return err
	}
	ctx, now := stream.Context(), time.Now()
	tenant, principal := who(c.Principal)
	id := hashOf(tenant, principal, c.Method.FullMethod, key)
	claim := KeyRecord{Caller: hashOf(tenant, principal), Request: request, State: KeyRunning, Owner: c.ID, Task: c.Task == c.ID, Lease: p.lease(ctx, now), Expires: now.Add(p.TTL)}
	for range beginTries {
		found, mine, err := p.Store.Begin(ctx, id, claim)
		switch {
		case err != nil:
			return p.unkept(c, err)
		case mine:
			return p.run(c, srv, stream, handler, id, found, claim.Revision != 0)
		case found.Request != request:
			c.Decide(idempotencyName, "refused", "the key was used by call "+found.Owner+" with another request")
			return reused(c, found.Owner)
		case found.State == KeyDone:
			return replay(c, stream, &found)
		case found.State == KeyRunning && now.Before(found.Lease) && (found.Owner != c.ID || c.Task == ""): // of a task, the worker before this one is gone
			c.Decide(idempotencyName, "refused", "call "+found.Owner+" with this key is under way")
			return inProgress(c, &found)
		case !dedupes:
			c.Decide(idempotencyName, "unknown", "what became of call "+found.Owner+" with this key is not known")
			return outcomeUnknown(c, found.Owner)
		}
		c.Decide(idempotencyName, "repeated", "what became of call "+found.Owner+" with this key is not known, and the backend knows the key")
		claim.Revision = found.Revision
	}
	return inProgress(c, &KeyRecord{}) // others were faster each time
}

// beginTries is how often a call tries to take over a record whose owner is gone.
const beginTries = 4

// lease is until when the call's owner can be alive.
func (p *idempotency) lease(ctx context.Context, now time.Time) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline.Add(p.Lease)
	}
	return now.Add(p.OpenLease)
}

// unkept refuses a call whose key cannot be kept: without a record it might be executed twice.
func (p *idempotency) unkept(c *call.Call, err error) error {
	c.Decide(idempotencyName, "refused", "the key cannot be kept")
	switch {
	case errors.Is(err, ErrKeyShareFull):
		return call.RetryAfter(call.Error(codes.ResourceExhausted, "IDEMPOTENCY_SHARE_FULL", "the idempotency keys of this caller take all the room that one caller may have",
			"hint", "keys are kept until they expire; send one only where a call must not run twice, call later, or raise idempotency.share or max_bytes; nothing was done"), time.Minute)
	case errors.Is(err, ErrKeysFull):
		return call.RetryAfter(call.Error(codes.ResourceExhausted, "IDEMPOTENCY_STORE_FULL", "there is no room to keep another idempotency key",
			"hint", "keys are kept until they expire; call later, or raise idempotency.max_bytes; nothing was done"), time.Minute)
	}
	p.log.Error("begin an idempotency record", "method", c.Method.FullMethod, "call_id", c.ID, "error", err)
	return call.RetryAfter(call.Error(codes.Unavailable, "IDEMPOTENCY_STORE_UNAVAILABLE", "the store of idempotency keys cannot be reached",
		"hint", "make the same call again; nothing was done"), time.Second)
}

// inProgress answers while the first call with the key runs. If that is a task's, it says where to see the task.
func inProgress(c *call.Call, first *KeyRecord) error {
	hint := "call again with the same key later: you get its answer"
	if c.KeyMade {
		hint = "make the same call again later: you get its answer"
	}
	about := []string{"call_id", first.Owner}
	if first.Task {
		about = append(about, "status_uri", call.TasksPath+first.Owner)
		hint += "; it runs as a task, which status_uri shows"
	}
	return call.RetryAfter(call.Error(codes.Aborted, "IDEMPOTENCY_IN_PROGRESS", "a call with this idempotency key is under way", append(about, "hint", hint)...), time.Second)
}

// reused refuses another request with a key that is taken.
func reused(c *call.Call, owner string) error {
	hint := "a key stands for one request: send the same request again, or a new key; nothing was done"
	if c.KeyMade {
		hint = "the key is made of " + keyFields(c) + ": send the same request again, or another one in these; nothing was done"
	}
	return call.Error(codes.InvalidArgument, "IDEMPOTENCY_KEY_REUSED", "this idempotency key was used with another request", "call_id", owner, "hint", hint)
}

func outcomeUnknown(c *call.Call, owner string) error {
	hint := "it is not made again: look up the state, and use a new key if it still has to be done"
	if c.KeyMade {
		hint = "it is not made again: look up the state. The key is made of " + keyFields(c) + ", so if it still has to be done, call with another value there, or when the key has expired"
	}
	return call.Error(codes.Unknown, "OUTCOME_UNKNOWN", fmt.Sprintf("a call with this idempotency key was handed to backend %q, and whether it took effect is not known", c.Method.Backend.Name),
		"call_id", owner, "backend", c.Method.Backend.Name, "hint", hint)
}

// run executes the call and records what became of it. again says that an earlier call with the key may have been executed.
func (p *idempotency) run(c *call.Call, srv any, stream grpc.ServerStream, handler grpc.StreamHandler, id Hash, r KeyRecord, again bool) error {
	rec := &recorder{ServerStream: stream, record: r, max: p.MaxAnswerBytes, unary: !c.Method.Kind().Server}
	ended := false
	defer func() {
		if !ended { // a panic, which Recover tells about
			rec.record = r
			if rec.record.State = KeyUnknown; c.Outcome() == call.NotExecuted {
				rec.record.State = 0
			}
		}
		if rec.record.State == 0 && again {
			rec.record.State = KeyUnknown
		}
		p.finish(stream.Context(), c, id, rec.record)
	}()
	err := handler(srv, rec)
	ended = true
	rec.end(c, err)
	return err
}

// finishTimeout bounds how long a call that has ended waits for its record.
const finishTimeout = 5 * time.Second

// finish records what became of the call, even if its caller is gone. If that fails the record stays as it is until its lease is over, and
// counts as unknown from then on.
func (p *idempotency) finish(ctx context.Context, c *call.Call, id Hash, r KeyRecord) {
	verdict := map[KeyState]string{0: "released", KeyDone: "recorded", KeyUnknown: "unknown"}[r.State]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := p.Store.Finish(ctx, id, r); err != nil {
		verdict = "not recorded"
		p.log.Error("record what became of a call with an idempotency key", "method", c.Method.FullMethod, "call_id", c.ID, "error", err)
	}
	c.Decide(idempotencyName, verdict, "")
}

// replay answers with what the first call with the key was answered.
func replay(c *call.Call, stream grpc.ServerStream, r *KeyRecord) error {
	c.Decide(idempotencyName, "replayed", "call "+r.Owner+" had this key")
	if r.Cut {
		return notKept(r)
	}
	c.Replayed = true
	header := metadata.Join(r.Header, metadata.Pairs("toolway-replayed", "true"))
	if err := stream.SetHeader(header); err != nil {
		return err
	}
	for _, wire := range r.Replies {
		if err := stream.SendMsg(call.NewFrame(c.Method.Desc.Output(), wire)); err != nil {
			return err
		}
	}
	stream.SetTrailer(r.Trailer)
	if r.Status == nil {
		return nil
	}
	st := new(spb.Status)
	if err := proto.Unmarshal(r.Status, st); err != nil {
		return fmt.Errorf("read the status of call %s: %w", r.Owner, err)
	}
	return status.ErrorProto(st)
}

// notKept answers in place of an answer that was too large to be kept.
func notKept(r *KeyRecord) error {
	ended := "OK"
	if r.Status != nil {
		st := new(spb.Status)
		if proto.Unmarshal(r.Status, st) == nil {
			ended = codeName(codes.Code(st.GetCode())) //nolint:gosec // codes are small
		}
	}
	return call.Error(codes.FailedPrecondition, "IDEMPOTENCY_ANSWER_NOT_KEPT", "the call with this idempotency key was executed and ended with "+ended+", but its answer was too large to be kept",
		"call_id", r.Owner, "code", ended, "hint", "it is not made again: read the state")
}

// recorder is a stream that keeps what passes to the caller.
type recorder struct {
	grpc.ServerStream
	record  KeyRecord
	max     int
	kept    int
	unary   bool
	replied bool
}

// SetHeader keeps the header and passes it on.
func (r *recorder) SetHeader(md metadata.MD) error {
	r.record.Header = metadata.Join(r.record.Header, md)
	return r.ServerStream.SetHeader(md)
}

// SendHeader keeps the header and passes it on.
func (r *recorder) SendHeader(md metadata.MD) error {
	r.record.Header = metadata.Join(r.record.Header, md)
	return r.ServerStream.SendHeader(md)
}

// SetTrailer keeps the trailer and passes it on.
func (r *recorder) SetTrailer(md metadata.MD) {
	r.record.Trailer = metadata.Join(r.record.Trailer, md)
	r.ServerStream.SetTrailer(md)
}

// SendMsg keeps the reply, while there is room, and passes it on.
func (r *recorder) SendMsg(m any) error {
	r.replied = true
	if !r.record.Cut {
		wire, err := wireOf(m)
		if r.kept += len(wire); err != nil || r.kept > r.max {
			r.record.cut()
		} else {
			r.record.Replies = append(r.record.Replies, bytes.Clone(wire))
		}
	}
	return r.ServerStream.SendMsg(m)
}

// end completes the record of a call that has ended with err.
func (r *recorder) end(c *call.Call, err error) {
	rec := &r.record
	rec.State = verdictOf(r.Context(), c, r.unary && r.replied, err)
	if rec.State != KeyDone {
		rec.Replies, rec.Header, rec.Trailer, rec.Cut = nil, nil, nil, false
		return
	}
	if whole := r.unary && r.replied; err != nil && !whole {
		rec.Status = marshalStatus(err)
	}
	// Details are in the status already; the rest is about this one call and connection.
	for _, key := range []string{"grpc-status-details-bin", "grpc-retry-pushback-ms", "endpoint-load-metrics-bin"} {
		delete(rec.Trailer, key)
	}
	if rec.size() > r.max+len(rec.Status) {
		rec.cut()
	}
}

// marshalStatus returns the status of an error as wire bytes.
func marshalStatus(err error) []byte {
	wire, marshalErr := proto.Marshal(status.Convert(err).Proto())
	if marshalErr != nil {
		wire, _ = proto.Marshal(&spb.Status{Code: int32(status.Code(err))}) //nolint:gosec // codes are small
	}
	return wire
}
