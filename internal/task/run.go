package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/transcode"
)

// run is one worker's run of a task.
type run struct {
	pool   *Pool
	tasks  *Tasks
	job    job
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc

	stop    chan struct{} // ends the heartbeat
	beating sync.WaitGroup

	method *catalog.Method
	spec   spec
	record *record // as it was claimed

	mu       sync.Mutex
	lease    *store.Job
	claimed  uint64 // the revision of the claim; 0 before it
	messages int64
	bytes    int64
	shown    int64 // messages that the record tells
}

func (r *run) key() string { return r.job.Owner + r.job.ID }

// start begins the heartbeat, end ends it.
func (r *run) start() {
	r.stop = make(chan struct{})
	r.beating.Go(r.beat)
}

func (r *run) end() {
	close(r.stop)
	r.beating.Wait()
	r.cancel(nil)
}

func (r *run) setLease(l *store.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease = l
}

func (r *run) held() *store.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease
}

// heed ends the run if the record says so.
func (r *run) heed(rec *record) {
	r.mu.Lock()
	claimed := r.claimed
	r.mu.Unlock()
	switch {
	case rec.Worker == r.name && !rec.State.Final():
		if rec.Cancel {
			r.cancel(errCancel)
		}
	case claimed > 0 && rec.revision > claimed:
		r.cancel(errLost)
	}
}

// guarded is run for a worker: a panic ends this run, not the process. The job comes again when its lease is over, so a task that
// makes every worker panic ends by its bound of attempts.
func (r *run) guarded() {
	defer func() {
		if p := recover(); p != nil {
			r.tasks.log.Error("panic in a task's run, which ends", "task", r.job.ID, "method", r.job.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r.pool.giveBack(r.held(), backoff(r.held().Delivery))
		}
	}()
	r.run()
}

// run sees to the job until it is done, given back, or left to another.
func (r *run) run() {
	// What the run writes is not cut off by the end of its call.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	defer cancel()
	next, err := r.claim(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound): // expired
		r.pool.done(ctx, r.held())
		return
	case err != nil:
		r.tasks.log.Warn("a task is not begun; it comes again", "task", r.job.ID, "error", err)
		r.pool.giveBack(r.held(), backoff(r.held().Delivery))
		return
	}
	switch next {
	case later:
		r.pool.giveBack(r.held(), 5*time.Second)
	case unanswered:
		r.pool.giveBack(r.held(), min(backoff(r.held().Delivery)/8, 10*time.Second)) // most often they are being written
	case drop:
		r.pool.done(ctx, r.held())
	case wrapUp:
		r.wrapUp(ctx, r.record)
	case proceed:
		r.call(ctx)
	}
}

// beat extends the lease and looks at the record, three times within a lease.
func (r *run) beat() {
	ticker := time.NewTicker(max(r.tasks.conf.Lease/3, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		if err := r.held().Extend(); err != nil {
			r.tasks.log.Warn("the lease of a task is not extended", "task", r.job.ID, "error", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.tasks.conf.Lease)
		if rec, err := r.tell(ctx); err == nil {
			r.heed(rec)
		}
		cancel()
	}
}

// tell writes to the record what has come so far, if that is more than it tells, and returns it.
func (r *run) tell(ctx context.Context) (*record, error) {
	r.mu.Lock()
	messages, bytes, news := r.messages, r.bytes, r.messages != r.shown
	r.shown = r.messages
	r.mu.Unlock()
	if !news {
		return r.tasks.load(ctx, r.job.Owner, r.job.ID)
	}
	return r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		if rec.State.Final() || rec.Worker != r.name {
			return errUnchanged
		}
		rec.Messages, rec.Bytes = messages, bytes
		return nil
	})
}

// step is what a worker does with a job.
type step int

const (
	proceed    step = iota // make the call
	wrapUp                 // the task has ended: see that its last event is there
	drop                   // there is nothing to do
	later                  // it cannot be done now
	unanswered             // it was queued for answers that are not in the record yet
)

// claim makes the task this run's, and says in the record that the call may reach its backend from now on. Or it ends the task.
func (r *run) claim(ctx context.Context) (step, error) {
	t := r.tasks
	m := t.conf.Catalog.Snapshot().Method(r.job.Method)
	var next step
	rec, err := t.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		next = wrapUp
		switch {
		case rec.State.Final():
			return errUnchanged
		case rec.State == InputRequired && rec.Round != r.job.Round, rec.Dispatched && rec.Job != r.job.Nonce:
			next = drop
			return errUnchanged
		case time.Now().After(rec.Deadline):
			t.lose(rec)
			return nil
		case rec.State == InputRequired:
			next = unanswered
			return errUnchanged
		case rec.Cancel && (!rec.Dispatched || t.repeatable(rec)):
			t.end(rec, Cancelled, errCancelled(", and its worker was lost"))
			return nil
		case m == nil: // its backend has not come up, or has gone
			next = later
			return errUnchanged
		case rec.Operation != "": // the backend has it: it is looked after, not made again
		case rec.Dispatched && !t.repeatable(rec):
			t.end(rec, OutcomeUnknown, errUnknown("the worker that made the call was lost"))
			return nil
		case rec.Attempts >= t.conf.MaxAttempts:
			t.end(rec, Failed, status.Convert(call.Error(codes.Aborted, "TASK_ATTEMPTS", "the call was made several times, and each time its worker or backend was lost", "hint", "make the task anew, if its call is not what ends them")))
			return nil
		}
		next = proceed
		if rec.Operation == "" {
			rec.Attempts++
		}
		rec.Dispatched, rec.Job, rec.Worker = true, r.job.Nonce, r.name
		if rec.Started.IsZero() {
			rec.Started = time.Now()
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	r.record, r.method = rec, m
	if next == proceed {
		r.mu.Lock()
		r.claimed = rec.revision
		r.mu.Unlock()
	}
	return next, nil
}

// call makes the call, and ends the task or gives the job back.
func (r *run) call(ctx context.Context) {
	t, rec := r.tasks, r.record
	raw, err := t.get(ctx, key("i", rec.owner, rec.ID))
	if err == nil {
		err = json.Unmarshal(raw, &r.spec)
	}
	if err != nil {
		t.log.Error("the request of a task cannot be read", "task", rec.ID, "error", err)
		r.undo(ctx)
		return
	}
	a := &answer{max: t.conf.MaxResultBytes}
	if rec.Operation != "" {
		outcome, err := r.await(ctx, a, rec.Operation)
		r.finish(ctx, a, outcome, err)
		return
	}
	r.tellEvent(ctx, started, startedPayload{Attempt: rec.Attempts})
	outcome, err := r.make(ctx, a)
	if err == nil {
		var name string
		if name, err = r.operation(a); name != "" {
			outcome, err = r.await(ctx, a, name)
		}
	}
	r.finish(ctx, a, outcome, err)
}

// make makes the call once, with the rights that its principal had when it was submitted.
func (r *run) make(ctx context.Context, a *answer) (call.Outcome, error) {
	s, t := &r.spec, r.tasks
	c := call.New(r.method, s.Door)
	c.ID, c.Task, c.Protocol, c.Principal, c.Approval, c.Key = r.record.ID, r.record.ID, s.Protocol, s.Principal, s.Approval, s.Key
	c.Forward = s.forward()
	if c.Forward[call.KeyHeader] = []string{s.Key}; s.Key == "" {
		c.Forward[call.KeyHeader] = []string{r.record.ID}
	}
	if r.record.Inputs != nil {
		c.Forward[call.InputResponsesKey] = []string{string(r.record.Inputs)}
	}
	callCtx, cancel := context.WithDeadline(r.ctx, r.record.Deadline)
	defer cancel()
	streams := r.method.Kind().Server
	stream := call.NewStream(callCtx, c, call.One(call.NewFrame(r.method.Desc.Input(), s.Request)), func(f *call.Frame) error {
		wire := f.Bytes()
		a.add(wire)
		r.mu.Lock()
		r.messages, r.bytes = a.messages, a.bytes
		r.mu.Unlock()
		if streams && a.messages <= int64(t.conf.MaxEvents) {
			r.tellEvent(ctx, progress, r.progress(wire, a.messages))
		}
		return nil
	}, nil)
	err := r.pool.handler(stream)
	return c.Outcome(), err
}

func (r *run) progress(wire []byte, n int64) progressPayload {
	p := progressPayload{Count: n, Bytes: len(wire)}
	if len(wire) > r.tasks.conf.MaxEventBytes {
		return p
	}
	if text, err := r.method.Response().AppendJSON(nil, wire, transcode.WriteOptions{OpaqueAny: true}); err == nil && len(text) <= r.tasks.conf.MaxEventBytes {
		p.Message = text
	}
	return p
}

// tellEvent appends an event of the run's task that is not the last.
func (r *run) tellEvent(ctx context.Context, typ string, payload any) {
	r.tasks.tell(ctx, r.record.ID, typ, payload)
}

// finish ends the task as the call has ended, or gives the job to whoever goes on.
func (r *run) finish(ctx context.Context, a *answer, outcome call.Outcome, err error) {
	cause := context.Cause(r.ctx)
	if cause == nil { // what waits for the pool's end learns of it before the contexts below are ended
		cause = context.Cause(r.pool.base)
	}
	again := status.Code(err) == codes.Unavailable && r.record.Attempts < r.tasks.conf.MaxAttempts && r.tasks.repeatable(r.record)
	switch {
	case errors.Is(cause, errLost):
		return // the other one sees to it
	case err == nil:
	case outcome == call.NotExecuted && !errors.Is(cause, errCancel) && (errors.Is(cause, errDrained) || passing(err)):
		r.undo(ctx)
		return
	case errors.Is(cause, errDrained), again && !errors.Is(cause, errCancel):
		r.pool.giveBack(r.held(), backoff(r.held().Delivery))
		return
	}
	if st := status.Convert(err); questionOf(st) != nil {
		st, asks := putTo(st, r.spec.Unaskable)
		if asks {
			r.ask(ctx, st)
			return
		}
		err = st.Err()
	}
	r.tellEvent(ctx, completed, completedPayload{Code: status.Code(err).String(), Messages: a.messages, Bytes: a.bytes})
	end := func(rec *record) {
		rec.Messages, rec.Bytes = a.messages, a.bytes
		state, st := r.verdict(cause, outcome, err)
		r.tasks.end(rec, state, st)
	}
	rec, err := r.write(ctx, a, err == nil, end)
	if err != nil {
		r.tasks.log.Error("what became of a task is not kept", "task", r.record.ID, "error", err)
		return // the lease ends, and another decides by what the record says
	}
	r.wrapUp(ctx, rec)
}

// passing says whether what kept a call from being made passes: a backend that is down, a bulkhead that is full, a call with the same key under way.
func passing(err error) bool {
	st := status.Convert(err)
	return st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted || reasonOf(st) == "IDEMPOTENCY_IN_PROGRESS"
}

// verdict is the final state of a task whose call has ended.
func (r *run) verdict(cause error, outcome call.Outcome, err error) (State, *status.Status) {
	st := status.Convert(err)
	switch {
	case err == nil:
		return Completed, nil
	case errors.Is(cause, errCancel) && st.Code() == codes.Canceled:
		if outcome == call.NotExecuted {
			return Cancelled, errCancelled("")
		}
		return Cancelled, errCancelled("; what it had done by then stays done")
	case (reasonOf(st) == "OUTCOME_UNKNOWN" || outcome == call.Unknown) && !r.tasks.repeatable(r.record):
		return OutcomeUnknown, st
	}
	return Failed, st
}

// reasonOf returns the reason of an error that the mesh itself has found; "" for others.
func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == call.Domain {
			return info.GetReason()
		}
	}
	return ""
}

// writeFor is how long a worker tries to keep what became of a task while the store is away.
const writeFor = 2 * time.Minute

// write keeps the answer, if there is one, then the record, unless the task is no longer this run's.
func (r *run) write(ctx context.Context, a *answer, answered bool, end func(*record)) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, writeFor)
	defer cancel()
	kept := *r.record
	for try := 0; ; try++ {
		var err error
		if answered {
			err = r.tasks.keep(ctx, &kept, r.method, r.spec.Principal, a)
		}
		var rec *record
		if err == nil {
			rec, err = r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
				if rec.State.Final() || rec.Worker != r.name {
					return errUnchanged
				}
				rec.Size, rec.Cut, rec.URI = kept.Size, kept.Cut, kept.URI
				end(rec)
				return nil
			})
		}
		switch {
		case err == nil:
			return rec, nil
		case errors.Is(err, store.ErrNotFound), ctx.Err() != nil:
			return nil, err
		case errors.Is(err, store.ErrFull) && !kept.Cut:
			answered, kept.Cut, kept.Size = false, true, a.bytes // better a task without its answer than none
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff(try)):
		}
	}
}

// wrapUp tells whoever watches that the task has ended, and that its job is done.
func (r *run) wrapUp(ctx context.Context, rec *record) {
	if !rec.State.Final() {
		return // another worker's
	}
	if err := r.tasks.close(ctx, rec); err != nil {
		r.tasks.log.Warn("the last event of a task is not appended yet; its job comes again", "task", rec.ID, "error", err)
		r.pool.giveBack(r.held(), time.Second)
		return
	}
	r.tasks.drop(ctx, key("i", rec.owner, rec.ID))
	r.pool.done(ctx, r.held())
}

// undo says that the call has not been made, and gives the job back.
func (r *run) undo(ctx context.Context) {
	_, err := r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		if rec.State.Final() || rec.Worker != r.name {
			return errUnchanged
		}
		rec.Dispatched, rec.Attempts = false, max(rec.Attempts-1, 0)
		if rec.Cancel {
			r.tasks.end(rec, Cancelled, errCancelled(""))
		}
		return nil
	})
	if err != nil {
		r.tasks.log.Warn("that the call of a task was not made is not kept", "task", r.job.ID, "error", err)
	}
	r.pool.giveBack(r.held(), backoff(r.held().Delivery))
}
