package mcpadapter

import (
	"context"
	"encoding/json"
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
func (l *listener) watchTasks(ctx context.Context, from asker, ids []string, watching *sync.WaitGroup) []string {
	begun := make([]bool, min(len(ids), maxSubscriptions))
	var starting sync.WaitGroup
	for i, id := range ids[:len(begun)] {
		if slices.Contains(ids[:i], id) {
			continue
		}
		starting.Go(func() {
			p, _, err := l.adapter.task(ctx, from, id)
			if begun[i] = err == nil; err == nil {
				watching.Go(func() {
					l.adapter.followTask(ctx, p, id, func(body []byte) { l.notify("notifications/tasks", ","+string(body)) })
				})
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

// followTask tells of a task as it is, and when its status changes, until it has ended, or ctx does. It says how it is at first too: it may have
// ended since the client last asked.
func (a *Adapter) followTask(ctx context.Context, p *identity.Principal, id string, tell func(body []byte)) {
	last, pause := "", watchAgain
	for {
		t, err := a.conf.Tasks.Get(ctx, p, id)
		if status.Code(err) == codes.NotFound {
			return
		}
		if err == nil {
			if now := mcpStatus(t); now != last {
				var body []byte
				if body, err = a.detailedTask(ctx, p, t); err == nil {
					last = now
					tell(body)
				}
			}
			if err == nil && t.State.Final() {
				return
			}
			if err == nil {
				err = a.conf.Tasks.Watch(ctx, p, id, 0, func(task.Event) error { return nil })
			}
		}
		if err == nil && pause == watchAgain { // it has ended: that is told at once
			pause = 2 * watchAgain
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, watchAgainMax)
	}
}
