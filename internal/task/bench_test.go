package task_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/task"
)

// BenchmarkTask makes tasks, 32 at a time, with workers that run them, and waits until the last one has ended: every write is synced.
func BenchmarkTask(b *testing.B) {
	f := newFixture(b)
	tasks := f.tasks(task.Config{Lease: time.Minute})
	f.start(tasks)
	wire, err := proto.Marshal(request("echo"))
	if err != nil {
		b.Fatal(err)
	}
	m := f.snapshot.Method(unary)
	ids := make([]string, b.N)
	var submitting sync.WaitGroup
	slots := make(chan struct{}, 32)
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		submitting.Go(func() {
			defer func() { <-slots }()
			c := call.New(m, call.GRPC)
			c.Principal, c.Async = alice, &call.Async{}
			id, err := tasks.Submit(b.Context(), c, wire)
			if err != nil {
				b.Error(err)
			}
			ids[i] = id
		})
	}
	submitting.Wait()
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/submit")
	for _, id := range ids {
		if err := tasks.Watch(b.Context(), alice, id, 0, func(task.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
