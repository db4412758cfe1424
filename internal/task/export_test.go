package task

import (
	"context"
	"runtime"
)

// Abandon ends the workers as a crash would: nothing is written, given back or acknowledged any more.
func (p *Pool) Abandon() {
	p.taking()
	<-p.taker
	p.unpark()
	p.cut(errLost)
	p.work.Wait()
	p.tasks.index.leave(p)
}

// Dying returns the same tasks for an instance that dies when it queues a job: the goroutine ends there, before the job is queued or right after it.
func (t *Tasks) Dying(after bool) *Tasks {
	dying := *t
	dying.queue = dyingQueue{t.queue, after}
	return &dying
}

type dyingQueue struct {
	jobs
	after bool
}

func (q dyingQueue) Put(ctx context.Context, id string, data []byte) error {
	if q.after {
		if err := q.jobs.Put(ctx, id, data); err != nil {
			return err
		}
	}
	runtime.Goexit()
	return nil
}
