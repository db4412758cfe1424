// Package task runs calls as durable tasks: their state, the queue, the workers, the events and their replay.
//
// A task is kept before its id is told. A worker, of whatever instance, takes it from the queue on a lease, which it extends while the call
// runs. A worker that dies loses the lease and another takes over: it makes the call again if the method may be repeated or the backend
// knows the call's key, else the task ends as OutcomeUnknown. Before the call is handed to a backend the record says so, by
// compare-and-set: no call that might have taken effect is made again.
package task

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
)

// State says how far a task has come.
type State string

// The states. Those after InputRequired are final.
const (
	Working        State = "working"
	InputRequired  State = "input_required"
	Completed      State = "completed"
	Failed         State = "failed"
	Cancelled      State = "cancelled"
	OutcomeUnknown State = "outcome_unknown"
)

// Final says whether a task in this state has ended.
func (s State) Final() bool { return s != Working && s != InputRequired }

// Task is a task as its owner sees it.
type Task struct {
	ID string
	// Method is gRPC's full name, "/pkg.Service/Method"; Tool is "" if the method is no tool.
	Method, Tool string
	// Output is the full name of the answer's message type.
	Output string
	State  State
	// Started and Ended are zero until then. Deadline is when it ends at the latest, Expires until when it is kept.
	Created, Updated, Started, Ended, Deadline, Expires time.Time
	// TTL is how long it is kept once it has ended.
	TTL time.Duration
	// Attempts counts how often the call was handed to a backend.
	Attempts int
	// CancelRequested says that somebody has asked for its end.
	CancelRequested bool
	// Messages and Bytes are what has come of a streamed answer so far.
	Messages, Bytes int64
	// Round counts how often the backend has asked for input: it tells the questions of one round from those of another, whose names may be the same.
	Round int
	// Err is why it has not completed: a status; nil otherwise. Of a task that waits for input it has a toolway.v1.InputRequired with what has not been
	// answered yet.
	Err *status.Status
	// Size is that of the answer, Cut says that it is not whole, or not kept, and URI where it is kept as JSON if it is too large for Result.
	Size int64
	Cut  bool
	URI  string
}

// Results keeps answers that are too large to be given with the task, for as long as the task. *durable.Objects is one.
type Results interface {
	// Keep keeps data for owner. The error is store.ErrUnavailable if it can be tried again.
	Keep(ctx context.Context, owner object.Owner, mediaType string, data []byte, until time.Time) (object.Info, error)
}

// Config is what Tasks need. Store, Catalog and Logger are required.
type Config struct {
	Store *store.Store
	// Catalog has the methods that tasks call.
	Catalog interface{ Snapshot() *catalog.Snapshot }
	// Results keeps large answers. Nil: an answer that is too large is not kept.
	Results Results
	Logger  *slog.Logger

	// Timeout is how long a task may take from its submission if its caller does not say, MaxTimeout the most that it can say. Default 1 hour and 24
	// hours.
	Timeout, MaxTimeout time.Duration
	// TTL is how long a task is kept once it has ended if its caller does not say, MaxTTL the most that it can say. Default 24 hours and 7 days.
	TTL, MaxTTL time.Duration
	// MaxRequestBytes bounds the request of a task. Default 4 MiB.
	MaxRequestBytes int
	// MaxResultBytes bounds the answer that is kept. Default 4 MiB. MaxInlineBytes bounds the answer that is given with the task. Default 1 MiB.
	MaxResultBytes, MaxInlineBytes int
	// MaxEvents bounds the messages of a streamed answer that become events; later ones are counted only. Default 10,000. MaxEventBytes bounds the
	// message in an event; one that is larger is left out. Default 16 KiB.
	MaxEvents, MaxEventBytes int
	// MaxTasks bounds the tasks that wait or run. Default 100,000.
	MaxTasks int

	// Workers is how many tasks this instance runs at a time. Default 64. PerTool and PerTenant bound them per method and per tenant. Default: as
	// Workers.
	Workers, PerTool, PerTenant int
	// Lease is how long a worker may be silent before its task is given to another. Default 30 seconds.
	Lease time.Duration
	// MaxAttempts is how often a call that can be repeated is made. Default 5.
	MaxAttempts int
}

// DefaultMaxTTL is Config.MaxTTL's.
const DefaultMaxTTL = 7 * 24 * time.Hour

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&c.MaxTimeout, 24*time.Hour)
	def(&c.Timeout, min(time.Hour, c.MaxTimeout))
	def(&c.MaxTTL, DefaultMaxTTL)
	def(&c.TTL, min(24*time.Hour, c.MaxTTL))
	def(&c.Lease, 30*time.Second)
	num(&c.MaxRequestBytes, 4<<20)
	num(&c.MaxResultBytes, 4<<20)
	num(&c.MaxInlineBytes, 1<<20)
	num(&c.MaxEvents, 10_000)
	num(&c.MaxEventBytes, 16<<10)
	num(&c.MaxTasks, 100_000)
	num(&c.Workers, 64)
	num(&c.PerTool, c.Workers)
	num(&c.PerTenant, c.Workers)
	num(&c.MaxAttempts, 5)
	return c
}

// Tasks are the tasks of a mesh. It is safe for concurrent use, by several instances on one store.
type Tasks struct {
	conf   Config
	log    *slog.Logger
	kv     *store.KV
	large  *store.Objects
	events *store.Log
	queue  jobs
	index  *index

	stop      context.CancelFunc
	following *sync.WaitGroup
}

// jobs is a store.Queue.
type jobs interface {
	Put(ctx context.Context, id string, data []byte) error
	Take(ctx context.Context) (*store.Job, error)
}

// maxValue is the largest value in the table of tasks; what is larger is an object. A NATS server takes 1 MiB by default.
const maxValue = 512 << 10

// Open opens the tasks in the store. It starts no worker. Close ends it.
func Open(ctx context.Context, c Config) (*Tasks, error) {
	c = c.withDefaults()
	t := &Tasks{conf: c, log: c.Logger}
	var err error
	if t.kv, err = c.Store.KV(ctx, store.KVConfig{Name: "tasks", MaxBytes: 512 << 20, MaxValueBytes: maxValue}); err != nil {
		return nil, err
	}
	if t.large, err = c.Store.Objects(ctx, store.ObjectsConfig{Name: "tasks", MaxBytes: 512 << 20, TTL: c.MaxTimeout + c.MaxTTL, MaxObjectBytes: int64(max(c.MaxRequestBytes, c.MaxResultBytes)) * 2}); err != nil {
		return nil, err
	}
	if t.events, err = c.Store.Log(ctx, store.LogConfig{Name: "tasks", MaxAge: c.MaxTimeout + c.MaxTTL, MaxBytes: 512 << 20, MaxEventBytes: c.MaxEventBytes + 4<<10}); err != nil {
		return nil, err
	}
	// Attempts are counted in the record: that a job is given out again, since it has to wait for its turn, is no failure.
	queue, err := c.Store.Queue(ctx, store.QueueConfig{Name: "tasks", MaxMessages: int64(c.MaxTasks), MaxBytes: 64 << 20, Lease: c.Lease, MaxDeliveries: 1 << 30})
	if err != nil {
		return nil, err
	}
	t.queue = queue
	t.index = &index{tasks: t, owners: map[string][]indexed{}, open: map[name]time.Time{}, pools: map[*Pool]bool{}}
	following, stop := context.WithCancel(context.Background())
	t.stop, t.following = stop, new(sync.WaitGroup)
	t.following.Go(func() { t.index.run(following) })
	t.following.Go(func() { t.index.tend(following) })
	return t, nil
}

// Close ends what Open has begun. Workers are to be drained before.
func (t *Tasks) Close() {
	t.stop()
	t.following.Wait()
}

func notFound() error {
	return call.Error(codes.NotFound, "TASK_NOT_FOUND", "there is no such task for this caller, or no longer", "hint", "list the tasks; each is kept for some time once it has ended")
}

// unkept is the status of an error of the store.
func (t *Tasks) unkept(what string, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, store.ErrFull):
		return call.RetryAfter(call.Error(codes.ResourceExhausted, "TASKS_FULL", "there is no room for another task", "hint", "wait until some have ended; nothing was done"), time.Minute)
	}
	t.log.Error(what, "error", err)
	return call.RetryAfter(call.Error(codes.Unavailable, "TASK_STORE_UNAVAILABLE", "the store of tasks cannot be reached",
		"hint", "call again; bring an idempotency key where the call makes a task"), time.Second)
}

// who returns the tenant and the id of a principal, which is nobody if it is nil.
func who(p *identity.Principal) (tenant, id string) {
	if p == nil {
		return "", ""
	}
	return p.Tenant, p.ID
}
