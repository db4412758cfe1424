package mcpadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/task"
)

// taskIDsHeader carries params.notifications.taskIds of a subscriptions/listen from the transports to the middleware: the SDK's type has no such field.
const taskIDsHeader = "Toolway-Task-Ids"

// listenTaskIDs returns that member as it is written, or "".
func listenTaskIDs(params json.RawMessage) string {
	var p struct {
		Notifications struct {
			TaskIDs json.RawMessage `json:"taskIds"`
		} `json:"notifications"`
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	return string(p.Notifications.TaskIDs)
}

// wantedTasks returns the tasks that a client wants to hear of.
func (a *Adapter) wantedTasks(written string, can abilities) (ids []string, err error) {
	if written == "" || a.conf.Tasks == nil {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(written), &ids); err != nil {
		return nil, invalidParams("params.notifications.taskIds: want a list of strings")
	}
	if len(ids) > 0 && can&canTask == 0 {
		return nil, needsTasks("params.notifications.taskIds is of an extension")
	}
	return ids, nil
}

// watchTasks begins to tell of the asker's tasks, and returns the ids of those that are.
func (l *listener) watchTasks(ctx context.Context, from asker, can abilities, ids []string, watching *sync.WaitGroup) []string {
	begun := make([]bool, min(len(ids), maxSubscriptions))
	var starting sync.WaitGroup
	for i, id := range ids[:len(begun)] {
		if slices.Contains(ids[:i], id) {
			continue
		}
		starting.Go(func() {
			p, _, err := l.adapter.task(ctx, from, id)
			if begun[i] = err == nil; err == nil {
				f := &taskFollower{adapter: l.adapter, principal: p, can: can, id: id, tell: func(body []byte) { l.notify("notifications/tasks", ","+string(body)) }}
				watching.Go(func() { f.run(ctx) })
			}
		})
	}
	starting.Wait()
	var out []string
	for i, ok := range begun {
		if ok {
			out = append(out, ids[i])
		}
	}
	return out
}

// errTaskEnded ends the following of a task whose end has been told.
var errTaskEnded = errors.New("the task has ended")

// taskFollower tells of one task.
type taskFollower struct {
	adapter   *Adapter
	principal *identity.Principal
	can       abilities
	id        string
	tell      func(body []byte)

	told string // what was told last; "" before
	seen uint64 // the last event that was
}

// run tells of the task as it is, and of each change of its status or of what it asks, until it has ended, or ctx does. It says how it is at first too: it
// may have ended since the client last asked. Statuses that follow one another faster than they can be read are told as the last of them.
func (f *taskFollower) run(ctx context.Context) {
	for pause := watchAgain; ; pause = min(2*pause, watchAgainMax) {
		begin := time.Now()
		err := f.follow(ctx)
		if errors.Is(err, errTaskEnded) || status.Code(err) == codes.NotFound {
			return
		}
		if code := status.Code(err); code == codes.OutOfRange || code == codes.InvalidArgument { // the events after the one that was seen are gone
			f.seen = 0
		}
		if time.Since(begin) > watchAgainMax {
			pause = watchAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// follow tells of the task as it is, then of what its events change. It returns errTaskEnded once the end is told, or what keeps it from going on.
func (f *taskFollower) follow(ctx context.Context) error {
	if err := f.look(ctx); err != nil {
		return err
	}
	return f.adapter.conf.Tasks.Watch(ctx, f.principal, f.id, f.seen, func(e task.Event) error {
		if e.ChangesState() {
			if err := f.look(ctx); err != nil {
				return err
			}
		}
		f.seen = e.Sequence
		return nil
	})
}

// look reads the task, and tells of it if that has not been told.
func (f *taskFollower) look(ctx context.Context) error {
	t, err := f.adapter.conf.Tasks.Get(ctx, f.principal, f.id)
	if err != nil {
		return err
	}
	now := mcpStatus(t)
	if t.State == task.InputRequired {
		now = fmt.Sprint(now, t.Round, sorted(inputRequired(t.Err.Err()).GetRequests()))
	}
	if now != f.told {
		body, err := f.adapter.detailedTask(ctx, f.principal, t, f.can)
		if err != nil {
			return err
		}
		f.told = now
		f.tell(body)
	}
	if t.State.Final() {
		return errTaskEnded
	}
	return nil
}
