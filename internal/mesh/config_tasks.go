package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/durable"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/task"
)

// Tasks says how calls run as tasks. There are tasks where there is a store: a data directory, or a cluster.
type Tasks struct {
	// Off keeps no tasks, although there is a store.
	Off bool `yaml:"off"`
	// Timeout is how long a task may take if its caller does not say, MaxTimeout the most that it can say. Default 1h and 24h.
	Timeout    Duration `yaml:"timeout"`
	MaxTimeout Duration `yaml:"max_timeout"`
	// TTL is how long a task is kept once it has ended if its caller does not say, MaxTTL the most that it can say. Default 24h and 168h.
	TTL    Duration `yaml:"ttl"`
	MaxTTL Duration `yaml:"max_ttl"`
	// MaxRequestBytes and MaxResultBytes bound what is kept of one task. Default 4 MiB each.
	MaxRequestBytes int `yaml:"max_request_bytes"`
	MaxResultBytes  int `yaml:"max_result_bytes"`
	// MaxTasks bounds the tasks that wait or run, of all instances. Default 100000.
	MaxTasks int `yaml:"max_tasks"`
	// MaxEvents bounds the messages of a streamed answer that become events. Default 10000.
	MaxEvents int `yaml:"max_events"`
	// Workers is how many tasks this instance runs at a time, PerTool and PerTenant how many of one. Default 64, and as workers.
	Workers   int `yaml:"workers"`
	PerTool   int `yaml:"per_tool"`
	PerTenant int `yaml:"per_tenant"`
	// Lease is how long a worker may be silent before its task is given to another. All instances have the same. Default 30s.
	Lease Duration `yaml:"lease"`
	// MaxAttempts is how often a call that can be repeated is made. Default 5.
	MaxAttempts int `yaml:"max_attempts"`
}

func (t *Tasks) normalise() error {
	for _, n := range []int64{int64(t.Timeout), int64(t.MaxTimeout), int64(t.TTL), int64(t.MaxTTL), int64(t.Lease), int64(t.MaxRequestBytes), int64(t.MaxResultBytes),
		int64(t.MaxTasks), int64(t.MaxEvents), int64(t.Workers), int64(t.PerTool), int64(t.PerTenant), int64(t.MaxAttempts)} {
		switch {
		case n < 0:
			return errors.New("tasks: a limit cannot be negative; leave it out for the default")
		case n > 0 && t.Off:
			return errors.New("tasks.off is set beside other keys of tasks: drop the one or the others")
		}
	}
	if t.MaxTimeout > 0 && t.Timeout > t.MaxTimeout {
		return fmt.Errorf("tasks.timeout %s is above tasks.max_timeout %s: lower the one or raise the other", time.Duration(t.Timeout), time.Duration(t.MaxTimeout))
	}
	if t.MaxTTL > 0 && t.TTL > t.MaxTTL {
		return fmt.Errorf("tasks.ttl %s is above tasks.max_ttl %s: lower the one or raise the other", time.Duration(t.TTL), time.Duration(t.MaxTTL))
	}
	if t.Lease > 0 && t.Lease < Duration(time.Second) {
		return fmt.Errorf("tasks.lease %s is too short to be kept on a busy machine: give it a second at least", time.Duration(t.Lease))
	}
	return nil
}

// openTasks opens the tasks in the store; nil without one.
func (m *Mesh) openTasks(ctx context.Context) (err error) {
	t := &m.config.Tasks
	if m.state.store == nil || t.Off {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conf := task.Config{
		Store: m.state.store, Catalog: m.catalog, Logger: m.log,
		Timeout: time.Duration(t.Timeout), MaxTimeout: time.Duration(t.MaxTimeout), TTL: time.Duration(t.TTL), MaxTTL: time.Duration(t.MaxTTL),
		MaxRequestBytes: t.MaxRequestBytes, MaxResultBytes: t.MaxResultBytes, MaxTasks: t.MaxTasks, MaxEvents: t.MaxEvents,
		Workers: t.Workers, PerTool: t.PerTool, PerTenant: t.PerTenant, Lease: time.Duration(t.Lease), MaxAttempts: t.MaxAttempts,
	}
	if m.state.objects != nil {
		answers, err := durable.OpenObjects(ctx, m.state.store, "answers", object.Limits{
			MaxBytes: 512 << 20, MaxObjectBytes: m.config.Results.Objects.MaxObjectBytes, TTL: cmp.Or(time.Duration(t.MaxTTL), task.DefaultMaxTTL) + time.Hour,
		})
		if err != nil {
			return fmt.Errorf("large results of tasks: %w", err)
		}
		conf.Results, m.state.objects = answers, withAnswers{m.state.objects, answers}
	}
	if m.tasks, err = task.Open(ctx, conf); err != nil {
		return fmt.Errorf("tasks: %w", err)
	}
	m.state.closers = append(m.state.closers, m.tasks.Close)
	return nil
}

// withAnswers has the large answers of tasks besides, which are kept for as long as their tasks.
type withAnswers struct {
	objectStore
	answers meshapi.Objects
}

// Get returns an object of owner.
func (o withAnswers) Get(ctx context.Context, owner object.Owner, id string) (object.Info, []byte, error) {
	info, data, err := o.objectStore.Get(ctx, owner, id)
	if errors.Is(err, object.ErrNotFound) {
		return o.answers.Get(ctx, owner, id)
	}
	return info, data, err
}

// taskOptions are what the chain needs for tasks.
func (m *Mesh) taskOptions() interceptors.TaskOptions {
	o := interceptors.TaskOptions{Runs: interceptors.RunOptions{MaxTimeout: time.Duration(m.config.Tasks.MaxTimeout)}}
	if m.tasks != nil {
		o.Submitter = m.tasks
	}
	return o
}

// work runs tasks from when every backend has been read. When the mesh drains, those that run may go on for the drain time; when it is closed without,
// they are cut at once. What is cut, another instance or the next start goes on with.
func (m *Mesh) work(ctx context.Context, runs call.Handler) {
	defer close(m.worked)
	if m.catalog.Ready(ctx) != nil {
		return
	}
	pool := m.tasks.Start(runs)
	var bound time.Duration
	select {
	case <-ctx.Done():
	case <-m.leaving:
		bound = max(time.Duration(m.config.Drain)-cutGrace, 0)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	pool.Drain(ctx)
}

// drainTasks has the workers take no more, and waits for them, at most until ctx ends.
func (m *Mesh) drainTasks(ctx context.Context) {
	close(m.leaving)
	if m.tasks == nil {
		return
	}
	select {
	case <-m.worked:
	case <-ctx.Done():
	}
}
